"""Symmetries of a network's weights, and the alignment of two networks.

A hidden unit may be exchanged with another of its layer, and rescaled or reflected as far as its activation
allows (see :mod:`samefn.equivariance.units`).  These changes form the groups K_i of [B], Definition 1; they
never change the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import scipy.optimize
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..activations import Activation
from ..arguments import NonNegative
from ..networks import DeepMLP, Layers
from .units import (
    about_centres,
    directions,
    free_scale,
    gaps,
    incoming,
    is_even,
    is_scaled,
    is_signed,
    outgoing,
    ratio,
    same_function,
    sizes,
)

FAINT = 1e-6  # how much of what silent units read and write counts in the search, beside others
SWEEPS = 10  # rounds of matching that tell clones of several layers apart
CLONES = 1e-6  # rows nearer than this, relative to themselves, are taken together in the first round


@dataclass(frozen=True, eq=False)
class Symmetry:
    """An element of K_1 × … × K_{L-1}: in each hidden layer a permutation of units with scales.

    After it, unit i of a layer reads ``scales[i]`` times the row of the former unit ``permutation[i]``, and
    its value is ``factors[i]`` times that unit's, plus ``shifts[i]``.  ``activations`` are those of the
    hidden layers, for which alone it is a symmetry; where σ is even, the sign of a scale has no effect on
    the value.  ``error`` is by how much it misses what it was found for (see :func:`align`), else 0.
    Source: [B], the groups K_i of Definition 1, for multilayer perceptrons.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.functions import gap
    >>> network = random_deep("tanh", generator=Draw(0))
    >>> k = random_symmetry(network, generator=Draw(1))
    >>> gap(network, k.apply(network), Draw(2).normal(100, 3)) < 1e-14  # other weights, same function
    True
    """

    permutations: tuple[Int[Tensor, "_"], ...]
    scales: tuple[Float[Tensor, "_"], ...]
    activations: tuple[Activation, ...]
    error: float = 0.0

    def __post_init__(self) -> None:
        for name, parts in (("permutations", self.permutations), ("scales", self.scales)):
            if len(parts) != len(self.activations):
                raise ValueError(
                    f"{name} must be one for each of {len(self.activations)} layers, got {len(parts)}"
                )
        for i, (p, s) in enumerate(zip(self.permutations, self.scales, strict=True)):
            if sorted(p.tolist()) != list(range(len(p))):
                raise ValueError(f"permutations[{i}] must be one of {len(p)} units, got {p.tolist()}")
            if len(s) != len(p):
                raise ValueError(f"scales[{i}] must be one for each of {len(p)} units, got {len(s)}")

    @property
    def factors(self) -> tuple[Float[Tensor, "_"], ...]:
        return tuple(outgoing(f, s) for f, s in zip(self.activations, self.scales, strict=True))

    @property
    def shifts(self) -> tuple[Float[Tensor, "_"], ...]:
        """Nonzero only for reflected units: y ↦ 2q − y."""
        return tuple((1 - f) * a.centre[1] for a, f in zip(self.activations, self.factors, strict=True))

    def matrices(self) -> list[Float[Tensor, "_ _"]]:
        """The action on the values of each hidden layer but for ``shifts``: generalised permutations."""
        return [_matrix(p, f) for p, f in zip(self.permutations, self.factors, strict=True)]

    def act(self, layers: Layers) -> Layers:
        """The transformed weights.  Raises ValueError if the layers' widths or activations differ from the
        symmetry's.
        """
        widths = tuple(len(p) for p in self.permutations)
        if layers.widths != widths:
            raise ValueError(f"layers of the network must have hidden widths {widths}, got {layers.widths}")
        _require_same_functions(
            "layers of the network must have the activations", self.activations, layers.activations
        )
        units = zip(self.permutations, self.scales, self.factors, self.shifts, self.activations, strict=True)
        for i, (p, s, f, shift, activation) in enumerate(units):
            s, f, shift = (t.to(layers.weights[i].device) for t in (s, f, shift))
            bias = layers.biases[i][p] * s + (1 - s) * activation.centre[0]
            layers = layers.replaced(i, layers.weights[i][p] * s[:, None], bias)
            after = layers.weights[i + 1][:, p] / f
            layers = layers.replaced(i + 1, after, layers.biases[i + 1] - after @ shift)
        return layers

    def apply(self, network: DeepMLP) -> DeepMLP:
        """The network with transformed weights; it computes the same function.  Raises as :meth:`act` does,
        and if a weight overflows.
        """
        return network.rebuilt(self.act(network.layers))


def _matrix(permutation: Tensor, factors: Tensor) -> Tensor:
    return torch.diag(factors)[:, permutation.argsort()]


def _require_same_functions(needed: str, wanted: tuple[Activation, ...], got: tuple[Activation, ...]) -> None:
    if len(wanted) != len(got) or not all(map(same_function, wanted, got)):
        names = ([f.name for f in some] for some in (wanted, got))
        raise ValueError("{} {}, got {}".format(needed, *names))


def random_symmetry(network: DeepMLP, *, generator: torch.Generator) -> Symmetry:
    """A random element of the network's symmetry group: uniform permutations, fair signs and reflections,
    factors e^N(0,1).

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", (3, 5, 4, 2), generator=Draw(0))
    >>> k = random_symmetry(network, generator=Draw(1))
    >>> [sorted(p.tolist()) for p in k.permutations]
    [[0, 1, 2, 3, 4], [0, 1, 2, 3]]
    """
    permutations, scales = [], []
    for width, activation in zip(network.widths, network.activations, strict=True):
        permutations.append(torch.randperm(width, generator=generator))
        sign = torch.randint(0, 2, (width,), generator=generator).to(torch.float64) * 2 - 1
        size = torch.randn(width, generator=generator, dtype=torch.float64).exp()
        scale = incoming(activation, size) if is_scaled(activation) else torch.ones_like(size)
        scales.append(sign * scale if is_signed(activation) else scale)
    return Symmetry(tuple(permutations), tuple(scales), network.activations)


def align(a: DeepMLP, b: DeepMLP, *, tolerance: NonNegative = 1e-6) -> Symmetry | None:
    """The symmetry k that takes a to b, or None if none was found that does within ``tolerance``.

    What is returned needs no trust in the search: ``error`` is computed from the weights of k·a, as
    :func:`mismatches` says.  All weights and biases of k·a are those of b up to ``error``, relative to the
    unit that reads them *and* to the unit that they are read from, whatever the sizes of the others;
    scales that the activations allow do not count.  a and b are compared in float64 as they are, so that
    weights of lower precision, which were rounded, need a ``tolerance`` above their rounding.

    Layer by layer, units are matched by their incoming weights (linear assignment); the outgoing
    weights of clones are added up on the way.  Then each layer is matched again by incoming and
    outgoing weights, which tells clones apart, until nothing changes.  Without clones in two
    successive layers this finds the symmetry if there is one.  With them the problem contains
    the isomorphism of bipartite graphs, and None may mean that the search got stuck.
    Time O(Σ n_i² n_{i-1}) for the distances, and the assignments.

    Raises TypeError for anything but two DeepMLPs, ValueError if their shapes or activations differ
    (as functions, not by name).

    >>> from samefn import align
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> a, other = (random_deep("tanh", generator=Draw(seed)) for seed in (0, 1))
    >>> k = random_symmetry(a, generator=Draw(2))
    >>> found = align(a, k.apply(a))
    >>> all(map(torch.equal, found.permutations, k.permutations))
    True
    >>> align(a, other) is None
    True
    """
    found = nearest_symmetry(a, b)
    return found if found.error <= tolerance else None


def nearest_symmetry(a: DeepMLP, b: DeepMLP) -> Symmetry:
    """What :func:`align` finds, with no bound on its ``error``.  Raises as :func:`align` does.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import nearest_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> a, b = (random_deep("tanh", generator=Draw(seed)) for seed in (0, 1))
    >>> nearest_symmetry(a, b).error > 0.1  # unrelated networks
    True
    """
    _require_one_architecture(a, b)
    one, two = about_centres(a.layers), about_centres(b.layers)
    found = [_first_match(one, two)]
    for _ in range(SWEEPS):
        found.append(_refine(one, two, found[-1]))
        if _same_matching(*found[-2:]):
            found = found[-1:]
            break
    errors = [float(torch.cat(mismatches(k.act(a.layers), b.layers)).max()) for k in found]
    best = min(range(len(found)), key=errors.__getitem__)
    return replace(found[best], error=errors[best])


def _require_one_architecture(a: DeepMLP, b: DeepMLP) -> None:
    shapes = [[tuple(w.shape) for w in n.weights] for n in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"a and b must have the same shapes, got {shapes[0]} and {shapes[1]}")
    _require_same_functions("a and b must have the same activations,", a.activations, b.activations)


def mismatches(a: Layers, b: Layers) -> list[Float[Tensor, "_"]]:
    """For each layer how far each row of a is from that of b: the largest error of a weight or of the bias.

    The error of a weight is relative to the norm of its row, or of its column (of rows divided by their
    norms) if that is less than 1; the error of a bias is relative to the norm of the row's weights, or to
    the bias where they are all 0.  Weights are taken times the size of the unit that they are read from
    where its activation leaves its scale free, and norms leave out units that are 0 for every input (see
    :func:`_readings`).  So neither rescaled units nor sizes of other units hide a difference.  Infinite
    where something differs from 0, and where a number overflows.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import mismatches
    >>> from samefn.equivariance.planted import random_deep
    >>> a = random_deep("tanh", (3, 5, 2), generator=Draw(0)).layers
    >>> b = a.replaced(1, 2 * a.weights[1])
    >>> [float(gap.max()) > 0 for gap in mismatches(a, b)]  # the last layer alone differs
    [False, True]
    """
    found = []
    for i, reading in enumerate(_readings(about_centres(b))):
        live = reading > 0
        reading = torch.where(live, reading, 1.0)
        row = _row_sizes(b.weights[i] * reading, live)
        column = sizes((b.weights[i] * reading / row[:, None]).T)
        column = torch.where(live, column.clamp(max=1), column)
        off = ratio((a.weights[i] - b.weights[i]).abs() * reading, row[:, None] * column)
        bias = torch.where((b.weights[i] == 0).all(dim=1), b.biases[i].abs(), row)
        bias = ratio((a.biases[i] - b.biases[i]).abs(), bias)
        found.append(torch.cat([off, bias[:, None]], 1).amax(dim=1))
    return found


def _row_sizes(weights: Tensor, live: Tensor) -> Tensor:
    """The size of what each row reads from live inputs, or from all where it reads no live one; never 0."""
    row, whole = sizes(weights * live), sizes(weights)
    row = torch.where(row > 0, row, whole)
    return torch.where(row > 0, row, 1.0)


def _readings(layers: Layers) -> list[Tensor]:
    """For each layer the size of each of its inputs: 1, or that of a unit's row where its scale is free.

    It is 0 for a *silent* unit: one that reads nothing, or silent units only, where that makes its value 0
    (about the centre) and leaves its scale or sign to the weights that read it.
    """
    readings = [layers.weights[0].new_ones(layers.weights[0].shape[1])]
    for i, activation in enumerate(layers.activations):
        rows = _rows(layers, i, readings[-1])
        reading = outgoing(activation, free_scale(activation, rows))
        silent = (sizes(rows) == 0) & (is_signed(activation) or is_scaled(activation))
        readings.append(torch.where(silent, 0.0, reading))
    return readings


def _rows(layers: Layers, i: int, reading: Tensor) -> Tensor:
    """The units' rows, each weight times the size of what it reads."""
    return torch.cat([layers.weights[i] * reading, layers.biases[i][:, None]], 1)


