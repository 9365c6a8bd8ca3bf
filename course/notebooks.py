"""A problem set's source, solution first, as the notebook that nbgrader takes.

In the source a code cell with ``:answer: name`` records the answer to that question; its points come from
the question, in a locked cell that is added behind it.  A Markdown cell with ``"proof": name`` and
``"points"`` is graded by hand.  The code cell ``:instance:`` is filled in.  Everything else is the same
for all and read only.
"""

import json
import textwrap
from pathlib import Path

import jupytext
import yaml
from nbconvert.preprocessors import ClearOutputPreprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.preprocessors import ClearSolutions, LockCells
from traitlets.config import Config

import instances
from samefn.course.questions import questions

SETS = Path(__file__).with_name("sets")
CONFIG = Path(__file__).parents[1] / "_config.yml"  # the repository's address stands there
STUBS = {"code_stub": {"python": "# your code here"}, "text_stub": "*your answer here*"}
INSTANCE = '''\
# Your instance: leave this cell as it is.
try:
    import samefn
except ImportError:
    %pip install -q "samefn @ git+{repository}"
from samefn.course import ProblemSet

mine = ProblemSet("""
{text}
""")'''


def source(assignment: str, instance: dict) -> NotebookNode:
    """The notebook with solutions, nbgrader's metadata, and an instance: "assignment", "student",
    "instances".
    """
    notebook = jupytext.read(SETS / f"{assignment}.md")
    cells, asked = [], questions(assignment)
    for cell in notebook.cells:
        said = cell.metadata
        if "instance" in said:
            cells.append(instance_cell(instance))
        elif name := said.get("answer"):
            cells.append(code(cell.source, f"{assignment}-{name}", solution=True))
            cells.append(points_cell(assignment, name, asked.pop(name).points))
        elif name := said.get("proof"):
            grading = nbgrader(f"{assignment}-{name}", solution=True, grade=True, points=said["points"])
            cells.append(with_id(new_markdown_cell(cell.source, metadata=grading)))
        else:
            grading = nbgrader(f"{assignment}-cell-{len(cells)}", locked=True)
            new = new_code_cell if cell.cell_type == "code" else new_markdown_cell
            cells.append(with_id(new(cell.source, metadata=grading)))
    if asked:
        raise ValueError(
            f"{assignment}.md must have an answer cell for each question, got none for {[*asked]}"
        )
    notebook.cells = cells
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def practice(assignment: str) -> dict:
    """The instance of a published key, for readers who belong to no course."""
    drawn = instances.draw(assignment, b"practice", "practice", "practice", "practice")
    return {"assignment": assignment, "student": "practice", "instances": drawn}


def release(assignment: str) -> NotebookNode:
    """The notebook without solutions, as `nbgrader generate_assignment` makes it, for the site."""
    notebook, config = source(assignment, practice(assignment)), Config({"ClearSolutions": STUBS})
    for step in (ClearSolutions(config=config), LockCells(), ClearOutputPreprocessor()):
        notebook, _ = step.preprocess(notebook, {})
    return notebook


def nbgrader(grade_id: str, *, solution=False, grade=False, locked=False, points=None) -> dict:
    """nbgrader's metadata of a cell, schema 3."""
    said = {
        "schema_version": 3,
        "grade_id": grade_id,
        "solution": solution,
        "grade": grade,
        "locked": locked,
        "task": False,
    }
    return {"nbgrader": said | ({} if points is None else {"points": points})}


def with_id(cell: NotebookNode) -> NotebookNode:
    cell.id = cell.metadata["nbgrader"]["grade_id"]  # the same on every build
    return cell


def code(text: str, grade_id: str, **grading) -> NotebookNode:
    return with_id(new_code_cell(text, metadata=nbgrader(grade_id, **grading)))


def points_cell(assignment: str, name: str, points: int) -> NotebookNode:
    text = f'mine.points("{name}")  # of {points}; verified again when you hand in'
    return code(text, f"{assignment}-{name}-points", grade=True, locked=True, points=points)


def instance_cell(instance: dict) -> NotebookNode:
    """The cell that nbgrader leaves alone: it differs from student to student."""
    text = textwrap.fill(json.dumps(instance), 100, break_on_hyphens=False)
    repository = yaml.safe_load(CONFIG.read_text("utf8"))["repository"]["url"]
    folded = {"jupyter": {"source_hidden": True}, "cellView": "form", "tags": ["instance"]}
    return new_code_cell(INSTANCE.format(text=text, repository=repository), metadata=folded, id="instance")


def with_instance(notebook: NotebookNode, instance: dict) -> NotebookNode:
    """A released notebook with another student's instance."""
    at = next(i for i, cell in enumerate(notebook.cells) if "instance" in cell.metadata.get("tags", ()))
    notebook.cells[at] = instance_cell(instance)
    return notebook
