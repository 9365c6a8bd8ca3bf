"""The questions of the problem sets, and how an answer is verified: as a witness, never against a key.

A question is a generator function of the instance (what the student was given) and the answer.  It yields one
:class:`Item` after the other; their points add up to the question's.  An item without points is a condition
for those after it.  Nothing that was not reached, because of that or of a :class:`Malformed` answer, counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .answers import Answer, Malformed

ASSIGNMENTS = ("ps1", "ps2", "ps3", "ps4", "ps5", "ps6")

__all__ = ["Item", "Judged", "Question", "question", "questions"]


@dataclass(frozen=True)
class Item:
    """One property that an answer must have: its points, in words, whether it holds, what fails if not."""

    points: int
    what: str
    holds: bool
    hint: str = ""


@dataclass(frozen=True)
class Judged:
    """What came out for one answer: points of at most so many, and a line for each property."""

    points: int
    most: int
    lines: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Question:
    """A question of a problem set.

    ``judge(instance, values)`` gives a :class:`Judged`.  The values are what
    :func:`~samefn.course.answers.parse` returned, or ``None`` if nothing was recorded.
    """

    assignment: str
    name: str
    points: int
    verify: Callable[[dict[str, Any], Answer], Iterator[Item]]

    def judge(self, instance: dict[str, Any], values: Any) -> Judged:
        if values is None:
            return Judged(0, self.points, ("✗ nothing was recorded",))
        lines, points = [], 0
        try:
            for item in self.verify(instance, Answer(values)):
                points += item.points * item.holds
                hint = f": {item.hint}" if item.hint and not item.holds else ""
                lines.append(f"{'✓' if item.holds else '✗'} {item.what}{hint}")
                if not (item.holds or item.points):
                    break
        except Malformed as error:
            lines.append(f"✗ {error}")
        return Judged(points, self.points, tuple(lines))


_REGISTERED: dict[str, dict[str, Question]] = {}


def question(assignment: str, points: int) -> Callable[[Callable], Question]:
    """Register a generator function as a question of a problem set, with so many points."""

    def register(verify: Callable[[dict[str, Any], Answer], Iterator[Item]]) -> Question:
        made = Question(assignment, verify.__name__, points, verify)
        _REGISTERED.setdefault(assignment, {})[verify.__name__] = made
        return made

    return register


def questions(assignment: str) -> dict[str, Question]:
    """The questions of a problem set by name, in order.  Raises ValueError for an unknown set.

    >>> from samefn.course.questions import questions
    >>> list(questions("ps6"))
    ['near']
    """
    if assignment not in ASSIGNMENTS:
        raise ValueError(f"assignment must be one of {', '.join(ASSIGNMENTS)}, got {assignment!r}")
    import_module(f".{assignment}", __package__)  # it registers its questions
    return dict(_REGISTERED[assignment])
