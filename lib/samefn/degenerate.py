"""Blocks with dead, zero, duplicated or opposite units (X-DEG), and the least width without a skip (X-WIDTH).

Units whose even parts agree lie on one *line*.  After collecting them a block is
Σ_l e_l σ(v_l·(x, 1)) plus a linear remainder R, with one unit for each line.  Spare units can
make parts of R: a second unit on a line frees that line's linear part, two units on a new line
make any matrix of rank one.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from .criterion import ROUNDING, Criterion, double, require_residual, solve
from .networks import MLP, GatedMLP, Residual

ENUMERATED = 10  # lines up to which degenerate blocks are decided by enumeration, 3^10 cases


def live_units(block: MLP | GatedMLP) -> Tensor:
    """Which units have only nonzero weight vectors, so that they have an even part."""
    live = block.down.detach().any(dim=0) & block.up.detach().any(dim=1)
    return live & block.gate.detach().any(dim=1) if isinstance(block, GatedMLP) else live


def may_depend(block: MLP | GatedMLP) -> bool:
    """Whether units of different classes may have dependent even parts: shifted parallel hardswish units.

    Modulo affine functions six of them are dependent where their kinks pair the points 0, a, a+b, 2a+b.
    """
    if block.activation.name != "hardswish" or isinstance(block, GatedMLP) or block.up_bias is None:
        return False
    directions = lines_of(MLP(block.up.detach(), block.down.detach(), "relu"))[1]
    return len(directions) < block.width


def constants_fit(block: MLP) -> bool:
    """Whether a bias takes up every constant that collecting the units leaves."""
    if block.up_bias is not None:
        return block.down_bias is not None
    constant = ~block.up.detach().any(dim=1) & block.down.detach().any(dim=0)
    return not bool(constant.any()) or float(block.activation(torch.zeros((), dtype=torch.float64))) == 0


def lines_of(block: MLP | GatedMLP) -> tuple[Tensor, list[int]]:
    """The class of every unit whose even part another unit shares, and one unit of each class.

    Classes are lines of (u_i, b_i) for homogeneous σ, pairs ±(u_i, b_i) otherwise, and pairs of
    gate rows for gated blocks.  Equal lines have equal projections, so only neighbours in the
    order of one fixed projection are compared.
    """
    rows = double(block.gate if isinstance(block, GatedMLP) else block.up)
    if isinstance(block, MLP) and block.up_bias is not None:
        rows = torch.cat([rows, double(block.up_bias)[:, None]], 1)
    norms = rows.norm(dim=1, keepdim=True)
    if isinstance(block, MLP) and block.activation.degree == 1:
        rows = rows / norms.clamp_min(torch.finfo(rows.dtype).tiny)
    probe = torch.cos(torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype) ** 2).to(rows.device)
    projection = (rows @ probe).abs()
    order = projection.argsort()
    gaps = projection[order].diff()
    scale = rows.norm(dim=1)[order]
    starts = torch.cat([torch.tensor([True]), (gaps > 1e-10 * scale[1:].clamp_min(1e-300)).cpu()])
    lines = torch.empty(len(rows), dtype=torch.long)
    representatives: list[int] = []
    first = 0
    for unit, new_run in zip(order.tolist(), starts.tolist()):
        if new_run:
            first = len(representatives)
        for line in range(first, len(representatives)):
            other = rows[representatives[line]]
            nearest = min((rows[unit] - other).norm(), (rows[unit] + other).norm())
            if nearest <= ROUNDING * other.norm():
                break
        else:
            line = len(representatives)
            representatives.append(unit)
        lines[unit] = line
    return lines, representatives


@dataclass(frozen=True)
class _Reduced:
    """Σ_l e_l σ(v_l·(x,1)) + Rx + const: one unit for each line whose even part does not cancel."""

    slope: float
    down: Tensor  # the e_l as columns
    up: Tensor
    up_bias: Tensor
    remainder: Tensor  # R
    size: float  # of the terms that R was summed from

    def bend(self, flips: Tensor) -> Tensor:
        """R after flipping the given lines."""
        return self.remainder + 2 * self.slope * (self.down * flips) @ self.up


@dataclass(frozen=True)
class _Realisation:
    """R is what the flips, the doubled lines (each free in its linear part) and new pairs can make."""

    flips: Tensor
    doubled: tuple[int, ...]
    pairs: int


def _reduce(residual: Residual, lines: Tensor, representatives: list[int], live: Tensor) -> _Reduced:
    block, slope = residual.block, residual.block.activation.odd_slope
    up, down = double(block.up), double(block.down)
    bias = torch.zeros_like(up[:, 0]) if block.up_bias is None else double(block.up_bias)
    rows = torch.cat([up, bias[:, None]], 1)
    rep = rows[representatives]
    along = (rows * rep[lines]).sum(1) / (rep[lines] ** 2).sum(1).clamp_min(1e-300)  # row_i = along_i · representative
    scaled = down * along.abs() * live if block.activation.degree == 1 else down * live
    even = torch.zeros(len(down), len(rep), dtype=down.dtype).index_add_(1, lines, scaled)
    weight = torch.zeros(len(rep), dtype=down.dtype).index_add_(0, lines, scaled.norm(dim=0))
    kept = even.norm(dim=0) > ROUNDING * weight
    even, rep = even[:, kept], rep[kept]
    linear = double(residual.skip_matrix()) + slope * (down * live) @ up
    size = float(double(residual.skip_matrix()).norm() + 2 * abs(slope) * (down.norm(dim=0) * up.norm(dim=1)).sum())
    return _Reduced(slope, even, rep[:, :-1], rep[:, -1], linear - slope * even @ rep[:, :-1], size)


def _realise(reduced: _Reduced, spare: int) -> tuple[_Realisation | None, float]:
    """Can R be made with ``spare`` extra units?  A realisation, or the distance by which all fail.

    A doubled line costs one unit and a new pair two (X-DEG).  Returns (None, 0) for undecided.
    """
    p, d = reduced.down.shape[1], len(reduced.remainder)
    noise = ROUNDING * reduced.size
    options = [(min(p, spare - 2 * pairs), pairs) for pairs in range(min(spare // 2, d) + 1)]
    # cheap and constructive: no flips, the best-conditioned rows doubled
    pivots = scipy.linalg.qr(_directions(reduced.up).numpy().T, mode="r", pivoting=True)[1] if p else np.array([], int)
    for doubled, pairs in options:
        chosen = tuple(int(i) for i in pivots[:doubled])
        if _distance(reduced, torch.zeros(1, p, dtype=torch.float64), chosen, pairs).item() <= noise:
            return _Realisation(torch.zeros(p, dtype=torch.float64), chosen, pairs), 0.0
    # flips and projections change R by rank p at most, so every distance is at least this (Weyl)
    rank = p + options[-1][1]
    floor = float(torch.linalg.svdvals(reduced.remainder)[rank]) - 4 * noise if rank < d else 0.0
    if floor > 0 or p > ENUMERATED:
        return None, max(floor, 0.0)
    nearest = math.inf
    for doubled, pairs in options:
        for chosen in itertools.combinations(range(p), doubled):
            free = [i for i in range(p) if i not in chosen]
            flips = torch.zeros(2 ** len(free), p, dtype=torch.float64)
            flips[:, free] = torch.tensor(list(itertools.product((0.0, 1.0), repeat=len(free))), dtype=torch.float64)
            distances = _distance(reduced, flips, chosen, pairs)
            best = int(distances.argmin())
            if distances[best] <= noise:
                return _Realisation(flips[best], chosen, pairs), 0.0
            nearest = min(nearest, float(distances[best]) - 4 * noise / _independence(reduced.up[list(chosen)]))
    return None, max(nearest, 0.0)


def _distance(reduced: _Reduced, flips: Tensor, doubled: tuple[int, ...], pairs: int) -> Tensor:
    """Spectral distance of R, flipped and with the doubled rows projected out, to rank ``pairs``; one per set."""
    d = len(reduced.remainder)
    if pairs >= d:
        return torch.zeros(len(flips), dtype=torch.float64)
    bent = reduced.remainder + 2 * reduced.slope * torch.einsum("sl,dl,lk->sdk", flips, reduced.down, reduced.up)
    return torch.linalg.svdvals(bent @ _complement(reduced.up[list(doubled)]))[:, pairs]


def _complement(rows: Tensor) -> Tensor:
    """The orthogonal projector onto what is orthogonal to ``rows``."""
    rows, eye = _directions(rows), torch.eye(rows.shape[1], dtype=rows.dtype)
    return eye - torch.linalg.pinv(rows, rtol=ROUNDING) @ rows if len(rows) else eye


def _directions(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def _independence(rows: Tensor) -> float:
    """The least nonzero singular value of the rows' directions; the projector's rounding grows with its inverse."""
    values = torch.linalg.svdvals(_directions(rows))
    return float(values[values > ROUNDING * values[0]].min()) if len(rows) else 1.0


def _build(reduced: _Reduced, found: _Realisation, residual: Residual) -> MLP:
    """The residual-free block of a realisation, padded with dead units to the block's width."""
    block, slope, d = residual.block, reduced.slope, residual.dim_in
    doubled, sign = list(found.doubled), 1 - 2 * found.flips
    bent = reduced.bend(found.flips)
    free = bent @ torch.linalg.pinv(_directions(reduced.up[doubled]), rtol=ROUNDING) / reduced.up[doubled].norm(dim=1)
    left, values, right = torch.linalg.svd(bent @ _complement(reduced.up[doubled]))
    pair_down = left[:, : found.pairs] * values[: found.pairs] / (2 * slope)
    pair_up = right[: found.pairs]
    # e σ(z) + linear part f z: (e + f/2c) σ(z) - (f/2c) σ(-z)
    single_down = reduced.down.clone()
    single_down[:, doubled] += free / (2 * slope)
    up = torch.cat([reduced.up * sign[:, None], -reduced.up[doubled], pair_up, -pair_up])
    bias = torch.cat([reduced.up_bias * sign, -reduced.up_bias[doubled], torch.zeros(2 * found.pairs, dtype=up.dtype)])
    down = torch.cat([single_down, -free / (2 * slope), pair_down, -pair_down], 1)
    padding = max(block.width - len(up), 0)
    up = torch.cat([up, torch.zeros(padding, d, dtype=up.dtype)])
    bias = torch.cat([bias, torch.zeros(padding, dtype=up.dtype)])
    down = torch.cat([down, torch.zeros(d, padding, dtype=up.dtype)], 1)
    down_bias = None
    if block.down_bias is not None:
        down_bias = double(block.down_bias)
        if block.up_bias is not None:
            dead = double(block.up).norm(dim=1) == 0
            old = double(block.up_bias)
            constants = double(block.down) @ torch.where(dead, block.activation(old), slope * old)
            down_bias = down_bias + constants - slope * down @ bias
    cast = lambda t: t.to(block.up.dtype)  # noqa: E731
    return MLP(
        cast(up),
        cast(down),
        block.activation,
        None if block.up_bias is None else cast(bias),
        None if down_bias is None else cast(down_bias),
    )


