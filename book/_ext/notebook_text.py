"""A page's resolved doctree as a plain notebook.

Numbers, references and glued values are already text there, and no MyST is left.  Outputs are not stored: the
pages have them, and the branch of notebooks keeps readable diffs.
"""

import re
import textwrap
from pathlib import Path
from urllib.parse import quote, urljoin

import nbformat
from docutils import nodes
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

from book_math import expand

logger = logging.getLogger(__name__)

INSTALL = """\
try:
    import samefn
except ImportError:
    %pip install -q "samefn @ git+{repository}"
"""
# Docutils and Sphinx put an element's name in its class; these need no Markdown of their own.
SKIPPED = {
    *("title", "meta", "target", "comment", "substitution_definition", "pending", "index", "toctree"),
    *("raw_script", "exercise_end_node"),
}
TRANSPARENT = {
    *("container", "compound", "section", "document", "card_node", "div", "inline", "caption", "legend"),
    *("tgroup", "bibliography", "only", "PassthroughTextElement"),
}
ENCLOSING = {
    "emphasis": "*{}*",
    "title_reference": "*{}*",
    "strong": "**{}**",
    "superscript": "<sup>{}</sup>",
    "subscript": "<sub>{}</sub>",
}


def quoted(text):
    return textwrap.indent(text, "> ", lambda line: True)


def hide_source(cell):
    """Fold the source in JupyterLab and in Colab."""
    cell.metadata.update(jupyter={"source_hidden": True}, cellView="form")
    return cell


