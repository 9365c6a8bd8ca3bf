"""Run a problem set's cells, solutions or stubs, on a student's instance; what is recorded."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import jupytext

import instances
import samefn.course
from samefn.course import ProblemSet
from samefn.course.answers import parse
from samefn.course.questions import ASSIGNMENTS, questions

SETS = Path(instances.__file__).with_name("sets")
SECRET = b"\1" * 32
STUDENTS = ("ann", "bob", "cem", "dan", "eve", "fay")
QUESTIONS = [(assignment, name) for assignment in ASSIGNMENTS for name in questions(assignment)]
SOLUTION = re.compile(r"### BEGIN SOLUTION.*?### END SOLUTION\n?", re.S)


@cache
def instance(assignment, student):
    return instances.draw(assignment, SECRET, "cs", "spring", student)


@cache
def recorded(assignment, student, solved=True):
    """The answers by name, as the grader reads them."""
    shown, before = [], samefn.course.display
    samefn.course.display = shown.append
    try:
        given = {"assignment": assignment, "student": student, "instances": instance(assignment, student)}
        names = {"mine": ProblemSet(json.dumps(given))}
        for cell in jupytext.read(SETS / f"{assignment}.md").cells:
            if cell.cell_type == "code" and "instance" not in cell.metadata:
                source = cell.source if solved else SOLUTION.sub("", cell.source)
                exec(compile(ast.parse(source), assignment, "exec"), names)
    finally:
        samefn.course.display = before
    texts = [
        repr(output).split("\n")[0].removeprefix(f"recorded answer {assignment}/").split(" ", 1)
        for output in shown
    ]
    return {name: parse(text) for name, text in texts}


def judge(assignment, name, answer, student="ann"):
    return questions(assignment)[name].judge(instance(assignment, student)[name], answer)
