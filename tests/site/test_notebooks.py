"""The readers' notebooks: the code that ran when the book was built, in an environment that a reader gets.

That a chapter's kernel has what a reader has is shown in test_build.py.  Here: its notebook holds the same
code, and two notebooks run outside of the build, with the library's wheel.
"""

import json
import os
import shutil
import subprocess
import symtable
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_cache import get_cache

from book_browser import program
from shared import ROOT, code_cells, has_tag, pages, runnable

RUNNABLE = list(runnable())
OUTSIDE = ["book/skip/question", "book/equivariance/model"]  # short ones; the first has a slider


def read(site, page):
    return nbformat.read(site / "_notebooks" / f"{page}.ipynb", as_version=4)


def test_every_renderer_sets_every_formula(site, npm):
    """VS Code and Jupyter set formulas by different programs, and some know no macros from other cells."""
    cells = [
        (page, cell.source)
        for page in RUNNABLE
        for cell in read(site, page).cells
        if cell.cell_type == "markdown"
    ]
    assert refused(npm, [source for _, source in cells]) == []
    (complaint, *_) = refused(npm, ["good $x$", r"bad $\norm{x}$"])
    assert complaint["cell"] == 1


def refused(npm, texts):
    command = [program("node"), npm / "renderers.mjs"]
    run = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


# The notebooks ----------------------------------------------------------------------------------


def sources(cells):
    return [cell.source for cell in cells if cell.cell_type == "code"]


def runs(page):
    """The executed code cells of every run of a page that is cached; it may have had other code before."""
    (folder,) = (ROOT / "_build" / ".jupyter_cache").iterdir()
    cache = get_cache(folder)
    records = (r for r in cache.list_cache_records() if r.uri == str(ROOT / f"{page}.md"))
    return [cache.get_cache_bundle(record.pk).nb.cells for record in records]


@pytest.mark.parametrize("page", RUNNABLE)
def test_a_notebook_is_the_code_that_the_build_ran(site, page):
    (ran,) = (cells for cells in runs(page) if sources(cells) == sources(code_cells(page)))
    assert all(cell.execution_count for cell in ran)
    install, *written = sources(read(site, page).cells)
    assert "pip install" in install
    assert written == sources(cell for cell in ran if not has_tag(cell, "remove-cell"))


def names(source):
    """The global names that a cell binds, and those that it uses."""
    top = symtable.symtable(TransformerManager().transform_cell(source), "cell", "exec")
    scopes = [top]
    for scope in scopes:
        scopes += scope.get_children()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    inner = {s.get_name() for scope in scopes[1:] for s in scope.get_symbols() if s.is_global()}
    return bound, inner | {s.get_name() for s in top.get_symbols() if s.is_referenced()}


@pytest.mark.parametrize("page", RUNNABLE)
def test_no_cell_needs_one_that_the_notebook_leaves_out(page):
    left_out, bound, needed = set(), set(), set()
    for cell in code_cells(page):
        binds, uses = names(cell.source)
        if has_tag(cell, "remove-cell"):
            left_out |= binds
        else:
            bound, needed = bound | binds, needed | uses
    assert not needed & (left_out - bound)


@pytest.mark.parametrize("page", RUNNABLE)
def test_a_notebook_reads_well(site, page):
    notebook = read(site, page)
    nbformat.validate(notebook)
    first, install, *rest = notebook.cells
    assert first.source.startswith("# ") and f"/{page}.html" in first.source
    assert "import samefn" in install.source and "%pip install" in install.source
    for cell in rest:
        if cell.cell_type == "markdown":
            for leftover in (
                ":::",
                "\\newcommand",
                "```{",
                "{prf:ref}",
                "{ref}`",
                "{eq}`",
                "{cite}`",
                "{glue",
                "{numref}`",
                "{doc}`",
            ):
                assert leftover not in cell.source, cell.source
        else:
            assert "myst_nb" not in cell.source and not cell.outputs


# From outside -----------------------------------------------------------------------------------


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The library's wheel, built of a copy: setuptools would take along what an older build left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "lib", folder / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_all_of_the_library(wheel):
    package = ROOT / "lib" / "samefn"
    files = (p for p in package.rglob("*") if p.is_file() and p.parent.name != "__pycache__")
    library = {str(p.relative_to(package.parent)) for p in files}
    assert any(name.endswith(".json") for name in library)
    assert {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} == library


@pytest.fixture(scope="session")
def reader(wheel, tmp_path_factory):
    """Python of an environment with the wheel, what it declares, and what runs notebooks; not the book's."""
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    import book_reader

    folder = tmp_path_factory.mktemp("reader")
    needs = book_reader.closure("nbclient") | book_reader.packages()
    del needs[book_reader.LIBRARY]
    python = book_reader.create(folder, needs.values())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    return python


@pytest.mark.parametrize("page", [*OUTSIDE, "course/ps1"])  # a problem set needs nothing more than a chapter
def test_a_notebook_runs_from_outside(site, reader, tmp_path, page):
    notebook = tmp_path / "notebook" / Path(page).with_suffix(".ipynb").name
    notebook.parent.mkdir()
    shutil.copy2(site / "_notebooks" / f"{page}.ipynb", notebook)
    environment = {
        "PATH": f"{reader.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
    }
    environment |= {
        k: v for k, v in os.environ.items() if k.startswith("OPENBLAS")
    }  # the processor's, not the project's
    jupyter_execute = "from nbclient.cli import main; main()"
    run(
        reader,
        "-c",
        jupyter_execute,
        "--inplace",
        "--timeout=600",
        notebook.name,
        cwd=notebook.parent,
        env=environment,
    )
    executed = nbformat.read(notebook, as_version=4)
    assert all(c.execution_count for c in executed.cells if c.cell_type == "code" and c.source.strip())


def test_one_of_these_notebooks_has_a_slider(site):
    slider = 'class="frame-slider"'
    assert any(slider in (site / f"{page}.html").read_text("utf8") for page in OUTSIDE)
    assert {*OUTSIDE} <= {*pages()}
