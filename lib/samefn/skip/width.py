"""What spare units can do (X-DEG), and the least width of a block without its skip (X-WIDTH).

A collected block leaves a linear map R.  Flipping lines changes it as the criterion says; with spare
units parts of it can be made: a second unit on a line frees that line's linear part (the line is
*doubled*), two units on a new line make any matrix of rank one (a *pair*).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from ..networks import MLP, Residual
from .collect import Collected, collect, constants_fit, may_depend
from .criterion import ROUNDING, Criterion, Found, Refuted, Undecided, double, require_residual, solve

ENUMERATED = 10  # lines up to which spare units are tried in every way, 3^10 cases
SAFETY = 4  # times the noise: rounding in R, in the singular values, and in both sides of a comparison


@dataclass(frozen=True)
class Realisation:
    """R is what the ``flips`` (0 or 1 for each line), the ``doubled`` lines and some new ``pairs`` make."""

    flips: Float[Tensor, "lines"]
    doubled: tuple[int, ...] = ()
    pairs: int = 0


def spend(collected: Collected) -> Realisation | Refuted | Undecided:
    """As :func:`realise` with the units that collecting set free; where lines are too many, flips alone."""
    found = realise(collected, collected.spare)
    if isinstance(found, Undecided) and collected.lines > ENUMERATED:
        flipped = solve(collected.criterion)
        if isinstance(flipped, Found):
            return Realisation(flipped.flips.to(torch.float64))
    return found


def realise(collected: Collected, spare: int) -> Realisation | Refuted | Undecided:
    """Can R be made with ``spare`` extra units?  A realisation, or the distance by which all fail.

    A doubled line costs one unit and a pair two (X-DEG).
    """
    lines, d = collected.lines, len(collected.criterion.target)
    options = [(min(lines, spare - 2 * pairs), pairs) for pairs in range(min(spare // 2, d) + 1)]
    found = _unflipped(collected, options)
    if found is not None:
        return found
    floor = _floor(collected, options[-1][1])
    if floor > 0:
        return Refuted(floor)
    return Undecided("search") if lines > ENUMERATED else _enumerate(collected, options)


def _unflipped(collected: Collected, options: list[tuple[int, int]]) -> Realisation | None:
    """Without search: no flips, and the lines doubled whose directions are best conditioned."""
    criterion, flips = collected.criterion, torch.zeros(collected.lines, dtype=torch.float64)
    pivots = _pivots(criterion.up)
    for doubled, pairs in options:
        chosen = tuple(pivots[:doubled])
        if _distances(criterion, flips[None], chosen, pairs).item() <= collected.noise:
            return Realisation(flips, chosen, pairs)
    return None


def _pivots(rows: Float[Tensor, "n d"]) -> list[int]:
    """The rows in the order of a QR factorisation with pivots: each the farthest from those before."""
    if len(rows) == 0:
        return []
    factors = scipy.linalg.qr(_directions(rows).numpy().T, mode="r", pivoting=True)
    return [int(i) for i in factors[-1]]


def _floor(collected: Collected, pairs: int) -> float:
    """A lower bound of every distance: what lines and pairs add to R has at most their number as rank."""
    target, rank = collected.criterion.target, collected.lines + pairs
    if rank >= len(target):
        return 0.0
    return float(torch.linalg.svdvals(target)[rank]) - SAFETY * collected.noise


def _enumerate(collected: Collected, options: list[tuple[int, int]]) -> Realisation | Refuted | Undecided:
    """Every choice of flips and doubled lines, the pairs as good as they can be."""
    criterion, nearest = collected.criterion, math.inf
    for chosen, pairs, flips in _choices(collected.lines, options):
        distances = _distances(criterion, flips, chosen, pairs)
        best = int(distances.argmin())
        if distances[best] <= collected.noise:
            return Realisation(flips[best], chosen, pairs)
        rounding = SAFETY * collected.noise / _independence(criterion.up[list(chosen)])
        nearest = min(nearest, float(distances[best]) - rounding)
    return Refuted(nearest) if nearest > 0 else Undecided("precision")


def _choices(lines: int, options: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, ...], int, Tensor]]:
    """Doubled lines, number of pairs, and all flips of the other lines, shape (sets, lines)."""
    for doubled, pairs in options:
        for chosen in itertools.combinations(range(lines), doubled):
            free = [i for i in range(lines) if i not in chosen]
            flips = torch.zeros(2 ** len(free), lines, dtype=torch.float64)
            flips[:, free] = torch.tensor(
                list(itertools.product((0.0, 1.0), repeat=len(free))), dtype=torch.float64
            )
            yield chosen, pairs, flips


def _distances(
    criterion: Criterion, flips: Tensor, doubled: tuple[int, ...], pairs: int
) -> Float[Tensor, "sets"]:
    """Spectral distance of R, flipped and the doubled rows projected out, to rank ``pairs``; one per set."""
    if pairs >= len(criterion.target):
        return torch.zeros(len(flips), dtype=torch.float64)
    rest = criterion.combine(flips) @ _complement(criterion.up[list(doubled)])
    return torch.linalg.svdvals(rest)[:, pairs]


def _complement(rows: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """The orthogonal projector onto what is orthogonal to ``rows``."""
    rows, eye = _directions(rows), torch.eye(rows.shape[1], dtype=rows.dtype)
    return eye - torch.linalg.pinv(rows, rtol=ROUNDING) @ rows if len(rows) else eye


def _directions(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return rows / rows.norm(dim=1, keepdim=True)


def _independence(rows: Float[Tensor, "n d"]) -> float:
    """Least nonzero singular value of the rows' directions; the projector's rounding grows as that falls."""
    values = torch.linalg.svdvals(_directions(rows))
    return float(values[values > ROUNDING * values[0]].min()) if len(rows) else 1.0


def build(block: MLP, collected: Collected, found: Realisation) -> MLP:
    """The residual-free block of a realisation, of the kind of ``block``; dead units fill it to its width."""
    criterion, doubled = collected.criterion, list(found.doubled)
    rest, rows = criterion.combine(found.flips), criterion.up[doubled]
    # the doubled lines take of R what they can, Σ f_l v_lᵀ: e σ(z) + f z = (e + f/2c) σ(z) - (f/2c) σ(-z)
    free = (
        rest @ torch.linalg.pinv(_directions(rows), rtol=ROUNDING) / rows.norm(dim=1) / (2 * criterion.slope)
    )
    pair_down, pair_up = _pairs(rest @ _complement(rows), found.pairs)
    pair_down = pair_down / (2 * criterion.slope)
    sign = 1 - 2 * found.flips

    up = torch.cat([criterion.up * sign[:, None], -rows, pair_up, -pair_up])
    bias = torch.cat([collected.bias * sign, -collected.bias[doubled], torch.zeros(2 * found.pairs).to(up)])
    down = torch.cat([criterion.down, -free, pair_down, -pair_down], 1)
    down[:, doubled] += free
    padding = max(block.width - len(up), 0)
    up, bias, down = pad(up, (0, 0, 0, padding)), pad(bias, (0, padding)), pad(down, (0, padding))
    return MLP(
        up.to(block.up),
        down.to(block.up),
        block.activation,
        None if block.up_bias is None else bias.to(block.up),
        None if block.down_bias is None else _output_bias(block, criterion.slope, bias, down).to(block.up),
    )


def _pairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The nearest matrix of rank ``count``, as a matrix of ``count`` columns times one of ``count`` rows."""
    left, values, right = torch.linalg.svd(matrix)
    return left[:, :count] * values[:count], right[:count]


