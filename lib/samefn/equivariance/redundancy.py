"""What is redundant in a network, and the three moves that remove it: drop, fold, merge ([B], Definition 3).

A unit is *inactive* if it has no outgoing weight, *constant* if it has no incoming weight, and a *clone*
of another one if their rows are equal up to what the activation allows.  Each move writes the values of a
layer as y = α ỹ + s with one value less, and the next layer reads them by W α and b + W s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation
from ..arguments import Finite, NonNegative
from ..networks import DeepMLP, Layers
from .units import CHUNK, directions, distances, free_scale, incoming, is_signed, outgoing, ratio, sizes

Clones = Mapping[int, tuple[int, float]]  # a unit, the one that it is a clone of, and the factor of its value


@dataclass(frozen=True, eq=False)
class Move:
    """One unit removed from a network: the smaller network, and α and α* of the layer that lost it.

    >>> from samefn import DeepMLP
    >>> from samefn.equivariance.redundancy import drop
    >>> network = DeepMLP([torch.eye(2), torch.tensor([[1.0, 0.0]])])
    >>> move = drop(network, layer=1, unit=1)
    >>> move.include.tolist(), move.project.tolist()
    ([[1.0], [0.0]], [[1.0, 0.0]])
    """

    network: DeepMLP
    include: Float[Tensor, "n small"]
    project: Float[Tensor, "small n"]


def drop(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out an inactive unit of hidden layer ``layer`` (from 1); its outgoing weights should be zero.

    Raises ValueError if there is no such layer or unit, or no other unit in it.

    >>> from samefn import DeepMLP
    >>> from samefn.equivariance.redundancy import drop
    >>> network = DeepMLP([torch.eye(2), torch.tensor([[1.0, 0.0]])])  # unit 1 is never read
    >>> drop(network, layer=1, unit=1).network.widths
    (1,)
    """
    return _moved(network, layer, unit)


