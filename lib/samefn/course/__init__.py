"""Problem sets whose answers are witnesses: a student records them, and anyone can verify them.

The student's side is :class:`ProblemSet`.  The same questions judge again, in a process of their own,
what was handed in (:mod:`samefn.course.verify`); so nothing that happens in the student's kernel decides
a point.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from IPython.display import display

from .answers import Malformed, parse, plain
from .questions import Judged, Question, questions

__all__ = ["ProblemSet"]

MARK = "recorded answer"  # what an output that holds an answer begins with


class ProblemSet:
    """A student's copy of one problem set: the instance, and the answers that were recorded.

    ``text`` is JSON: "assignment", "student", and for each question its instance in integers.
    Raises ValueError if it is none, or of no known assignment; so do the methods for an unknown question.

    >>> from samefn.course import ProblemSet
    >>> import json
    >>> near = {"up": [[1, 0], [0, 1]], "down": [[-100, 0], [0, -100]]}
    >>> near["goals"] = ["0.5", "0.25", "0.1", "0.03"]
    >>> given = {"assignment": "ps6", "student": "me", "instances": {"near": near}}
    >>> mine = ProblemSet(json.dumps(given))
    >>> mine.record("near", S=[0, 1])
    recorded answer ps6/near {"S": [0, 1]}
    ✓ no entry of I + P_S beyond 0.5
    ✓ no entry of I + P_S beyond 0.25
    ✓ no entry of I + P_S beyond 0.1
    ✓ no entry of I + P_S beyond 0.03
    >>> mine.points("near")
    30
    """

    def __init__(self, text: str) -> None:
        try:
            given = json.loads(text)
            self.assignment, self.student = given["assignment"], given["student"]
            self._instances, self._questions = given["instances"], questions(given["assignment"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"text must be the instance as it was handed out, got {error!r}") from None
        self._judged: dict[str, Judged] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The instance of a question: lists of integers by name."""
        self._question(name)
        return self._instances[name]

    def _question(self, name: str) -> Question:
        if name not in self._questions:
            raise ValueError(f"name must be one of {', '.join(self._questions)}, got {name!r}")
        return self._questions[name]

    def record(self, name: str, **values: Any) -> None:
        """Record the answer to a question in this cell's output, and show what the checker says of it.

        ``values`` are numbers, lists, tensors or arrays.  The last answer in the notebook counts.  What is
        graded is the output: save the notebook with its outputs.
        """
        question = self._question(name)
        try:
            text = json.dumps(plain(values, "the answer"), allow_nan=False)
            judged = question.judge(self[name], parse(text))
        except (Malformed, ValueError) as error:
            text, judged = "null", Judged(0, question.points, (f"✗ {error}",))
        self._judged[name] = judged
        display(_Recorded(self.assignment, name, text, judged))

    def points(self, name: str) -> int:
        """The points of the answer that was recorded last, as far as this kernel knows; 0 without one."""
        self._question(name)
        return self._judged[name].points if name in self._judged else 0

    def __repr__(self) -> str:
        missing = [name for name in self._questions if name not in self._judged]
        state = f"not yet recorded: {', '.join(missing)}" if missing else "all questions are recorded"
        return f"{self.assignment} of {self.student}; {state}"


class _Recorded:
    """In the notebook's file the answer as JSON, in one line; on the screen what the checker says."""

    def __init__(self, assignment: str, name: str, text: str, judged: Judged) -> None:
        self.text = "\n".join([f"{MARK} {assignment}/{name} {text}", *judged.lines])
        self.name, self.judged = name, judged

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.judged.lines)
        head = f"<b>{escape(self.name)}</b>: {self.judged.points} of {self.judged.most} points"
        return f'<p>{head} (to be verified again)</p><ul style="list-style: none">{lines}</ul>'
