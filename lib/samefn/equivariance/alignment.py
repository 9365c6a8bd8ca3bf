"""Symmetries of a network's weights, and the alignment of two networks.

A hidden unit may be exchanged with another of its layer, and rescaled by what its activation allows
(see :mod:`samefn.equivariance.units`).  These changes form the groups K_i of [B], Definition 1; they never
change the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import scipy.optimize
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..activations import Activation
from ..networks import DeepMLP, Layers
from .units import clones, distances, free_scale, incoming, is_even, is_signed, outgoing

SWEEPS = 10  # rounds of matching that tell clones of several layers apart


@dataclass(frozen=True, eq=False)
class Symmetry:
    """An element of K_1 × … × K_{L-1}: in each hidden layer a permutation of units with factors.

    After it, unit i of a layer is ``factors[i]`` times the former unit ``permutation[i]``.
    ``error`` is by how much it misses what it was found for (see :func:`align`), else 0.
    Source: [B], the groups K_i of Definition 1, for multilayer perceptrons.
    """

    permutations: tuple[Int[Tensor, "_"], ...]
    factors: tuple[Float[Tensor, "_"], ...]
    error: float = 0.0

    def matrices(self) -> list[Float[Tensor, "_ _"]]:
        """The action on the values of each hidden layer, as generalised permutation matrices."""
        return [_matrix(p, f) for p, f in zip(self.permutations, self.factors, strict=True)]

    def act(self, layers: Layers) -> Layers:
        """The transformed weights.  Raises ValueError if the layers' widths differ from the symmetry's."""
        widths = tuple(len(p) for p in self.permutations)
        if layers.widths != widths:
            raise ValueError(f"network must have hidden widths {widths}, got {layers.widths}")
        for i, (p, f) in enumerate(zip(self.permutations, self.factors, strict=True)):
            scale = incoming(layers.activations[i], f)
            layers = layers.replaced(i, layers.weights[i][p] * scale[:, None], layers.biases[i][p] * scale)
            layers = layers.replaced(i + 1, layers.weights[i + 1][:, p] / f)
        return layers

    def apply(self, network: DeepMLP) -> DeepMLP:
        """The network with transformed weights; it computes the same function.  Raises as :meth:`act`
        does.
        """
        return network.rebuilt(self.act(network.layers))


def _matrix(permutation: Tensor, factors: Tensor) -> Tensor:
    matrix = torch.zeros(len(permutation), len(permutation), dtype=factors.dtype)
    matrix[torch.arange(len(permutation)), permutation] = factors
    return matrix


def random_symmetry(network: DeepMLP, *, generator: torch.Generator) -> Symmetry:
    """A random element of the network's symmetry group: uniform permutations, fair signs, factors
    e^N(0,1).
    """
    permutations, factors = [], []
    for width, activation in zip(network.widths, network.activations, strict=True):
        permutations.append(torch.randperm(width, generator=generator))
        factors.append(_random_factors(width, activation, generator))
    return Symmetry(tuple(permutations), tuple(factors))


def _random_factors(width: int, activation: Activation, generator: torch.Generator) -> Tensor:
    sign = torch.randint(0, 2, (width,), generator=generator).to(torch.float64) * 2 - 1
    size = torch.randn(width, generator=generator, dtype=torch.float64).exp()
    match activation.symmetry:
        case "permutation":
            return torch.ones_like(size)
        case "sign":
            return sign
        case "positive scaling":
            return size
        case "nonzero scaling":  # an even power cannot take a sign back
            return size if is_even(activation) else sign * size


def align(a: DeepMLP, b: DeepMLP, *, tolerance: float = 1e-6) -> Symmetry | None:
    """The symmetry that takes a to b, or None if none does within ``tolerance``.

    ``error`` of the result is the largest difference of a weight or bias of the transformed a from
    that of b, relative to the largest in its layer; it was computed from the transformed weights, so
    a symmetry that is returned needs no trust in the search.  (Where σ is even, the sign of a unit's
    incoming weights has no effect and is not compared.)

    Layer by layer, units are matched by their incoming weights (linear assignment); the outgoing
    weights of clones are added up on the way.  Then each layer is matched again by incoming and
    outgoing weights, which tells clones apart, until nothing changes.  Without clones in two
    successive layers this finds the symmetry if there is one.  With them the problem contains
    the isomorphism of bipartite graphs, and None may mean that the search got stuck.
    Time O(Σ n_i² n_{i-1}) for the distances, and the assignments.

    Raises TypeError for anything but two DeepMLPs, ValueError if their shapes or activations differ.
    """
    found = nearest_symmetry(a, b)
    return found if found.error <= tolerance else None


def nearest_symmetry(a: DeepMLP, b: DeepMLP) -> Symmetry:
    """What :func:`align` finds, with no bound on its ``error``.  Raises as :func:`align` does."""
    _require_one_architecture(a, b)
    one, two = a.layers, b.layers
    symmetry = _first_match(one, two)
    for _ in range(SWEEPS):
        before, symmetry = symmetry, _refine(one, two, symmetry)
        if _same_matching(before, symmetry):
            break
    return replace(symmetry, error=_largest_difference(symmetry.apply(a).layers, two))


def _require_one_architecture(a: DeepMLP, b: DeepMLP) -> None:
    for name, network in (("a", a), ("b", b)):
        if not isinstance(network, DeepMLP):
            raise TypeError(f"{name} must be a DeepMLP, got {type(network).__name__}")
    shapes = [[tuple(w.shape) for w in n.weights] for n in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"a and b must have the same shapes, got {shapes[0]} and {shapes[1]}")
    names = [[f.name for f in n.activations] for n in (a, b)]
    if names[0] != names[1]:
        raise ValueError(f"a and b must have the same activations, got {names[0]} and {names[1]}")


def _same_matching(a: Symmetry, b: Symmetry) -> bool:
    signs = zip(a.factors, b.factors, strict=True)
    return all(map(torch.equal, a.permutations, b.permutations)) and all(
        torch.equal(f.sign(), h.sign()) for f, h in signs
    )


def _largest_difference(a: Layers, b: Layers) -> float:
    """Of a weight or bias, relative to the largest of its layer."""
    worst = 0.0
    for i in range(len(b.weights)):
        rows, others = a.rows(i), b.rows(i)
        gaps = (rows - others).abs().amax(dim=1)
        if i < len(b.activations) and is_even(b.activations[i]):
            gaps = torch.minimum(gaps, (rows + others).abs().amax(dim=1))
        size = others.abs().max().clamp_min(torch.finfo(others.dtype).tiny)
        worst = max(worst, float(gaps.max() / size))
    return worst


def _first_match(a: Layers, b: Layers) -> Symmetry:
    """Match by incoming weights from the first layer on, with the outgoing weights of clones added up."""
    permutations, factors = [], []
    for i, activation in enumerate(a.activations):
        permutation, factor = _match(activation, a.rows(i), b.rows(i))
        permutations.append(permutation)
        factors.append(factor)
        together = _clones_together(activation, b.rows(i))
        a = a.replaced(i + 1, a.weights[i + 1][:, permutation] / factor @ together)
        b = b.replaced(i + 1, b.weights[i + 1] @ together)
    return Symmetry(tuple(permutations), tuple(factors))


def _clones_together(activation: Activation, rows: Tensor) -> Tensor:
    """The matrix that adds the outgoing weights of clones up in the first of them."""
    first, value = clones(activation, rows)
    together = torch.zeros(len(rows), len(rows), dtype=rows.dtype)
    together[torch.arange(len(rows)), first] = value
    return together


def _refine(a: Layers, b: Layers, symmetry: Symmetry) -> Symmetry:
    """Match each hidden layer again by incoming and outgoing weights, the other layers held fixed."""
    permutations, factors = list(symmetry.permutations), list(symmetry.factors)
    for i, activation in enumerate(a.activations):
        read, written = a.weights[i], a.weights[i + 1]
        if i > 0:
            read = read[:, permutations[i - 1]] / factors[i - 1]
        if i + 1 < len(permutations):
            scale = incoming(a.activations[i + 1], factors[i + 1])
            written = written[permutations[i + 1]] * scale[:, None]
        rows = torch.cat([read, a.biases[i][:, None]], 1)
        columns = written, b.weights[i + 1]
        permutations[i], factors[i] = _match(activation, rows, b.rows(i), columns)
    return Symmetry(tuple(permutations), tuple(factors))


def _match(
    activation: Activation, rows_a: Tensor, rows_b: Tensor, columns: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """For each unit of b the unit of a that it is, and the factor between their values.

    ``columns`` are the units' outgoing weights in a and b; where given, both ends of a unit decide,
    under one and the same sign.
    """
    scale_a, scale_b = free_scale(activation, rows_a), free_scale(activation, rows_b)
    plus, minus = _either_sign(activation, rows_b / scale_b[:, None], rows_a / scale_a[:, None])
    if columns is not None:
        # outgoing weights times value do not depend on the unit's scale
        columns_a = (columns[0] * outgoing(activation, scale_a)).T
        columns_b = (columns[1] * outgoing(activation, scale_b)).T
        same = distances(columns_b, columns_a)
        changes = is_signed(activation) and not is_even(activation)
        plus, minus = plus + same, minus + (distances(columns_b, -columns_a) if changes else same)
    unit = _assign(torch.minimum(plus, minus))
    at = torch.arange(len(unit)), unit
    sign = torch.where(plus[at] <= minus[at], 1.0, -1.0).to(rows_a.dtype)
    return unit, outgoing(activation, sign * scale_b / scale_a[unit])


def _either_sign(activation: Activation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of all rows, and those after a change of sign where the activation allows one."""
    plus = distances(a, b)
    minus = distances(a, -b) if is_signed(activation) else plus
    if is_even(activation):
        plus = minus = torch.minimum(plus, minus)
    return plus, minus


def _assign(cost: Tensor) -> Tensor:
    """For each row a column, each taken once, at least cost."""
    nearest = cost.argmin(dim=1)
    if len(nearest.unique()) == len(nearest):
        return nearest  # every unit gets its nearest one, which no assignment beats
    return torch.from_numpy(scipy.optimize.linear_sum_assignment(cost.numpy())[1])


def nearest_signed_permutation(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The signed permutation matrix Q that minimises ‖matrix − Q‖ in the Frobenius norm.

    ‖A − Q‖² = ‖A‖² + n − 2 Σ Q_ij A_ij, so Q is a linear assignment for |A| with the signs of A.
    Raises ValueError unless the matrix is square and finite.
    """
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got shape {tuple(matrix.shape)}")
    if not torch.isfinite(matrix).all():
        raise ValueError("matrix must be finite, got NaN or infinity")
    row, column = scipy.optimize.linear_sum_assignment(-matrix.abs().numpy())
    nearest = torch.zeros_like(matrix)
    nearest[row, column] = torch.where(matrix[row, column] < 0, -1.0, 1.0).to(matrix.dtype)
    return nearest
