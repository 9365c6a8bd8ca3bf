"""How long thirty submissions of one problem set take: autograde with and without execution, and regrade.

python tests/benchmarks/grading.py [students]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "course"))

from students import SET, course, hand_in, nbgrader


def timed(what, function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    print(f"{what}: {time.perf_counter() - start:.0f} s", flush=True)


def main(students):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = [f"s{number}" for number in range(students)]
        (folder / "students.csv").write_text("\n".join(["id", *ids]))
        making = "make", folder, "--course", "cs", "--term", "t", "--students", folder / "students.csv"
        timed(f"make course, six sets for {students}", course, folder, *making)
        hand_in(folder, {student: lambda mine, folder: mine.solve().run() for student in ids})
        timed("autograde without execution", nbgrader, folder, "autograde", SET)
        timed("regrade", course, folder, "regrade", folder, SET)
        config = folder / "nbgrader_config.py"
        config.write_text(config.read_text() + "\nc.Execute.enabled = c.ClearOutput.enabled = True\n")
        timed("autograde with execution", nbgrader, folder, "autograde", SET, "--force")
        timed("generate_feedback", nbgrader, folder, "generate_feedback", SET)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
