"""The sources: each solution earns full points for every student, no stub and no other's answer earns any."""

from itertools import pairwise, permutations

import jupytext
import pytest

from samefn.course.questions import ASSIGNMENTS, questions
from solving import QUESTIONS, SETS, SOLUTION, STUDENTS, judge, recorded


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_points_add_up_to_100(assignment):
    cells = jupytext.read(SETS / f"{assignment}.md").cells
    proofs = [cell.metadata["points"] for cell in cells if "proof" in cell.metadata]
    witnesses = sum(question.points for question in questions(assignment).values())
    assert sum(proofs) + witnesses == 100
    assert f"**Points:** 100, of which {witnesses} by " in cells[0].source
    assert {cell.metadata["answer"] for cell in cells if "answer" in cell.metadata} == {
        *questions(assignment)
    }


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_every_answer_has_a_solution_and_every_proof_a_rubric(assignment):
    cells = jupytext.read(SETS / f"{assignment}.md").cells
    for before, cell in pairwise(cells):
        if {"answer", "proof"} & {*cell.metadata}:
            assert SOLUTION.search(cell.source + "\n")
        if "proof" in cell.metadata:
            assert "*Rubric.*" in before.source and f"{cell.metadata['points']} points" in before.source
        if "answer" in cell.metadata:
            earlier = [c.source for c in cells[: cells.index(cell)] if c.cell_type == "markdown"]
            assert f"({questions(assignment)[cell.metadata['answer']].points} points)" in earlier[-1]


@pytest.mark.parametrize("student", STUDENTS[:3])
@pytest.mark.parametrize(("assignment", "name"), QUESTIONS)
def test_the_solution_earns_all(assignment, name, student):
    judged = judge(assignment, name, recorded(assignment, student)[name], student)
    assert judged.points == judged.most == questions(assignment)[name].points, judged.lines


@pytest.mark.parametrize(("assignment", "name"), QUESTIONS)
def test_the_stub_earns_nothing(assignment, name):
    judged = judge(assignment, name, recorded(assignment, "ann", solved=False)[name])
    assert judged.points == 0 and judged.lines


@pytest.mark.parametrize(("assignment", "name"), QUESTIONS)
def test_the_answer_of_another_earns_nothing(assignment, name):
    for theirs, own in permutations(STUDENTS, 2):
        assert judge(assignment, name, recorded(assignment, theirs)[name], own).points == 0, (theirs, own)