# ---------------------------------------------------------------------------------------------
# The search, on layers about the centres of their activations


def _same_matching(a: Symmetry, b: Symmetry) -> bool:
    scales = zip(a.scales, b.scales, strict=True)
    return all(map(torch.equal, a.permutations, b.permutations)) and all(
        torch.allclose(s, t, rtol=1e-12, atol=0) for s, t in scales
    )


def _first_match(a: Layers, b: Layers) -> Symmetry:
    """Match by incoming weights from the first layer on, with the outgoing weights of clones added up."""
    permutations, scales, readings = [], [], _readings(b)
    for i, activation in enumerate(a.activations):
        rows = _rows(b, i, readings[i])
        permutation, scale = _match(activation, _rows(a, i, readings[i]), rows)
        permutations.append(permutation)
        scales.append(scale)
        together = _clones_together(activation, rows)
        after = a.weights[i + 1][:, permutation] / outgoing(activation, scale)
        a = a.replaced(i + 1, after @ together)
        b = b.replaced(i + 1, b.weights[i + 1] @ together)
    return Symmetry(tuple(permutations), tuple(scales), a.activations)


def _clones_together(activation: Activation, rows: Tensor) -> Tensor:
    """The matrix that adds the outgoing weights of clones up in the first of them."""
    plus, minus = _unit_gaps(activation, rows, rows)
    first = (torch.minimum(plus, minus) <= CLONES).to(torch.int8).argmax(dim=1)
    at, scale = (torch.arange(len(rows), device=rows.device), first), free_scale(activation, rows)
    scale = torch.where(plus[at] <= minus[at], 1.0, -1.0).to(rows.dtype) * scale / scale[first]
    together = rows.new_zeros(len(rows), len(rows))
    together[at] = outgoing(activation, scale)
    return together


