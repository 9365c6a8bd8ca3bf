"""Networks with a known symmetry or known spare units: what searches must find, and what they must not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation
from ..arguments import Count
from ..draw import normal
from ..networks import DeepMLP, Layers
from .alignment import random_symmetry
from .groups import (
    Group,
    Representation,
    cyclic,
    dihedral,
    permutation_representation,
    representation,
    symmetric,
)
from .layerwise import symmetrise

Spare = Literal["clone", "inactive", "constant"]


def random_deep(
    activation: str | Activation, sizes: Sequence[Count] = (3, 5, 4, 2), *, generator: torch.Generator
) -> DeepMLP:
    """A multilayer perceptron with standard normal biases, and weights divided by the square root of the
    inputs.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("gelu", (3, 5, 4, 2), generator=Draw(0))
    >>> network.dim_in, network.widths, network.dim_out
    (3, (5, 4), 2)
    """
    if len(sizes) < 2:
        raise ValueError(f"sizes must be those of inputs and outputs at least, got {tuple(sizes)}")
    draw = partial(normal, generator=generator)
    weights = [draw(m, n) / n**0.5 for n, m in pairwise(sizes)]
    return DeepMLP(weights, [draw(m) for m in sizes[1:]], activation)


def with_spare_units(
    network: DeepMLP,
    kinds: Sequence[Spare] = get_args(Spare),
    *,
    layers: Collection[int] | None = None,
    generator: torch.Generator,
) -> DeepMLP:
    """The same function with one more unit of each of ``kinds`` behind the others, in each hidden layer or
    in ``layers``.

    A "clone" of unit 0 takes a random part of its outgoing weights, each output its own part; it is
    negated for odd activations and doubled for ReLU.  An "inactive" unit has no outgoing weight, a
    "constant" one no incoming weight, and the next bias takes its value back.  Layers count from 1.
    Raises ValueError for a layer that does not exist.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> from samefn.functions import gap
    >>> network = random_deep("relu", generator=Draw(0))
    >>> large = with_spare_units(network, ["clone"], layers=[1], generator=Draw(1))
    >>> large.widths, gap(network, large, Draw(2).normal(100, 3)) < 1e-14
    ((6, 4), True)
    """
    chosen = range(1, len(network.widths) + 1) if layers is None else layers
    if any(not 1 <= i <= len(network.widths) for i in chosen):
        raise ValueError(f"layers must lie in 1..{len(network.widths)}, got {tuple(chosen)}")
    found = network.layers
    for i in sorted(chosen):
        for kind in kinds:
            found = _spared(found, i - 1, kind, generator)
    return network.rebuilt(found)


def _spared(layers: Layers, i: int, kind: Spare, generator: torch.Generator) -> Layers:
    """The same function with one more unit behind those of ``weights[i]``."""
    inputs, outputs = layers.weights[i].shape[1], len(layers.weights[i + 1])
    draw = partial(normal, generator=generator)
    after, bias = layers.weights[i + 1].clone(), layers.biases[i + 1]
    if kind == "inactive":
        row, column = draw(inputs + 1), torch.zeros(outputs, dtype=torch.float64)
    elif kind == "constant":
        row, column = torch.cat([torch.zeros(inputs, dtype=torch.float64), draw(1)]), draw(outputs)
        bias = bias - column * layers.activations[i](row[-1])
    else:
        factor = clone_factor(layers.activations[i])
        row, column = factor * layers.rows(i)[0], draw(outputs)
        after[:, 0] -= factor * column
    rows = torch.cat([layers.rows(i), row[None]])
    wider = layers.replaced(i, rows[:, :-1], rows[:, -1])
    return wider.replaced(i + 1, torch.cat([after, column[:, None]], 1), bias)


def clone_factor(activation: Activation) -> float:
    """A factor that a clone's incoming weights and value may both have: −1 for odd activations, 2 for
    ReLU, else 1.

    >>> from samefn.activations import get
    >>> from samefn.equivariance.planted import clone_factor
    >>> [clone_factor(get(name)) for name in ("tanh", "relu", "gelu")]
    [-1.0, 2.0, 1.0]
    """
    return {"sign": -1.0, "positive scaling": 2.0 if activation.degree == 1 else 1.0}.get(
        activation.symmetry, 1.0
    )


# ---------------------------------------------------------------------------------------------
# Equivariant networks


@cache
def groups() -> tuple[Group, ...]:
    """C_2 to C_12, D_4 and S_4.

    >>> from samefn.equivariance.planted import groups
    >>> [group.name for group in groups()][-2:]
    ['D4', 'S4']
    """
    return (*(cyclic(n) for n in range(2, 13)), dihedral(4), symmetric(4))


@cache
def points_and_signed_points(group: Group) -> Representation:
    """The permuted points, and once more the permuted points with the sign of the permutation.

    >>> from samefn.equivariance.groups import symmetric
    >>> from samefn.equivariance.planted import points_and_signed_points
    >>> points_and_signed_points(symmetric(3)).dimension
    6
    """
    points = permutation_representation(group)
    sign = torch.linalg.det(points.matrices).round()
    return points + Representation(group, sign[:, None, None] * points.matrices)


def equivariant_network(
    group: Group, depth: Count, *, generator: torch.Generator
) -> tuple[DeepMLP, list[Representation]]:
    """A random tanh network with ``depth`` hidden layers, each layer equivariant, and its representations.

    Input, hidden layers and output all carry :func:`points_and_signed_points`.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import dihedral
    >>> from samefn.equivariance.planted import equivariant_network
    >>> network, rhos = equivariant_network(dihedral(4), 2, generator=Draw(0))
    >>> network.widths, [rho.dimension for rho in rhos]
    ((8, 8), [8, 8, 8, 8])
    """
    rho = points_and_signed_points(group)
    n = rho.dimension
    weights = [torch.randn(n, n, generator=generator, dtype=torch.float64) for _ in range(depth + 1)]
    biases = [torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(depth + 1)]
    return symmetrise(DeepMLP(weights, biases, "tanh"), [rho] * (depth + 2)), [rho] * (depth + 2)


@cache
def plane(group: Group) -> Representation:
    """C_4 or D_4 on the plane: quarter turns, and the mirror x_1 ↦ −x_1.

    >>> from samefn.equivariance.groups import cyclic
    >>> from samefn.equivariance.planted import plane
    >>> plane(cyclic(4)).matrices[2].tolist()  # two quarter turns
    [[-1.0, 0.0], [0.0, -1.0]]
    """
    turn, mirror = torch.tensor([[[0.0, -1], [1, 0]], [[-1, 0], [0, 1]]], dtype=torch.float64)
    return representation(group, dict(zip(group.generators, (turn, mirror), strict=False)))


def hidden_tanh_network(group: Group, *, generator: torch.Generator) -> DeepMLP:
    """A tanh network 2 → 6 → 6 → 2, equivariant for C_4 or D_4 on the plane, its units renamed and negated
    at random.

    >>> from samefn import equivariance_error
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import dihedral
    >>> from samefn.equivariance.planted import hidden_tanh_network, plane
    >>> D4 = dihedral(4)
    >>> network, rho = hidden_tanh_network(D4, generator=Draw(0)), plane(D4)
    >>> equivariance_error(network, rho, rho, Draw(1).normal(50, 2)) < 1e-13
    True
    """
    rho = plane(group)
    hidden = permutation_representation(group) + rho
    draw = partial(normal, generator=generator)
    network = DeepMLP([draw(6, 2), draw(6, 6), draw(2, 6)], [draw(6), draw(6), draw(2)], "tanh")
    network = symmetrise(network, [rho, hidden, hidden, rho])
    return random_symmetry(network, generator=generator).apply(network)


def as_sigmoid(network: DeepMLP) -> DeepMLP:
    """The sigmoid network with the function of a tanh network, by tanh(z) = 2 sigmoid(2z) − 1.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import as_sigmoid, random_deep
    >>> from samefn.functions import gap
    >>> network = random_deep("tanh", generator=Draw(0))
    >>> gap(network, as_sigmoid(network), Draw(1).normal(100, 3)) < 1e-13
    True
    """
    layers = network.layers
    last = len(layers.weights) - 1
    for i, (weight, bias) in enumerate(zip(network.layers.weights, network.layers.biases, strict=True)):
        if i > 0:  # it reads 2y − 1
            weight, bias = 2 * weight, bias - weight.sum(1)
        before = 1 if i == last else 2
        layers = layers.replaced(i, before * weight, before * bias)
    return DeepMLP(layers.weights, layers.biases, "sigmoid")


def opposite_pairs(
    activation: str | Activation, *, generator: torch.Generator
) -> tuple[DeepMLP, Representation]:
    """A⁻¹(σ(Ax) − σ(−Ax)) in the plane for a random A, which is x for σ(z) − σ(−z) = z, and the mirror
    that swaps coordinates.

    The rows of A lie 10° to 30° and 50° to 70° from the mirror's axis, so that none is near the mirror
    image of another or of its opposite, and A is far from singular.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import opposite_pairs
    >>> network, mirror = opposite_pairs("gelu", generator=Draw(0))
    >>> x = Draw(1).normal(100, 2)
    >>> torch.allclose(network(x), x)
    True
    """
    draw = torch.rand(2, 2, generator=generator, dtype=torch.float64)
    angle = torch.deg2rad(torch.tensor([55.0, 95.0], dtype=torch.float64) + 20 * draw[0])
    a: Float[Tensor, "2 2"] = torch.stack([angle.cos(), angle.sin()], 1) * (0.5 + 1.5 * draw[1])[:, None]
    inverse = torch.linalg.inv(a)
    network = DeepMLP([torch.cat([a, -a]), torch.cat([inverse, -inverse], 1)], activation=activation)
    mirror = cyclic(2)
    swap = torch.tensor([[0, 1], [1, 0]], dtype=torch.float64)
    return network, representation(mirror, {mirror.generators[0]: swap})