class MarkdownWriter:
    """Doctree to a sequence of Markdown blocks (str) and code cells."""

    def __init__(self, app, docname, site):
        self.app, self.docname, self.depth, self.in_table = app, docname, 0, False
        self.site, self.url = site, f"{site}{docname}.html"
        self.builder = app.builder  # get_node_equation_number looks for it here
        self.shows_code = False
        # Removed input is not in the doctree, but in the notebook that MyST-NB wrote when it read the page.
        executed = nbformat.read(Path(app.env.mystnb_config.output_folder, f"{docname}.ipynb"), as_version=4)
        self.sources = [cell.source for cell in executed.cells]

    def number(self, kind, node):
        numbers = self.app.env.toc_fignumbers.get(self.docname, {}).get(kind, {})
        return ".".join(map(str, next((numbers[i] for i in node["ids"] if i in numbers), ())))

    # Inline --------------------------------------------------------------------------------------

    def inline(self, node):
        kind = type(node).__name__
        if isinstance(node, nodes.Text):
            text = re.sub(r"([\\`*_$<])", r"\\\1", node.astext())
            return text.replace("|", r"\|") if self.in_table else text
        if kind == "math":
            return f"${self.tex(node)}$"
        if kind == "literal":
            ticks = "``" if "`" in node.astext() else "`"
            return f"{ticks}{node.astext()}{ticks}"
        if kind == "image":
            return self.image(node)
        if kind == "raw":
            return node.astext() if node["format"] == "html" else ""
        if kind == "footnote_reference":
            return f"[{node.astext()}]"
        text = "".join(self.inline(child) for child in node.children)
        if kind in ENCLOSING:
            return ENCLOSING[kind].format(text)
        if kind in ("reference", "number_reference", "download_reference") and text.strip():
            address = node.get("refuri") or "#" + node.get("refid", "")
            return f"[{text.strip()}]({urljoin(self.url, address)})"
        return text

    def tex(self, node):
        # without macros: some of the programs that show notebooks know none from other cells
        text = expand(node.astext().strip(), self.app.config.book_macros)
        text = re.sub(r"<(?=\w)", "< ", text)  # "<b" would read as an HTML tag
        return text.replace("|", r"\vert ") if self.in_table else text

    def image(self, node):
        local = "://" not in node["uri"]
        address = f"_images/{quote(self.builder.images.get(node['uri'], ''))}" if local else node["uri"]
        return f"![{node.get('alt', '')}]({urljoin(self.site, address)})"

    # Blocks --------------------------------------------------------------------------------------

    def blocks(self, node):
        kind = type(node).__name__
        visit = getattr(self, f"block_{kind}", None)
        if visit:
            yield from visit(node)
        elif "proof" in node.get("classes", ()) and "countertype" in node:
            yield from self.theorem(node)
        elif isinstance(node, nodes.Admonition):
            yield from self.admonition(node)
        elif kind in TRANSPARENT:
            yield from self.children(node)
        elif kind not in SKIPPED:
            logger.warning("no Markdown for <%s> in the notebook", kind, location=node)

    def children(self, node):
        for child in node.children:
            if isinstance(child, (nodes.Inline, nodes.Text)) and not isinstance(
                child, (nodes.target, nodes.raw)
            ):
                yield self.inline(child)
            else:
                yield from self.blocks(child)

    def text(self, node):
        return "\n\n".join(b for b in self.children(node) if isinstance(b, str) and b.strip())

    def folded(self, summary, node):
        """Text under <details>; code cells between, runnable, with their source folded."""
        texts = []
        for block in [*self.children(node), None]:
            if isinstance(block, str):
                texts.append(block)
                continue
            if texts:
                yield f"<details>\n<summary>{summary}</summary>\n\n" + "\n\n".join(texts) + "\n\n</details>"
                texts, summary = [], f"{summary}, continued"
            if block is not None:
                yield hide_source(block)

    def block_section(self, node):
        self.depth += 1
        title = node.next_node(nodes.title, descend=True, siblings=False)
        if title is not None and title.parent is node:
            yield "#" * self.depth + " " + self.inline(title).strip()
        yield from self.children(node)
        self.depth -= 1

    def block_paragraph(self, node):
        yield "".join(self.inline(child) for child in node.children)

    block_attribution = block_line = block_term = block_paragraph

    def block_math_block(self, node):
        tag = rf" \tag{{{get_node_equation_number(self, node)}}}" if node.get("label") else ""
        yield f"$$\n{self.tex(node)}{tag}\n$$"

    def block_literal_block(self, node):
        yield f"```{node.get('language', '')}\n{node.astext()}\n```"

    def block_raw(self, node):
        if node["format"] == "html" and "<script" not in node.astext():
            yield node.astext().strip()

    def block_image(self, node):
        yield self.image(node)

    def block_figure(self, node):
        for image in node.findall(nodes.image):
            yield self.image(image)
        yield from self.caption(node)

    def caption(self, figure):
        caption = next(iter(figure.findall(nodes.caption)), None)
        if caption is not None:
            number = self.number("figure", figure)
            label = self.app.config.numfig_format["figure"] % number if number else "Figure"
            yield f"**{label}.** {self.inline(caption)}"

    def block_container(self, node):
        if node.get("nb_element") != "cell_code":
            yield from self.children(node)
            return
        cell = new_code_cell(self.sources[int(node["cell_index"])])
        tags = node["cell_metadata"].get("tags", [])
        self.shows_code |= "remove-input" not in tags
        yield hide_source(cell) if {"hide-input", "hide-cell", "remove-input"} & {*tags} else cell
        for figure in node.findall(nodes.figure):  # drawn again by the cell, but its caption would be lost
            yield from self.caption(figure)

    def listed(self, node, marks):
        items = []
        for mark, item in zip(marks, node.children):
            items.append(mark + textwrap.indent(self.text(item), " " * len(mark)).lstrip())
        yield "\n".join(items)

    def block_bullet_list(self, node):
        yield from self.listed(node, ("- " for _ in node.children))

    def block_enumerated_list(self, node):
        first = node.get("start", 1)
        yield from self.listed(node, (f"{first + i}. " for i in range(len(node.children))))

    def block_definition_list(self, node):
        for item in node.children:
            terms = ", ".join(self.inline(t) for t in item.children if isinstance(t, nodes.term))
            yield f"**{terms}**: " + "\n\n".join(
                self.text(d) for d in item.children if isinstance(d, nodes.definition)
            )

    def block_block_quote(self, node):
        yield quoted(self.text(node))

    def block_line_block(self, node):
        yield "  \n".join(self.inline(line) for line in node.children)

    def block_rubric(self, node):
        yield f"**{self.inline(node)}**"

    def block_transition(self, node):
        yield "---"

    def block_footnote(self, node):
        label, *rest = node.children
        yield f"[{label.astext()}] " + "\n\n".join(b for child in rest for b in self.blocks(child))

    block_citation = block_footnote

    def block_table(self, node):
        self.in_table = True
        for title in node.children:
            if isinstance(title, nodes.title):
                yield f"**{self.inline(title)}**"
        rows = [[" ".join(self.text(e).split()) for e in row.children] for row in node.findall(nodes.row)]
        rows.insert(1, ["---"] * len(rows[0]))
        self.in_table = False
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def admonition(self, node):
        title = next((c for c in node.children if isinstance(c, nodes.title)), None)
        label = self.inline(title).strip() if title is not None else type(node).__name__.title()
        if "dropdown" in node.get("classes", ()):
            yield from self.folded(title.astext().strip(), node)
        else:
            yield quoted(f"**{label}**\n\n{self.text(node)}")

    def block_topic(self, node):
        yield from self.admonition(node)

    def block_dropdown_main(self, node):
        summary, *rest = node.children
        words = [
            t.astext() for t in summary.findall(nodes.Text) if not isinstance(t.parent, nodes.raw)
        ]  # no icon
        yield from self.folded(
            " ".join("".join(words).split()), nodes.container("", *[c.deepcopy() for c in rest])
        )

    def theorem(self, node):
        number, title = self.number(node["countertype"], node), node.next_node(nodes.title)
        label = " ".join(filter(None, (node["realtype"].title(), number, self.inline(title).strip())))
        yield quoted(f"**{label}**\n\n{self.text(node)}")

    def block_proof_node(self, node):
        body = [b for child in node.children for b in self.children(child)]
        yield re.sub(r"^Proof\.", "*Proof.*", "\n\n".join(body)) + " ∎"

    def block_exercise_node(self, node):
        title = node.next_node(nodes.title)
        name = " ".join(filter(None, ("Exercise", self.number("exercise", node), self.inline(title).strip())))
        yield f"**{name}**"
        yield from self.children(node)

    block_exercise_enumerable_node = block_exercise_node

    def block_solution_node(self, node):
        yield from self.folded(" ".join(node.next_node(nodes.title).astext().split()), node)


def reader_notebook(app, docname, doctree, site):
    """The notebook of one page of the site at that address, or None where the page shows no code."""
    writer = MarkdownWriter(app, docname, site)
    blocks = list(writer.blocks(doctree))
    if not writer.shows_code:
        return None
    title = app.env.titles[docname].astext()
    link = f"*Notebook of the page [{title}]({writer.url}) of the book {app.config.html_title}.*"
    cells = [
        new_markdown_cell("\n\n".join([blocks.pop(0), link])),
        new_code_cell(INSTALL.format(repository=app.config.html_theme_options["repository_url"]).strip()),
    ]
    texts = []
    for block in [*blocks, None]:
        if not isinstance(block, str) or block.startswith("#"):
            if texts:
                cells.append(new_markdown_cell("\n\n".join(texts)))
            texts = []
        if isinstance(block, str):
            texts.append(block)
        elif block is not None:
            cells.append(block)
    for position, cell in enumerate(cells):
        cell.id = f"cell-{position}"  # random ids would change every notebook at every build
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
