"""A-D1: on the line, two ReLU units absorb the skip.  Chapter ``skip/question``."""

from __future__ import annotations

import itertools

import sympy
import torch
from torch import Tensor

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb
from .. import Claim, require

claim = Claim(
    id="A-D1",
    title="On the line, every ReLU block of two or more units absorbs its skip",
    source="elementary; why Theorem 8 of [A] asks for d ≥ 2",
    hypotheses=("d = 1", "σ is ReLU", "no biases", "m ≥ 2"),
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


@claim.numeric("random blocks of width 2 to 8 are absorbed, also with dead and repeated units")
def random_blocks(draw: Draw) -> str:
    worst = 0.0
    for m in range(2, 9):
        degenerate = MLP(*(draw.integers(-1, 2, *shape).double() for shape in ((m, 1), (1, m))))
        for block in (random_mlp(1, m, generator=draw), degenerate):
            residual = Residual(block)
            found = absorb(residual)
            require(found.absorbed is True, f"a block of width {m} on the line was not absorbed: {found}")
            require(found.network.width == m, f"the residual-free block has {found.network.width} units")
            worst = max(worst, gap(residual, found.network, draw.normal(200, 1)))
    require(worst < 1e-12, f"the residual-free block differs by {worst:.1e}")
    return f"largest relative difference {worst:.1e}"


@claim.exact("one unit with weights -4, …, 4 absorbs iff au = -1: all residual-free units tried")
def all_small_units() -> str:
    x = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]])
    values = lambda f: tuple(f(x).flatten().tolist())  # exact: whole numbers
    # x + aσ(ux) has whole slopes in -17..17 here, and a unit with such slopes is a'σ(±x) for a whole a'
    free = {values(_unit(a, u)) for a in range(-17, 18) for u in (1, -1)}
    for a, u in itertools.product(range(-4, 5), repeat=2):
        residual = Residual(_unit(a, u))
        absorbs = values(residual) in free
        require(absorbs == (a * u == -1), f"a = {a}, u = {u}: a unit equal to x + aσ(ux) exists: {absorbs}")
        require(absorb(residual).absorbed is absorbs, f"a = {a}, u = {u}: absorb does not say {absorbs}")
    return f"81 units, {len(free)} candidates"


def _unit(a: float, u: float) -> MLP:
    return MLP(torch.tensor([[float(u)]]), torch.tensor([[float(a)]]))


def _bend(residual: Residual, point: Tensor, step: Tensor) -> Tensor:
    """f(p + s) − 2f(p) + f(p − s): zero where f is linear."""
    ahead, here, behind = residual(torch.stack([point + step, point, point - step]))
    return ahead - 2 * here + behind


@claim.control("m ≥ 2", "a unit vanishes at 1 or at -1, and x + aσ(ux) with au > 0 at neither")
def one_unit(draw: Draw) -> str:
    a, u = draw.integer(1, 10) / 4, draw.integer(1, 10) * float(draw.signs(1))
    values = Residual(_unit(a * (1 if u > 0 else -1), u))(torch.tensor([[1.0], [-1.0]]))  # au > 0
    require((values != 0).all(), f"x + aσ(ux) vanishes for a·u > 0: {values}")
    return f"values {float(values[0]):g} and {float(values[1]):g}"


@claim.control("σ is ReLU", "no two GELU units on the line are x + B(x)")
def gelu_on_the_line(draw: Draw) -> str:
    z = sympy.Symbol("z", real=True)
    even = [get("gelu").even_part(z).diff(z, 2 * j).subs(z, 0) for j in (1, 2, 3, 4)]
    require(all(even), f"an even Taylor coefficient vanishes: {even}")
    a, u = ([sympy.Integer(n + 1) for n in draw.permutation(9)[:2].tolist()] for _ in range(2))
    # so Σ a_i u_i^2j, j = 1..4, is the same for B'; by Prony's method these four numbers determine the u_i²
    p1, p2, p3, p4 = (sum(ai * ui ** (2 * j) for ai, ui in zip(a, u)) for j in (1, 2, 3, 4))
    beta, alpha = sympy.Matrix([[p1, p2], [p2, p3]]).LUsolve(-sympy.Matrix([p3, p4]))
    roots = sorted(sympy.Poly(z**2 + alpha * z + beta, z).all_roots())
    require(roots == sorted(ui**2 for ui in u), f"the coefficients allow other rows: u² = {roots}")
    first, second = (ai * ui for ai, ui in zip(a, u))
    slopes = [s * first + t * second for s in (1, -1) for t in (1, -1)]
    require(2 + first + second not in slopes, f"the odd parts agree: {slopes}")
    return f"u' = ±u, and {2 + first + second} is none of the odd slopes {slopes}"


@claim.control("no biases", "no two units with the bends of x + B(x) have its slopes")
def biases(draw: Draw) -> str:
    up, down = draw.signs(2)[:, None], 2.0 * draw.integers(1, 9, 1, 2)
    kinks = torch.tensor([-1.0, 1.0])
    residual = Residual(MLP(up, down, "relu", -up[:, 0] * kinks, draw.normal(1)))
    bends = torch.cat([_bend(residual, kinks[i : i + 1], torch.ones(1)) for i in (0, 1)])
    require(torch.allclose(bends, down[0]), f"the slopes jump by {bends}, not by {down}")
    outside = residual(torch.tensor([[-9.0], [-8.0]])).flatten()
    slope = float(outside[1] - outside[0])  # left of both; a unit that faces left has the slope −a there
    possible = [0 - sum(s) for s in itertools.product(*([0.0, a] for a in down[0].tolist()))]
    require(min(abs(slope - p) for p in possible) > 0.5, f"slope {slope} is among {possible}")
    return f"slope {slope:g} on the left, {possible} possible"


@claim.control(
    "d = 1", "none of the 16 blocks of four units with the bends of x + B(x) equals it, in the plane"
)
def relu_in_the_plane(draw: Draw) -> str:
    up = torch.stack([torch.ones(4), draw.permutation(9)[:4] - 4.0], 1)  # no two collinear
    down = draw.integers(1, 9, 2, 4) * up.T + draw.integers(0, 2, 2, 4)
    residual, along = Residual(MLP(up, down)), torch.stack([-up[:, 1], up[:, 0]], 1)
    for i in range(4):  # each line bears a bend of a_i|u_i|², which one of four units has to make
        bend = _bend(residual, 100 * along[i], up[i])
        require(torch.equal(bend, down[:, i] * up[i].dot(up[i])), f"line {i} bends by {bend}")
    rays = torch.cat([along, -along])
    for signs in itertools.product([1.0, -1.0], repeat=4):
        other = MLP(torch.tensor(signs)[:, None] * up, down)
        require((residual(rays) != other(rays)).any(), f"the rows times {signs} absorb the skip")
    return "each differs on a kink"
