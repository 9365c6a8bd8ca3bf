"""A-T10: when a GELU block absorbs its skip.  Chapter ``skip/gelu``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import sympy
import torch
from sympy.polys.matrices import DomainMatrix

from ...activations import Activation, get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb
from ...skip.planted import plant, subsets_that_work
from .. import Claim, require
from .degenerate import (
    absorbs_on_the_line,
    absorbs_with_more_units,
    absorbs_without_a_set,
    bias_is_left_over,
    proved_by,
)

claim = Claim(
    id="A-T10",
    title="A GELU block with u_i, a_i ≠ 0 and u_i ≠ ±u_j absorbs its skip iff P_S = −I for some set S",
    source="[A], Theorem 10, under a weaker hypothesis",
    hypotheses=("every u_i ≠ 0", "u_i ≠ ±u_j for i ≠ j", "every a_i ≠ 0", "no biases", "same width"),
    uses=(),
    chapter="skip/gelu",
)

Unit = tuple[int, int]  # (a, u), one unit a σ(ux) on the line


@cache
def _even_coefficients(activation: Activation) -> tuple[sympy.Expr, ...]:
    """The Taylor coefficients of the even part at z², z⁴, …, z¹⁶, from the activation's own expression."""
    z = sympy.Symbol("z", real=True)
    series = sympy.series(activation.even_part(z), z, 0, 18).removeO()
    return tuple(series.coeff(z, 2 * r) for r in range(1, 9))


def _coefficient(r: int) -> sympy.Expr:
    """η_r, the coefficient of z^{2r}, r ≥ 1, in GELU's even part z erf(z/√2)/2; never 0."""
    sign, below = sympy.Integer(-1) ** (r - 1), 2 ** (r - 1) * sympy.factorial(r - 1) * (2 * r - 1)
    return sign / (sympy.sqrt(2 * sympy.pi) * below)


