"""A-D1: on the line, two ReLU units absorb any skip.  Chapter ``skip/question``."""

from __future__ import annotations

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb
from .. import Claim, require

claim = Claim(
    id="A-D1",
    title="On the line, two ReLU units absorb any skip",
    source="elementary; why Theorem 8 of [A] asks for d ≥ 2",
    hypotheses=("d = 1", "m ≥ 2", "σ is ReLU"),
    uses=(),
    chapter="skip/question",
)


@claim.exact("x + B(x) is two ReLU units, for rational weights")
def two_slopes(draw: Draw) -> str:
    x, p = sympy.Symbol("x", real=True), sympy.Symbol("p", positive=True)
    relu = get("relu").expression
    numbers = draw.integers(-9, 10, 5, 2).tolist()
    units = [(sympy.Rational(a, 4), sympy.Rational(u, 3)) for a, u in numbers]
    block = x + sum(a * relu(u * x) for a, u in units)
    right, left = block.subs(x, 1), -block.subs(x, -1)
    two_units = right * relu(x) - left * relu(-x)
    difference = [sympy.simplify((block - two_units).subs(x, side)) for side in (p, -p)]
    require(difference == [0, 0], f"the two slopes do not determine the function: {difference}")
    return f"slopes {left} and {right}"


@claim.numeric("random blocks of width 2 to 8 are absorbed")
def random_blocks(draw: Draw) -> str:
    worst = 0.0
    for m in range(2, 9):
        residual = Residual(random_mlp(1, m, generator=draw))
        found = absorb(residual)
        require(found.absorbed is True, f"a random block of width {m} on the line was not absorbed: {found}")
        worst = max(worst, gap(residual, found.network, draw.normal(200, 1)))
    require(worst < 1e-12, f"the residual-free block differs by {worst:.1e}")
    return f"largest relative difference {worst:.1e}"


@claim.control("width 2", "one unit absorbs only if a·u = -1")
def one_unit(draw: Draw) -> str:
    one = absorb(Residual(random_mlp(1, 1, generator=draw)))
    require(one.absorbed is False, f"a random single unit absorbed its skip: {one}")
    minus_one = MLP(torch.tensor([[2.0]]), torch.tensor([[-0.5]]))
    require(
        absorb(Residual(minus_one)).flipped == (0,), "a single unit with a·u = -1 did not absorb its skip"
    )
    return f"margin |1 + a·u| ≥ {one.margin:.3f} otherwise"


@claim.control("ReLU", "two GELU units on the line do not absorb")
def gelu_on_the_line(draw: Draw) -> str:
    smooth = absorb(Residual(random_mlp(1, 2, "gelu", generator=draw)))
    require(smooth.absorbed is False, f"a random GELU block on the line absorbed its skip: {smooth}")
    return f"margin {smooth.margin:.1e}"


@claim.control("d = 1", "four ReLU units in the plane do not absorb")
def relu_in_the_plane(draw: Draw) -> str:
    plane = absorb(Residual(random_mlp(2, 4, generator=draw)))
    require(plane.absorbed is False, f"a random ReLU block in the plane absorbed its skip: {plane}")
    return f"margin {plane.margin:.3f}"
