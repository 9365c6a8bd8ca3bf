"""Symmetries of a network's weights: remove what is redundant, and align two networks.

A hidden unit may be exchanged with another of its layer, and rescaled by what its activation
allows: a sign for odd activations, a positive factor for ReLU, any nonzero one for monomials.
These changes form the groups K_i of [B], Definition 1; they never change the function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from .activations import Activation
from .networks import DeepMLP

SAME = 1e-8  # units closer than this, relative to their weights, count as clones
NOTHING = 1e-12  # weights smaller than this beside the others of their layer count as zero
CHUNK = 4096  # pairs of rows whose difference is formed at once
SWEEPS = 10  # rounds of matching that tell clones of several layers apart


@dataclass(frozen=True, eq=False)
class Symmetry:
    """An element of K_1 × … × K_{L-1}: in each hidden layer a permutation of units with factors.

    After it, unit i of a layer is ``factors[i]`` times the former unit ``permutation[i]``.
    ``error`` is by how much it misses what it was found for (see :func:`align`), else 0.
    Source: [B], the groups K_i of Definition 1, for multilayer perceptrons.
    """

    permutations: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]
    error: float = 0.0

    def matrices(self) -> list[Float[Tensor, "n n"]]:
        """The action on the values of each hidden layer, as generalised permutation matrices."""
        return [_matrix(p, f) for p, f in zip(self.permutations, self.factors)]

    def apply(self, network: DeepMLP) -> DeepMLP:
        """The network with transformed weights; it computes the same function.

        Raises ValueError if the layers' widths differ from the symmetry's.
        """
        widths = tuple(len(p) for p in self.permutations)
        if network.widths != widths:
            raise ValueError(f"network must have hidden widths {widths}, got {network.widths}")
        weights, biases = _parameters(network)
        for i, (p, f) in enumerate(zip(self.permutations, self.factors)):
            incoming = _incoming(network.activations[i], f)
            weights[i], biases[i] = weights[i][p] * incoming[:, None], biases[i][p] * incoming
            weights[i + 1] = weights[i + 1][:, p] / f
        return _rebuilt(network, weights, biases)


def _matrix(permutation: Tensor, factors: Tensor) -> Tensor:
    matrix = torch.zeros(len(permutation), len(permutation), dtype=factors.dtype)
    matrix[torch.arange(len(permutation)), permutation] = factors
    return matrix


def _incoming(activation: Activation, factors: Tensor) -> Tensor:
    """What the incoming weights are multiplied by, where the unit's value is multiplied by ``factors``."""
    return factors if activation.degree is None else _power(factors, 1 / activation.degree)


def _outgoing(activation: Activation, scale: Tensor) -> Tensor:
    """What the unit's value is multiplied by, where its incoming weights are multiplied by ``scale``."""
    if _even(activation):
        scale = scale.abs()
    return scale if activation.degree is None else _power(scale, activation.degree)


def _power(scale: Tensor, exponent: float) -> Tensor:
    return scale.sign() * scale.abs() ** exponent


def _even(activation: Activation) -> bool:
    """Whether σ(-z) = σ(z): then the sign of a unit's incoming weights has no effect at all."""
    monomial = activation.symmetry == "nonzero scaling" and activation.degree % 2 == 0
    return monomial or activation.odd_slope == 0


def _parameters(network: DeepMLP) -> tuple[list[Tensor], list[Tensor]]:
    weights = [w.detach().to(torch.float64) for w in network.weights]
    if network.biases is None:
        return weights, [torch.zeros(len(w), dtype=torch.float64) for w in weights]
    return weights, [b.detach().to(torch.float64) for b in network.biases]


def _rebuilt(network: DeepMLP, weights: list[Tensor], biases: list[Tensor]) -> DeepMLP:
    keep = network.biases is not None or any(bool(b.any()) for b in biases)
    dtype = network.weights[0].dtype
    return DeepMLP([w.to(dtype) for w in weights], [b.to(dtype) for b in biases] if keep else None, network.activations)


def random_symmetry(network: DeepMLP, generator: torch.Generator) -> Symmetry:
    """A random element of the network's symmetry group: uniform permutations, fair signs, factors e^N(0,1)."""
    permutations, factors = [], []
    for width, activation in zip(network.widths, network.activations):
        permutations.append(torch.randperm(width, generator=generator))
        sign = torch.randint(0, 2, (width,), generator=generator).to(torch.float64) * 2 - 1
        size = torch.randn(width, generator=generator, dtype=torch.float64).exp()
        if activation.symmetry == "nonzero scaling" and activation.degree % 2 == 0:
            sign = sign.abs()  # an even power cannot take a sign back
        factors.append(
            {
                "permutation": torch.ones_like(size),
                "sign": sign,
                "positive scaling": size,
                "nonzero scaling": sign * size,
            }[activation.symmetry]
        )
    return Symmetry(tuple(permutations), tuple(factors))