def _separating_direction(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """An integer vector v for which the numbers |u·v|, u in ``rows``, are nonzero and distinct.

    Walks along the curve (1, τ, τ², ...).  Each of the N² conditions u·v ≠ 0, (u - u')·v ≠ 0 and
    (u + u')·v ≠ 0 excludes at most d - 1 values of τ, so N²(d - 1) + 1 values are enough.
    Raises ValueError if a row is zero or two rows are equal up to sign: then there is no such v.
    """
    number, d = len(rows), len(rows[0])
    for tau in range(number**2 * (d - 1) + 1):
        v = tuple(tau**power for power in range(d))
        lengths = {abs(_dot(row, v)) for row in rows}
        if len(lengths) == number and 0 not in lengths:
            return v
    raise ValueError("rows must be nonzero and pairwise different up to sign")


def _dot(u: Sequence[int], v: Sequence[int]) -> int:
    return sum(p * q for p, q in zip(u, v, strict=True))


def _rows(draw: Draw, d: int, number: int) -> list[tuple[int, ...]]:
    """Integer rows, nonzero and different up to sign; the last is three times the first."""
    while True:
        rows = [tuple(row) for row in draw.integers(-4, 5, number - 1, d).tolist()]
        rows.append(tuple(3 * p for p in rows[0]))
        up_to_sign = {max(row, tuple(-p for p in row)) for row in rows}
        if len(up_to_sign) == number and (0,) * d not in up_to_sign:
            return rows


def _moment_determinant(omegas: Sequence[int]) -> tuple[int, int]:
    """det of the matrix ω_i^{2r}, r = 1..N, by elimination, and the product formula for it."""
    size = len(omegas)
    powers = [[sympy.ZZ(omega) ** (2 * r) for omega in omegas] for r in range(1, size + 1)]
    product = math.prod(omega**2 for omega in omegas)
    product *= math.prod(q**2 - p**2 for p, q in itertools.combinations(omegas, 2))
    return int(DomainMatrix(powers, (size, size), sympy.ZZ).det()), product


def _powers() -> tuple[int, ...]:
    """The 2r ≤ 12 for which GELU's even part has a term z^{2r}."""
    return tuple(2 * r for r, eta in enumerate(_even_coefficients(get("gelu"))[:6], 1) if eta != 0)


def _function_on_line(units: Sequence[Unit], skip: int = 0) -> tuple[int, ...]:
    """Integers that determine x ↦ skip·x + Σ a σ(ux) among all sums of at most three units.

    Twice the slope of the odd part, then Σ a u^{2r} for r = 1..6.  Two such functions have at most
    six values of |u| between them, so a Vandermonde determinant makes equal moments mean equal functions.
    """
    moments = [sum(a * u**power for a, u in units) for power in _powers()]
    return 2 * skip + sum(a * u for a, u in units), *moments


@cache
def _all_blocks_on_line(powers: tuple[int, ...]) -> dict[tuple[int, ...], set[tuple[Unit, ...]]]:
    """Every block of three units with a in -2..2 and u in -3..3, degenerate or not, by its function."""
    units = list(itertools.product(range(-2, 3), range(-3, 4)))
    table: dict[tuple[int, ...], set[tuple[Unit, ...]]] = {}
    for block in itertools.combinations_with_replacement(units, 3):
        table.setdefault(_function_on_line(block), set()).add(tuple(sorted(block)))
    return table


def _turned_around(units: Sequence[Unit]) -> set[tuple[Unit, ...]]:
    """The blocks that the theorem allows: for each S with Σ_S a u = -1, the units with S negated."""
    found = set()
    for signs in itertools.product((1, -1), repeat=len(units)):
        signed = list(zip(units, signs, strict=True))
        if sum(a * u for (a, u), sign in signed if sign == -1) == -1:
            found.add(tuple(sorted((a, sign * u) for (a, u), sign in signed)))
    return found


def _stretched(d: int, m: int, name: str, draw: Draw) -> MLP:
    """A random block whose last row is a multiple of its first, of another length."""
    block = random_mlp(d, m, name, generator=draw)
    up = block.up.clone()
    up[-1] = (1.5 + draw.uniform(1)) * up[0]
    return MLP(up, block.down, name)


@claim.exact("σ(z) − σ(−z) = z for GELU, with erf and in the tanh form")
def odd_part() -> str:
    z = sympy.Symbol("z", real=True)
    for name in ("gelu", "gelu_tanh"):
        sigma = get(name).expression
        difference = sympy.simplify(sigma(z) - sigma(-z) - z)
        require(difference == 0, f"σ(z) - σ(-z) - z is {difference} for {name}")
    return "difference 0 (SymPy)"


@claim.exact("Taylor coefficients η_1, …, η_8 of the even part")
def taylor_coefficients() -> str:
    for r, eta in enumerate(_even_coefficients(get("gelu")), 1):
        require(sympy.simplify(eta - _coefficient(r)) == 0, f"η_{r} is {eta}, not {_coefficient(r)}")
    return "the formula's, none of them 0"


@claim.exact("Taylor coefficients of rows with a collinear pair are a regular system")
def regular_moment_systems(draw: Draw) -> str:
    shapes, etas = ((1, 3), (2, 4), (3, 5), (4, 6)), _even_coefficients(get("gelu"))
    for d, number in shapes:
        rows = _rows(draw, d, number)
        v = _separating_direction(rows)
        determinant, product = _moment_determinant([_dot(row, v) for row in rows])
        regular = determinant == product != 0 and 0 not in etas[:number]
        require(regular, f"rows {rows}: determinant {determinant}, formula {product}, coefficients {etas}")
    return f"{len(shapes)} systems, up to 6 rows"


@claim.exact("on the line, all residual-free blocks of a grid searched")
def no_other_block_on_the_line(draw: Draw) -> str:
    table, rng, drawn, absorbing = _all_blocks_on_line(_powers()), draw.rng(), 60, 0
    for _ in range(drawn):
        inner, outer = rng.permutation([1, 2, 3]) * rng.choice([-1, 1], 3), rng.choice([-2, -1, 1, 2], 3)
        units = list(zip(outer.tolist(), inner.tolist(), strict=True))
        equal, allowed = table.get(_function_on_line(units, skip=1), set()), _turned_around(units)
        require(equal == allowed, f"x + B for units {units} equals {equal}, the theorem allows {allowed}")
        absorbing += bool(equal)
    both = 0 < absorbing < drawn
    require(both, f"{absorbing} of {drawn} blocks absorb: one side of the claim was not tried")
    searched = sum(len(blocks) for blocks in table.values())
    by = f"{absorbing} absorb, each by its sets S and in no other way"
    return f"{drawn} blocks against {searched}; {by}"


@claim.numeric("absorb agrees with trying all 2^m subsets")
def agrees_with_all_subsets(draw: Draw) -> str:
    for d, m, name in ((1, 4, "gelu"), (3, 8, "gelu_tanh")):
        free, units = _stretched(d, m, name, draw), draw.subset(m - 1, d + 1)
        for residual in (Residual(free), plant(free, units)):
            found, oracle = absorb(residual), subsets_that_work(residual)
            require(found.absorbed is bool(oracle), f"absorb says {found.absorbed}, all subsets say {oracle}")
        only = found.flipped == units and oracle == [units]
        require(only, f"planted {units}, found {found.flipped}, all {oracle}")
    return "4 blocks with a collinear pair"


@claim.numeric("the planted set turned around gives the same function")
def planted_sets_turned(draw: Draw) -> str:
    worst = 0.0
    for d, m, name in ((1, 4, "gelu"), (3, 8, "gelu_tanh")):
        units = draw.subset(m - 1, d + 1)
        residual = plant(_stretched(d, m, name, draw), units)
        found = absorb(residual)
        require(found.flipped == units, f"planted {units}, found {found.flipped}")
        worst = max(worst, gap(residual, found.network, draw.normal(300, d)))
    # sums of a few products in float64; 1e-11 leaves room for badly conditioned plants
    require(worst < 1e-11, f"the turned block differs by {worst:.1e}")
    return f"relative difference {worst:.1e}"


@claim.certificate("a random block, d = 16, m = 64, refuted for all S at once, by a matrix Y")
def random_block_refuted(draw: Draw) -> str:
    residual = Residual(_stretched(16, 64, "gelu", draw))
    return f"‖I + P_S‖_F ≥ {proved_by(absorb(residual), residual):.2f}"


@claim.control("every u_i ≠ 0", "a block with a zero row absorbs although no S works")
def zero_row(draw: Draw) -> str:
    return absorbs_without_a_set("zero row", "gelu", draw)


@claim.control("every a_i ≠ 0", "a block with a dead unit absorbs although no S works")
def dead_unit(draw: Draw) -> str:
    return absorbs_without_a_set("dead unit", "gelu", draw)


@claim.control("u_i ≠ ±u_j for i ≠ j", "a block with a duplicated row absorbs although no S works")
def duplicated_row(draw: Draw) -> str:
    return absorbs_without_a_set("duplicated unit", "gelu", draw)


@claim.control("u_i ≠ ±u_j for i ≠ j", "x + aσ(x) + bσ(−x) = (a + 1)σ(x) + (b − 1)σ(−x), no S works")
def opposite_rows(draw: Draw) -> str:
    b, more = draw.integers(2, 7, 2).tolist()
    a = b + more  # none of a, -b, a - b is -1: no S works
    pair, other = [(a, 1), (b, -1)], [(a + 1, 1), (b - 1, -1)]
    require(_function_on_line(pair, skip=1) == _function_on_line(other), "the pair did not take the skip")
    require(not _turned_around(pair), "a set S works after all")
    omegas = [_dot(row, (1, 7)) for row in ((1, 2), (3, -1), (-1, -2))]
    require(_moment_determinant(omegas) == (0, 0), "opposite rows left the moment system regular")
    return f"exact, a = {a}, b = {b}; the determinant of the moment system is 0"


@claim.control("no biases", "P_S = −I, and yet one unit with a bias does not absorb: a constant is left over")
def one_bias(draw: Draw) -> str:
    return bias_is_left_over("gelu", draw)


@claim.control("same width", "with d more units a block absorbs although no S works")
def wider_block(draw: Draw) -> str:
    return absorbs_with_more_units(_stretched(2, 5, "gelu", draw), draw)


@claim.control(
    "analytic even part", "ReLU units with the rows 1 and 2 on the line absorb although no S works"
)
def relu_on_the_line(draw: Draw) -> str:
    positive = draw.uniform(1, 2) + 0.1  # no sum is -1
    return absorbs_on_the_line(MLP(torch.tensor([[1.0], [2.0]]), positive))


@claim.control("even part not a polynomial", "σ(z) = z/2 + z² on the line absorbs, no S works")
def polynomial_even_part(draw: Draw) -> str:
    a, u, b, v = (Fraction(n, 3) for n in draw.integers(1, 9, 4).tolist())  # positive: no S works
    slope, square = 1 + (a * u + b * v) / 2, a * u**2 + b * v**2  # σ(z) = z/2 + z²
    p, q = square / 2 + slope, square / 2 - slope  # p σ(x) + q σ(-x)
    require(((p - q) / 2, p + q) == (slope, square), "two units z/2 + z² missed the skip block")
    return f"{p}·σ(x) + ({q})·σ(−x), exact"
