"""A-C11: for almost all weights no residual block is residual-free, and conversely.  Chapter
``skip/generic``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import sympy
import torch
from jaxtyping import Float
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb, flip
from ...skip.criterion import trace_test
from ...skip.generic import LAWS, absorbing_on_grid, mean_length, negative_overlap
from ...skip.planted import subsets_that_work
from .. import Claim, require
from .degenerate import absorbs_on_the_line, absorbs_with_more_units, proved_by

claim = Claim(
    id="A-C11",
    title="For almost all weights x + B(x) is no residual-free block and B no residual one, at equal width",
    source="[A], Corollary 11; the second half and the bound at initialisation are ours",
    hypotheses=("d ≥ 2 (for ReLU)", "σ is ReLU or GELU", "weights with a density", "same width"),
    uses=("A-L4", "A-T8", "A-T10"),
    chapter="skip/generic",
)


def _seen(block: MLP, units: Iterable[int]) -> Float[Tensor, "d d"]:
    """I + P_S as the functions show it: x + B(x) minus the block with S turned, at the unit vectors.

    Exact for integer weights.
    """
    x = torch.eye(block.dim_in)
    return (Residual(block)(x) - flip(block, units)(x)).T


def _subsets(m: int) -> Iterable[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(m), size) for size in range(m + 1))


@claim.exact("for every S, I + P_S is I at weights 0 and quadratic along a line of weights")
def quadratic_and_not_zero(draw: Draw) -> str:
    d, m = 2, 3
    up, down = draw.integers(-9, 10, m, d).double(), draw.integers(-9, 10, d, m).double()
    more, more_down = draw.integers(-9, 10, m, d).double(), draw.integers(-9, 10, d, m).double()
    for units in _subsets(m):
        start = _seen(MLP(0 * up, 0 * down), units)
        require(torch.equal(start, torch.eye(d)), f"I + P_S is {start} at weights 0, S = {units}")
        line = [_seen(MLP(up + t * more, down + t * more_down), units) for t in range(6)]
        third = torch.stack(line).diff(3, dim=0)
        require(not third.any(), f"third differences {third} for S = {units}")
    return f"d = {d}, m = {m}, all {2**m} sets, in integers"


@claim.exact("P_S = −I are d² independent equations at its solutions")
def independent_equations(draw: Draw) -> str:
    d, size = draw.integer(2, 4), draw.integer(3, 6)
    up, down = (torch.from_numpy(w).double() for w in _solution(draw.rng(), d, size))
    S = range(size)
    require(not _seen(MLP(up, down), S).any(), "the planted weights do not satisfy P_S = −I")
    steps = torch.eye(2 * d * size)  # P_S is quadratic, so central differences are its derivatives
    columns = []
    for up_step, down_step in zip(steps[:, : d * size], steps[:, d * size :], strict=True):
        up_step, down_step = up_step.view(size, d), down_step.view(d, size)
        ahead, behind = MLP(up + up_step, down + down_step), MLP(up - up_step, down - down_step)
        columns.append((_seen(ahead, S) - _seen(behind, S)).flatten() / 2)
    jacobian = sympy.Matrix(torch.stack(columns).long().tolist())
    rank = DomainMatrix.from_Matrix(jacobian).to_field().rank()
    require(rank == d * d, f"the rank is {rank} at a solution with d = {d}, |S| = {size}")
    return f"rank {rank} = d², |S| = {size}"


def _solution(rng: np.random.Generator, d: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer W_up (size × d) and W_down (d × size) with W_down W_up = −I."""
    eye, lower = np.eye(d, dtype=int), rng.integers(-5, 6, (size - d, d))
    annihilates = np.concatenate([-lower, np.eye(size - d, dtype=int)], 1)  # … W_up = 0
    down = np.concatenate([-eye, np.zeros((d, size - d), dtype=int)], 1)
    return np.concatenate([eye, lower]), down + rng.integers(-5, 6, (d, size - d)) @ annihilates


@claim.exact("the share of weights on a grid with W_down W_up = −I falls as the grid is refined, d = m = 2")
def shares_on_grids() -> str:
    for l in (1, 2):
        grid = np.array(list(itertools.product(range(-l, l + 1), repeat=4))).reshape(-1, 2, 2)
        products = np.einsum("aij,bjk->abik", grid, grid)
        hits = int((products == -(l**2) * np.eye(2, dtype=int)).all((2, 3)).sum())
        require(hits == absorbing_on_grid(l), f"{hits} pairs of all, {absorbing_on_grid(l)} counted, l = {l}")
    shares = [absorbing_on_grid(l) / (2 * l + 1) ** 8 for l in (1, 2, 4, 8)]
    require(all(q < p / 8 for p, q in itertools.pairwise(shares)), f"the shares are {shares}")
    return " > ".join(f"{share:.1e}" for share in shares)


@claim.certificate("blocks of four laws: x + B is not residual-free, B is not x + B'")
def four_laws_both_ways(draw: Draw) -> str:
    margins = []
    for law, activation in zip(LAWS.values(), itertools.cycle(("relu", "gelu"))):
        drawn = law(5, 16, draw)
        for skip in (torch.eye(5), -torch.eye(5)):
            residual = Residual(MLP(drawn.up, drawn.down, activation), skip)
            margins.append(proved_by(absorb(residual), residual))
    return f"for every S, ‖P_S ± I‖_F ≥ {min(margins):.2f}"


