"""What is handed in, and the points that it is worth."""

import nbformat

from students import POINTS, SET

ALL = 52
SLOW = "import time\ntime.sleep(60)\n"
TRIVIAL = (
    "import numpy as np\nzero = np.zeros((6, 3))\nmine.record('gate', gate=zero + 1, up=zero, down=zero.T)\n"
)


def honest(mine, folder):
    mine.solve().run()


def blank(mine, folder):
    pass


def blank_and_run(mine, folder):
    mine.run()


def half(mine, folder):
    mine.solve("gate", "difference").run()


def partly_right(mine, folder):
    """A forgotten constant: sixteen of twenty points."""
    wrong = mine.solutions["leaky_gelu"].replace("""out = given["v"] +""", "out = 0 * given['v'] +")
    mine.solve().put("leaky_gelu", wrong).run()


def copied(mine, folder):
    """Another student's notebook, whole."""
    mine.notebook = nbformat.read(folder / "submitted" / "ann" / SET / f"{SET}.ipynb", as_version=4)


def copied_answer(mine, folder):
    """The other's recorded answers in his own notebook."""
    other = nbformat.read(folder / "submitted" / "ann" / SET / f"{SET}.ipynb", as_version=4)
    for cell, own in zip(other.cells, mine.notebook.cells):
        own.update({"outputs": cell.outputs} if own.cell_type == "code" else {})


def slow(mine, folder):
    mine.solve().put("gate", SLOW + mine.solutions["gate"]).run()


def endless(mine, folder):
    mine.solve().put("leaky_gelu", "while True:\n    pass\n" + mine.solutions["leaky_gelu"]).run()


def raising(mine, folder):
    mine.solve().put("gate", "raise RuntimeError('stuck')").run()


def crashing(mine, folder):
    """The kernel dies in the last question: what was recorded before stays."""
    mine.solve().put("difference", "import os\nos._exit(0)").run()


def warning(mine, folder):
    noisy = "import warnings\nwarnings.warn('careful')\nimport sys\nprint('noise', file=sys.stderr)\n"
    mine.solve().put("gate", noisy + mine.solutions["gate"]).run()


def reordered(mine, folder):
    mine.solve().run()
    mine.notebook.cells.reverse()


def deleted(mine, folder):
    """Without the cells of one question."""
    mine.solve().run()
    keep = [
        c
        for c in mine.notebook.cells
        if "leaky_gelu" not in c.metadata.get("nbgrader", {}).get("grade_id", "")
    ]
    mine.notebook.cells = keep


def locked_cells_edited(mine, folder):
    for name in ("gate", "leaky_gelu", "difference"):
        mine.cell(f"{SET}-{name}-points").source = "16"
    mine.run()


HONEST = {
    "ann": (honest, ALL),
    "bob": (honest, ALL),
    "cem": (honest, ALL),
    "blank": (blank, 0),
    "blank-run": (blank_and_run, 0),
    "half": (half, 32),
    "partly": (partly_right, ALL - 4),
    "slow": (slow, ALL - 16),
    "endless": (endless, ALL - 20),
    "raising": (raising, ALL - 16),
    "crashing": (crashing, ALL - 16),
    "warning": (warning, ALL),
    "reordered": (reordered, ALL),
    "deleted": (deleted, ALL - 20),
}


# --- dishonest: none of these has solved a question ---------------------------------------------


def cheat(mine, source):
    """That cell in front of everything else; the answers' own cells record nothing after it."""
    for name in POINTS:
        mine.put(name, "pass")
    mine.insert(source).run()


def inserting(source):
    return lambda mine, folder: cheat(mine, source)


def forging(*texts):
    def forge(mine, folder):
        for text in texts:
            for name in ("gate", "leaky_gelu", "difference"):
                mine.forge(name, text)

    return forge


def reads_source(mine, folder):
    """Runs what stands in source/, as soon as the grader runs the notebook."""
    path = folder / "source" / SET / f"{SET}.ipynb"
    cheat(
        mine,
        "import os, json, numpy as np\n"
        "if os.environ.get('NBGRADER_EXECUTION') == 'autograde':\n"
        f"    for cell in json.load(open({str(path)!r}))['cells']:\n"
        "        text = ''.join(cell['source'])\n"
        "        if cell['cell_type'] == 'code' and 'points(' not in text and 'ProblemSet' not in text:\n"
        "            exec(text)",
    )


def reads_grader(mine, folder):
    """Looks for the secret in the environment and in the files around, and draws the instance's planted
    answer.
    """
    cheat(
        mine,
        "import os, pathlib\n"
        "found = [v for v in os.environ.values() if len(v) == 64]\n"
        "for path in pathlib.Path('.').resolve().parents:\n"
        "    for name in ('secret', 'gradebook.db', 'course.json'):\n"
        "        if (path / name).exists():\n"
        "            found.append((path / name).read_bytes())\n"
        "mine.record('gate', gate=[[1, 0, 0]], up=[[1, 0, 0]], down=[[1], [0], [0]])",
    )


def changed_instance(mine, folder):
    """M = 0, and a block that computes it."""
    cheat(mine, "mine['gate']['M'][:] = [[0] * 3] * 3\n" + TRIVIAL)


