"""A course folder for nbgrader, and the grades computed outside the students' kernels.

python course make DIR --course cs101 --term 2027-spring --students students.csv
python course regrade DIR [ps1 ...]
"""

import argparse
import csv
import json
import os
import re
import secrets
import sys
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config.loader import PyFileConfigLoader

import instances
from notebooks import STUBS, practice, source, with_instance
from regrade import regrade
from samefn.course.questions import ASSIGNMENTS

CONFIG = """\
# Written by `make course`.
c = get_config()
c.CourseDirectory.course_id = {course!r}
c.CourseDirectory.root = {root!r}
c.ClearSolutions.update({stubs!r})

# Students' code does not run: `make regrade` verifies what they recorded.  To see it run, make both True in
# a copy of this folder without source/ and secret, in a container; throw the copy away: it can write grades.
c.Execute.enabled = False
c.ClearOutput.enabled = False
c.Execute.timeout = 120  # seconds for each cell
"""


def make(folder: Path, course: str, term: str, students: list[dict[str, str]]) -> None:
    """Write the folder: sources, releases, a notebook for each student, the secret.

    What decides the instances is kept: the secret, and a folder of another course or term is refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    identity = json.dumps({"course": course, "term": term})
    if (settings := folder / "course.json").exists() and settings.read_text() != identity:
        raise SystemExit(f"COURSE and TERM must be those of {folder}, {settings.read_text()}, got {identity}")
    settings.write_text(identity)
    key = secret(folder)
    (folder / "nbgrader_config.py").write_text(
        CONFIG.format(course=course, root=str(folder.resolve()), stubs=STUBS)
    )
    book, nbgrader = open_course(folder)
    with book:
        for student in students:
            known = {k: v for k, v in student.items() if k in ("first_name", "last_name", "email") and v}
            book.update_or_create_student(student["id"], **known)
    (folder / "gradebook.db").chmod(0o600)
    for assignment in ASSIGNMENTS:
        name = f"{assignment}.ipynb"
        write(folder / "source" / assignment / name, source(assignment, practice(assignment)))
        (folder / "source").chmod(0o700)
        done = nbgrader.generate_assignment(assignment, force=True)
        if not done["success"]:
            raise SystemExit(f"nbgrader generate_assignment {assignment}: {done.get('error') or done['log']}")
        for student in students:
            drawn = instances.draw(assignment, key, course, term, student["id"])
            given = {"assignment": assignment, "student": student["id"], "instances": drawn}
            released = nbformat.read(folder / "release" / assignment / name, as_version=4)
            write(folder / "handout" / student["id"] / assignment / name, with_instance(released, given))


def secret(folder: Path) -> bytes:
    """The course's secret, made once, readable by its owner alone."""
    path = folder / "secret"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))
    return bytes.fromhex(path.read_text())


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def open_course(folder: Path) -> tuple[Gradebook, NbGraderAPI]:
    """The gradebook, and nbgrader as its command line runs it in this folder."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
    nbgrader = NbGraderAPI(config=config)
    return Gradebook(nbgrader.coursedir.db_url, nbgrader.coursedir.course_id), nbgrader


def read_students(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a column ``id``, as `nbgrader db student import` reads it."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        students = list(csv.DictReader(file))
    wrong = [s.get("id") for s in students if not re.fullmatch(r"[\w@.-]*\w[\w@.-]*", s.get("id") or "")]
    twice = len({s.get("id") for s in students}) < len(students)
    if wrong or twice or not students:
        what = f"got {wrong[0]!r}" if wrong else "one is there twice" if twice else "there is none"
        raise SystemExit(f"STUDENTS must be a CSV file with a column id that names folders; {what} in {path}")
    return students


def main() -> None:
    # nbgrader calls alembic by its name
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    parser = argparse.ArgumentParser(prog="course", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="write the course folder, and what each student gets")
    making.add_argument("folder", type=Path)
    making.add_argument("--course", required=True)
    making.add_argument("--term", required=True)
    making.add_argument("--students", type=Path, required=True, help="CSV with a column id")
    grading = commands.add_parser("regrade", help="verify what was handed in, and write the points")
    grading.add_argument("folder", type=Path)
    grading.add_argument("assignments", nargs="*", help="all that were handed in, if none is named")
    grading.add_argument("--student", default="*", help="one student only")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.command == "make":
        students = read_students(given.students)
        make(folder, given.course, given.term, students)
        print(f"{len(ASSIGNMENTS)} problem sets for {len(students)} students: hand out {folder / 'handout'}")
    else:
        identity = json.loads((folder / "course.json").read_text())
        book, nbgrader = open_course(folder)
        with book:
            assignments = given.assignments or ASSIGNMENTS
            regrade(folder, book, nbgrader, secret(folder), assignments, given.student, **identity)


if __name__ == "__main__":
    main()
