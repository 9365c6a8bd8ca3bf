"""For those who teach with the book: problem sets as they are released, and all figures with credit lines."""

import re
import sys
import zipfile
from pathlib import Path

import nbformat
from lxml import html

from book_launch import place

FIGURES = "_static/figures.zip"
STAMP = (2000, 1, 1, 0, 0, 0)  # the same file on every build


def write_problem_sets(app):
    sys.path.insert(0, str(Path(app.srcdir, "course")))
    import notebooks

    folder = Path(app.outdir, "_notebooks", "course")
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(notebooks.SETS.glob("*.md")):
        nbformat.write(notebooks.release(path.stem), folder / f"{path.stem}.ipynb")


def figures(app):
    """Name, file and credit of each figure on the pages."""
    *_, site = place(app.config)
    for page in sorted(app.env.found_docs):
        path = Path(app.outdir, f"{page}.html")
        tree = html.parse(path).getroot() if path.exists() else html.Element("html")
        for figure in tree.iter("figure"):
            image = figure.find(".//img")
            if image is None or not (name := figure.get("id")) or "_images/" not in image.get("src", ""):
                continue
            number = figure.find(".//span[@class='caption-number']")
            label = number.text_content().strip() if number is not None else name
            credit = f"{label}, {app.config.html_title}, CC BY 4.0, {site}{page}.html#{name}"
            alt = re.sub(r"\s+", " ", image.get("alt", ""))
            yield f"{name}.png", path.parent / image.get("src"), credit, alt


def write_figures(app):
    """One archive with each figure once, and a file with a credit line and a description of each."""
    found = {name: (path, credit, alt) for name, path, credit, alt in figures(app) if path.exists()}
    lines = [f"{name}\n  {credit}\n  {alt}\n" for name, (_, credit, alt) in sorted(found.items())]
    with zipfile.ZipFile(Path(app.outdir, FIGURES), "w") as archive:
        archive.writestr(zipfile.ZipInfo("figures/CREDITS.txt", STAMP), "\n".join(lines))
        for name, (path, _, _) in sorted(found.items()):
            archive.writestr(zipfile.ZipInfo(f"figures/{name}", STAMP), path.read_bytes())


def finish(app, exception):
    if exception is None and app.builder.format == "html":
        write_figures(app)
        if Path(app.srcdir, "course", "sets").is_dir():
            write_problem_sets(app)


def setup(app):
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