def _weighing(b: Layers) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each layer by what its inputs and its rows are multiplied in the search, and which inputs are live.

    What silent units read and write tells them apart, but it must not disturb the others.
    """
    readings, found = _readings(b), []
    for i, reading in enumerate(readings):
        live = reading > 0
        writing = 1 / _row_sizes(b.weights[i] * torch.where(live, reading, 1.0), live)
        if i + 1 < len(readings):
            writing = torch.where(readings[i + 1] > 0, writing, FAINT * writing)
        column = sizes((b.weights[i] * writing[:, None]).T)
        faint = FAINT / torch.where(column > 0, column, 1.0)
        found.append((torch.where(live, reading, faint), writing, live))
    return found


def _refine(a: Layers, b: Layers, symmetry: Symmetry) -> Symmetry:
    """Match each hidden layer again by incoming and outgoing weights, the other layers held fixed."""
    permutations, scales, weighing = list(symmetry.permutations), list(symmetry.scales), _weighing(b)
    for i, activation in enumerate(a.activations):
        read = a
        if i > 0:
            value = outgoing(a.activations[i - 1], scales[i - 1])
            read = a.replaced(i, a.weights[i][:, permutations[i - 1]] / value)
        written = a.weights[i + 1]
        if i + 1 < len(permutations):
            written = written[permutations[i + 1]] * scales[i + 1][:, None]
        (reading, _, live), (_, writing, _) = weighing[i : i + 2]
        columns = written.T * writing, b.weights[i + 1].T * writing, live
        found = _match(activation, _rows(read, i, reading), _rows(b, i, reading), columns)
        permutations[i], scales[i] = found
    return Symmetry(tuple(permutations), tuple(scales), a.activations)


def _match(
    activation: Activation,
    rows_a: Tensor,
    rows_b: Tensor,
    columns: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """For each unit of b the unit of a that it is, and the scale that takes the row of that to its own.

    ``columns`` are the units' outgoing weights in a and b, a row for each unit, and which inputs of the
    layer are live; where given, both ends of a unit decide, under one and the same sign.
    """
    plus, minus = _unit_gaps(activation, rows_b, rows_a)
    scale_a, scale_b = free_scale(activation, rows_a), free_scale(activation, rows_b)
    if columns is not None:
        *ends, live = columns
        scale_a, end_a = _other_end(activation, rows_a, ends[0], live)
        scale_b, end_b = _other_end(activation, rows_b, ends[1], live)
        same, changed = gaps(end_b, end_a), is_signed(activation) and not is_even(activation)
        plus, minus = plus + same, minus + (gaps(end_b, end_a, -1.0) if changed else same)
    unit = _assign(torch.minimum(plus, minus))
    at = torch.arange(len(unit), device=unit.device), unit
    return unit, torch.where(plus[at] <= minus[at], 1.0, -1.0).to(rows_a.dtype) * scale_b / scale_a[unit]


def _unit_gaps(activation: Activation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Relative distances of all rows without free scales; and after a change of sign, where it is free."""
    one, other = directions(a), directions(b)
    if is_scaled(activation):
        one, other = (one[0], one[1].sign()), (other[0], other[1].sign())
    plus = gaps(one, other)
    return plus, gaps(one, other, -1.0) if is_signed(activation) else plus


