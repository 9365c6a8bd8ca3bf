"""What the chapters' sources say of themselves, for the pages that list them: titles, needs, exercises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

EXERCISE = re.compile(r"^:+\{exercise(?:-start)?\} (●+) (.*)\n:label: (\S+)$", re.M)


@dataclass(frozen=True)
class Exercise:
    """One exercise: its level (one to three dots), title and label, and whether it or its solution runs code.

    ``checked`` is true if the page has a cell that checks the answer.
    """

    level: str
    title: str
    label: str
    code: bool
    checked: bool


@dataclass(frozen=True)
class Chapter:
    """A chapter: page (as ``skip/relu``), part, title, claim in bold, minutes, pages it needs, exercises."""

    page: str
    part: str
    title: str
    claim: str
    minutes: int
    needs: tuple[str, ...]
    exercises: tuple[Exercise, ...]


def contents(toc: str, book: Path = Path()) -> list[Chapter]:
    """The chapters in order, those of the parts that are called "Part ..." in ``toc``, the text of _toc.yml.

    ``book`` is the folder of the sources.  Raises ValueError if a chapter does not say its title, its claim
    or its minutes, or one of its exercises has no label or level.
    """
    pages = []
    for part in re.split(r"- caption: ", toc)[1:]:
        caption = part.splitlines()[0].strip('"')
        if caption.startswith("Part "):
            pages += [(page, caption) for page in re.findall(r"file: book/(\S+)", part)]
    texts = {page: (book / f"{page}.md").read_text("utf8") for page, _ in pages}
    return [_chapter(page, part, texts) for page, part in pages]


def _chapter(page: str, part: str, texts: dict[str, str]) -> Chapter:
    text = texts[page]
    needs = re.search(r"^\*\*You need\*\*(.*)$", text, re.M)
    links = re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", needs[1] if needs else "")
    named = {link.removeprefix("../") for link in links}
    named = {name if "/" in name else f"{page.split('/')[0]}/{name}" for name in named}
    return Chapter(
        page,
        part,
        _said(r"^# (.*)$", text, page),
        _said(r"^\*\*(.*?\.) ?.*\*\*", text, page),
        int(_said(r"^\*\*Time:\*\* about (\d+) minutes", text, page)),
        tuple(other for other in texts if other in named),
        tuple(_exercises(page, text)),
    )


def _said(pattern: str, text: str, page: str) -> str:
    if found := re.search(pattern, text, re.M):
        return found[1]
    raise ValueError(f"toc must list chapters with title, claim and minutes, got {page} without {pattern}")


def _exercises(page: str, text: str) -> list[Exercise]:
    found = list(EXERCISE.finditer(text))
    if len(found) != len(re.findall(r"\{exercise(?:-start)?\}", text)):
        raise ValueError(f"toc must list chapters whose exercises have level and label, got {page}")
    exercises = []
    for match, following in zip(found, [*found[1:], None]):
        own = text[match.end() : following.start() if following else None].split("\n## ")[0]
        asked = re.split(r"^:+\{solution", own, maxsplit=1, flags=re.M)[0]
        code, checked = "{code-cell}" in own, "{code-cell}" in asked
        exercises.append(Exercise(match[1], match[2], match[3], code, checked))
    return exercises
