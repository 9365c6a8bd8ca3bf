"""A-T8: when a ReLU block absorbs its skip.  Chapter ``skip/relu``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import Residual, random_mlp
from ...skip.absorption import absorb, flip
from ...skip.planted import plant, running_example, subsets_that_work
from .. import Claim, require
from .degenerate import absorbs_without_a_set

claim = Claim(
    id="A-T8",
    title="A ReLU block absorbs its skip iff P_S = −I for some set S of units",
    source="[A], Theorem 8",
    hypotheses=("d ≥ 2", "every u_i ≠ 0 and no two collinear", "every a_i ≠ 0", "no biases", "same width"),
    uses=(),
    chapter="skip/relu",
)


@claim.exact("σ(z) − σ(−z) = z for ReLU")
def odd_part() -> str:
    z, relu = sympy.Symbol("z", real=True), get("relu").expression
    require(sympy.simplify(relu(z) - relu(-z) - z) == 0, "ReLU(z) - ReLU(-z) is not z")
    return "difference 0 (SymPy)"


@claim.exact("rational block with P_S = −I: x + B(x) equals the flipped block")
def rational_block(draw: Draw) -> str:
    up, down = _rational_weights(draw.rng())
    turned = up * np.array([-1, -1, -1, 1])[:, None]
    # both sides are linear between neighbouring kinks, so equality on every kink's two rays is equality
    rays = np.concatenate([np.column_stack([-up[:, 1], up[:, 0]]), np.column_stack([up[:, 1], -up[:, 0]])])
    difference = rays + _exact_values(up, down, rays) - _exact_values(turned, down, rays)
    require(not difference.any(), f"the flipped block differs on a ray: {difference}")
    return f"equal on all {len(rays)} rays"


def _exact_values(up: np.ndarray, down: np.ndarray, points: np.ndarray) -> np.ndarray:
    """B(x) in rational arithmetic, a row of values for each row of points."""
    return np.maximum(points @ up.T, Fraction(0)) @ down.T


def _rational_weights(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rational W_up and W_down in the plane, d = 2 and m = 4, with P_S = -I exactly for S = {0, 1, 2}."""
    thirds = np.vectorize(lambda p: Fraction(int(p), 3))
    slopes = rng.permutation(np.arange(-6, 7))[:4]
    up = np.column_stack([np.full(4, Fraction(1)), thirds(slopes)])  # distinct slopes: no two rows collinear
    nonzero = np.concatenate([np.arange(-9, 0), np.arange(1, 10)])
    down = thirds(rng.permutation(nonzero)[:8].reshape(2, 4))
    missing = -np.eye(2, dtype=int) - down[:, 2:3] @ up[2:3]
    (p, q), (r, s) = up[:2]
    down[:, :2] = missing @ (np.array([[s, -q], [-r, p]]) / (p * s - q * r))
    return up, down


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


@claim.certificate("random blocks refuted for all S at once")
def random_blocks_refuted(draw: Draw) -> str:
    margins = []
    for d, m in ((8, 32), (16, 64), (24, 96)):
        found = absorb(Residual(random_mlp(d, m, generator=draw)))
        require(found.absorbed is False, f"a random block with d = {d}, m = {m} was not refuted: {found}")
        margins.append(found.margin)
    return "‖I + P_S‖ ≥ " + ", ".join(f"{margin:.2f}" for margin in margins)


@claim.numeric("planted sets are found, and the flipped block is the same function")
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


@claim.control("nondegeneracy, dead unit", "absorbs although no S works")
def dead_unit(draw: Draw) -> str:
    return absorbs_without_a_set("dead unit", "relu", draw)


@claim.control("nondegeneracy, duplicated unit", "absorbs although no S works")
def duplicated_unit(draw: Draw) -> str:
    return absorbs_without_a_set("duplicated unit", "relu", draw)


@claim.control("nondegeneracy, opposite pair", "absorbs although no S works")
def opposite_pair(draw: Draw) -> str:
    return absorbs_without_a_set("opposite pair", "relu", draw)


@claim.control("P_S = −I", "with P_S = −I + E flipping misses by exactly Ex")
def missing_by_a_matrix(draw: Draw) -> str:
    residual, x, units = running_example(moved=0.25), draw.normal(500, 2), (0, 1, 2)
    found = absorb(residual)
    require(found.absorbed is False, f"the moved block was absorbed: {found}")
    require(absorb(running_example()).flipped == units, "the block is not absorbed before it is moved")
    E = torch.tensor([[0.25, 0.0], [0.0, 0.0]])  # P_S + I
    miss = float((residual(x) - flip(residual.block, units)(x) - x @ E.T).abs().max())
    require(miss < 1e-12, f"flipping S leaves an error other than Ex: {miss:.1e}")
    return f"certified ‖I + P_S‖ ≥ {found.margin:.3f} for all S"
