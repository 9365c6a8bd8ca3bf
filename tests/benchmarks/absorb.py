"""How long ``absorb`` takes, beside the matrix products it cannot do without, and beside plain search.

Prints two Markdown tables.  ``--small`` leaves out the largest shape, which needs about 4 GiB.

1. GELU blocks of transformer shapes, one process for each shape, so that peaks of memory are separate.
   "random" has weights so large that the trace test proves nothing and the Gram system has to;
   "planted" absorbs its skip through d + d/8 units.  The unit of time is W_downᵀW_down, W_up W_upᵀ,
   their entrywise product and its Cholesky factorisation, timed in the same process.
2. Small blocks, where ``scipy.optimize.milp`` on the bare criterion and all 2^m subsets finish too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import timeit
from collections.abc import Callable

import numpy as np
import scipy.optimize
import torch

from samefn.draw import Draw
from samefn.networks import MLP, Residual, random_mlp
from samefn.skip.absorption import absorb
from samefn.skip.criterion import trace_test
from samefn.skip.planted import plant

SHAPES = [(64, 256), (384, 1536), (1024, 4096), (4096, 11008)]
SEARCHED = [(2, 10), (3, 9), (4, 12), (4, 16), (4, 20), (6, 30), (8, 60)]
TIME_LIMIT = 60.0
BRUTE_FORCE = 20  # units up to which all subsets are tried


def seconds(work: Callable[[Residual], object], residual: Residual, repeats: int = 1) -> tuple[float, object]:
    """Shortest time of some runs, and what the last one returned; no warm-up, as a run may take minutes."""
    results: list[object] = []
    times = timeit.repeat(lambda: results.append(work(residual)), number=1, repeat=repeats)
    return min(times), results[-1]


def random_block(d: int, m: int, seed: int) -> Residual:
    """Independent normal weights, large enough that the total negative overlap is about twice d/(2c)."""
    block = random_mlp(d, m, "gelu", generator=Draw(seed))
    return Residual(MLP(block.up, block.down * (5 * d / m**0.5), "gelu"))


def planted_block(d: int, m: int, seed: int) -> Residual:
    block = random_block(d, m, seed).block
    return plant(block, tuple(range(0, min(m, d + d // 8))))


def products(residual: Residual) -> torch.Tensor:
    up, down = residual.block.up, residual.block.down
    gram = (down.T @ down).mul_(up @ up.T)
    return torch.linalg.cholesky(gram)


def measure(d: int, m: int) -> list[dict]:
    """The rows of one shape; meant for a process of its own."""
    repeats, rows = (1 if m > 5000 else 3), []
    for kind, build, expected in (("planted", planted_block, True), ("random", random_block, False)):
        residual = build(d, m, seed=0)
        taken, answer = seconds(absorb, residual, repeats)
        if answer.absorbed is not expected:
            raise RuntimeError(f"{kind} block of shape {d}, {m}: expected {expected}, got {answer}")
        rows.append({"kind": kind, "trace": trace_test(residual), "margin": answer.margin, "seconds": taken})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024**3 if sys.platform == "darwin" else 1024**2
    )
    unit, _ = seconds(products, residual, repeats)
    return [{**row, "unit": unit, "peak": peak} for row in rows]


def criterion(residual: Residual) -> tuple[np.ndarray, np.ndarray]:
    """The columns a_i u_iᵀ and the right-hand side -A/(2c), for GELU."""
    block = residual.block
    columns = torch.einsum("di,ik->dki", block.down, block.up).flatten(0, 1).numpy()
    return columns, -residual.skip_matrix().flatten().numpy()


def by_milp(residual: Residual) -> bool | None:
    columns, target = criterion(residual)
    slack = 1e-6
    found = scipy.optimize.milp(
        np.zeros(columns.shape[1]),
        integrality=np.ones(columns.shape[1]),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=scipy.optimize.LinearConstraint(columns, target - slack, target + slack),
        options={"time_limit": TIME_LIMIT},
    )
    return {0: True, 2: False}.get(found.status)


def by_brute_force(residual: Residual) -> bool:
    columns, target = criterion(residual)
    m = columns.shape[1]
    for start in range(0, 2**m, 2**14):
        sets = (np.arange(start, min(start + 2**14, 2**m))[:, None] >> np.arange(m)) & 1
        if (np.abs(sets @ columns.T - target).max(axis=1) < 1e-9).any():
            return True
    return False


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def shapes_table(shapes: list[tuple[int, int]]) -> str:
    rows = []
    for d, m in shapes:
        print(f"d = {d}, m = {m} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--shape", str(d), str(m)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        for row in json.loads(run.stdout):
            verdict = [f"{d}, {m}", row["kind"], f"{row['trace']:.3g}", f"{row['margin']:.3g}"]
            times = [f"{row['seconds']:.3f}", f"{row['unit']:.3f}", f"{row['seconds'] / row['unit']:.1f}"]
            rows.append([*verdict, *times, f"{row['peak']:.2f}"])
    times = ["absorb, s", "products and Cholesky, s", "ratio", "peak, GiB"]
    return table(["d, m", "block", "trace test", "margin", *times], rows)


def search_table() -> str:
    rows = []
    for d, m in SEARCHED:
        for kind, build in (("planted", planted_block), ("random", random_block)):
            residual = build(d, m, seed=0)
            print(f"d = {d}, m = {m}, {kind} ...", file=sys.stderr, flush=True)
            cells, answers = [], set()
            for method in (lambda r: absorb(r).absorbed, by_milp, by_brute_force):
                if method is by_brute_force and m > BRUTE_FORCE:
                    cells.append("–")
                    continue
                taken, answer = seconds(method, residual)
                answers.add(answer)
                cells.append(f"{taken:.4f}" if answer is not None else f"undecided in {taken:.1f}")
            if {True, False} <= answers:
                raise RuntimeError(f"the methods disagree on the {kind} block of shape {d}, {m}")
            rows.append([f"{d}, {m}", kind, *cells])
    return table(["d, m", "block", "absorb, s", "milp, s", "all subsets, s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="leave out the largest shape")
    parser.add_argument(
        "--shape", nargs=2, type=int, metavar=("D", "M"), help="measure one shape here, print JSON"
    )
    arguments = parser.parse_args()
    if arguments.shape:
        print(json.dumps(measure(*arguments.shape)))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print(shapes_table(SHAPES[:-1] if arguments.small else SHAPES), end="\n\n")
    print(search_table())


if __name__ == "__main__":
    main()
