"""What `make new-chapter` makes passes as it stands, but for what it says is still to be written."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared import ROOT, code_cells, pages

NEW = ROOT / "book" / "_new"


@pytest.fixture
def tool():
    return runpy.run_path(str(NEW / "__main__.py"))


@pytest.fixture
def copy(tmp_path):
    """The parts of the repository that the tool reads and writes."""
    shutil.copy(ROOT / "_toc.yml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("lib", "book/beyond", "tests/claims"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    return tmp_path


def test_a_new_chapter_and_its_claim_pass(tool, copy):
    said = tool["create"](copy, "beyond", "demo")
    assert "make page P=beyond/demo" in said
    toc = (copy / "_toc.yml").read_text()
    assert toc.index("book/beyond/demo") > max(
        toc.index(page) for page in pages() if page.startswith("book/beyond")
    )

    cells = code_cells(copy / "book/beyond/demo")
    program = (
        "\n\n".join(cell.source for cell in cells) + "\nfor seed in range(300): check('X-DEMO', seed=seed)\n"
    )
    where = f"import sys; sys.path.insert(0, {str(copy / 'lib')!r})\n"
    run = subprocess.run([sys.executable, "-c", where + program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert re.search(r'check\("X-DEMO", seed=0\)', cells[-1].source)

    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_sabotages.py",
        "-k",
        "X-DEMO",
    ]
    where = {**os.environ, "PYTHONPATH": str(copy / "lib")}
    run = subprocess.run(tests, cwd=copy / "tests/claims", env=where, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    "part, name, words",
    [
        ("", "", "PART must be one of beyond, equivariance, skip, got ''"),
        ("annex", "demo", "got 'annex'"),
        ("beyond", "", "NAME must be a module's name in lower case, got ''"),
        ("beyond", "Two words", "got 'Two words'"),
        ("beyond", "lambda", "got 'lambda'"),
        ("beyond", "transformer", "book/beyond/transformer.md exists"),
    ],
)
def test_a_wrong_request_is_refused(tool, part, name, words):
    assert words in tool["problem"](ROOT, part, name)


def test_a_claim_has_a_check_of_each_strength_and_a_control():
    text = (NEW / "claim.py").read_text("utf8")
    assert re.findall(r"^@claim\.(\w+)", text, re.M) == ["exact", "certificate", "numeric", "control"]


def test_nothing_is_left_to_be_written():
    read = [Path(f"{ROOT / page}.md") for page in pages()] + [
        *ROOT.glob("*.md"),
        *(ROOT / "lib").rglob("*.py"),
    ]
    assert not [path for path in read if "TODO" in path.read_text("utf8")]
