"""What spare units can do (X-DEG), and the least width of a block without its skip (X-WIDTH).

A collected block leaves a linear map R.  Flipping lines changes it as the criterion says; with spare
units parts of it can be made: a second unit on a line frees that line's linear part (the line is
*doubled*), two units on a new line make any matrix of rank one (a *pair*).  A sigmoid gate makes any
matrix of rank one with a single unit, whose gate is constant: w = 0.  And where no output bias takes up
constants, one unit with zero row makes any constant: the constant is a further row that can be doubled.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from ..arguments import Natural
from ..networks import MLP, GatedMLP, Residual
from .collect import Collected, collect, constants_count, keys_of, may_depend
from .criterion import (
    EPS,
    Criterion,
    Found,
    Refuted,
    Undecided,
    exact_pivots,
    in_float64,
    ldexp,
    odd_slope_of,
    rebuilt,
    solve,
)
from .deviation import compare

__all__ = ["minimal_width"]

ENUMERATED = 2**21  # entries of the matrices up to which all choices of flips and doubled lines are tried
SOLVED = 2e10  # operations up to which the criterion is solved for each choice of doubled lines
DEPENDENT = 2.0**-30  # singular values of unit rows, below which rounding is asked for its share


@dataclass(frozen=True)
class Realisation:
    """R is what the ``flips`` (0 or 1 for each line), the ``doubled`` rows and some new ``pairs`` make.

    A doubled row is a line, or, with the number after the last line, the constant.
    """

    flips: Float[Tensor, "lines"]
    doubled: tuple[int, ...] = ()
    pairs: int = 0


def spend(collected: Collected) -> Realisation | Refuted | Undecided:
    """As :func:`realise` with the units that collecting set free; flips alone are tried first."""
    flipped = solve(collected.criterion)
    if isinstance(flipped, Found):
        return Realisation(flipped.flips.to(torch.float64))
    return realise(collected, collected.spare) if collected.spare else flipped


def realise(collected: Collected, spare: Natural) -> Realisation | Refuted | Undecided:
    """Can R be made with ``spare`` extra units?  A realisation, or the distance by which all fail.

    A doubled line costs one unit and a pair two (X-DEG); behind a sigmoid gate a pair costs one unit, and
    can do what doubling could.
    """
    d, rows = len(collected.criterion.target), doubling_rows(collected)
    if isinstance(collected.residual.block, GatedMLP):
        options = [(0, min(spare, d))]
    else:
        pairs = range(min(spare // 2, d) + 1)
        options = [(min(len(rows), spare - 2 * q), q) for q in pairs]
    found = _unflipped(collected, rows, options)
    if found is not None:
        return found
    floor = _floor(collected, max(t + q for t, q in options), options[-1][1])
    if floor > 0:
        return Refuted(floor)
    undecided, nearest = None, math.inf
    for doubled, pairs in options:
        match _decide(collected, rows, doubled, pairs):
            case Realisation() as found:
                return found
            case Refuted(margin):
                nearest = min(nearest, margin)
            case Undecided() as undecided:
                pass
    return undecided or Refuted(nearest)


def doubling_rows(collected: Collected) -> Float[Tensor, "n k"]:
    """The rows whose linear part one more unit frees: the lines, and the constant where it counts."""
    up = collected.criterion.up
    if not constants_count(collected.residual.block):
        return up
    return torch.cat([up, torch.eye(up.shape[1], dtype=up.dtype)[-1:]])


def _unflipped(collected: Collected, rows: Tensor, options: list[tuple[int, int]]) -> Realisation | None:
    """Without search: no flips, and the rows doubled whose directions are best conditioned."""
    criterion, flips = collected.criterion, torch.zeros(collected.lines, dtype=torch.float64)
    pivots = _pivots(rows)
    for doubled, pairs in options:
        chosen = tuple(pivots[:doubled])
        if _distances(criterion, rows, flips[None], chosen, pairs).item() <= criterion.rounding():
            return Realisation(flips, chosen, pairs)
    return None


def _pivots(rows: Float[Tensor, "n k"]) -> list[int]:
    """The rows in the order of a QR factorisation with pivots: each the farthest from those before."""
    if len(rows) == 0:
        return []
    factors = scipy.linalg.qr(_directions(rows).numpy().T, mode="r", pivoting=True)
    return [int(i) for i in factors[-1]]


def _floor(collected: Collected, rank: int, pairs: int) -> float:
    """A lower bound of every distance, in the spectral norm, from ranks alone; at most 0 if there is none.

    What lines and pairs add to R has at most their number as rank.  And whatever is flipped, doubled and
    paired, X = R + 2c Σ_S e_l v_lᵀ has to have at most rank r, the number of doubled rows and pairs.  With
    its norm bounded by β, ⟨Y, X⟩ ≤ β (s_1 + … + s_r) + s_(r+1)(X) (s_(r+1) + …) for the singular values s of
    Y: a lower bound of ⟨Y, X⟩ over all S, as in the trace test, gives one of s_(r+1)(X).
    """
    criterion, lines, most = collected.criterion, collected.lines, len(doubling_rows(collected)) + pairs
    target, rounding = criterion.target, criterion.rounding()
    values = torch.linalg.svdvals(target)
    floor = float(values[most]) - rounding if most < len(values) else 0.0
    if rank < len(values) and float(values[rank:].sum()) > 0:
        balance = (criterion.down.norm(dim=0) / criterion.up.norm(dim=1)).sqrt()
        left, right = criterion.down / balance, criterion.up * balance[:, None]
        # X = R + c Σ e_l v_lᵀ ± …, and a diagonal matrix of signs between left and right makes no norm larger
        norm = (
            _spectral(criterion.combine(torch.full((lines,), 0.5)).T)
            + _spectral(left.T) * _spectral(right) / 2
        )
        spread = criterion.least(target) - (norm + rounding) * float(values[:rank].sum()) * (1 + 1e-9)
        floor = max(floor, spread / float(values[rank:].sum()) * (1 - 1e-9))
    return floor


def _spectral(tall: Float[Tensor, "n k"]) -> float:
    """The largest singular value, through the Gram matrix: cheap where n is large."""
    return float(torch.linalg.eigvalsh(tall.T @ tall)[-1].clamp(min=0).sqrt()) if len(tall) else 0.0


def _decide(
    collected: Collected, rows: Tensor, doubled: int, pairs: int
) -> Realisation | Refuted | Undecided:
    """Every choice of so many doubled rows: with every set of flips, or by the criterion that is left."""
    criterion, lines, nearest = collected.criterion, collected.lines, math.inf
    choices = itertools.combinations(range(len(rows)), doubled)
    number = math.comb(len(rows), doubled)
    few = number * 2 ** max(lines - doubled, 0) * criterion.target.numel() <= ENUMERATED
    each = lines**2 * (lines + len(criterion.target))
    if lines > criterion.target.numel() - doubled * len(criterion.target):
        each += 200 * 2 ** min(lines // 2, 20)  # their matrices are dependent
    if not few and (pairs > 0 or number * each > SOLVED):
        return Undecided("search")
    for chosen in choices:
        rounding = criterion.rounding() / _independence(rows[list(chosen)])
        if few:
            flips = _all_flips([i for i in range(lines) if i not in chosen], lines)
            distances = _distances(criterion, rows, flips, chosen, pairs)
            best = int(distances.argmin())
            if distances[best] <= criterion.rounding():
                return Realisation(flips[best], chosen, pairs)
            nearest = min(nearest, float(distances[best]) - rounding)
            continue
        match _solve_rest(criterion, rows, chosen, rounding):
            case Realisation() as found:
                return found
            case Refuted(margin):
                nearest = min(nearest, margin)
            case undecided:
                return undecided
    return Refuted(nearest) if nearest > 0 else Undecided("precision")


def _all_flips(free: list[int], lines: int) -> Float[Tensor, "sets lines"]:
    flips = torch.zeros(2 ** len(free), lines, dtype=torch.float64)
    flips[:, free] = torch.tensor(list(itertools.product((0.0, 1.0), repeat=len(free))), dtype=torch.float64)
    return flips


def _solve_rest(
    criterion: Criterion, rows: Tensor, doubled: tuple[int, ...], rounding: float
) -> Realisation | Refuted | Undecided:
    """The criterion on what is orthogonal to the doubled rows: their own flips are of no account there."""
    basis = torch.from_numpy(
        scipy.linalg.null_space(_directions(rows[list(doubled)]).numpy(), rcond=64 * EPS)
    )
    up = criterion.up @ basis
    free = up.norm(dim=1) > 1e-10 * criterion.up.norm(dim=1)
    noise = rounding + float((criterion.down.norm(dim=0) * up.norm(dim=1))[~free].sum())
    match solve(Criterion(criterion.down[:, free], up[free], criterion.target @ basis, noise=noise)):
        case Found(mask):
            flips = torch.zeros(len(criterion.up), dtype=torch.float64)
            flips[free] = mask.to(torch.float64)
            return Realisation(flips, doubled)
        case other:
            return other


def _distances(
    criterion: Criterion, rows: Tensor, flips: Tensor, doubled: tuple[int, ...], pairs: int
) -> Float[Tensor, "sets"]:
    """Spectral distance of R, flipped and the doubled rows projected out, to rank ``pairs``; one per set."""
    rest = criterion.combine(flips) @ _complement(rows[list(doubled)])
    values = torch.linalg.svdvals(rest)
    return values[:, pairs] if pairs < values.shape[1] else torch.zeros(len(flips), dtype=torch.float64)


def _complement(rows: Float[Tensor, "n k"]) -> Float[Tensor, "k k"]:
    """The orthogonal projector onto what is orthogonal to ``rows``."""
    rows, eye = _directions(rows), torch.eye(rows.shape[1], dtype=rows.dtype)
    return eye - torch.linalg.pinv(rows, rtol=64 * EPS) @ rows if len(rows) else eye


def _directions(rows: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    return rows / rows.norm(dim=1, keepdim=True)


def _independence(rows: Float[Tensor, "n k"]) -> float:
    """Least nonzero singular value of the rows' directions; the projector's rounding grows as that falls.

    Where one is so small that it may be rounding, an exact rank says whether it is.
    """
    if len(rows) == 0:
        return 1.0
    values = torch.linalg.svdvals(_directions(rows))
    return float(
        values[-1] if values[-1] > DEPENDENT else values[len(exact_pivots(rows)) - 1].clamp(min=EPS**2)
    )


# --- the network ----------------------------------------------------------------------------------


def build(collected: Collected, found: Realisation) -> MLP | GatedMLP | None:
    """The residual-free block of a realisation, of the kind of the block; dead units fill it to its width.

    None where a weight would be no finite number.
    """
    criterion, rows = collected.criterion, doubling_rows(collected)[list(found.doubled)]
    rest = criterion.combine(found.flips)
    rows = torch.cat([rows, torch.linalg.svd(rest @ _complement(rows)).Vh[: found.pairs]])
    dual = torch.linalg.pinv(_directions(rows), rtol=64 * EPS) / rows.norm(dim=1)
    free = torch.zeros(len(rest), len(rows), dtype=rest.dtype)  # Σ f_j r_j is what those rows have to make
    bias = torch.zeros_like(rest[:, 0])
    for _ in range(3):  # the second and third time of what rounding has left
        free = free + rest @ dual
        network = _network(collected, found, free, rows, bias)
        if network is None:
            return None
        left = compare(collected.residual, network).linear
        rest, bias = ldexp(left[:, : rest.shape[1]], -criterion.exponent), bias + left[:, -1]
    return network


def _network(
    collected: Collected, found: Realisation, free: Tensor, rows: Tensor, bias: Tensor
) -> MLP | GatedMLP | None:
    """Units on the lines, those that double some, pairs, constants: f z = (f/2c) σ(z) - (f/2c) σ(-z)."""
    block, criterion, lines = collected.residual.block, collected.criterion, collected.lines
    gated, slope = isinstance(block, GatedMLP), odd_slope_of(block)
    assert slope is not None
    mantissa, doubled = math.frexp(2 * slope)
    made = ldexp(free, criterion.exponent)
    half = ldexp(free / mantissa, criterion.exponent - doubled)
    down = ldexp(criterion.down / mantissa, criterion.exponent - doubled - criterion.shift)
    keys = keys_of(block)[collected.stands] * (1 - 2 * found.flips)[:, None]
    up = block.up.detach()[collected.stands] * (1 - 2 * found.flips)[:, None]

    on_lines = [j for j, row in enumerate(found.doubled) if row < lines]
    own = [found.doubled[j] for j in on_lines]
    second = ldexp(half[:, on_lines], -criterion.shift[own])
    down[:, own] += second
    new, paired = rows[len(found.doubled) :], half[:, len(found.doubled) :]
    width = keys.shape[1]
    if gated:
        units = [(2 * made, torch.zeros(len(new), width))]  # sigmoid(0) = 1/2
    else:
        new = pad(new, (0, width - new.shape[1]))
        units = [(-second, -keys[own]), (paired, new), (-paired, -new)]
        one = max(1.0, -1.0, key=lambda z: abs(float(block.activation(torch.tensor(z, dtype=torch.float64)))))
        if lines in found.doubled:
            units.append(_constant_unit(block, made[:, [found.doubled.index(lines)]], one))
        if collected.constant is not None:
            units.append(_constant_unit(block, collected.constant[:, None], 0.0))
    down = torch.cat([down, *(unit[0] for unit in units)], 1)
    keys = torch.cat([keys, *(unit[1] for unit in units)])
    padding = max(block.width - len(keys), 0)
    down, keys = pad(down, (0, padding)), pad(keys, (0, 0, 0, padding))
    weights = {"down": down, "gate" if gated else "up": keys[:, :-1].clone()}
    if gated:
        weights["up"] = pad(torch.cat([up, new]), (0, 0, 0, padding))
    if (block.gate_bias if gated else block.up_bias) is not None:
        weights["gate_bias" if gated else "up_bias"] = keys[:, -1].clone()
    if not gated and block.down_bias is not None:
        weights["down_bias"] = bias
    finite = all(bool(torch.isfinite(weight).all()) for weight in weights.values())
    return rebuilt(block, **weights) if finite else None


def _constant_unit(block: MLP | GatedMLP, constant: Float[Tensor, "d 1"], at: float) -> tuple[Tensor, Tensor]:
    """A unit with zero row and bias ``at`` that adds the constant."""
    key = torch.zeros(1, block.dim_in + 1, dtype=torch.float64)
    key[0, -1] = at
    return constant / block.activation(key[0, -1]), key


# --- the least width ------------------------------------------------------------------------------


def minimal_width(residual: Residual) -> int:
    """Least width of a residual-free block of the same activation that equals the residual block (X-WIDTH).

    For almost all weights this is d + max(m, d).  The true value of the given weights is found by
    certificates and, for few lines, by enumeration; where these decide nothing, the
    almost-sure value is returned and a RuntimeWarning says that the null set was not excluded.

    Raises ValueError if no width works, or for kinds of block that the theorem does not cover.

    >>> from samefn import Residual, minimal_width
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> minimal_width(Residual(random_mlp(2, 4, generator=Draw(0))))  # d + max(m, d)
    6
    """
    collected, d = _coverable(residual), residual.dim_in
    for extra in range(2 * d + 1):  # 2d extra units, d new pairs, make any linear map
        match realise(collected, extra):
            case Realisation():
                return max(collected.lines + extra, 1)
            case Undecided():
                break
    warnings.warn(
        f"minimal_width: the {collected.lines} lines of residual.block are too many to enumerate or too "
        "close to a special position; returning the value that holds for almost all weights",
        RuntimeWarning,
        stacklevel=2,
    )
    return d + max(collected.lines, d)


def _coverable(residual: Residual) -> Collected:
    """The collected block, or the error that :func:`minimal_width` raises."""
    block = residual.block
    if not isinstance(block, MLP) or block.activation.odd_slope in (None, 0):
        raise ValueError(
            f"residual.block must be an MLP whose activation has a nonzero odd slope, got "
            f"{type(block).__name__} with {block.activation.name}"
        )
    if may_depend(block):
        raise ValueError("residual.block must not have parallel hardswish units with biases")
    collected = collect(in_float64(residual))
    assert collected is not None  # only gated blocks are not collected
    if constants_count(block) or collected.constant is not None:
        raise ValueError(
            "residual.block must have down_bias where units have constant parts: these need a place"
        )
    return collected