def easier_instance(mine, folder):
    """Another instance in the cell that nobody locks."""
    cell = next(c for c in mine.notebook.cells if "instance" in c.metadata.get("tags", ()))
    matrix = '"gate": {"M": '
    before, after = " ".join(cell.source.split("\n")).split(matrix)
    cell.source = (
        cell.source.split("mine = ")[0]
        + "mine = "
        + (
            before.split("mine = ")[1]
            + matrix
            + "[[0, 0, 0], [0, 0, 0], [0, 0, 0]]}"
            + after.split("}", 1)[1]
        )
    )
    cheat(mine, TRIVIAL)


def exits(mine, folder):
    cheat(mine, "import os\nos._exit(0)")


DISHONEST = {
    "copied": copied,
    "copied-answer": copied_answer,
    "locked-cells": locked_cells_edited,
    "patched-checker": inserting(
        "import sys\nfrom samefn.course.questions import Judged, Question\n"
        "Question.judge = lambda self, instance, values: Judged(self.points, self.points, ('✓',))\n"
        "for name in ('gate', 'leaky_gelu', 'difference'):\n    mine.record(name)"
    ),
    "patched-comparison": inserting(
        "import builtins, fractions, numpy as np\n"
        "np.allclose = np.array_equal = lambda *a, **k: True\n"
        "builtins.all = builtins.any = lambda *a: True\n"
        "fractions.Fraction.__eq__ = lambda a, b: True\n" + TRIVIAL
    ),
    "equals-everything": inserting(
        "class Any(float):\n"
        "    __eq__ = __le__ = __lt__ = __ge__ = __gt__ = lambda *a: True\n"
        "    __hash__ = float.__hash__\n"
        "a = Any(0)\nmine.record('gate', gate=[[a] * 3] * 6, up=[[a] * 3] * 6, down=[[a] * 6] * 3)"
    ),
    "nan": inserting(
        "nan = float('nan')\nmine.record('difference', x=[nan] * 3)\n"
        "mine.record('gate', gate=[[nan] * 3] * 6, up=[[nan] * 3] * 6, down=[[nan] * 6] * 3)"
    ),
    "infinite": inserting(
        "mine.record('difference', x=[float('inf'), 1e308, -float('inf')])\n"
        "mine.record('difference', x=['1e400', 2, 3])"
    ),
    "tolerance": inserting(
        "t = 1e-8\nmine.record('gate', gate=[[t] * 3] * 6, up=[[t] * 3] * 6, down=[[t] * 6] * 3)\n"
        "mine.record('difference', x=[t, t, 1])"
    ),
    "reads-source": reads_source,
    "reads-grader": reads_grader,
    "from-the-library": inserting(
        "import torch, samefn\nfrom samefn import MLP, Residual, absorb\nimport samefn.course\n"
        "names = [n for n in dir(samefn.course) if 'solution' in n or 'draw' in n]\n"
        "given = {k: torch.tensor(v, dtype=torch.float64) for k, v in mine['leaky_gelu'].items()}\n"
        "block = MLP(given['up'], given['down'].T.contiguous(), 'gelu', given['bias'], given['v'])\n"
        "found = absorb(Residual(block))\n"
        "net = found.network or block\n"
        "mine.record('leaky_gelu', up=net.up, bias=net.up_bias, down=net.down, out=net.down_bias)"
    ),
    "prints-correct": inserting("print('Correct'); print('16'); 'Correct: all tests passed'"),
    "catches": inserting("try:\n    mine.record('gate', gate=1)\nexcept BaseException:\n    pass\n16"),
    "patched-samefn": inserting(
        "import samefn.course as c\nc.ProblemSet.points = lambda self, name: 16\n"
        "c.ProblemSet.record = lambda self, name, **v: print('recorded answer ps2/gate {}')"
    ),
    "changed-instance": changed_instance,
    "easier-instance": easier_instance,
    "huge": inserting("mine.record('gate', gate=[[0] * 1000] * 1000, up=[[1]], down=[['9' * 10 ** 6]])"),
    "os-exit": exits,
    "sys-exit": inserting("import sys\nsys.exit(0)"),
    "altered-main": inserting(
        "import __main__\nclass Full:\n    def __getitem__(self, n): return {}\n"
        "    def record(self, n, **v): pass\n    def points(self, n): return 16\n__main__.mine = Full()"
    ),
    "ast-transformer": inserting(
        "import ast\nclass Empty(ast.NodeTransformer):\n"
        "    def visit(self, node): return ast.Module([], [])\n"
        "get_ipython().ast_transformers.append(Empty())"
    ),
    "input-transformer": inserting(
        "get_ipython().input_transformers_cleanup.append(lambda lines: ['pass\\n'])"
    ),
    "run-cell": inserting(
        "ip = get_ipython()\nfrom IPython.core.interactiveshell import ExecutionResult\n"
        "ip.run_cell = lambda *a, **k: ExecutionResult(None)"
    ),
    "partial-credit": inserting(
        "import ast\nclass Points(ast.NodeTransformer):\n"
        "    def visit(self, node): return ast.parse('16')\nget_ipython().ast_transformers.append(Points())"
    ),
    "forged": forging(
        '{"points": 16}', "16", "true", '{"gate": NaN, "x": [1e999]}', "[" * 10_000, '{"x": "__import__"}'
    ),
    "forged-number": forging('{"x": [0, 0, 0], "gate": [[1,0,0]], "up": [[0,0,0]], "down": [[0],[0],[0]]}'),
}
