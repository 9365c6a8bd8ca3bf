"""The reference of the library, read off its modules, with signatures as the source has them."""

import ast
import importlib
import inspect
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

from library_text import escape, example, public, summary

# --- signatures and docstrings -----------------------------------------------------------------------


def written(signature):
    """The signature with its annotations as they stand in the source, not as what they evaluate to."""
    text = str(signature)
    for annotation in {p.annotation for p in signature.parameters.values()} | {signature.return_annotation}:
        if isinstance(annotation, str):
            text = text.replace(repr(annotation), annotation)
    return text


def as_in_the_source(app, what, name, thing, options, signature, returned):
    if what not in ("function", "method", "class", "exception") or not signature:
        return None
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    parameters = list(found.parameters.values())
    if what == "method" and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    arguments = written(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    result = found.return_annotation
    is_function = what in ("function", "method") and result is not inspect.Signature.empty
    return arguments, result if is_function and isinstance(result, str) else None


def as_markup(app, what, name, thing, options, lines):
    """Plain docstrings are prose, with letters for the two papers; what follows >>> is an example."""
    from samefn.claims import PAPERS  # not above: few builds need the library

    prose, code = example("\n".join(lines))
    prose = re.sub(r"\[[AB]\]", lambda letter: PAPERS[letter[0]], prose)
    shown = ["", ".. rubric:: Example", "", *code.split("\n")] if code else []
    lines[:] = [*escape(prose).split("\n"), *shown, ""]


# --- lists -------------------------------------------------------------------------------------------


class Library(SphinxDirective):
    """A table of the names that a module offers, each with the first sentence about it."""

    required_arguments = 1

    def run(self):
        module = importlib.import_module(self.arguments[0])
        rows = []
        for name in public(module):
            thing = getattr(module, name)
            full = f"{thing.__module__}.{thing.__qualname__}"
            rows += [f"   * - :py:obj:`{name} <{full}>`", f"     - {escape(summary(thing))}"]
        return self.parse_text_to_nodes("\n".join([".. list-table::", "", *rows]))


# --- links from the chapters -------------------------------------------------------------------------


FIRST = "lib/samefn/__init__.pyi"  # the names that can be imported from samefn itself
NAMED = re.compile(r"(samefn[.\w]+|\w+)(?:\(.*\))?", re.S)


def objects(env):
    """Where the reference has each name, by its full name."""
    found = env.domaindata["py"]["objects"].items()
    return {
        name: entry for name, entry in found if entry.objtype in ("function", "class", "exception", "module")
    }


def by_last_part(known):
    """The same by the last part of the name, where one thing alone has it."""
    found = {}
    for name, entry in known.items():
        found.setdefault(name.rpartition(".")[2], []).append(entry)
    return {name: entries[0] for name, entries in found.items() if len(entries) == 1}


def link_names(app, doctree, docname):
    """The first time a page's text has a name of the library as code, it becomes a link to the reference.

    Such names are full ones, those of samefn itself, and those that the page's code imports.
    """
    if docname.startswith("book/api/"):
        return
    known = objects(app.env)
    stub = Path(app.srcdir, FIRST)
    first = re.findall(r"import (\w+) as", stub.read_text("utf8")) if stub.exists() else ()
    short = by_last_part(known)
    meant = {name: short[name] for name in first if name in short} | known
    meant |= {name: entry for name, entry in imported(doctree, known).items() if not isinstance(entry, str)}
    seen = set()
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
            continue
        match = NAMED.fullmatch(literal.astext())
        entry = match and meant.get(match[1])
        if not entry or entry.node_id in seen:
            continue
        seen.add(entry.node_id)
        target = make_refnode(app.builder, docname, entry.docname, entry.node_id, [], entry.node_id)
        literal.replace_self(target)
        target += literal


# --- links from code ---------------------------------------------------------------------------------

BLOCK = re.compile(
    r'(<div class="highlight-(?:ipython3|python3?|default) notranslate">.*?<pre>)(.*?)(</pre>)', re.S
)


def imported(doctree, known):
    """What names of the page's code stand for, by its imports: names of the library, and modules."""
    found = {}
    for block in doctree.findall(nodes.literal_block):
        if "from samefn" not in block.astext():
            continue
        try:
            tree = ast.parse(block.astext())
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "samefn":
                found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    short = by_last_part(known)
    things = {}
    for name, full in found.items():
        entry = known.get(full) or (short.get(name) if full == f"samefn.{name}" else None)
        things[name] = entry if entry and entry.objtype != "module" else full
    return things


def link_code(app, pagename, templatename, context, doctree):
    """The first time a block of code has a name that the page imports, it becomes a link to the reference."""
    if doctree is None or app.builder.format != "html":
        return
    known = objects(app.env)
    names = imported(doctree, known)
    if not names:
        return
    choice = "|".join(map(re.escape, names))
    use = re.compile(
        rf'(?<!<span class="o">\.</span>)<span class="n">({choice})</span>'
        r'(?!<span class="o">=</span>)(?:<span class="o">\.</span><span class="n">(\w+)</span>)?'
    )

    def in_block(block):
        seen = set()

        def link(match):
            entry = names[match[1]]
            if isinstance(entry, str):
                entry = known.get(f"{entry}.{match[2]}")
            if not entry or entry.node_id in seen:
                return match[0]
            seen.add(entry.node_id)
            address = f"{app.builder.get_relative_uri(pagename, entry.docname)}#{entry.node_id}"
            return f'<a class="code-link" href="{address}">{match[0]}</a>'

        return block[1] + use.sub(link, block[2]) + block[3]

    context["body"] = BLOCK.sub(in_block, context["body"])


def link_again(app, env):
    """All pages are written again when the reference has other names or has them elsewhere."""
    now = sorted((name, entry.docname, entry.node_id) for name, entry in objects(env).items())
    before, env.book_api_objects = getattr(env, "book_api_objects", now), now
    return [] if now == before else [name for name in env.found_docs if not name.startswith("book/api/")]


def configure(app, config):
    config.autodoc_default_options = {"members": True, "member-order": "bysource"}
    config.autodoc_inherit_docstrings = False
    config.add_module_names = False
    config.python_maximum_signature_line_length = None  # a list of arguments would be no valid list


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("library", Library)
    app.connect("config-inited", configure)
    app.connect("autodoc-process-signature", as_in_the_source)
    app.connect("autodoc-process-docstring", as_markup)
    app.connect("doctree-resolved", link_names)
    app.connect("html-page-context", link_code)
    app.connect("env-updated", link_again)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
