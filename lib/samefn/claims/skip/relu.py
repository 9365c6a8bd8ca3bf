"""A-T8: when a ReLU block absorbs its skip.  Chapter ``skip/relu``."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import sympy
import torch
from torch import Tensor

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb, flip
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
    id="A-T8",
    title="A nondegenerate ReLU block absorbs its skip iff P_S = −I for some set S of its units",
    source="[A], Theorem 8; certificates are ours",
    hypotheses=("every u_i ≠ 0", "no two u_i collinear", "every a_i ≠ 0", "no biases", "same width"),
    uses=(),
    chapter="skip/relu",
)

# the eight directions of a king's moves, in an order in which the k-th from the end is minus the k-th;
# a row among them bends on two of them, so they are also the rays of all kinks
KING = torch.tensor([move for move in itertools.product((-1, 0, 1), repeat=2) if any(move)]).double()


@claim.exact("σ(z) − σ(−z) = z for ReLU")
def odd_part() -> str:
    z, relu = sympy.Symbol("z", real=True), get("relu").expression
    require(sympy.simplify(relu(z) - relu(-z) - z) == 0, "ReLU(z) - ReLU(-z) is not z")
    return "difference 0 (SymPy)"


@claim.exact("integer block with P_S = −I: x + B(x) equals the block with the rows of S negated")
def integer_block(draw: Draw) -> str:
    block = _integer_block(draw.rng())
    # both sides are linear between neighbouring kinks, so equality on every kink's two rays is equality
    rays = torch.cat([block.up.flip(1), -block.up.flip(1)]) * torch.tensor([-1.0, 1])
    difference = Residual(block)(rays) - flip(block, (0, 1, 2))(rays)  # of integers: float64 is exact
    require(not difference.any(), f"the turned block differs on a ray: {difference}")
    return f"equal on all {len(rays)} rays"


def _integer_block(rng: np.random.Generator) -> MLP:
    """Integer W_up and W_down, d = 2 and m = 4, with P_S = −I for S = {0, 1, 2}."""
    first = int(rng.integers(-6, 6))
    others = rng.permutation(np.setdiff1d(np.arange(-8, 9), [first, first + 1]))[:2]
    up = np.array([[1, slope] for slope in (first, first + 1, *others)])  # no two rows collinear
    down = rng.integers(1, 9, (2, 4)) * rng.choice([-1, 1], (2, 4))
    missing = -np.eye(2, dtype=int) - np.outer(down[:, 2], up[2])
    down[:, :2] = missing @ [[first + 1, -first], [-1, 1]]  # the inverse of the first two rows
    return MLP(torch.from_numpy(up).double(), torch.from_numpy(down).double())


@claim.exact("in the plane, x + B for all blocks of a grid, against all real columns on all rows of the grid")
def no_other_block_in_the_plane() -> str:
    tried = absorbing = 0
    for m in (1, 2, 3):
        columns = torch.tensor(list(itertools.product(KING.tolist(), repeat=m)))  # (choices, m, 2)
        rows_of_others = list(itertools.combinations(range(8), m))
        annihilators = [_annihilator(rows) for rows in rows_of_others]
        for rows in rows_of_others:
            if any(i + j == 7 for i, j in itertools.combinations(rows, 2)):
                continue  # an opposite pair; all other pairs of the eight are not collinear
            skip_block = KING + _units(rows) @ columns
            equal = torch.stack([~(a @ skip_block).flatten(1).any(1) for a in annihilators], 1)
            allowed = torch.zeros_like(equal)
            for turned in itertools.product((False, True), repeat=m):
                works = ((columns.mT * torch.tensor(turned)) @ KING[list(rows)] == -torch.eye(2)).all((1, 2))
                signed = tuple(sorted(7 - i if t else i for i, t in zip(rows, turned, strict=True)))
                allowed[:, rows_of_others.index(signed)] |= works
            require(torch.equal(equal, allowed), f"rows {KING[list(rows)].tolist()}: others than by an S")
            tried, absorbing = tried + len(columns), absorbing + int(equal.any(1).sum())
    require(0 < absorbing < tried, f"{absorbing} of {tried} absorb: one side of the claim was not tried")
    return f"{tried} blocks, {absorbing} absorb, each by its sets S and in no other way"


def _units(rows: tuple[int, ...]) -> Tensor:
    """σ(u·x) at the eight points x of ``KING``, a column for each row u."""
    return get("relu")(KING @ KING[list(rows)].T)


def _annihilator(rows: tuple[int, ...]) -> Tensor:
    """A matrix that sends exactly the combinations of the columns of ``_units(rows)`` to 0, exact."""
    values = sympy.Matrix(_units(rows).T.tolist()).applyfunc(sympy.Rational)
    return torch.tensor([[float(e) for e in v * sympy.ilcm(*[e.q for e in v])] for v in values.nullspace()])


@claim.numeric("absorb agrees with trying all 2^m subsets")
def agrees_with_all_subsets(draw: Draw) -> str:
    shapes = ((2, 3), (2, 6), (3, 8), (4, 12))
    for d, m in shapes:
        drawn, units = random_mlp(d, m, generator=draw), draw.subset(m, d + (m - d) // 2)
        for residual in (Residual(drawn), plant(drawn, units)):
            found, oracle = absorb(residual), subsets_that_work(residual)
            require(found.absorbed is bool(oracle), f"absorb says {found.absorbed}, all subsets say {oracle}")
            among = found.absorbed is False or found.flipped in oracle
            require(among, f"{found.flipped} is not among {oracle}")
        require(oracle == [units], f"planted {units}, all subsets give {oracle}")
    return f"{2 * len(shapes)} blocks, m up to 12"


@claim.certificate("random blocks refuted for all S at once, by a matrix Y")
def random_blocks_refuted(draw: Draw) -> str:
    margins = []
    for d, m in ((8, 32), (16, 64), (24, 96)):
        residual = Residual(random_mlp(d, m, generator=draw))
        margins.append(proved_by(absorb(residual), residual))
    return "‖I + P_S‖_F ≥ " + ", ".join(f"{margin:.2f}" for margin in margins)


@claim.numeric("planted sets are found, and the block with S turned is the same function")
def planted_sets_found(draw: Draw) -> str:
    worst = 0.0
    for d, m in ((2, 4), (4, 10), (8, 32)):
        units = draw.subset(m, d + 1)
        residual = plant(random_mlp(d, m, generator=draw), units)
        found = absorb(residual)
        require(found.flipped == units, f"planted {units}, found {found.flipped}")
        worst = max(worst, gap(residual, found.network, draw.normal(500, d)))
    require(worst < 1e-12, f"the constructed block differs by {worst:.1e}")
    return f"relative difference {worst:.1e}"


@claim.control("every u_i ≠ 0", "a block with a zero row absorbs although no S works")
def zero_row(draw: Draw) -> str:
    return absorbs_without_a_set("zero row", "relu", draw)


@claim.control("every a_i ≠ 0", "a block with a dead unit absorbs although no S works")
def dead_unit(draw: Draw) -> str:
    return absorbs_without_a_set("dead unit", "relu", draw)


@claim.control("no two u_i collinear", "a block with a duplicated row absorbs although no S works")
def duplicated_row(draw: Draw) -> str:
    return absorbs_without_a_set("duplicated unit", "relu", draw)


@claim.control("no two u_i collinear", "a block with opposite rows absorbs although no S works")
def opposite_rows(draw: Draw) -> str:
    return absorbs_without_a_set("opposite pair", "relu", draw)


@claim.control("no two u_i collinear", "on the line two units absorb although no S works")
def line(draw: Draw) -> str:
    up, down = draw.uniform(2, 1) + 0.1, draw.uniform(1, 2) + 0.1  # positive: no sum is -1
    return absorbs_on_the_line(MLP(up, down))


@claim.control("no biases", "P_S = −I, and yet one unit with a bias does not absorb: a constant is left over")
def one_bias(draw: Draw) -> str:
    return bias_is_left_over("relu", draw)


@claim.control("same width", "with d more units a block absorbs although no S works")
def wider_block(draw: Draw) -> str:
    return absorbs_with_more_units(random_mlp(3, 8, generator=draw), draw)


@claim.control("σ is ReLU", "σ(z) = z/2 + z² has the same odd part, and one unit absorbs although no S works")
def quadratic_even_part(draw: Draw) -> str:
    a, u = (Fraction(n, 3) for n in draw.integers(1, 9, 2).tolist())  # positive: no S works
    slope, square = 1 + a * u / 2, a * u**2  # x + aσ(ux) = slope·x + square·x²
    other_u = square / (2 * slope)
    other_a = square / other_u**2
    require((other_a * other_u / 2, other_a * other_u**2) == (slope, square), "one unit z/2 + z² is not it")
    return f"x + {a}·σ({u}x) = {other_a}·σ({other_u}x), exact"
