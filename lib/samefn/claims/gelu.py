"""A-T10: when a GELU block absorbs its skip.  Chapter ``skip/gelu``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch
from sympy.polys.matrices import DomainMatrix

from ..absorption import absorb, plant
from ..activations import get
from ..networks import MLP, Residual, random_mlp
from . import Claim, Control, Evidence, relu, require

Unit = tuple[int, int]  # (a, u), one unit a σ(ux) on the line


def taylor_coefficient(k: int) -> sympy.Expr:
    """The coefficient of z^{2k}, k ≥ 1, in GELU's even part h(z) = z erf(z/√2)/2, exactly; never 0."""
    j = k - 1
    return sympy.Integer(-1) ** j / (sympy.sqrt(2 * sympy.pi) * 2**j * sympy.factorial(j) * (2 * j + 1))


def separating_direction(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """An integer vector n for which the numbers |u·n|, u in ``rows``, are nonzero and distinct.

    Walks along the curve (1, s, s², ...).  Each of the N² conditions u·n ≠ 0, (u - v)·n ≠ 0 and
    (u + v)·n ≠ 0 excludes at most d - 1 values of s, so N²(d - 1) + 1 values are enough.
    Raises ValueError if a row is zero or two rows are equal up to sign: then there is no such n.
    """
    number, d = len(rows), len(rows[0])
    for s in range(number**2 * (d - 1) + 1):
        n = tuple(s**power for power in range(d))
        lengths = {abs(sum(p * q for p, q in zip(row, n))) for row in rows}
        if len(lengths) == number and 0 not in lengths:
            return n
    raise ValueError("rows must be nonzero and pairwise different up to sign")


def spare_unit_block(kind: str, generator: torch.Generator) -> Residual:
    """A GELU block in the plane, degenerate in one way, that absorbs its skip although no S satisfies P_S = -I.

    ``kind`` is "dead unit", "duplicated unit" or "opposite pair"; the weights are those of the
    ReLU chapter, because only σ(z) - σ(-z) = z makes the spare unit useful.
    """
    block = relu.spare_unit_block(kind, generator).block
    return Residual(MLP(block.up, block.down, "gelu"))


def function_on_line(units: Sequence[Unit], skip: int = 0) -> tuple[int, ...]:
    """Integers that determine x ↦ skip·x + Σ a σ(ux) among all sums of at most three units.

    Twice the slope of the odd part, then Σ a u^{2k} for k = 1..6.  Two such functions have at most
    six values of |u| between them, so a Vandermonde determinant makes equal moments mean equal functions.
    """
    moments = [sum(a * u ** (2 * k) for a, u in units) for k in range(1, 7)]
    return 2 * skip + sum(a * u for a, u in units), *moments


@cache
def _all_blocks_on_line() -> dict[tuple[int, ...], set[tuple[Unit, ...]]]:
    """Every block of three units with a in -2..2 and u in -3..3, degenerate or not, by its function."""
    units = list(itertools.product(range(-2, 3), range(-3, 4)))
    table: dict[tuple[int, ...], set[tuple[Unit, ...]]] = {}
    for block in itertools.combinations_with_replacement(units, 3):
        table.setdefault(function_on_line(block), set()).add(tuple(sorted(block)))
    return table


def _turned_around(units: Sequence[Unit]) -> set[tuple[Unit, ...]]:
    """The blocks that the theorem allows: for each S with Σ_S a u = -1, the units with S negated."""
    found = set()
    for signs in itertools.product((1, -1), repeat=len(units)):
        if sum(a * u for (a, u), sign in zip(units, signs) if sign == -1) == -1:
            found.add(tuple(sorted((a, sign * u) for (a, u), sign in zip(units, signs))))
    return found


@cache
def _parity_gap(name: str) -> sympy.Expr:
    z = sympy.Symbol("z", real=True)
    sigma = get(name).expression
    return sympy.simplify(sigma(z) - sigma(-z) - z)


@cache
def _taylor_gap(order: int) -> sympy.Expr:
    z = sympy.Symbol("z", real=True)
    h = get("gelu").even_part(z)
    series = sum(taylor_coefficient(k) * z ** (2 * k) for k in range(1, order + 1))
    return sympy.simplify(sympy.series(h, z, 0, 2 * order + 2).removeO() - series)


def _rows(rng: np.random.Generator, d: int, number: int) -> list[tuple[int, ...]]:
    """Integer rows, nonzero and different up to sign; the last is three times the first."""
    rows: list[tuple[int, ...]] = []
    while len(rows) < number - 1:
        row = tuple(int(entry) for entry in rng.integers(-4, 5, d))
        triples = [tuple(s * 3 * entry for entry in rows[0]) for s in (1, -1)] if rows else []
        if any(row) and row not in rows and tuple(-entry for entry in row) not in rows and row not in triples:
            rows.append(row)
    return [*rows, tuple(3 * entry for entry in rows[0])]


def _moment_determinant(alphas: Sequence[int]) -> tuple[int, int]:
    """det of the matrix α_i^{2k}, k = 1..N, by elimination, and the product formula for it."""
    size = len(alphas)
    powers = [[sympy.ZZ(alpha) ** (2 * k) for alpha in alphas] for k in range(1, size + 1)]
    matrix = DomainMatrix(powers, (size, size), sympy.ZZ)
    product = math.prod(alpha**2 for alpha in alphas)
    product *= math.prod(alphas[j] ** 2 - alphas[i] ** 2 for i, j in itertools.combinations(range(size), 2))
    return int(matrix.det()), product


def _stretched(d: int, m: int, name: str, generator: torch.Generator) -> MLP:
    """A random block whose last row is a multiple of its first, of another length."""
    block = random_mlp(d, m, name, generator=generator)
    up = block.up.detach().clone()
    up[-1] = (1.5 + torch.rand((), generator=generator, dtype=torch.float64)) * up[0]
    return MLP(up, block.down.detach(), name)


def _difference(residual: Residual, network: MLP, generator: torch.Generator) -> float:
    x = torch.randn(300, residual.dim_in, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return float((residual(x) - network(x)).abs().max() / residual(x).abs().max())


def evidence(seed: int) -> Iterator[Evidence]:
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)

    for name in ("gelu", "gelu_tanh"):
        require(_parity_gap(name) == 0, f"σ(z) - σ(-z) - z is {_parity_gap(name)} for {name}")
    yield Evidence("exact", "σ(z) − σ(−z) = z for GELU, with erf and in the tanh form", "difference 0 (SymPy)")

    require(_taylor_gap(8) == 0, f"the Taylor series of h is off by {_taylor_gap(8)}")
    yield Evidence("exact", "Taylor coefficients of h at z², z⁴, …, z¹⁶", "the formula's, none of them 0")

    sizes = []
    for d, number in ((1, 3), (2, 4), (3, 5), (4, 6)):
        rows = _rows(rng, d, number)
        n = separating_direction(rows)
        alphas = [sum(p * q for p, q in zip(row, n)) for row in rows]
        determinant, product = _moment_determinant(alphas)
        require(determinant == product != 0, f"rows {rows}: determinant {determinant}, formula {product}")
        sizes.append(number)
    measured = f"{len(sizes)} systems, up to {max(sizes)} rows"
    yield Evidence("exact", "moment systems of rows with a collinear pair are regular", measured)

    table, drawn, absorbing = _all_blocks_on_line(), 60, 0
    for _ in range(drawn):
        lengths, signs = rng.permutation([1, 2, 3]), rng.choice([-1, 1], 3)
        units = [(int(a), int(u)) for a, u in zip(rng.choice([-2, -1, 1, 2], 3), lengths * signs)]
        equal = table.get(function_on_line(units, skip=1), set())
        allowed = _turned_around(units)
        require(equal == allowed, f"x + B for units {units} equals {equal}, the theorem allows {allowed}")
        absorbing += bool(equal)
    require(0 < absorbing < drawn, f"{absorbing} of {drawn} blocks absorb: one side of the claim was not tried")
    searched = sum(len(blocks) for blocks in table.values())
    measured = f"{drawn} blocks against {searched}; {absorbing} absorb, each by the S of the criterion and in no other way"
    yield Evidence("exact", "on the line, all residual-free blocks of a grid searched", measured)

    tried, worst = 0, 0.0
    for d, m, name in ((1, 4, "gelu"), (3, 8, "gelu_tanh")):
        free = _stretched(d, m, name, generator)
        units = tuple(sorted(torch.randperm(m - 1, generator=generator)[: d + 1].tolist()))
        for residual in (Residual(free), plant(free, units)):
            found, oracle = absorb(residual), relu.subsets_that_work(residual)
            require(found.absorbed is bool(oracle), f"absorb says {found.absorbed}, all subsets say {oracle}")
            tried += 1
        require(found.flipped == units and oracle == [units], f"planted {units}, found {found.flipped}, all {oracle}")
        worst = max(worst, _difference(residual, found.network, generator))
    yield Evidence("numeric", "absorb agrees with trying all 2^m subsets", f"{tried} blocks with a collinear pair")
    # sums of a few products in float64; 1e-11 leaves room for badly conditioned plants
    require(worst < 1e-11, f"the turned block differs by {worst:.1e}")
    yield Evidence("numeric", "the planted set turned around gives the same function", f"relative difference {worst:.1e}")

    found = absorb(Residual(_stretched(16, 64, "gelu", generator)))
    require(found.absorbed is False and found.margin > 0, f"a random block was not refuted: {found}")
    yield Evidence("certificate", "a random block, d = 16, m = 64, refuted for all S at once", f"‖I + P_S‖ ≥ {found.margin:.2f}")


def controls(seed: int) -> Iterator[Control]:
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)

    b, more = (int(value) for value in rng.integers(2, 7, 2))
    a = b + more  # none of a, -b, a - b is -1: no S works
    pair, other = [(a, 1), (b, -1)], [(a + 1, 1), (b - 1, -1)]
    require(function_on_line(pair, skip=1) == function_on_line(other), "the pair did not take the skip")
    rows = [(1, 2), (3, -1), (-1, -2)]
    alphas = [p + 7 * q for p, q in rows]
    require(_moment_determinant(alphas) == (0, 0), "opposite rows left the moment system regular")
    require(not _turned_around(pair), "a set S works after all")
    yield Control("u_i ≠ −u_j", f"x + {a}σ(x) + {b}σ(−x) = {a + 1}σ(x) + {b - 1}σ(−x)", "exact; the determinant of the moment system is 0")

    for kind in ("dead unit", "duplicated unit", "opposite pair"):
        residual = spare_unit_block(kind, generator)
        require(relu.subsets_that_work(residual) == [], f"{kind}: a subset satisfies the criterion after all")
        found = absorb(residual)
        require(found.absorbed is True, f"{kind}: the block was not absorbed: {found}")
        gap = _difference(residual, found.network, generator)
        require(gap < 1e-10, f"{kind}: the residual-free block differs by {gap:.1e}")
        yield Control(f"nondegeneracy, {kind}", "absorbs although no S works", f"relative difference {gap:.1e}")

    down = torch.rand(1, 2, generator=generator, dtype=torch.float64) + 0.1  # positive: no sum is -1
    up = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    bent, smooth = (absorb(Residual(MLP(up, down, name))) for name in ("relu", "gelu"))
    require(bent.absorbed is True and smooth.absorbed is False, f"ReLU {bent}, GELU {smooth}")
    yield Control("analytic even part", "rows 1 and 2 on the line: ReLU absorbs, GELU does not", f"GELU margin {smooth.margin:.2f}")

    a, u, b, v = (Fraction(int(n), 3) for n in rng.integers(1, 9, 4))  # positive: no S works
    slope, square = 1 + (a * u + b * v) / 2, a * u**2 + b * v**2  # σ(z) = z/2 + z²
    p, q = square / 2 + slope, square / 2 - slope  # p σ(x) + q σ(-x)
    require(((p - q) / 2, p + q) == (slope, square), "two units z/2 + z² missed the skip block")
    yield Control("even part not a polynomial", "σ(z) = z/2 + z² on the line absorbs, no S works", f"{p}·σ(x) + ({q})·σ(−x), exact")

    block = random_mlp(1, 1, "gelu", generator=generator)
    u, a = block.up.detach(), block.down.detach()
    wider = MLP(torch.cat([u, -u]), torch.cat([a + 1 / u, -1 / u], 1), "gelu")
    gap = _difference(Residual(block), wider, generator)
    require(absorb(Residual(block)).absorbed is False and gap < 1e-10, f"one unit more leaves {gap:.1e}")
    yield Control("same width", "on the line one unit more absorbs every block", f"relative difference {gap:.1e}")


CLAIM = Claim(
    id="A-T10",
    title="A GELU block absorbs its skip iff P_S = −I for some set S of units",
    source="[A], Theorem 10",
    hypotheses=("every u_i ≠ 0", "u_i ≠ ±u_j for i ≠ j", "every a_i ≠ 0", "no biases", "same width"),
    uses=(),
    chapter="skip/gelu",
    evidence=evidence,
    controls=controls,
)
