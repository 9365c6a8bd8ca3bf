"""A-D1: on the line, two ReLU units absorb any skip.  Chapter ``skip/question``."""

from __future__ import annotations

from collections.abc import Iterator

import sympy
import torch

from ..absorption import absorb
from ..activations import get
from ..networks import MLP, Residual, random_mlp
from . import Claim, Control, Evidence, require


def _same(f: torch.nn.Module, g: torch.nn.Module, x: torch.Tensor) -> float:
    """The largest difference of two functions on the rows of x, relative to the values."""
    return float((f(x) - g(x)).abs().max() / f(x).abs().max())


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)

    x = sympy.Symbol("x", real=True)
    relu = get("relu").expression
    numbers = torch.randint(-9, 10, (5, 2), generator=generator).tolist()
    a, u = zip(*[(sympy.Rational(p, 4), sympy.Rational(q, 3)) for p, q in numbers])
    block = x + sum(ai * relu(ui * x) for ai, ui in zip(a, u))
    right, left = block.subs(x, 1), -block.subs(x, -1)
    two_units = right * relu(x) - left * relu(-x)
    difference = [sympy.simplify((block - two_units).subs(x, side)) for side in (sympy.Symbol("p", positive=True), -sympy.Symbol("p", positive=True))]
    require(difference == [0, 0], f"the two slopes do not determine the function: {difference}")
    yield Evidence("exact", "x + B(x) is two ReLU units, for rational weights", f"slopes {left} and {right}")

    worst = 0.0
    for m in range(2, 9):
        residual = Residual(random_mlp(1, m, generator=generator))
        found = absorb(residual)
        require(found.absorbed is True, f"a random block of width {m} on the line was not absorbed: {found}")
        worst = max(worst, _same(residual, found.network, torch.randn(200, 1, generator=generator, dtype=torch.float64)))
    require(worst < 1e-12, f"the residual-free block differs by {worst:.1e}")
    yield Evidence("numeric", "random blocks of width 2 to 8 are absorbed", f"largest relative difference {worst:.1e}")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    one = absorb(Residual(random_mlp(1, 1, generator=generator)))
    require(one.absorbed is False, f"a random single unit absorbed its skip: {one}")
    minus_one = MLP(torch.tensor([[2.0]]).double(), torch.tensor([[-0.5]]).double())
    require(absorb(Residual(minus_one)).flipped == (0,), "a single unit with a·u = -1 did not absorb its skip")
    yield Control("width 2", "one unit absorbs only if a·u = -1", f"margin |1 + a·u| ≥ {one.margin:.3f} otherwise")

    smooth = absorb(Residual(random_mlp(1, 2, "gelu", generator=generator)))
    require(smooth.absorbed is False, f"a random GELU block on the line absorbed its skip: {smooth}")
    yield Control("ReLU", "two GELU units on the line do not absorb", f"margin {smooth.margin:.3f}")

    plane = absorb(Residual(random_mlp(2, 4, generator=generator)))
    require(plane.absorbed is False, f"a random ReLU block in the plane absorbed its skip: {plane}")
    yield Control("d = 1", "four ReLU units in the plane do not absorb", f"margin {plane.margin:.3f}")


CLAIM = Claim(
    id="A-D1",
    title="On the line, two ReLU units absorb any skip",
    source="elementary; why Theorem 8 of [A] asks for d ≥ 2",
    hypotheses=("d = 1", "m ≥ 2", "σ is ReLU"),
    uses=(),
    chapter="skip/question",
    evidence=evidence,
    controls=controls,
)
