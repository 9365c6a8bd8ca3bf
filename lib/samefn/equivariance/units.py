"""When two units are one: what an activation lets pass through, distances up to it, and clones.

A unit's *row* is its incoming weights with its bias.  An activation may allow a factor on it, which comes
out as a factor on the unit's value: a sign for odd activations, a positive factor for ReLU, any nonzero
one for monomials.  These are the groups K_i of [B], Definition 1, apart from exchanging units.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..activations import Activation

SAME = 1e-8  # units closer than this, relative to their rows, are one
CHUNK = 4096  # pairs of rows whose difference is formed at once


def is_even(activation: Activation) -> bool:
    """Whether σ(-z) = σ(z): then the sign of a unit's incoming weights has no effect at all."""
    monomial = activation.symmetry == "nonzero scaling" and (activation.degree or 0) % 2 == 0
    return monomial or activation.odd_slope == 0


def is_signed(activation: Activation) -> bool:
    """Whether rows that differ by a sign count as one unit, up to a factor."""
    return activation.symmetry in ("sign", "nonzero scaling") or is_even(activation)


def incoming(activation: Activation, factors: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """What the incoming weights are multiplied by, where the unit's value is multiplied by ``factors``."""
    return factors if activation.degree is None else _power(factors, 1 / activation.degree)


def outgoing(activation: Activation, scale: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """What the unit's value is multiplied by, where its incoming weights are multiplied by ``scale``."""
    if is_even(activation):
        scale = scale.abs()
    return scale if activation.degree is None else _power(scale, activation.degree)


def _power(scale: Tensor, exponent: float) -> Tensor:
    return scale.sign() * scale.abs() ** exponent


def free_scale(activation: Activation, rows: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """The scale of each row that the activation allows to divide out: its norm, or 1 where it allows none."""
    norm = rows.norm(dim=1)
    free = activation.symmetry in ("positive scaling", "nonzero scaling")
    return torch.where(norm > 0, norm, 1.0) if free else torch.ones_like(norm)


def distances(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """Euclidean distances of all rows of a from all rows of b, exact also where they are small."""
    distance = torch.cdist(a, b)
    if max(len(a), len(b)) <= 25:
        return distance  # torch forms the differences themselves
    # beyond, it multiplies matrices, which cancels for nearby rows; these are taken again one by one
    size = torch.maximum(a.norm(dim=1)[:, None], b.norm(dim=1)[None, :])
    for i, j in (pairs.T for pairs in (distance <= 1e-3 * size).nonzero().split(CHUNK)):
        distance[i, j] = (a[i] - b[j]).norm(dim=1)
    return distance


def same_units(
    activation: Activation, rows: Float[Tensor, "n k"]
) -> tuple[Bool[Tensor, "n n"], Bool[Tensor, "n n"]]:
    """Which units are one, by their rows with the free scale divided out: with one sign, and with either."""
    normal = rows / free_scale(activation, rows)[:, None]
    size = normal.norm(dim=1)
    near = SAME * torch.maximum(size[:, None], size[None, :])
    plus = distances(normal, normal) <= near
    return plus, plus | (distances(normal, -normal) <= near) if is_signed(activation) else plus


def clones(activation: Activation, rows: Float[Tensor, "n k"]) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"]]:
    """The first clone of each unit, and the factor between their values."""
    if len(rows) == 0:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=rows.dtype)
    plus, either = same_units(activation, rows)
    first = either.to(torch.int8).argmax(dim=1)
    sign = torch.where(plus[torch.arange(len(rows)), first], 1.0, -1.0).to(rows.dtype)
    scale = free_scale(activation, rows)
    return first, outgoing(activation, sign * scale / scale[first])