def _other_end(
    activation: Activation, rows: Tensor, columns: Tensor, live: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The units' free scales, and directions and sizes of their outgoing weights without them."""
    scale = free_scale(activation, rows)
    direction, size = directions(columns * outgoing(activation, scale)[:, None])
    # the scale of a silent unit is known by its outgoing weights only: it makes their size 1
    silent = ((rows[:, :-1] * live == 0).all(dim=1) & (rows[:, -1] == 0)) & (size > 0)
    silent &= is_scaled(activation)
    scale = torch.where(silent, scale * incoming(activation, 1 / size), scale)
    return scale, (direction, torch.where(silent, 1.0, size))


def _assign(cost: Tensor) -> Tensor:
    """For each row a column, each taken once, at least cost."""
    nearest = cost.argmin(dim=1)
    if len(nearest.unique()) == len(nearest):
        return nearest  # every unit gets its nearest one, which no assignment beats
    finite = cost.nan_to_num(nan=8.0).cpu().numpy()  # weights that overflow: no distance exceeds 4
    return torch.from_numpy(scipy.optimize.linear_sum_assignment(finite)[1]).to(cost.device)


def nearest_signed_permutation(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The signed permutation matrix Q that minimises ‖matrix − Q‖ in the Frobenius norm.

    ‖A − Q‖² = ‖A‖² + n − 2 Σ Q_ij A_ij, so Q is a linear assignment for |A| with the signs of A.
    Raises ValueError unless the matrix is square and finite.

    >>> from samefn.equivariance.alignment import nearest_signed_permutation
    >>> nearest_signed_permutation(torch.tensor([[0.1, -0.9], [0.8, 0.2]])).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    if not torch.isfinite(matrix).all():
        raise ValueError("matrix must be finite, got NaN or infinity")
    row, column = scipy.optimize.linear_sum_assignment(-matrix.abs().cpu().numpy())
    nearest = torch.zeros_like(matrix)
    nearest[row, column] = torch.where(matrix[row, column] < 0, -1.0, 1.0).to(matrix.dtype)
    return nearest