def fold(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out a constant unit and add what it contributes to the next bias; its incoming weights should
    be zero.

    Raises as :func:`drop` does.

    >>> from samefn import DeepMLP
    >>> from samefn.equivariance.redundancy import fold
    >>> weights = [torch.tensor([[1.0], [0.0]]), torch.ones(1, 2)]
    >>> network = DeepMLP(weights, [torch.ones(2), torch.ones(1)], "relu")  # unit 1 is σ(1) = 1
    >>> fold(network, layer=1, unit=1).network.biases[1].item()
    2.0
    """
    return _moved(network, layer, unit, constant=[unit])


def merge(
    network: DeepMLP, layer: int, unit: int, into: int, factor: Finite = 1.0, *, share: Finite = 1.0
) -> Move:
    """Leave out ``unit``, a clone of ``into`` with ``factor`` times its value (about the activation's
    centre), and add up the outgoing weights.

    α copies and α* averages.  ``share`` is what the sum is multiplied by: 1, unless a control wants it
    wrong.  Raises as :func:`drop` does, and for ``unit`` = ``into``.

    >>> from samefn import DeepMLP
    >>> from samefn.equivariance.redundancy import merge
    >>> network = DeepMLP([torch.ones(2, 1), torch.tensor([[3.0, 4.0]])])  # tanh(x), twice
    >>> merge(network, layer=1, unit=1, into=0).network.weights[1].tolist()
    [[7.0]]
    """
    for one in (unit, into):
        _require_unit(network, layer, one)
    if unit == into:
        raise ValueError(f"unit and into must differ, got {unit} for both")
    move = _moved(network, layer, unit, cloned={unit: (into, factor)})
    layers = move.network.layers
    weight = layers.weights[layer].clone()
    weight[:, into - (into > unit)] *= share
    return replace(move, network=network.rebuilt(layers.replaced(layer, weight)))


def _moved(
    network: DeepMLP, layer: int, unit: int, constant: Sequence[int] = (), cloned: Clones | None = None
) -> Move:
    _require_unit(network, layer, unit)
    kept, include, shift = _substitution(network.layers, layer - 1, [unit], constant, cloned or {})
    smaller = _read(network.layers, layer - 1, kept, include, shift)
    return Move(network.rebuilt(smaller), include, averaging(include))


def _require_unit(network: DeepMLP, layer: int, unit: int) -> None:
    if not 1 <= layer <= len(network.widths):
        raise ValueError(f"layer must lie in 1..{len(network.widths)}, got {layer}")
    width = network.widths[layer - 1]
    if not 0 <= unit < width:
        raise ValueError(f"unit must lie in 0..{width - 1}, got {unit}")
    if width == 1:
        raise ValueError(f"layer {layer} has one unit only, which must stay")


def averaging(include: Float[Tensor, "n small"]) -> Float[Tensor, "small n"]:
    """α* that averages over the copies that α makes, each divided by its factor: α*α = id.

    >>> from samefn.equivariance.redundancy import averaging
    >>> averaging(torch.tensor([[1.0], [-1.0]])).tolist()  # a unit and its negated clone
    [[0.5, -0.5]]
    """
    return torch.where(include != 0, 1 / (include * (include != 0).sum(0)), 0.0).T


def _substitution(
    layers: Layers, i: int, gone: Sequence[int], constant: Sequence[int], cloned: Clones
) -> tuple[list[int], Tensor, Tensor]:
    """The units of hidden layer i (from 0) that are kept, α and s.

    Of those that are gone, clones become their unit's value times a factor, constant ones what they are,
    and the others 0, which nobody should read.
    """
    width, activation = layers.widths[i], layers.activations[i]
    include = torch.eye(width, dtype=torch.float64, device=layers.weights[i].device)
    include[list(gone)] = 0
    shift = include.new_zeros(width)
    shift[list(constant)] = activation(layers.biases[i][list(constant)])
    for unit, (into, factor) in cloned.items():
        include[unit, into] = factor
        shift[unit] = (1 - factor) * activation.centre[1]
    kept = [j for j in range(width) if j not in set(gone)]
    return kept, include[:, kept], shift


def _read(layers: Layers, i: int, kept: Sequence[int], include: Tensor, shift: Tensor) -> Layers:
    """The layers where hidden layer i has the units ``kept``, and the next one reads α ỹ + s."""
    smaller = layers.replaced(i, layers.weights[i][kept], layers.biases[i][kept])
    after = layers.weights[i + 1]
    return smaller.replaced(i + 1, after @ include, layers.biases[i + 1] + after @ shift)


# ---------------------------------------------------------------------------------------------
# All moves, until none is left


@dataclass(frozen=True, eq=False)
class Reduced:
    """A network and the smaller one, with the same function, that :func:`reduce` found in it.

    ``include[i]`` is α and ``project[i]`` is α*, matrices between the values of hidden layer i of
    the small and the large network, measured from the centre of the activation (0; ½ for the sigmoid and
    3 for ReLU6); α* α is the identity.  ``removed`` says what went and why, and ``error`` bounds the
    change: see :func:`reduce`.

    >>> from samefn import reduce
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> from samefn.functions import gap
    >>> large = with_spare_units(random_deep("tanh", generator=Draw(0)), generator=Draw(1))
    >>> reduced = reduce(large)
    >>> gap(large, reduced.embed(), Draw(2).normal(100, 3)) < 1e-14
    True
    """

    network: DeepMLP
    include: tuple[Float[Tensor, "_ _"], ...]
    project: tuple[Float[Tensor, "_ _"], ...]
    removed: tuple[str, ...]
    error: float = 0.0

    def embed(self) -> DeepMLP:
        """β′: the large network with layers α_i f̃_i(α*_{i-1} y), spare units off and clones in step."""
        layers = self.network.layers
        for i, (alpha, star) in enumerate(zip(self.include, self.project, strict=True)):
            (p, q), after = layers.activations[i].centre, layers.weights[i + 1]
            scale, unit = incoming(layers.activations[i], alpha.sum(1)), alpha.abs().argmax(dim=1)
            bias = layers.biases[i][unit] * scale + (1 - scale) * p
            layers = layers.replaced(i, layers.weights[i][unit] * scale[:, None], bias)
            bias = layers.biases[i + 1] + q * (after.sum(1) - (after @ star).sum(1))
            layers = layers.replaced(i + 1, after @ star, bias)
        return self.network.rebuilt(layers)


def reduce(network: DeepMLP, *, tolerance: NonNegative | None = None) -> Reduced:
    """Remove inactive, constant and cloned units until none is left.

    *Inactive*: no outgoing weight; dropped.  *Constant*: no incoming weight; its value goes into the
    next bias.  *Cloned*: the incoming weights and bias equal another unit's up to what the activation
    allows; the outgoing weights are added up.  A layer keeps one unit, off, even where it needs none.

    Numbers are compared one by one, to ``tolerance`` relative to themselves, or to the sizes of all that
    was added up in them.  No other weight decides, and no scale: so a weight counts as zero if it is 0 or
    a sum that cancels.  The default is 32 rounding units of the network's dtype.  What is returned has the
    function of weights that differ from the given ones by at most the computed ``error``, relative in this
    sense.

    Raises TypeError for anything but a DeepMLP, ValueError unless 0 ≤ ``tolerance`` < 1, or if a sum of
    weights overflows.  Source: [B], Definition 3, for multilayer perceptrons; for tanh and one hidden
    layer what is left is irreducible in the sense of Sussmann (1992), or that one unit.

    >>> from samefn import reduce
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.planted import random_deep, with_spare_units
    >>> large = with_spare_units(random_deep("tanh", generator=Draw(0)), generator=Draw(1))
    >>> large.widths, reduce(large).network.widths
    ((8, 7), (5, 4))
    """
    if tolerance is None:
        tolerance = 32 * torch.finfo(network.weights[0].dtype).eps
    if not tolerance < 1:
        raise ValueError(f"tolerance must be below 1, got {tolerance}")
    state = _Reduction(network.layers, tolerance)
    while any([state.shrink(i) for i in range(len(network.widths))]):
        pass
    small = network.rebuilt(state.layers)
    triples = [
        (small.layers.rows(i), state.layers.rows(i), state.terms.rows(i)) for i in range(len(small.weights))
    ]
    rounding = max(float(ratio((a - b).abs(), sums).max()) for a, b, sums in triples)
    project = tuple(averaging(alpha) for alpha in state.include)
    return Reduced(small, tuple(state.include), project, tuple(state.removed), max(state.error, rounding))


@dataclass
class _Reduction:
    """A network on its way: its layers, the α so far, the units' first names, and what was removed.

    ``terms`` holds, for each weight and bias, the sum of the sizes of what was added up in it.
    """

    layers: Layers
    tolerance: float
    terms: Layers = field(init=False)
    include: list[Tensor] = field(init=False)
    names: list[list[int]] = field(init=False)
    removed: list[str] = field(default_factory=list)
    error: float = 0.0

    def __post_init__(self) -> None:
        weights, biases = self.layers.weights, self.layers.biases
        self.terms = replace(
            self.layers, weights=tuple(w.abs() for w in weights), biases=tuple(b.abs() for b in biases)
        )
        self.include = [torch.eye(len(w), dtype=w.dtype, device=w.device) for w in weights[:-1]]
        self.names = [list(range(n)) for n in self.layers.widths]

    def shrink(self, i: int) -> bool:
        """Fold, drop and merge what is redundant in hidden layer i (from 0); whether there was anything."""
        constant, inactive, cloned = self._redundant(i)
        gone = {*constant, *inactive, *cloned}
        if not gone or self._is_off(i):
            return False
        self._note(i, constant, inactive, cloned)
        ends = len(gone) == self.layers.widths[i]
        if ends:  # one unit stays, and is switched off
            gone.remove(0)
        kept, include, shift = _substitution(self.layers, i, sorted(gone), constant, cloned)
        self.layers = _read(self.layers, i, kept, include, shift)
        self.terms = _read(self.terms, i, kept, include.abs(), shift.abs())
        if ends:
            self._switch_off(i)
        self._cancel(i + 1)
        self.include[i] = self.include[i] @ include
        self.names[i] = [self.names[i][unit] for unit in kept]
        return True

    def _note(self, i: int, constant: Sequence[int], inactive: Sequence[int], cloned: Clones) -> None:
        layer, names = f"layer {i + 1}, unit", self.names[i]
        self.removed += [f"{layer} {names[j]}: constant" for j in constant]
        self.removed += [f"{layer} {names[j]}: inactive" for j in inactive]
        self.removed += [f"{layer} {names[j]}: clone of unit {names[k]}" for j, (k, _) in cloned.items()]

    def _redundant(self, i: int) -> tuple[list[int], list[int], Clones]:
        """The constant, the inactive and the cloned units of hidden layer i (from 0), each unit once."""
        layers, activation = self.layers, self.layers.activations[i]
        constant = (layers.weights[i] == 0).all(dim=1)
        inactive = (layers.weights[i + 1] == 0).all(dim=0) & ~constant
        live = (~(constant | inactive)).nonzero().flatten()
        about = torch.zeros_like(layers.rows(i)[live])
        about[:, -1] = activation.centre[0]
        rows, sums = layers.rows(i)[live] - about, self.terms.rows(i)[live] + about.abs()
        cloned: dict[int, tuple[int, float]] = {}
        for j, k, factor, error in _alike(activation, rows, sums, self.tolerance):
            unit, into = int(live[j]), int(live[k])
            if unit not in cloned and into not in cloned:
                cloned[unit] = into, factor
                self.error = max(self.error, error)
        return constant.nonzero().flatten().tolist(), inactive.nonzero().flatten().tolist(), cloned

    def _cancel(self, i: int) -> None:
        """What cancels to rounding is 0: weights and biases of layer i (from 0)."""
        rows, sums = self.layers.rows(i), self.terms.rows(i)
        share = ratio(rows.abs(), sums)
        cancelled = share <= self.tolerance
        self.error = max(self.error, float(torch.where(cancelled, share, 0.0).max()))
        rows = torch.where(cancelled, 0.0, rows)
        self.layers = self.layers.replaced(i, rows[:, :-1], rows[:, -1])

    def _is_off(self, i: int) -> bool:
        """Whether hidden layer i has one unit, and that one is off: nothing read, nothing written."""
        weights = self.layers.weights[i], self.layers.weights[i + 1]
        bias = self.layers.biases[i] - self.layers.activations[i].centre[0]
        return self.layers.widths[i] == 1 and not any(bool(part.any()) for part in (*weights, bias))

    def _switch_off(self, i: int) -> None:
        """The only unit of hidden layer i reads nothing, has the value of the centre, and nobody reads it."""
        weights, bias = (
            self.layers.weights,
            torch.full_like(self.layers.biases[i], self.layers.activations[i].centre[0]),
        )
        layers = self.layers.replaced(i, torch.zeros_like(weights[i]), bias)
        self.layers = layers.replaced(i + 1, torch.zeros_like(weights[i + 1]))


def _alike(
    activation: Activation, rows: Tensor, sums: Tensor, tolerance: float
) -> Iterator[tuple[int, int, float, float]]:
    """All units j > k of which one is a clone of the other, by what their values differ, and the error.

    Every number of row j is to be that of row k times a scale that the activation allows, up to
    ``tolerance`` of ``sums``.  In order of j, then k.
    """
    (direction, size), scale = directions(rows), free_scale(activation, rows)
    reach = 4 * tolerance * sizes(sums) / size  # rows further apart than this differ in some number
    reach = reach[:, None] + reach
    near = distances(direction, direction) <= reach
    if is_signed(activation):
        near |= distances(direction, -direction) <= reach
    for pairs in near.tril(-1).nonzero().split(CHUNK):
        j, k = pairs.T
        by = (scale[j] / scale[k])[:, None]
        errors = _row_errors(rows, sums, j, k, by)
        if is_signed(activation):
            turned = _row_errors(rows, sums, j, k, -by)
            by, errors = (
                torch.where(turned < errors, -by[:, 0], by[:, 0])[:, None],
                torch.minimum(turned, errors),
            )
        factor = outgoing(activation, by[:, 0])
        fits = errors <= tolerance
        yield from zip(*(t[fits].tolist() for t in (j, k, factor, errors)), strict=True)


def _row_errors(rows: Tensor, sums: Tensor, j: Tensor, k: Tensor, by: Tensor) -> Tensor:
    """The largest error of a number in row_j = by · row_k, relative to the sums in it."""
    return ratio((rows[j] - by * rows[k]).abs(), sums[j] + by.abs() * sums[k]).amax(dim=1)
