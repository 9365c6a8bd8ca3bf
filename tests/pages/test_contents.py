"""What the pages say of the chapters is what stands in the chapters."""

import re
from pathlib import Path

import pytest

from samefn.pages.contents import contents

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
TOC = """root: book/intro
parts:
  - caption: "Part I: One"
    chapters:
      - file: book/a/one
      - file: book/b/two
"""
ONE = """# One

**It is so. And more.**

**You need** nothing.

**Time:** about 5 minutes.

## Exercises

:::{exercise} ● By hand
:label: one-hand
:::

:::{solution} one-hand
Yes.
:::

::::{exercise-start} ●●● By machine
:label: one-machine
::::

```{code-cell} ipython3
answer = 0
```

:::{solution} one-machine
No.
:::

## Check

```{code-cell} ipython3
check()
```
"""


def write(folder, one=ONE):
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    (folder / "a" / "one.md").write_text(one, "utf8")
    two = ONE.replace("# One", "# Two").replace("nothing", "{doc}`One <../a/one>`")
    (folder / "b" / "two.md").write_text(two.split("## Exercises")[0], "utf8")


def test_a_chapter_says_what_it_is(tmp_path):
    write(tmp_path)
    one, two = contents(TOC + "  - caption: Lab notes\n    chapters:\n      - file: book/c/three\n", tmp_path)
    assert (one.page, one.part, one.title, one.claim) == ("a/one", "Part I: One", "One", "It is so.")
    assert (one.minutes, one.needs, two.needs, two.exercises) == (5, (), ("a/one",), ())
    hand, machine = one.exercises
    assert (hand.level, hand.title, hand.label, hand.code) == ("●", "By hand", "one-hand", False)
    assert (machine.level, machine.label) == ("●●●", "one-machine") and machine.code and machine.checked


@pytest.mark.parametrize(
    "line", ["**Time:** about 5 minutes.", "# One", "**It is so. And more.**", ":label: one-hand\n"]
)
def test_a_chapter_that_does_not_say_it_is_refused(tmp_path, line):
    write(tmp_path, ONE.replace(line, ""))
    with pytest.raises(ValueError, match="toc must list chapters"):
        contents(TOC, tmp_path)


@pytest.fixture(scope="module")
def book():
    return contents((ROOT / "_toc.yml").read_text("utf8"), BOOK)


def test_every_exercise_of_the_book_is_listed_with_a_solution(book):
    labels = [exercise.label for chapter in book for exercise in chapter.exercises]
    text = "".join((BOOK / f"{chapter.page}.md").read_text("utf8") for chapter in book)
    assert sorted(labels) == sorted(re.findall(r"\{solution(?:-start)?\} (\S+)", text))
    assert all(sum(exercise.checked for exercise in chapter.exercises) >= 1 for chapter in book)
    elsewhere = {*BOOK.glob("*/*.md")} - {BOOK / f"{chapter.page}.md" for chapter in book}
    assert not [
        path for path in elsewhere if "{exercise" in path.read_text("utf8") and path.parts[-2] != "_new"
    ]


def test_the_plans_of_a_course_name_every_chapter(book):
    plans = (BOOK / "course.md").read_text("utf8").split("## Use, adapt")[0].split("## Six weeks")[1]
    named = {*re.findall(r"<(\S+)>`", plans)}
    assert {page for page in named if not page.endswith("-lab")} == {chapter.page for chapter in book}


def test_no_chapter_needs_a_later_one(book):
    order = [chapter.page for chapter in book]
    assert all(order.index(need) < order.index(chapter.page) for chapter in book for need in chapter.needs)