# ---------------------------------------------------------------------------------------------
# Distances of units up to their own symmetries


def _scale(activation: Activation, rows: Tensor) -> Tensor:
    """The scale of each row that the activation allows to divide out: its norm, or 1 where it allows none."""
    norm = rows.norm(dim=1)
    free = activation.symmetry in ("positive scaling", "nonzero scaling")
    return torch.where(norm > 0, norm, 1.0) if free else torch.ones_like(norm)


def _signed(activation: Activation) -> bool:
    """Whether rows that differ by a sign count as one unit, up to a factor."""
    return activation.symmetry in ("sign", "nonzero scaling") or _even(activation)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances of all rows of a from all rows of b, exact also where they are small."""
    distance = torch.cdist(a, b)
    if max(len(a), len(b)) <= 25:
        return distance  # torch forms the differences themselves
    # beyond, it multiplies matrices, which cancels for nearby rows; these are taken again one by one
    size = torch.maximum(a.norm(dim=1)[:, None], b.norm(dim=1)[None, :])
    for i, j in (pairs.T for pairs in (distance <= 1e-3 * size).nonzero().split(CHUNK)):
        distance[i, j] = (a[i] - b[j]).norm(dim=1)
    return distance


# ---------------------------------------------------------------------------------------------
# Reduction: [B], Definition 3, for multilayer perceptrons


@dataclass(frozen=True)
class Reduction:
    """A network and the smaller one, with the same function, that :func:`reduce` found in it.

    ``include[i]`` is α and ``project[i]`` is α*, matrices between the values of hidden layer i of
    the small and the large network; α* α is the identity.  ``removed`` says what went and why.
    """

    network: DeepMLP
    include: tuple[Float[Tensor, "n small"], ...]
    project: tuple[Float[Tensor, "small n"], ...]
    removed: tuple[str, ...]

    def embed(self) -> DeepMLP:
        """β: the large network with layers α_i f̃_i(α*_{i-1} y), inactive units off and clones in step."""
        weights, biases = _parameters(self.network)
        for i, (alpha, alpha_star) in enumerate(zip(self.include, self.project)):
            incoming = _incoming(self.network.activations[i], alpha.sum(1))
            unit = alpha.abs().argmax(dim=1)
            weights[i], biases[i] = weights[i][unit] * incoming[:, None], biases[i][unit] * incoming
            weights[i + 1] = weights[i + 1] @ alpha_star
        return _rebuilt(self.network, weights, biases)


def reduce(network: DeepMLP) -> Reduction:
    """Remove inactive, constant and cloned units until none is left.

    *Inactive*: no outgoing weight; dropped.  *Constant*: no incoming weight; its value goes into the
    next bias.  *Cloned*: the incoming weights and bias equal another unit's up to what the activation
    allows; the outgoing weights are added up.  A layer keeps one unit, off, even where it needs none.
    Weights count as zero below 1e-12 of the largest of their layer, units as equal within 1e-8 of
    their weights.  Raises TypeError for anything but a DeepMLP.  Source: [B], Definition 3, for
    multilayer perceptrons; for tanh and one hidden layer what is left is irreducible in the sense
    of Sussmann (1992).
    """
    if not isinstance(network, DeepMLP):
        raise TypeError(f"network must be a DeepMLP, got {type(network).__name__}")
    weights, biases = _parameters(network)
    include = [torch.eye(n, dtype=torch.float64) for n in network.widths]
    names = [list(range(n)) for n in network.widths]
    removed: list[str] = []
    changed = True
    while changed:
        changed = False
        for i, activation in enumerate(network.activations):
            if len(biases[i]) == 1 and not (weights[i].any() or biases[i].any() or weights[i + 1].any()):
                continue  # the one unit, off, that the layer keeps
            # scales that the activation allows must not decide what counts as small
            scale = _scale(activation, _rows(weights, biases, i))
            incoming = (weights[i] / scale[:, None]).norm(dim=1)
            constant = incoming <= NOTHING * incoming.max()
            outgoing = (weights[i + 1] * _outgoing(activation, scale)).norm(dim=0)
            inactive = (outgoing <= NOTHING * outgoing.max()) & ~constant
            biases[i + 1] = biases[i + 1] + weights[i + 1] @ (activation(biases[i]) * constant)
            live = (~(constant | inactive)).nonzero().flatten()
            first, value = _clones(activation, _rows(weights, biases, i)[live])
            keep = first.unique()
            removed += [f"layer {i + 1}, unit {names[i][j]}: constant" for j in constant.nonzero().flatten().tolist()]
            removed += [f"layer {i + 1}, unit {names[i][j]}: inactive" for j in inactive.nonzero().flatten().tolist()]
            removed += [
                f"layer {i + 1}, unit {names[i][live[j]]}: clone of unit {names[i][live[k]]}"
                for j, k in enumerate(first.tolist())
                if j != k
            ]
            if len(keep) == len(biases[i]):
                continue
            changed = True
            merge = torch.zeros(len(biases[i]), max(len(keep), 1), dtype=torch.float64)
            merge[live, torch.searchsorted(keep, first)] = value
            weights[i + 1] = weights[i + 1] @ merge
            kept = live[keep]
            if not len(keep):  # one unit stays, and is switched off
                kept, merge[0, 0] = torch.tensor([0]), 1
                weights[i], biases[i] = torch.zeros_like(weights[i]), torch.zeros_like(biases[i])
            include[i] = include[i] @ merge
            weights[i], biases[i] = weights[i][kept], biases[i][kept]
            names[i] = [names[i][j] for j in kept.tolist()]
    project = [torch.where(a != 0, 1 / (a * (a != 0).sum(0)), 0.0).T for a in include]
    return Reduction(_rebuilt(network, weights, biases), tuple(include), tuple(project), tuple(removed))


def _clones(activation: Activation, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The first clone of each unit, and the factor between their values."""
    if len(rows) == 0:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=rows.dtype)
    scale = _scale(activation, rows)
    normal = rows / scale[:, None]
    size = normal.norm(dim=1)
    near = SAME * torch.maximum(size[:, None], size[None, :])
    same = equal = _distances(normal, normal) <= near
    if _signed(activation):
        equal = same | (_distances(normal, -normal) <= near)
    first = equal.to(torch.int8).argmax(dim=1)
    sign = torch.where(same[torch.arange(len(rows)), first], 1.0, -1.0).to(rows.dtype)
    return first, _outgoing(activation, sign * scale / scale[first])