def decide_degenerate(
    residual: Residual, lines: Tensor, representatives: list[int], live: Tensor
) -> tuple[MLP | None, float]:
    """Dead, zero, duplicated or opposite units: collect them by line and spend the spare units (X-DEG).

    Returns the residual-free block, or None with a margin that is 0 where the question stays undecided.
    """
    if not constants_fit(residual.block):
        return None, 0.0  # the constants would have to be matched as well
    reduced = _reduce(residual, lines, representatives, live)
    found, margin = _realise(reduced, residual.block.width - reduced.down.shape[1])
    if found is None and margin == 0 and reduced.down.shape[1] > ENUMERATED:
        flips = solve(Criterion(reduced.slope, reduced.down, reduced.up, reduced.remainder))[0]
        if flips is not None:
            found = _Realisation(flips.to(torch.float64), (), 0)
    return (None, margin) if found is None else (_build(reduced, found, residual), 0.0)


def minimal_width(residual: Residual) -> int:
    """The least width of a residual-free block of the same activation equal to the residual block (X-WIDTH, new).

    For almost all weights this is d + max(m, d).  Up to 10 lines the true value of the given
    weights is found by enumeration; beyond that the almost-sure value is returned and a
    RuntimeWarning says that the null set was not excluded for these weights.

    Raises ValueError if no width works, or for kinds of block that the theorem does not cover.
    """
    require_residual(residual)
    block = residual.block
    if not isinstance(block, MLP) or block.activation.odd_slope in (None, 0):
        raise ValueError(
            f"residual.block must be an MLP whose activation has a nonzero odd slope, got "
            f"{type(block).__name__} with {block.activation.name}"
        )
    if not constants_fit(block):
        raise ValueError("residual.block must have down_bias where units have constant parts: these need a place")
    if may_depend(block):
        raise ValueError("residual.block must not have parallel hardswish units with biases")
    reduced = _reduce(residual, *lines_of(block), live_units(block))
    lines, d = reduced.down.shape[1], residual.dim_in
    for extra in range(2 * d + 1):  # 2d extra units, d new pairs, make any linear map
        found, margin = _realise(reduced, extra)
        if found is not None:
            return max(lines + extra, 1)
        if margin == 0:
            break
    warnings.warn(
        f"minimal_width: the {lines} lines of residual.block are too many to enumerate or too close to a special "
        "position; returning the value that holds for almost all weights",
        RuntimeWarning,
        stacklevel=2,
    )
    return d + max(lines, d)