@claim.numeric("the certified margin is at most the distance of the nearest of all 2^m sets")
def margin_below_every_set(draw: Draw) -> str:
    ratios = []
    for _ in range(5):
        block = random_mlp(2, 4, generator=draw)
        nearest = min(float(_seen(block, units).norm()) for units in _subsets(4))
        found = absorb(Residual(block))
        ratios.append(found.margin / nearest)
        require(found.absorbed is False and 0 < ratios[-1] < 1 + 1e-9, f"nearest {nearest}, {found}")
    return f"{min(ratios):.2f} to {max(ratios):.2f} of it, 5 blocks"


@claim.numeric("E ν_- = E‖u‖·√(m/2π) and Var ν_- ≤ 1/2 for normal weights")
def expected_overlap(draw: Draw) -> str:
    d, m, draws = 2, 256, 2000
    overlap = negative_overlap(draw.normal(draws, m, d) / d**0.5, draw.normal(draws, d, m) / m**0.5)
    mean, expected = float(overlap.mean()), mean_length(d) * (m / (2 * math.pi)) ** 0.5
    # the variance is at most 1/2, so six standard errors of the mean are allowed
    off = abs(mean - expected)
    require(off < 6 * (0.5 / draws) ** 0.5, f"mean overlap {mean:.3f}, expected {expected:.3f}")
    require(overlap.var() < 0.5, f"the variance is {overlap.var():.3f}")
    return f"{mean:.3f} measured, {expected:.3f} expected; variance {overlap.var():.2f}"


@claim.certificate("the trace test alone refutes a standard initialisation, d = 32, m = 128")
def standard_initialisation(draw: Draw) -> str:
    block = random_mlp(32, 128, generator=draw)
    overlap = sum(max(0.0, -float(a @ u)) for a, u in zip(block.down.T, block.up, strict=True))
    test = trace_test(Residual(block))
    require(test > 0 and abs(test - (32 - overlap)) < 1e-9, f"trace test {test:.2f}, overlap {overlap:.2f}")
    chance = 0.5 / (32 - (128 / (2 * math.pi)) ** 0.5) ** 2
    return f"{test:.1f} > 0; fails with probability ≤ {chance:.1e}"


@claim.control("weights with a density", "of all blocks with weights −1, 0, 1, d = m = 2, some have P_S = −I")
def discrete_weights() -> str:
    matrices = np.array(list(itertools.product((-1, 0, 1), repeat=4))).reshape(-1, 2, 2)
    products = np.einsum("aij,bjk->abik", matrices, matrices)
    hits = int((products == -np.eye(2, dtype=int)).all((2, 3)).sum())
    determinants = matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] * matrices[:, 1, 0]
    unimodular = int((abs(determinants) == 1).sum())
    require(hits == unimodular > 0, f"{hits} pairs, {unimodular} of determinant ±1")
    return f"exactly {hits}/{len(matrices) ** 2}"


@claim.control(
    "weights with a density", "a block with weights −1, 0, 1 equals the block with all units turned"
)
def discrete_block(draw: Draw) -> str:
    up = torch.zeros(2, 2)
    while abs(round(float(torch.linalg.det(up)))) != 1:
        up = draw.integers(-1, 2, 2, 2).double()
    block, x = MLP(up, -torch.linalg.inv(up).round()), draw.integers(-99, 100, 500, 2).double()
    require(torch.equal(Residual(block)(x), flip(block, (0, 1))(x)), f"not turned around: {up.tolist()}")
    return f"W_up = {up.int().tolist()}, 500 points in integers"


@claim.control("d ≥ 2 (for ReLU)", "on the line x plus a random block of six ReLU units is a block of two")
def line(draw: Draw) -> str:
    return absorbs_on_the_line(random_mlp(1, 6, generator=draw))


@claim.control("σ is ReLU or GELU", "σ(z) = z: every block with m ≥ d absorbs, x + B(x) being linear")
def linear_units(draw: Draw) -> str:
    block = random_mlp(3, 5, "identity", generator=draw)
    identity, nothing = torch.eye(5, 3), torch.zeros(3, 2)
    other = MLP(identity, torch.cat([torch.eye(3) + block.down @ block.up, nothing], 1), "identity")
    off = gap(Residual(block), other, draw.normal(200, 3))
    require(off < 1e-12, f"a linear block differs by {off:.1e}")
    return f"relative difference {off:.1e}"


@claim.control("a polynomial that is not identically zero", "skip 0 in place of I: P_∅ = 0 for all weights")
def zero_skip(draw: Draw) -> str:
    works = subsets_that_work(Residual(random_mlp(3, 8, generator=draw), torch.zeros(3, 3)))
    require(() in works, "the empty set does not absorb the zero skip")
    return "S = ∅ solves it"


@claim.control("same width", "with d more units a random block absorbs its skip although no S works")
def wider_block(draw: Draw) -> str:
    return absorbs_with_more_units(random_mlp(3, 8, generator=draw), draw)
