"""Grades from what was handed in, computed where no student's code has run, and written into nbgrader's
gradebook.

The answers are outputs of the notebook as it was handed in; a process of its own verifies them against the
student's instance, which is drawn again from the secret.  What the kernel did when nbgrader ran the notebook
counts for nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI

import instances
from samefn.course.questions import questions

SECONDS = 60  # for one notebook
NOBODY = "nobody"


def regrade(
    folder: Path,
    book: Gradebook,
    nbgrader: NbGraderAPI,
    key: bytes,
    assignments,
    student="*",
    *,
    course,
    term,
) -> None:
    """Judge what is in ``submitted``, of all students or of one; write points and comments, print a line
    for each.
    """
    print(f"verifying {isolation()[2]}")
    for assignment in assignments:
        paths = [
            path
            for path in sorted(folder.glob(f"submitted/*/{assignment}"))
            if student in ("*", path.parent.name)
        ]

        def judged(path: Path, assignment: str = assignment) -> dict[str, dict]:
            drawn = instances.draw(assignment, key, course, term, path.parent.name)
            return verified(assignment, drawn, path / f"{assignment}.ipynb")

        with ThreadPoolExecutor() as pool:
            for path, results in zip(paths, pool.map(judged, paths)):
                said = "nbgrader cannot read the notebook, and nothing was written"
                if is_graded(folder, nbgrader, assignment, path.parent.name):
                    write(book, assignment, path.parent.name, results)
                    said = in_words(results)
                print(f"{assignment} {path.parent.name}: {said}")


def is_graded(folder: Path, nbgrader: NbGraderAPI, assignment: str, student: str) -> bool:
    """Whether nbgrader has autograded the notebook; one whose kernel died is put in without running it."""
    if (folder / "autograded" / student / assignment / f"{assignment}.ipynb").exists():
        return True
    nbgrader.config.Execute.enabled = nbgrader.config.ClearOutput.enabled = False
    return nbgrader.autograde(assignment, student, force=True)["success"]


def in_words(results: dict[str, dict]) -> str:
    unclear = [name for name, result in results.items() if result["points"] is None]
    points, most = (sum(result[what] or 0 for result in results.values()) for what in ("points", "most"))
    return f"{points} of {most}" + (f"; look at {', '.join(unclear)}" if unclear else "")


def verified(assignment: str, drawn: dict, notebook: Path) -> dict[str, dict]:
    """Points and feedback for each question; "points" is None where someone must look."""
    asked = questions(assignment)
    given = json.dumps({"assignment": assignment, "instances": drawn}).encode() + b"\n"
    data = notebook.read_bytes() if notebook.is_file() else b""
    before, options, _ = isolation()
    command = [*before, sys.executable, "-I", "-m", "samefn.course.verify"]
    try:
        done = subprocess.run(command, input=given + data, capture_output=True, timeout=SECONDS, **options)
        judged = json.loads(done.stdout)
        for name, question in asked.items():
            assert judged[name]["points"] is None or 0 <= judged[name]["points"] <= question.points
        return {name: judged[name] for name in asked}
    except (subprocess.TimeoutExpired, ValueError, KeyError, AssertionError) as error:
        lines = [f"? the checker stopped: {type(error).__name__}"]
        return {name: {"points": None, "most": q.points, "lines": lines} for name, q in asked.items()}


def write(book: Gradebook, assignment: str, student: str, judged: dict[str, dict]) -> None:
    """Replace nbgrader's points; comments and points that a person has given stay."""
    for name, result in judged.items():
        where = assignment, assignment, student
        grade = book.find_grade(f"{assignment}-{name}-points", *where)
        grade.auto_score, grade.needs_manual_grade = result["points"] or 0, result["points"] is None
        book.find_comment(f"{assignment}-{name}", *where).auto_comment = "\n".join(result["lines"])
    book.db.commit()


@cache
def isolation() -> tuple[list[str], dict, str]:
    """How the verifying process is kept apart: a command to begin with, options of `subprocess.run`, and
    words.

    It needs no more than its input; each of these is a second wall, and is used where the machine allows it.
    """
    options = {"cwd": tempfile.gettempdir(), "env": {"PATH": os.defpath, "LANG": "C.UTF-8"}}
    words, before = ["in a process of its own"], []
    if os.geteuid() == 0 and works(options | {"user": NOBODY, "group": "nogroup", "extra_groups": []}):
        options |= {"user": NOBODY, "group": "nogroup", "extra_groups": []}
        words.append(f"as user {NOBODY}")
    for network in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        if shutil.which(network[0]) and works(options, network):
            before = network
            words.append("without a network")
            break
    missing = [
        word for word in ("as user", "without a network") if not any(w.startswith(word) for w in words)
    ]
    note = f" (this machine does not allow: {', '.join(missing)})" if missing else ""
    return before, options, ", ".join(words) + note


def works(options: dict, before: list[str] = ()) -> bool:
    command = [*before, sys.executable, "-I", "-c", "import samefn.course.verify"]
    try:
        return subprocess.run(command, capture_output=True, timeout=SECONDS, **options).returncode == 0
    except (OSError, LookupError, subprocess.SubprocessError):
        return False
