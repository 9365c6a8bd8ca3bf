"""How long ``align`` takes as the width grows, beside the matrix product it cannot do without.

Prints a Markdown table.  ``--largest WIDTH`` stops earlier than 4096, which needs about 3 GiB.

For each width n: a tanh network n/4 → n → n → n/4, moved by a random symmetry, with noise of 1e-10 in the
weights and two of its units 1e-6 apart.  "growth" is the time over that of the width before; the
product of two n × n matrices, timed in the same process, grows beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar

import torch

from samefn.draw import Draw
from samefn.equivariance.alignment import align, random_symmetry
from samefn.networks import DeepMLP

T = TypeVar("T")
WIDTHS = [64, 128, 256, 512, 1024, 2048, 4096]


def pair(width: int, draw: Draw) -> tuple[DeepMLP, DeepMLP]:
    """A network with two nearly equal units in each hidden layer, and a noisy copy moved by a symmetry."""
    sizes = [width // 4, width, width, width // 4]
    weights = [draw.normal(m, n) / n**0.5 for n, m in pairwise(sizes)]
    biases = [draw.normal(m) for m in sizes[1:]]
    for w, b in zip(weights[:-1], biases):
        w[1], b[1] = w[0], b[0] + 1e-6
    a = DeepMLP(weights, biases)
    moved = random_symmetry(a, generator=draw).apply(a)

    def noisy(t: torch.Tensor) -> torch.Tensor:
        return t.detach() + 1e-10 * draw.normal(*t.shape)

    return a, DeepMLP([noisy(w) for w in moved.weights], [noisy(b) for b in moved.biases])


def seconds(work: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Shortest time of some runs, and what the last one returned."""
    start = time.perf_counter()
    result = work()
    best = time.perf_counter() - start
    for _ in range(repeats - 1):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=WIDTHS[-1], help="largest width")
    largest = parser.parse_args().largest
    print("| width | align, s | growth | n × n product, s | growth | align / product | mismatch |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    before = None
    for width in (w for w in WIDTHS if w <= largest):
        draw = Draw(width)
        a, b = pair(width, draw)
        repeats = 5 if width <= 512 else 1
        took, found = seconds(partial(align, a, b), repeats)
        assert found is not None and found.error < 1e-8, f"width {width}: not aligned"
        square = draw.normal(width, width)
        product, _ = seconds(partial(torch.matmul, square, square), repeats)
        growth = ("", "") if before is None else (f"{took / before[0]:.1f}", f"{product / before[1]:.1f}")
        before = took, product
        cells = (
            f"{took:.3g}",
            growth[0],
            f"{product:.2g}",
            growth[1],
            f"{took / product:.0f}",
            f"{found.error:.0e}",
        )
        print(f"| {width} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
