"""The list of all statements, the index of terms and names, and links from words to the glossary."""

import ast
import re
from functools import cache
from pathlib import Path

from docutils import nodes
from pybtex.richtext import Text
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

# Words of everyday language too: the glossary has them, but not each use is one of its.
EVERYDAY = {"action", "block", "control", "form", "group", "margin", "unit"}
NO_TERM = {"exactly one", "at least one"}
NO_WORDS = (
    addnodes.pending_xref,
    nodes.caption,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.rubric,
    nodes.strong,
    nodes.term,
    nodes.title,
)
OFTEN = 8  # mentions on a page that earn a kind of block an entry in the index
MODELS = "lib/samefn/skip/families.py"  # names the kinds of block and models that use them


def statements(doctree):
    """The theorems, definitions and the like of a page, which sphinx-proof made."""
    return [node for node in doctree.findall(nodes.Admonition) if node.get("realtype") and node.get("label")]


def title_of(statement):
    """The nodes of a statement's title, without the parentheses that sphinx-proof puts round it."""
    title = [node.deepcopy() for node in statement[0].children]
    if title:
        for at, cut in ((0, r"^ ?\("), (-1, r"\)$")):
            if isinstance(title[at], nodes.Text):
                title[at] = nodes.Text(re.sub(cut, "", title[at]))
    return title


# --- the list ----------------------------------------------------------------------------------------


class statement_list(nodes.General, nodes.Element):
    """Where the list of statements will stand."""


class StatementList(SphinxDirective):
    """All statements of the book in its order, under their chapters, with their numbers."""

    def run(self):
        return [statement_list()]


class FillStatementList(SphinxPostTransform):
    default_priority = 5  # before references are resolved: titles have citations

    def run(self):
        for place in list(self.document.findall(statement_list)):
            place.replace_self([part for name in reading_order(self.env) for part in self.of(name)])

    def of(self, name):
        numbered = self.env.toc_fignumbers.get(name, {})
        found = self.env.book_statements.get(name, [])
        items = nodes.bullet_list()
        for label, kind, counter, title in found:
            number = ".".join(map(str, numbered.get(counter, {}).get(label, ())))
            text = f"{kind.title()} {number}".strip()
            link = make_refnode(self.app.builder, self.env.docname, name, label, nodes.Text(text))
            line = nodes.paragraph("", "", link)
            if title:
                line += [nodes.Text(": "), *(node.deepcopy() for node in title)]
            items += nodes.list_item("", line)
        if not found:
            return []
        number = ".".join(map(str, self.env.toc_secnumbers.get(name, {}).get("", ())))
        chapter = f"{number}. {self.env.titles[name].astext()}" if number else self.env.titles[name].astext()
        link = make_refnode(self.app.builder, self.env.docname, name, "", nodes.Text(chapter))
        return [nodes.rubric("", "", link), items]


def reading_order(env):
    """The pages in the order of the table of contents."""
    found, waiting = [], [env.config.root_doc]
    while waiting:
        name = waiting.pop(0)
        found.append(name)
        waiting = [*env.toctree_includes.get(name, []), *waiting]
    return found


# --- the index ---------------------------------------------------------------------------------------


class Collect(SphinxTransform):
    """Note the page's statements, and put entries for the index where they, and names, stand."""

    default_priority = 840  # before the domains read the index's entries

    def apply(self):
        env = self.env
        if not hasattr(env, "book_statements"):
            env.book_statements = {}
        found = statements(self.document)
        env.book_statements[env.docname] = [
            (node["label"], node["realtype"], node["countertype"], title_of(node)) for node in found
        ]
        for node in found:
            index_statement(node)
        for index in self.document.findall(addnodes.index):
            index["entries"] = list(shortened(index["entries"]))
        if is_chapter(env.docname):
            index_names(self.document, families(self.app.srcdir))
            index_authors(self.document, env)


def is_chapter(name):
    return name.startswith(("book/skip/", "book/equivariance/", "book/beyond/"))


def shortened(entries):
    """The entries of an index; of those of the library's reference, names of functions and classes."""
    for kind, text, *rest in entries:
        name, _, what = text.partition(" (")
        if not re.search(r"\b(module|method|property|attribute|class in)\b", what) and kind != "pair":
            yield kind, text, *rest
        elif what.startswith(("in module", "class in")):
            yield kind, name if name.endswith("()") else f"{name} (class)", *rest


