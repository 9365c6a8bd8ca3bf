"""The role {chapter}: a link to a chapter by its number, for tables in which titles would have no room."""

from docutils import nodes
from sphinx.util.docutils import SphinxRole

MARK = "chapter:"


class Chapter(SphinxRole):
    """``{chapter}`skip/relu` ``; the path is as that of {doc}, relative to the page."""

    def run(self):
        # resolved as {doc} with a caption, which is replaced when numbers are known
        text = f"{MARK}{self.text}"
        (reference,), messages = self.env.get_domain("std").role("doc")(
            "doc", self.rawtext, f"{text} <{self.text}>", self.lineno, self.inliner, {}, []
        )
        return [reference], messages


def write_numbers(app, doctree, docname):
    for link in doctree.findall(nodes.reference):
        if link.astext().startswith(MARK):
            target = app.env.relfn2path(f"/{link.astext().removeprefix(MARK)}", docname)[0]
            page = next(name for name in app.env.all_docs if name.endswith(target.lstrip("/")))
            number = app.env.toc_secnumbers.get(page, {}).get("", ())
            text = f"Ch. {number[0]}" if number else app.env.titles[page].astext()
            link["reftitle"] = app.env.titles[page].astext()
            link.children = []
            link += nodes.inline(text, text, classes=["doc"])


def setup(app):
    app.add_role("chapter", Chapter())
    app.connect("doctree-resolved", write_numbers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
