"""A-T8: when a ReLU block absorbs its skip.  Chapter ``skip/relu``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import sympy
import torch
from torch import Tensor

from ..absorption import absorb, plant, subset_distances
from ..activations import get
from ..networks import MLP, Residual, random_mlp
from . import Claim, Control, Evidence, require


def running_example(moved: float = 0.0) -> Residual:
    """The chapter's block: d = 2, m = 4, P_S = -I for S = {0, 1, 2}; ``moved`` shifts one weight off it."""
    up = torch.tensor([[1, 0], [0, 1], [1, 1], [1, -1]], dtype=torch.float64)
    down = torch.tensor([[-1.5 + moved, -0.5, 0.5, 1], [0.5, -0.5, -0.5, 0.5]], dtype=torch.float64)
    return Residual(MLP(up, down))


def subsets_that_work(residual: Residual, tolerance: float = 1e-9) -> list[tuple[int, ...]]:
    """All S with ‖A + 2c P_S‖ ≤ tolerance, by trying all 2^m; the oracle for small blocks."""
    works = (subset_distances(residual) <= tolerance).nonzero().flatten().tolist()
    return [tuple(i for i in range(residual.block.width) if k >> i & 1) for k in works]


def _exact_values(up: np.ndarray, down: np.ndarray, skip: int, points: np.ndarray) -> np.ndarray:
    """skip·x + B(x) in rational arithmetic, a row of values for each row of points."""
    hidden = np.maximum(points @ up.T, Fraction(0))
    return skip * points + hidden @ down.T