def index_statement(node):
    """The title, unless it is a source, and the words that a definition defines."""
    kind, title = node["realtype"], nodes.Element("", *title_of(node))
    name = re.sub(r"\W*\b(ours|new)\b\W*$", "", title.astext())
    if name and not title.next_node(addnodes.pending_xref) and not re.search(r"\d", name):
        put(node, node["label"], f"{name} ({kind})")
    defined = [term.astext() for term in node.findall(nodes.strong)] if kind == "definition" else ()
    for term in defined:
        if term not in NO_TERM and not term.endswith("."):
            put(node, node["label"], term, "main")


def index_names(document, known):
    """Models, and kinds of block of which the page says more."""
    kinds, models = known
    found = {}
    for text in words(document):
        for name in re.findall(r"[A-Z][\w-]+²?(?: v1\.1)?|\w+", text):
            found.setdefault(name, []).append(text)
    for name, places in found.items():
        if name in models or (name in kinds and len(places) >= OFTEN):
            put_in_section(places[0], name)


def index_authors(document, env):
    authors = {}
    for cited in document.findall(addnodes.pending_xref):
        keys = cited["reftarget"].split(",") if cited.get("refdomain") == "cite" else ()
        for author in (author for key in keys for author in authors_of(env, key.strip())):
            authors.setdefault(author, cited)
    for author, cited in authors.items():
        put_in_section(cited, author)


@cache
def families(root):
    """Kinds of block, and models that use them, from the library's table."""
    path = Path(root, MODELS)
    calls = ast.walk(ast.parse(path.read_text("utf8"))) if path.exists() else ()
    found = [node.args for node in calls if getattr(getattr(node, "func", None), "id", "") == "Family"]
    kinds = {ast.literal_eval(args[0]) for args in found}
    return kinds, {name for args in found for one in args[3:4] for name in ast.literal_eval(one)}


def authors_of(env, key):
    """The authors of an entry of the bibliography, last names first."""
    entry = env.get_domain("cite").bibdata.data.entries.get(key)
    people = entry.persons.get("author", []) if entry else []
    for person in people if len(people) <= 4 else people[:1]:
        last, first = (
            " ".join(str(Text.from_latex(part)) for part in parts)
            for parts in (person.prelast_names + person.last_names, person.first_names)
        )
        if last != "others":
            yield f"{last}, {first}" if first else last


def put_in_section(node, entry):
    section = next((p for p in parents(node) if isinstance(p, nodes.section) and p["ids"]), None)
    if section is not None and isinstance(section[0], nodes.title):
        put(section[0], section["ids"][0], entry, after=True)


def put(node, place, entry, main="", after=False):
    """An entry of the index for the element with the id ``place``, in the document beside ``node``."""
    index = addnodes.index(entries=[("single", entry, place, main, None)])
    node.parent.insert(node.parent.index(node) + after, index)


def parents(node):
    while node.parent is not None:
        node = node.parent
        yield node


def words(document):
    """The pieces of running text of a page."""
    for text in list(document.findall(nodes.Text)):
        inside = list(parents(text))
        if any(isinstance(p, nodes.paragraph) for p in inside) and not any(
            isinstance(p, NO_WORDS) for p in inside
        ):
            yield text


# --- links to the glossary ---------------------------------------------------------------------------


def link_terms(app, doctree, docname):
    """The first time a page uses a word of the glossary, it becomes a link to it."""
    terms = {}
    for (kind, name), (page, place) in app.env.domaindata["std"]["objects"].items():
        if kind == "term" and name not in EVERYDAY:
            terms[name.lower()] = (page, place)
    if not terms or not is_chapter(docname):
        return
    choice = "|".join(re.escape(name).replace(r"\ ", r"\s+") for name in sorted(terms, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w-])({choice})(?:s|es|ed)?(?![\w-])", re.I)
    seen = set()
    for text in words(doctree):
        parts, position = [], 0
        for match in pattern.finditer(text):
            name = re.sub(r"\s+", " ", match[1].lower())
            if name in seen:
                continue
            seen.add(name)
            page, place = terms[name]
            link = make_refnode(app.builder, docname, page, place, nodes.Text(match[0]))
            link["classes"] += ["term-link"]
            parts += [nodes.Text(text[position : match.start()]), link]
            position = match.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[position:])])


def forget(app, env, docname):
    getattr(env, "book_statements", {}).pop(docname, None)


def merge(app, env, docnames, other):
    if not hasattr(env, "book_statements"):
        env.book_statements = {}
    env.book_statements |= {
        name: other.book_statements[name] for name in docnames if name in other.book_statements
    }


def rewrite_lists(app, env):
    """The list of statements is written again with every chapter."""
    return [name for name in env.found_docs if name.endswith("/statements")]


def setup(app):
    app.add_node(statement_list)
    app.add_directive("statements", StatementList)
    app.add_transform(Collect)
    app.add_post_transform(FillStatementList)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", rewrite_lists)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
