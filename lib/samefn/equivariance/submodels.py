"""Submodels of multilayer perceptrons: squares that commute, and removing units in any order (chapter
``equivariance/submodels``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation
from ..arguments import Count, Finite, NonNegative
from ..networks import DeepMLP
from .layerwise import hidden_values
from .redundancy import drop, fold, merge

Step = tuple[str, int, int] | tuple[str, int, int, int, float]
MOVES = {"drop": drop, "fold": fold, "merge": merge}


def parameters(network: DeepMLP) -> tuple[list[Tensor], list[Tensor]]:
    """Copies of the weights and the biases, to be changed.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.submodels import parameters
    >>> weights, biases = parameters(random_deep("tanh", (3, 5, 2), generator=Draw(0)))
    >>> [tuple(w.shape) for w in weights]
    [(5, 3), (2, 5)]
    """
    layers = network.layers
    return [w.clone() for w in layers.weights], [b.clone() for b in layers.biases]


@torch.no_grad()
def square_gaps(
    large: DeepMLP, small: DeepMLP, project: Sequence[Float[Tensor, "_ _"]], points: Sequence[Tensor]
) -> list[float]:
    """For each layer the largest |α*_i f_i(y) − f̃_i(α*_{i−1} y)| over ``points[i − 1]``, relative to the
    largest |f̃_i|.

    ``project`` holds α* of the hidden layers; at both ends it is the identity.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> from samefn.equivariance.redundancy import drop
    >>> from samefn.equivariance.submodels import anywhere, square_gaps
    >>> small = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> large = with_spare_units(small, ["inactive"], generator=Draw(1))
    >>> move = drop(large, layer=1, unit=5)
    >>> points = anywhere(large, 20, generator=Draw(2))
    >>> max(square_gaps(large, move.network, [move.project], points)) < 1e-13
    True
    """
    layers = len(large.weights)
    if len(small.weights) != layers:
        raise ValueError(f"small must have {layers} layers as large has, got {len(small.weights)}")
    if len(points) != layers:
        raise ValueError(f"points must be one batch for each of {layers} layers, got {len(points)}")
    wanted = list(zip(small.widths, large.widths, strict=True))
    if [tuple(star.shape) for star in project] != wanted:
        raise ValueError(f"project must have shapes {wanted}, got {[tuple(star.shape) for star in project]}")
    ends = (torch.eye(n, dtype=torch.float64) for n in (large.dim_in, large.dim_out))
    stars = [next(ends), *project, next(ends)]
    gaps = []
    for i, y in enumerate(points, 1):
        below = small.layer(i, y @ stars[i - 1].T)
        gaps.append(float((large.layer(i, y) @ stars[i].T - below).abs().max() / below.abs().max()))
    return gaps


def occurring(network: DeepMLP, x: Float[Tensor, "batch {network.dim_in}"]) -> list[Tensor]:
    """Inputs x and the values that the hidden layers take on them: points of V_0, …, V_{L−1} that occur.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.submodels import occurring
    >>> network = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> [tuple(y.shape) for y in occurring(network, Draw(1).normal(10, 3))]
    [(10, 3), (10, 5)]
    """
    return [x, *hidden_values(network, x)[:-1]]


def anywhere(network: DeepMLP, count: Count, *, generator: torch.Generator) -> list[Tensor]:
    """Standard normal points of V_0, …, V_{L−1}, whether they occur or not.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.submodels import anywhere
    >>> network = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> [tuple(y.shape) for y in anywhere(network, 10, generator=Draw(1))]
    [(10, 3), (10, 5)]
    """
    sizes = (network.dim_in, *network.widths)
    return [torch.randn(count, n, generator=generator, dtype=torch.float64) for n in sizes]


def insert_clone(
    network: DeepMLP,
    layer: int,
    into: int,
    column: Float[Tensor, "m"],
    *,
    scale: Finite = 1.0,
    factor: Finite = 1.0,
) -> DeepMLP:
    """β of a merge: hidden layer ``layer`` (from 1) with one more unit behind the others, a clone of unit
    ``into``.

    Its row is ``scale`` times that of ``into`` and its value should be ``factor`` times; it has the
    outgoing weights ``column``, and ``into`` gives up ``factor`` times as much.  Raises ValueError if
    there is no such layer or unit, or ``column`` does not fit.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.submodels import insert_clone
    >>> from samefn.functions import gap
    >>> network = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> large = insert_clone(network, layer=1, into=0, column=torch.ones(2))
    >>> large.widths, gap(network, large, Draw(1).normal(100, 3)) < 1e-14
    ((6,), True)
    """
    if not 1 <= layer <= len(network.widths) or not 0 <= into < network.widths[layer - 1]:
        raise ValueError(
            f"layer and into must name a hidden unit of {network.widths}, got {layer} and {into}"
        )
    layers = network.layers
    if len(column) != len(layers.weights[layer]):
        raise ValueError(f"column must have {len(layers.weights[layer])} entries, got {len(column)}")
    rows, after = layers.rows(layer - 1), layers.weights[layer].clone()
    rows = torch.cat([rows, scale * rows[into, None]])
    after[:, into] -= factor * column
    wider = layers.replaced(layer - 1, rows[:, :-1], rows[:, -1])
    return network.rebuilt(wider.replaced(layer, torch.cat([after, column[:, None]], 1)))


def available_moves(network: DeepMLP, tolerance: NonNegative = 1e-9) -> list[Step]:
    """All moves that tanh, ReLU or GELU units allow, as (name, layer, unit, ...): the arguments of drop,
    fold and merge.

    Plain loops over all pairs of units: slow, and independent of
    :func:`samefn.equivariance.redundancy.reduce`.
    None at all without hidden layers, or where some layer has one unit only.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> from samefn.equivariance.submodels import available_moves
    >>> small = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> available_moves(small)
    []
    >>> available_moves(with_spare_units(small, ["inactive"], generator=Draw(1)))
    [('drop', 1, 5)]
    """
    layers, moves = network.layers, []
    if min(network.widths, default=0) <= 1:
        return []
    for i, activation in enumerate(network.activations):
        rows, outgoing = layers.rows(i), layers.weights[i + 1]
        units = range(len(rows))
        moves += [("drop", i + 1, j) for j in units if outgoing[:, j].abs().max() < tolerance]
        moves += [("fold", i + 1, j) for j in units if layers.weights[i][j].abs().max() < tolerance]
        for j, k in ((j, k) for j in units for k in units if j != k):
            for factor in _factors(activation, rows[j], rows[k], tolerance):
                if (rows[k] - factor * rows[j]).norm() < tolerance:
                    moves.append(("merge", i + 1, k, j, factor))
    return moves


def _factors(activation: Activation, row: Tensor, other: Tensor, tolerance: float) -> list[float]:
    """By what a row may be multiplied to give another one, if the unit's value is to be multiplied by as
    much.
    """
    if activation.degree == 1:
        return [float(other.norm() / row.norm().clamp_min(tolerance))]
    return [1.0, -1.0] if activation.symmetry == "sign" else [1.0]


def reduce_in_random_order(network: DeepMLP, rng: np.random.Generator) -> DeepMLP:
    """Apply available moves, one drawn at random after the other, until none is left.

    >>> import numpy as np
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> from samefn.equivariance.submodels import reduce_in_random_order
    >>> large = with_spare_units(random_deep("tanh", generator=Draw(0)), generator=Draw(1))
    >>> large.widths, reduce_in_random_order(large, np.random.default_rng(0)).widths
    ((8, 7), (5, 4))
    """
    while moves := available_moves(network):
        name, *arguments = moves[rng.integers(len(moves))]
        network = MOVES[name](network, *arguments).network
    return network


def two_opposite_pairs(activation: str = "gelu") -> DeepMLP:
    """x_1 + x_2 as two pairs of opposite units, σ(x_1) − σ(−x_1) + σ(x_2) − σ(−x_2): for GELU, ReLU and all
    others with σ(z) − σ(−z) = z.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.submodels import two_opposite_pairs
    >>> x = Draw(0).normal(100, 2)
    >>> torch.allclose(two_opposite_pairs()(x)[:, 0], x.sum(1))
    True
    """
    rows = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    return DeepMLP([rows, rows.sum(1)[None]], None, activation)
