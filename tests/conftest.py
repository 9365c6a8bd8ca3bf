"""What the tests of the book share."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"


def pages():
    """The book's pages in reading order, as _toc.yml has them."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def runnable():
    """The pages that show code: each has a notebook for readers."""
    hidden = {"remove-input", "remove-cell"}
    for page in pages():
        text = (ROOT / f"{page}.md").read_text("utf8")
        if is_myst_markdown_notebook(text):
            cells = read_myst_markdown_notebook(text).cells
            if any(c.cell_type == "code" and not hidden & {*c.metadata.get("tags", ())} for c in cells):
                yield page


def build(root=ROOT):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "build.py", root], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="session")
def site():
    """The built site; `make test` builds it before."""
    if not all((SITE / f"{page}.html").exists() for page in pages()):
        run = build()
        assert run.returncode == 0, run.stdout[-5000:]
    return SITE


@pytest.fixture
def make_book(tmp_path):
    """Write a small book with the real configuration and extensions."""

    def make(chapters, library="VALUE = 1\n"):
        shutil.copy(ROOT / "_config.yml", tmp_path)
        for name in ("_ext", "book/_static"):
            shutil.copytree(ROOT / name, tmp_path / name)
        if (ROOT / "node_modules" / ".installed-lock.json").exists():  # else the small books name the CDN
            shutil.copy(ROOT / "package-lock.json", tmp_path)
            (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "module.py").write_text(library)
        (tmp_path / "book" / "references.bib").touch()
        for name, text in chapters.items():
            path = tmp_path / "book" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        root, *rest = (f"book/{name.removesuffix('.md')}" for name in chapters if name.endswith(".md"))
        toc = {"format": "jb-book", "root": root}
        if rest:
            toc["parts"] = [{"caption": "Part", "numbered": True, "chapters": [{"file": name} for name in rest]}]
        (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc))
        return tmp_path

    return make