def _output_bias(block: MLP, slope: float, bias: Tensor, down: Tensor) -> Float[Tensor, "d"]:
    """The output bias that takes up all constants: those of ``block`` without those of the new units."""
    assert block.down_bias is not None
    if block.up_bias is None:
        return double(block.down_bias)
    old, constant = double(block.up_bias), double(block.up).norm(dim=1) == 0
    constants = double(block.down) @ torch.where(constant, block.activation(old), slope * old)
    return double(block.down_bias) + constants - slope * down @ bias


def minimal_width(residual: Residual) -> int:
    """Least width of a residual-free block of the same activation that equals the residual block (X-WIDTH).

    For almost all weights this is d + max(m, d).  Up to 10 lines the true value of the given
    weights is found by enumeration; beyond that the almost-sure value is returned and a
    RuntimeWarning says that the null set was not excluded for these weights.

    Raises ValueError if no width works, or for kinds of block that the theorem does not cover.
    """
    collected, d = _coverable(residual), residual.dim_in
    lines = collected.lines
    for extra in range(2 * d + 1):  # 2d extra units, d new pairs, make any linear map
        match realise(collected, extra):
            case Realisation():
                return max(lines + extra, 1)
            case Undecided():
                break
    warnings.warn(
        f"minimal_width: the {lines} lines of residual.block are too many to enumerate or too close to a "
        "special position; returning the value that holds for almost all weights",
        RuntimeWarning,
        stacklevel=2,
    )
    return d + max(lines, d)


def _coverable(residual: Residual) -> Collected:
    """The collected block, or the error that :func:`minimal_width` raises."""
    require_residual(residual)
    block = residual.block
    if not isinstance(block, MLP) or block.activation.odd_slope in (None, 0):
        raise ValueError(
            f"residual.block must be an MLP whose activation has a nonzero odd slope, got "
            f"{type(block).__name__} with {block.activation.name}"
        )
    collected = collect(residual) if constants_fit(block) else None
    if collected is None:
        raise ValueError(
            "residual.block must have down_bias where units have constant parts: these need a place"
        )
    if may_depend(block):
        raise ValueError("residual.block must not have parallel hardswish units with biases")
    return collected
