"""Where the book and its site are, and what pages it has."""

import subprocess
import sys
from pathlib import Path

import yaml
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"


def pages():
    """The book's pages in reading order, as _toc.yml has them."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def code_cells(page):
    """The code cells of a page's source, in order."""
    text = (ROOT / f"{page}.md").read_text("utf8")
    cells = read_myst_markdown_notebook(text).cells if is_myst_markdown_notebook(text) else []
    return [cell for cell in cells if cell.cell_type == "code"]


def has_tag(cell, *tags):
    return bool({*tags} & {*cell.metadata.get("tags", ())})


def runnable():
    """The pages that show code: each has a notebook for readers."""
    for page in pages():
        if any(not has_tag(cell, "remove-input", "remove-cell") for cell in code_cells(page)):
            yield page


def build(root=ROOT, *page):
    """Build the book in ``root``, or one page of it."""
    command = [sys.executable, ROOT / "book" / "_ext" / "build.py", "--root", root, *page]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
    )
