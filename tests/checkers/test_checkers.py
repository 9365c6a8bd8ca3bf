"""The checkers on the pages: each refuses plausible wrong answers with a message that helps, and accepts
right ones however they are made.

A module of the chapter's name in this folder says which: ``right(page)`` lists answers, ``wrong(page)``
pairs of an answer and words that the message must have; ``page`` has the names of the page.  ``CHECKER`` and
``ACCEPTED`` name the function and what its verdict begins with, where these are not ``grade``, "Correct".
"""

import importlib.util
from pathlib import Path

import pytest

from on_page import BOOK, checker
from samefn.pages.contents import contents

HERE = Path(__file__).parent
CHAPTERS = contents((BOOK.parent / "_toc.yml").read_text("utf8"), BOOK)
CHECKED = [chapter.page for chapter in CHAPTERS if any(e.checked for e in chapter.exercises)]


def answers(page):
    spec = importlib.util.spec_from_file_location(f"answers_{page.replace('/', '_')}", HERE / f"{page}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", CHECKED)
def test_checker(page):
    module = answers(page)
    on_page = checker(page, getattr(module, "CHECKER", "grade"))
    grade = getattr(on_page, getattr(module, "CHECKER", "grade"))
    accepted = getattr(module, "ACCEPTED", "Correct")
    right, wrong = module.right(on_page), module.wrong(on_page)
    assert len(right) >= 2 and len(wrong) >= 3
    for answer in right:
        assert grade(answer).startswith(accepted), answer
    messages = set()
    for answer, words in wrong:
        said = grade(answer)
        messages.add(said)
        assert not said.startswith(accepted), answer
        assert words in said, f"{answer}: {said}"
    assert len(messages) > 1  # not one sentence for everything
