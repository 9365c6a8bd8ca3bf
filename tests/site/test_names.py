"""Names of the library in prose exist; code in chapters is no wider than its column."""

import importlib
import re

import pytest

from shared import ROOT, code_cells, pages

PAGES = [*ROOT.glob("*.md"), *(ROOT / f"{page}.md" for page in pages())]


def resolve(name):
    """The module or the attribute of that dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_prose_exist(page):
    prose = re.sub(r"^(```|:::)\{code-cell\}.*?^\1", "", page.read_text("utf8"), flags=re.S | re.M)
    for name in set(re.findall(r"`(samefn(?:\.\w+)+)", prose)):
        resolve(name)


@pytest.mark.parametrize("page", pages())
def test_code_is_at_most_80_columns_wide(page):
    assert [line for cell in code_cells(page) for line in cell.source.splitlines() if len(line) > 80] == []
