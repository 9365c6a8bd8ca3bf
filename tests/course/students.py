"""Students of a course that the tests make up: what each of them hands in, honestly or not."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell, new_output

ROOT = Path(__file__).resolve().parents[2]
COURSE = ROOT / "course"
SET = "ps2"
POINTS = {"gate": 16, "leaky_gelu": 20, "difference": 16}
SECONDS = 5  # for a cell, on the student's machine as for nbgrader


def course(folder, *arguments):
    """Run `python course`; its output."""
    command = [sys.executable, COURSE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def nbgrader(folder, *arguments, fails=False):
    """Run nbgrader's own command line in the course's folder; what it said."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=path)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


class Notebook:
    """A notebook that a student was given, and what he does to it."""

    def __init__(self, given, solutions):
        self.notebook = nbformat.read(given, as_version=4)
        self.solutions = solutions

    def cell(self, grade_id):
        return next(
            c for c in self.notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
        )

    def solve(self, *names):
        for name in names or POINTS:
            self.cell(f"{SET}-{name}").source = self.solutions[name]
        return self

    def put(self, name, source):
        """Write something else into the answer cell of a question."""
        self.cell(f"{SET}-{name}").source = source
        return self

    def insert(self, source, before="gate"):
        """A cell of his own, before that of a question."""
        at = self.notebook.cells.index(self.cell(f"{SET}-{before}"))
        self.notebook.cells.insert(at, new_code_cell(source))
        return self

    def forge(self, name, text):
        """An output that no code has made."""
        output = new_output("display_data", {"text/plain": f"recorded answer {SET}/{name} {text}"})
        self.cell(f"{SET}-{name}").outputs.append(output)
        return self

    def run(self):
        """On the student's own machine."""
        try:
            options = {"allow_errors": True, "interrupt_on_timeout": True}  # as nbgrader
            NotebookClient(self.notebook, timeout=SECONDS, kernel_name="python3", **options).execute()
        except DeadKernelError:
            self.notebook.metadata["died"] = True
        return self


def solutions():
    """The solution of each question, from the source."""
    sys.path.insert(0, str(COURSE))
    import jupytext

    cells = jupytext.read(COURSE / "sets" / f"{SET}.md").cells
    return {cell.metadata["answer"]: cell.source for cell in cells if "answer" in cell.metadata}


def hand_in(folder, students):
    """Let every student work on the handout, two at a time, and collect the notebooks."""
    known = solutions()

    def work(student, does):
        mine = Notebook(folder / "handout" / student / SET / f"{SET}.ipynb", known)
        does(mine, folder)
        path = folder / "submitted" / student / SET / f"{SET}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(mine.notebook, path)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, *zip(*students.items())))
