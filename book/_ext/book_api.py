"""The reference of the library, read off its modules, with signatures as the source has them."""

import importlib
import inspect
import re

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
    """Plain docstrings are prose; what follows >>> is an example."""
    prose, code = example("\n".join(lines))
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


def objects(env):
    """Where the reference has each name: by its full name, and by the last part if that is unique."""
    found, short = {}, {}
    for name, entry in env.domaindata["py"]["objects"].items():
        if entry.objtype in ("function", "class", "exception", "method", "module"):
            found[name] = entry
            if entry.objtype not in ("method", "module"):
                short.setdefault(name.rpartition(".")[2], []).append(entry)
    return found | {name: entries[0] for name, entries in short.items() if len(entries) == 1}


NAMED = re.compile(r"(?:samefn\.)?[A-Za-z_][\w.]*(?=(?:\(.*\))?$)", re.S)


def link_names(app, doctree, docname):
    """The first time a page's text has a name of the library as code, it becomes a link to the reference."""
    if docname.startswith("book/api/"):
        return
    known, seen = objects(app.env), set()
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
            continue
        match = NAMED.match(literal.astext())
        entry = match and known.get(match[0])
        if not entry or entry.node_id in seen:
            continue
        seen.add(entry.node_id)
        target = make_refnode(app.builder, docname, entry.docname, entry.node_id, [], entry.node_id)
        literal.replace_self(target)
        target += literal


def configure(app, config):
    config.autodoc_default_options = {"members": True, "member-order": "bysource"}
    config.autodoc_inherit_docstrings = False
    config.add_module_names = False
    config.python_maximum_signature_line_length = 72


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("library", Library)
    app.connect("config-inited", configure)
    app.connect("autodoc-process-signature", as_in_the_source)
    app.connect("autodoc-process-docstring", as_markup)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
