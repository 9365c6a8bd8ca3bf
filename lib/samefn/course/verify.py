"""Judge a notebook that was handed in, in a process that runs nothing of it: ``python -I -m
samefn.course.verify``.

Standard input: one line of JSON, ``{"assignment": ..., "instances": ...}``, then the notebook's file.
Standard output: for each question ``{"points": ..., "most": ..., "lines": [...]}`` by name; "points" is null
where the checker itself failed, and then someone must look at the answer.
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
from typing import Any

from . import MARK
from .answers import Malformed, parse
from .questions import Judged, questions

__all__ = ["answers_in", "judge"]

SECONDS, MEMORY = 30, 2 << 30  # processor time and bytes that one notebook may cost
LARGEST = 20 << 20  # bytes of a notebook


def answers_in(notebook: str) -> dict[str, str]:
    """The recorded answers in a notebook's outputs: their JSON text by "assignment/question", the last of
    each.

    Raises :class:`Malformed` if ``notebook`` is not the JSON of a notebook.
    """
    if len(notebook) > LARGEST:
        raise Malformed(f"the notebook must have at most {LARGEST >> 20} MB, got {len(notebook) >> 20}")
    try:
        found = {}
        for cell in json.loads(notebook)["cells"]:
            for output in cell.get("outputs", ()):
                text = output.get("data", {}).get("text/plain", "")
                text = text if isinstance(text, str) else "".join(text)
                if text.startswith(f"{MARK} "):
                    line = text.removeprefix(f"{MARK} ").split("\n", 1)[0]
                    name, _, answer = line.partition(" ")
                    found[name] = answer
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"the file must be a notebook, got {type(error).__name__}") from None


def judge(assignment: str, instances: dict[str, Any], notebook: str) -> dict[str, Any]:
    """The points and the lines of feedback for each question of an assignment."""
    try:
        found, problem = answers_in(notebook), ""
    except Malformed as error:
        found, problem = {}, f"✗ {error}"
    judged = {}
    for name, question in questions(assignment).items():
        try:
            text = found.get(f"{assignment}/{name}")
            result = question.judge(instances[name], None if text is None else parse(text))
        except Malformed as error:
            result = Judged(0, question.points, (f"✗ {error}",))
        except Exception:  # the checker's own fault: no points are guessed, someone looks at it
            print(traceback.format_exc(), file=sys.stderr)
            judged[name] = {"points": None, "most": question.points, "lines": ["? the checker failed"]}
            continue
        lines = [problem] if problem else list(result.lines)
        judged[name] = {"points": result.points, "most": result.most, "lines": lines}
    return judged


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    given = json.loads(sys.stdin.buffer.readline())
    notebook = sys.stdin.buffer.read(LARGEST + 1).decode("utf8", "replace")
    json.dump(judge(given["assignment"], given["instances"], notebook), sys.stdout)


if __name__ == "__main__":
    main()
