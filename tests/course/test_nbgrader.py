"""A course run for real: nbgrader's own command line, honest and dishonest students, the grade computed
outside.

One test, because all of it happens to one course.
"""

import csv
import shutil

import nbformat
from nbgrader.api import Gradebook

import notebooks
from students import POINTS, SET, course, hand_in, nbgrader, solutions
from submissions import ALL, DISHONEST, HONEST

WANTED = {name: points for name, (_, points) in HONEST.items()} | dict.fromkeys(DISHONEST, 0)
PROOFS = {"shut": 14, "depth": 14, "generic": 20}


def test_a_course(tmp_path):
    folder = tmp_path / "course"
    folder.mkdir()
    students = folder / "students.csv"
    students.write_text("id\n" + "\n".join(WANTED) + "\n")
    course(folder, "make", folder, "--course", "cs", "--term", "spring", "--students", students)
    what_is_released_is_clean(folder)
    hand_in(folder, {name: does for name, (does, _) in HONEST.items()})
    hand_in(folder, DISHONEST)

    executed = tmp_path / "executed"
    shutil.copytree(folder, executed)
    config = executed / "nbgrader_config.py"
    run = "\nc.Execute.enabled = c.ClearOutput.enabled = True\nc.Execute.timeout = 5\n"
    config.write_text(config.read_text().replace(str(folder), str(executed)) + run)
    said = nbgrader(executed, "autograde", SET, fails=True)  # it reports those whose kernel died, and goes on
    assert "os-exit" in said and "crashing" in said
    provisional = points(executed)
    fooled = {name for name in DISHONEST if provisional[name]}  # so the kernel's points are no grade
    assert fooled >= {
        "ast-transformer",
        "run-cell",
        "patched-checker",
        "reads-source",
        "easier-instance",
        "copied",
    }
    grades_are_right(executed)

    nbgrader(folder, "autograde", SET)
    grades_are_right(folder)
    people_grade_proofs(folder)
    feedback_says_what_was_wrong(folder)
    export_adds_up(folder)


def points(folder):
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "cs") as book:
        return {
            s.student.id: sum(
                g.auto_score or 0 for n in s.notebooks for g in n.grades if g.cell.cell_type == "code"
            )
            for s in book.assignment_submissions(SET)
        }


def what_is_released_is_clean(folder):
    text = (folder / "release" / SET / f"{SET}.ipynb").read_text()
    secret = (folder / "secret").read_text()
    assert "BEGIN" not in text and "HIDDEN" not in text and "linalg" not in text and secret not in text
    released = nbformat.reads(text, as_version=4)
    on_the_site = notebooks.release(SET)  # what Colab and Binder open
    assert [cell.source for cell in released.cells] == [cell.source for cell in on_the_site.cells]
    grading = [cell.metadata.get("nbgrader", {}) for cell in released.cells]
    worth = {
        said["grade_id"].removeprefix(f"{SET}-"): said["points"] for said in grading if said.get("grade")
    }
    assert worth == {f"{name}-points": points for name, points in POINTS.items()} | PROOFS
    assert sum(worth.values()) == 100
    nbgrader(folder, "generate_assignment", SET, "--force")
    assert "Success" in nbgrader(folder, "validate", f"source/{SET}/{SET}.ipynb")
    assert "failed" in nbgrader(folder, "validate", f"release/{SET}/{SET}.ipynb").lower()
    instances = {(folder / "handout" / s / SET / f"{SET}.ipynb").read_text() for s in WANTED}
    assert len(instances) == len(WANTED) and not any(secret in text for text in instances)


def grades_are_right(folder):
    said = course(folder, "regrade", folder, SET)
    assert points(folder) == WANTED
    assert f"{SET} ann: {ALL} of {ALL}" in said and "look at" not in said


def people_grade_proofs(folder):
    """Points and comments that a person gives survive another run of both."""
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "cs") as book:
        book.find_grade(f"{SET}-shut", SET, SET, "ann").manual_score = 13
        book.find_comment(f"{SET}-gate", SET, SET, "ann").manual_comment = "nice"
        book.db.commit()
    nbgrader(folder, "autograde", SET, "--student", "ann", "--force")
    assert course(folder, "regrade", folder, "--student", "ann").count(SET) == 1
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "cs") as book:
        assert book.find_submission(SET, "ann").score == ALL + 13
        assert book.find_comment(f"{SET}-gate", SET, SET, "ann").comment == "nice"


def feedback_says_what_was_wrong(folder):
    nbgrader(folder, "generate_feedback", SET)
    read = lambda student: (folder / "feedback" / student / SET / f"{SET}.html").read_text()
    assert "the constants differ" in read("partly")
    assert "nothing was recorded" in read("blank")
    assert "x must be a list" in read("forged")
    lines = {name: text.split("### BEGIN SOLUTION")[1].splitlines()[1] for name, text in solutions().items()}
    assert not any(line in read("blank") for line in lines.values())
    assert lines["leaky_gelu"] not in read("half")


def export_adds_up(folder):
    nbgrader(folder, "export")
    with (folder / "grades.csv").open(newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file) if row["assignment"] == SET}
    assert float(rows["bob"]["score"]) == ALL and float(rows["bob"]["max_score"]) == 100
    assert float(rows["ann"]["score"]) == ALL + 13 and float(rows["nan"]["score"]) == 0