# ---------------------------------------------------------------------------------------------
# Alignment


def align(a: DeepMLP, b: DeepMLP, tolerance: float = 1e-6) -> Symmetry | None:
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
    for name, network in (("a", a), ("b", b)):
        if not isinstance(network, DeepMLP):
            raise TypeError(f"{name} must be a DeepMLP, got {type(network).__name__}")
    shapes = [[tuple(w.shape) for w in n.weights] for n in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"a and b must have the same shapes, got {shapes[0]} and {shapes[1]}")
    if [f.name for f in a.activations] != [f.name for f in b.activations]:
        raise ValueError(
            f"a and b must have the same activations, got {[f.name for f in a.activations]} "
            f"and {[f.name for f in b.activations]}"
        )
    symmetry = _first_match(a, b)
    for _ in range(len(a.activations) and SWEEPS):
        refined = _refine(a, b, symmetry)
        settled = all(map(torch.equal, refined.permutations, symmetry.permutations)) and all(
            torch.equal(f.sign(), h.sign()) for f, h in zip(refined.factors, symmetry.factors)
        )
        symmetry = refined
        if settled:
            break
    error = _error(symmetry.apply(a), b)
    return Symmetry(symmetry.permutations, symmetry.factors, error) if error <= tolerance else None


def _error(a: DeepMLP, b: DeepMLP) -> float:
    worst = 0.0
    (weights_a, biases_a), (weights_b, biases_b) = _parameters(a), _parameters(b)
    for i in range(len(weights_b)):
        rows_a, rows_b = _rows(weights_a, biases_a, i), _rows(weights_b, biases_b, i)
        gaps = (rows_a - rows_b).abs().amax(dim=1)
        if i < len(b.activations) and _even(b.activations[i]):
            gaps = torch.minimum(gaps, (rows_a + rows_b).abs().amax(dim=1))
        size = rows_b.abs().max().clamp_min(torch.finfo(rows_b.dtype).tiny)
        worst = max(worst, float(gaps.max() / size))
    return worst


def _rows(weights: list[Tensor], biases: list[Tensor], i: int) -> Tensor:
    """Incoming weights and bias of each unit of layer i + 1."""
    return torch.cat([weights[i], biases[i][:, None]], 1)


