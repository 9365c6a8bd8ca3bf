"""The built site, and small books that are built as the real one is."""

import shutil

import pytest
import yaml
from filelock import FileLock

from book_browser import install
from shared import ROOT, SITE, build, pages


@pytest.fixture(scope="session")
def site():
    """The built site; `make test` builds it before."""
    if not all((SITE / f"{page}.html").exists() for page in pages()):
        run = build()
        assert run.returncode == 0, run.stdout[-5000:]
    return SITE


@pytest.fixture(scope="session")
def npm():
    """Folder with the npm packages of the tests; they are installed if need be."""
    folder = ROOT / "tests" / "site" / "npm"
    with FileLock(ROOT / "_build" / "npm.lock"):
        install(folder)
    return folder


@pytest.fixture
def make_book(tmp_path):
    """Write a small book with the real configuration, extensions and library; ``library`` adds to it."""

    def make(chapters, library=()):
        shutil.copy(ROOT / "_config.yml", tmp_path)
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ("book/_ext", "book/_static", "book/_templates", "lib/samefn"):
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
        # else the small books name the CDN
        if (ROOT / "book/_browser/node_modules/.installed-lock.json").exists():
            (tmp_path / "book/_browser").symlink_to(ROOT / "book/_browser")
        (tmp_path / "book" / "references.bib").touch()
        texts = {f"book/{name}": text for name, text in chapters.items()}
        for name, text in (texts | {f"lib/{name}": text for name, text in dict(library).items()}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        root, *rest = (name.removesuffix(".md") for name in texts if name.endswith(".md"))
        toc = {"format": "jb-book", "root": root}
        if rest:
            toc["parts"] = [
                {"caption": "Part", "numbered": True, "chapters": [{"file": name} for name in rest]}
            ]
        (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc))
        return tmp_path

    return make