def _exact_planted(seed: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Rational weights in the plane with P_S = -I exactly, for S = (0, 1, 2)."""
    rng = np.random.default_rng(seed)
    slopes = rng.permutation(np.arange(-6, 7))[:4]
    fraction = np.vectorize(lambda p: Fraction(int(p), 3))
    up = np.column_stack([np.full(4, Fraction(1)), fraction(slopes)])  # distinct slopes: no two rows collinear
    down = fraction(rng.permutation(np.concatenate([np.arange(-9, 0), np.arange(1, 10)]))[:8].reshape(2, 4))
    missing = -np.eye(2, dtype=int) - down[:, 2:3] @ up[2:3]
    (p, q), (r, s) = up[:2]
    inverse = np.array([[s, -q], [-r, p]]) / (p * s - q * r)
    down[:, :2] = missing @ inverse
    return up, down, (0, 1, 2)


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)

    z = sympy.Symbol("z", real=True)
    relu = get("relu").expression
    require(sympy.simplify(relu(z) - relu(-z) - z) == 0, "ReLU(z) - ReLU(-z) is not z")
    yield Evidence("exact", "σ(z) − σ(−z) = z for ReLU", "difference 0 (SymPy)")

    up, down, flipped = _exact_planted(seed)
    sign = np.array([-1 if i in flipped else 1 for i in range(4)])
    # both sides are linear between neighbouring kinks, so equality on every kink's two rays is equality
    rays = np.concatenate([np.column_stack([-up[:, 1], up[:, 0]]), np.column_stack([up[:, 1], -up[:, 0]])])
    gap = _exact_values(up, down, 1, rays) - _exact_values(up * sign[:, None], down, 0, rays)
    require(not gap.any(), f"the flipped block differs on a ray: {gap}")
    yield Evidence("exact", "rational block with P_S = −I equals the flipped block", f"equal on all {len(rays)} rays")

    tried = 0
    for d, m in ((2, 3), (2, 6), (3, 8), (4, 12)):
        blocks = [Residual(random_mlp(d, m, generator=generator))]
        units = tuple(sorted(torch.randperm(m, generator=generator)[: d + (m - d) // 2].tolist()))
        blocks.append(plant(blocks[0].block, units))
        for residual in blocks:
            found, oracle = absorb(residual), subsets_that_work(residual)
            require(found.absorbed is bool(oracle), f"absorb says {found.absorbed}, all subsets say {oracle}")
            require(found.absorbed is False or found.flipped in oracle, f"{found.flipped} is not among {oracle}")
            tried += 1
    require(oracle == [units], f"planted {units}, all subsets give {oracle}")
    yield Evidence("numeric", "absorb agrees with trying all 2^m subsets", f"{tried} blocks, m up to 12")

    margins = []
    for d, m in ((8, 32), (16, 64), (24, 96)):
        found = absorb(Residual(random_mlp(d, m, generator=generator)))
        require(found.absorbed is False, f"a random block with d = {d}, m = {m} was not refuted: {found}")
        margins.append(found.margin)
    yield Evidence(
        "certificate", "random blocks refuted for all S at once", "‖I + P_S‖ ≥ " + ", ".join(f"{x:.2f}" for x in margins)
    )

    worst = 0.0
    for d, m in ((2, 4), (4, 10), (8, 32)):
        units = tuple(sorted(torch.randperm(m, generator=generator)[: d + 1].tolist()))
        residual = plant(random_mlp(d, m, generator=generator), units)
        found = absorb(residual)
        require(found.flipped == units, f"planted {units}, found {found.flipped}")
        x = torch.randn(500, d, generator=generator, dtype=torch.float64)
        worst = max(worst, float((residual(x) - found.network(x)).abs().max() / residual(x).abs().max()))
    require(worst < 1e-12, f"the constructed block differs by {worst:.1e}")
    yield Evidence("numeric", "planted sets are found, and the flipped block is the same function", f"relative difference {worst:.1e}")


def spare_unit_block(kind: str, generator: torch.Generator) -> Residual:
    """A block in the plane, degenerate in one way, that absorbs its skip although no S satisfies P_S = -I.

    ``kind`` is "dead unit" (a_i = 0), "duplicated unit" (u_i = u_j) or "opposite pair" (u_i = -u_j).
    The set {1, 2, 3} misses -I by a matrix v u_0ᵀ only, and the spare unit on unit 0's line makes that up.
    """
    block = random_mlp(2, 6, generator=generator)
    up, down = block.up.detach().clone(), block.down.detach().clone()
    if kind == "dead unit":
        down[:, 5] = 0
    elif kind in ("duplicated unit", "opposite pair"):
        up[5] = up[0] if kind == "duplicated unit" else -up[0]
    else:
        raise ValueError(f"kind must be 'dead unit', 'duplicated unit' or 'opposite pair', got {kind!r}")
    missed = torch.randn(2, 1, generator=generator, dtype=torch.float64) * up[0]
    planted = plant(MLP(up, down), (1, 2, 3), torch.eye(2, dtype=torch.float64) - missed)
    return Residual(planted.block)


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(500, 2, generator=generator, dtype=torch.float64)

    def error(residual: Residual, other: torch.nn.Module) -> Tensor:
        return residual(x) - other(x)

    for kind in ("dead unit", "duplicated unit", "opposite pair"):
        residual = spare_unit_block(kind, generator)
        require(subsets_that_work(residual) == [], f"{kind}: a subset satisfies the criterion after all")
        found = absorb(residual)
        require(found.absorbed is True, f"{kind}: the block was not absorbed: {found}")
        gap = float(error(residual, found.network).abs().max() / residual(x).abs().max())
        require(gap < 1e-10, f"{kind}: the residual-free block differs by {gap:.1e}")
        yield Control(f"nondegeneracy, {kind}", "absorbs although no S works", f"relative difference {gap:.1e}")

    moved = 0.25
    residual = running_example(moved)
    found = absorb(residual)
    require(found.absorbed is False, f"the moved block was absorbed: {found}")
    flipped = absorb(running_example()).network
    nearly = MLP(flipped.up, residual.block.down)
    defect = torch.tensor([[moved, 0.0], [0.0, 0.0]], dtype=torch.float64)  # P_S + I
    miss = float((error(residual, nearly) - x @ defect.T).abs().max())
    require(miss < 1e-12, f"flipping S leaves an error other than Ex: {miss:.1e}")
    yield Control("P_S = −I", "with P_S = −I + E flipping misses by exactly Ex", f"certified ‖I + P_S‖ ≥ {found.margin:.3f} for all S")


CLAIM = Claim(
    id="A-T8",
    title="A ReLU block absorbs its skip iff P_S = −I for some set S of units",
    source="[A], Theorem 8",
    hypotheses=("d ≥ 2", "every u_i ≠ 0 and no two collinear", "every a_i ≠ 0", "no biases", "same width"),
    uses=(),
    chapter="skip/relu",
    evidence=evidence,
    controls=controls,
)
