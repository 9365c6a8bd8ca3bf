"""When two units are one: what an activation lets pass through, and how far units are from each other.

A unit's *row* is its incoming weights with its bias.  What an activation allows is a factor on the row that
comes out as a factor on the unit's value, both measured from the point (p, q) about which the graph of σ is
symmetric: σ(p + s z) − q = f (σ(p + z) − q).  For odd activations s is a sign and (p, q) = 0; the sigmoid
has (0, ½) and ReLU6 (3, 3), so that their units may be *reflected*, y ↦ 2q − y; ReLU has s > 0 and a
monomial s ≠ 0, about 0.  These are the groups K_i of [B], Definition 1, apart from exchanging units.
"""

from __future__ import annotations

from typing import Literal

import sympy
import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation
from ..arguments import Finite
from ..networks import Layers

CHUNK = 4096  # pairs of rows whose difference is formed at once


def same_function(a: Activation, b: Activation) -> bool:
    """Whether two activations are one function, whatever their names.

    Their SymPy expressions decide, and values from 2⁻²⁰ to 2²⁰, since numbers in expressions are rounded.

    >>> from samefn.activations import get, relu_power
    >>> from samefn.equivariance.units import same_function
    >>> same_function(get("relu_squared"), relu_power(2)), same_function(get("gelu"), get("silu"))
    (True, False)
    """
    if a.function is b.function:
        return True
    z = sympy.Symbol("z", real=True)
    points = torch.exp2(torch.arange(-20.0, 21.0, dtype=torch.float64))
    points = torch.cat([points, -points])
    return bool(a.expression(z) == b.expression(z)) and torch.allclose(
        a(points), b(points), rtol=1e-14, atol=0
    )


def is_even(activation: Activation) -> bool:
    """Whether σ(-z) = σ(z): then the sign of a unit's incoming weights has no effect at all.

    >>> from samefn.activations import get, monomial
    >>> from samefn.equivariance.units import is_even
    >>> is_even(monomial(2)), is_even(get("tanh"))
    (True, False)
    """
    monomial = activation.symmetry == "nonzero scaling" and (activation.degree or 0) % 2 == 0
    return monomial or activation.odd_slope == 0


def is_signed(activation: Activation) -> bool:
    """Whether rows that differ by a sign, about the centre, count as one unit up to a factor.

    >>> from samefn.activations import get
    >>> from samefn.equivariance.units import is_signed
    >>> is_signed(get("tanh")), is_signed(get("gelu"))
    (True, False)
    """
    return activation.symmetry in ("sign", "reflection", "nonzero scaling") or is_even(activation)


def is_scaled(activation: Activation) -> bool:
    """Whether rows that differ by a positive factor count as one unit up to a factor.

    >>> from samefn.activations import get
    >>> from samefn.equivariance.units import is_scaled
    >>> is_scaled(get("relu")), is_scaled(get("gelu"))
    (True, False)
    """
    return activation.symmetry in ("positive scaling", "nonzero scaling")