def _match(
    activation: Activation, rows_a: Tensor, rows_b: Tensor, columns: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """For each unit of b the unit of a that it is, and the factor between their values.

    ``columns`` are the units' outgoing weights in a and b; where given, both ends of a unit decide,
    under one and the same sign.
    """
    scale_a, scale_b = _scale(activation, rows_a), _scale(activation, rows_b)
    normal_a, normal_b = rows_a / scale_a[:, None], rows_b / scale_b[:, None]
    plus = _distances(normal_b, normal_a)
    minus = _distances(normal_b, -normal_a) if _signed(activation) else plus
    if _even(activation):
        plus = minus = torch.minimum(plus, minus)
    if columns is not None:
        # outgoing weights times value do not depend on the unit's scale
        columns_a = (columns[0] * _outgoing(activation, scale_a)).T
        columns_b = (columns[1] * _outgoing(activation, scale_b)).T
        same = _distances(columns_b, columns_a)
        changes = _signed(activation) and not _even(activation)
        plus, minus = plus + same, minus + (_distances(columns_b, -columns_a) if changes else same)
    cost = torch.minimum(plus, minus)
    unit = cost.argmin(dim=1)
    if len(unit.unique()) < len(unit):  # else every unit gets its nearest one, which no assignment beats
        unit = torch.from_numpy(scipy.optimize.linear_sum_assignment(cost.numpy())[1])
    at = torch.arange(len(unit)), unit
    sign = torch.where(plus[at] <= cost[at], 1.0, -1.0).to(cost.dtype)
    return unit, _outgoing(activation, sign * scale_b / scale_a[unit])


def _first_match(a: DeepMLP, b: DeepMLP) -> Symmetry:
    """Match by incoming weights from the first layer on, with the outgoing weights of clones added up."""
    (weights_a, biases_a), (weights_b, biases_b) = _parameters(a), _parameters(b)
    permutations, factors = [], []
    for i, activation in enumerate(a.activations):
        rows_b = _rows(weights_b, biases_b, i)
        permutation, factor = _match(activation, _rows(weights_a, biases_a, i), rows_b)
        permutations.append(permutation)
        factors.append(factor)
        weights_a[i + 1] = weights_a[i + 1][:, permutation] / factor
        first, value = _clones(activation, rows_b)
        if not torch.equal(first, torch.arange(len(first))):
            add_up = torch.zeros(len(rows_b), len(rows_b), dtype=torch.float64)
            add_up[torch.arange(len(rows_b)), first] = value
            weights_a[i + 1], weights_b[i + 1] = weights_a[i + 1] @ add_up, weights_b[i + 1] @ add_up
    return Symmetry(tuple(permutations), tuple(factors))


def _refine(a: DeepMLP, b: DeepMLP, symmetry: Symmetry) -> Symmetry:
    """Match each hidden layer again by incoming and outgoing weights, the other layers held fixed."""
    (weights_a, biases_a), (weights_b, biases_b) = _parameters(a), _parameters(b)
    permutations, factors = list(symmetry.permutations), list(symmetry.factors)
    for i, activation in enumerate(a.activations):
        incoming, outgoing = weights_a[i], weights_a[i + 1]
        if i > 0:
            incoming = incoming[:, permutations[i - 1]] / factors[i - 1]
        if i + 1 < len(permutations):
            scale = _incoming(a.activations[i + 1], factors[i + 1])
            outgoing = outgoing[permutations[i + 1]] * scale[:, None]
        rows_a = torch.cat([incoming, biases_a[i][:, None]], 1)
        rows_b = _rows(weights_b, biases_b, i)
        permutations[i], factors[i] = _match(activation, rows_a, rows_b, (outgoing, weights_b[i + 1]))
    return Symmetry(tuple(permutations), tuple(factors))


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


# ---------------------------------------------------------------------------------------------
# Canonical form


def canonical(network: DeepMLP, digits: int = 9) -> DeepMLP:
    """The representative of a network's symmetry class: reduced, rows scaled, signed and sorted.

    Rows (incoming weights and bias) of a layer have norm 1 where a scale is free, a positive first
    nonzero entry where a sign is, and are in lexicographic order, entries taken to ``digits``
    decimals.  For reduced networks, equal canonical forms ⇔ related by a symmetry; but sorting is
    not continuous, so entries within rounding of a tie can come out in either order.  To compare
    two given networks in floating point use :func:`align`.  Raises TypeError as :func:`reduce` does.
    """
    network = reduce(network).network
    weights, biases = _parameters(network)
    for i, activation in enumerate(network.activations):
        rows = _rows(weights, biases, i)
        scale = 1 / _scale(activation, rows)
        if _signed(activation):
            visible = (rows * scale[:, None]).round(decimals=digits)
            lead = visible.gather(1, (visible != 0).to(torch.int8).argmax(dim=1, keepdim=True)).flatten()
            scale = torch.where(lead < 0, -scale, scale)
        incoming = rows * scale[:, None]
        keys = incoming.round(decimals=digits).T.flip(0) + 0.0  # -0.0 and 0.0 must sort alike
        order = torch.from_numpy(np.lexsort(keys.numpy()))
        weights[i], biases[i] = incoming[order, :-1], incoming[order, -1]
        weights[i + 1] = (weights[i + 1] / _outgoing(activation, scale))[:, order]
    return _rebuilt(network, weights, biases)