def incoming(activation: Activation, factors: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """What the incoming weights are multiplied by, where the unit's value is multiplied by ``factors``.

    >>> from samefn.activations import get, relu_power
    >>> from samefn.equivariance.units import incoming
    >>> incoming(relu_power(2), torch.tensor([9.0])).item()  # (3z)² = 9z²
    3.0
    """
    return factors if activation.degree is None else _power(factors, 1 / activation.degree)


def outgoing(activation: Activation, scale: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """What the unit's value is multiplied by, where its incoming weights are multiplied by ``scale``.

    >>> from samefn.activations import relu_power
    >>> from samefn.equivariance.units import outgoing
    >>> outgoing(relu_power(2), torch.tensor([3.0])).item()
    9.0
    """
    if is_even(activation):
        scale = scale.abs()
    return scale if activation.degree is None else _power(scale, activation.degree)


def _power(scale: Tensor, exponent: float) -> Tensor:
    return scale.sign() * scale.abs() ** exponent


def about_centres(layers: Layers, sign: Literal[1, -1] = 1) -> Layers:
    """The same layers for inputs z − p and values y − q of the units: what is allowed is linear there.

    With ``sign`` −1, back again.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.units import about_centres
    >>> layers = random_deep("sigmoid", (3, 5, 2), generator=Draw(0)).layers
    >>> moved = about_centres(layers).biases[1] - layers.biases[1]
    >>> torch.allclose(moved, layers.weights[1].sum(1) / 2)  # every unit is ½ + something
    True
    """
    for i, activation in enumerate(layers.activations):
        p, q = activation.centre
        if p or q:
            layers = layers.replaced(i, layers.weights[i], layers.biases[i] - sign * p)
            after = layers.weights[i + 1]
            layers = layers.replaced(i + 1, after, layers.biases[i + 1] + sign * q * after.sum(1))
    return layers


# ---------------------------------------------------------------------------------------------
# Rows: sizes and distances, for numbers of any size


def sizes(rows: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """The Euclidean norm of each row, without overflow of squares.

    >>> from samefn.equivariance.units import sizes
    >>> f"{sizes(torch.tensor([[3e200, 4e200]])).item():.1e}"
    '5.0e+200'
    """
    largest = rows.abs().amax(dim=1)
    largest = torch.where(largest > 0, largest, 1.0)
    return largest * (rows / largest[:, None]).norm(dim=1)


def directions(rows: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n"]]:
    """Each row divided by its size (a zero row stays zero), and the sizes.

    >>> from samefn.equivariance.units import directions
    >>> rows, sizes = directions(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    >>> rows.tolist(), sizes.tolist()
    ([[0.6, 0.8], [0.0, 0.0]], [5.0, 0.0])
    """
    size = sizes(rows)
    return rows / torch.where(size > 0, size, 1.0)[:, None], size


def free_scale(activation: Activation, rows: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """The scale of each row that the activation allows to divide out: its size, or 1 where it allows none.

    The columns are summed up in order of size, so that their order and signs do not show in the rounding.

    >>> from samefn.activations import get
    >>> from samefn.equivariance.units import free_scale
    >>> rows = torch.tensor([[3.0, 4.0]])
    >>> free_scale(get("relu"), rows).item(), free_scale(get("tanh"), rows).item()
    (5.0, 1.0)
    """
    if not is_scaled(activation):
        return rows.new_ones(len(rows))
    size = sizes(rows.abs().sort(dim=1).values)
    return torch.where(size > 0, size, 1.0)


def distances(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """Euclidean distances of all rows of a from all rows of b, exact also where they are small.

    >>> from samefn.equivariance.units import distances
    >>> distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    distance = torch.cdist(a, b)
    if max(len(a), len(b)) <= 25:
        return distance  # torch forms the differences themselves
    # beyond, it multiplies matrices, which cancels for nearby rows; these are taken again one by one
    size = torch.maximum(a.norm(dim=1)[:, None], b.norm(dim=1)[None, :])
    for i, j in (pairs.T for pairs in (distance <= 1e-3 * size).nonzero().split(CHUNK)):
        distance[i, j] = (a[i] - b[j]).norm(dim=1)
    return distance


def gaps(
    a: tuple[Float[Tensor, "n k"], Float[Tensor, "n"]],
    b: tuple[Float[Tensor, "m k"], Float[Tensor, "m"]],
    sign: Finite = 1.0,
) -> Float[Tensor, "n m"]:
    """Distances of all rows a_i from all rows ± b_j, each relative to the longer of the two: from 0 to 2.

    Rows are given by their :func:`directions` and sizes.

    >>> from samefn.equivariance.units import directions, gaps
    >>> row, other = (directions(torch.tensor([[x, 4.0]])) for x in (3.0, -3.0))
    >>> f"{gaps(row, other).item():.2f}"  # 6 of 5
    '1.20'
    """
    (u, r), (v, s) = a, b
    longer = torch.maximum(r[:, None], s[None])
    ratio = torch.where(longer > 0, torch.minimum(r[:, None], s[None]) / longer, 1.0)
    # ‖u − tv‖² = (1 − t)² + t‖u − v‖² for unit vectors
    return ((1 - ratio) ** 2 + ratio * distances(u, sign * v) ** 2).sqrt()


def ratio(a: Float[Tensor, "*n"], b: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """a/b for a, b ≥ 0, where 0/0 = 0; infinite where it is no number, or b overflowed.

    >>> from samefn.equivariance.units import ratio
    >>> ratio(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 2.0])).tolist()
    [0.0, inf, 0.5]
    """
    known = a.isfinite() & b.isfinite()
    return torch.where(known, torch.where(a == 0, 0.0, a / b), torch.inf)
