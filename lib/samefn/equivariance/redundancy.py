"""What is redundant in a network, and the three moves that remove it: drop, fold, merge ([B], Definition 3).

A unit is *inactive* if it has no outgoing weight, *constant* if it has no incoming weight, and a *clone*
of another one if their rows are equal up to what the activation allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ..networks import DeepMLP, Layers
from .units import clones, free_scale, incoming, outgoing

Clones = dict[int, tuple[int, float]]  # a unit, the one that it is a clone of, and by what its value differs

NOTHING = 1e-12  # weights smaller than this beside the others of their layer count as zero


@dataclass(frozen=True, eq=False)
class Move:
    """One unit removed from a network: the smaller network, and α and α* of the layer that lost it."""

    network: DeepMLP
    include: Float[Tensor, "n small"]
    project: Float[Tensor, "small n"]


def drop(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out an inactive unit of hidden layer ``layer`` (from 1); its outgoing weights should be zero.

    Raises ValueError if there is no such layer or unit, or no other unit in it.
    """
    _require_unit(network, layer, unit)
    return _moved(network, *_dropped(network.layers, layer - 1, [unit]))


def fold(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out a constant unit and add what it contributes to the next bias; its incoming weights should
    be zero.

    Raises as :func:`drop` does.
    """
    _require_unit(network, layer, unit)
    return _moved(network, *_dropped(_folded(network.layers, layer - 1, [unit]), layer - 1, [unit]))


def merge(
    network: DeepMLP, layer: int, unit: int, into: int, factor: float = 1.0, *, share: float = 1.0
) -> Move:
    """Leave out ``unit``, a clone of ``into`` with ``factor`` times its value, and add up the outgoing
    weights.

    α copies and α* averages.  ``share`` is what the sum is multiplied by: 1, unless a control wants it
    wrong.  Raises as :func:`drop` does, and for ``unit`` = ``into``.
    """
    _require_unit(network, layer, unit)
    _require_unit(network, layer, into)
    if unit == into:
        raise ValueError(f"unit and into must differ, got {unit} for both")
    merged = _merged(network.layers, layer - 1, {unit: (into, factor)})
    weight = merged.weights[layer].clone()
    weight[:, into] *= share
    smaller, include = _dropped(merged.replaced(layer, weight), layer - 1, [unit])
    include[unit, into - (into > unit)] = factor
    return _moved(network, smaller, include)


def _require_unit(network: DeepMLP, layer: int, unit: int) -> None:
    if not 1 <= layer <= len(network.widths):
        raise ValueError(f"layer must lie in 1..{len(network.widths)}, got {layer}")
    width = network.widths[layer - 1]
    if not 0 <= unit < width:
        raise ValueError(f"unit must lie in 0..{width - 1}, got {unit}")
    if width == 1:
        raise ValueError(f"layer {layer} has one unit only, which must stay")


def _moved(network: DeepMLP, smaller: Layers, include: Tensor) -> Move:
    return Move(network.rebuilt(smaller), include, averaging(include))


def averaging(include: Float[Tensor, "n small"]) -> Float[Tensor, "small n"]:
    """α* that averages over the copies that α makes, each divided by its factor: α*α = id."""
    return torch.where(include != 0, 1 / (include * (include != 0).sum(0)), 0.0).T


def _dropped(layers: Layers, i: int, units: Sequence[int]) -> tuple[Layers, Tensor]:
    """The layers without some units of hidden layer i (from 0), and α, which puts zeros in their place."""
    kept = [j for j in range(layers.widths[i]) if j not in set(units)]
    smaller = layers.replaced(i, layers.weights[i][kept], layers.biases[i][kept])
    include = torch.eye(layers.widths[i], dtype=torch.float64)[:, kept]
    return smaller.replaced(i + 1, layers.weights[i + 1][:, kept]), include


def _folded(layers: Layers, i: int, units: Sequence[int]) -> Layers:
    """The values of constant units added to the next bias, and their outgoing weights set to zero."""
    values = layers.activations[i](layers.biases[i][list(units)])
    weight = layers.weights[i + 1].clone()
    bias = layers.biases[i + 1] + weight[:, list(units)] @ values
    weight[:, list(units)] = 0
    return layers.replaced(i + 1, weight, bias)


def _merged(layers: Layers, i: int, cloned: Clones) -> Layers:
    """The outgoing weights of clones added to those of the units that they are clones of."""
    weight = layers.weights[i + 1].clone()
    for unit, (into, factor) in cloned.items():
        weight[:, into] += factor * weight[:, unit]
        weight[:, unit] = 0
    return layers.replaced(i + 1, weight)


# ---------------------------------------------------------------------------------------------
# All moves, until none is left


@dataclass(frozen=True, eq=False)
class Reduced:
    """A network and the smaller one, with the same function, that :func:`reduce` found in it.

    ``include[i]`` is α and ``project[i]`` is α*, matrices between the values of hidden layer i of
    the small and the large network; α* α is the identity.  ``removed`` says what went and why.
    """

    network: DeepMLP
    include: tuple[Float[Tensor, "_ _"], ...]
    project: tuple[Float[Tensor, "_ _"], ...]
    removed: tuple[str, ...]

    def embed(self) -> DeepMLP:
        """β′: the large network with layers α_i f̃_i(α*_{i-1} y), spare units off and clones in step."""
        layers = self.network.layers
        for i, (alpha, star) in enumerate(zip(self.include, self.project, strict=True)):
            scale = incoming(layers.activations[i], alpha.sum(1))
            unit = alpha.abs().argmax(dim=1)
            layers = layers.replaced(
                i, layers.weights[i][unit] * scale[:, None], layers.biases[i][unit] * scale
            )
            layers = layers.replaced(i + 1, layers.weights[i + 1] @ star)
        return self.network.rebuilt(layers)


def reduce(network: DeepMLP) -> Reduced:
    """Remove inactive, constant and cloned units until none is left.

    *Inactive*: no outgoing weight; dropped.  *Constant*: no incoming weight; its value goes into the
    next bias.  *Cloned*: the incoming weights and bias equal another unit's up to what the activation
    allows; the outgoing weights are added up.  A layer keeps one unit, off, even where it needs none.
    Weights count as zero below 1e-12 of the largest of their layer, units as equal within 1e-8 of
    their weights.  Raises TypeError for anything but a DeepMLP.  Source: [B], Definition 3, for
    multilayer perceptrons; for tanh and one hidden layer what is left is irreducible in the sense
    of Sussmann (1992), or that one unit.
    """
    if not isinstance(network, DeepMLP):
        raise TypeError(f"network must be a DeepMLP, got {type(network).__name__}")
    state = _Reduction(network.layers)
    while any([state.shrink(i) for i in range(len(network.widths))]):
        pass
    project = tuple(averaging(alpha) for alpha in state.include)
    return Reduced(network.rebuilt(state.layers), tuple(state.include), project, tuple(state.removed))


@dataclass
class _Reduction:
    """A network on its way: its layers, the α so far, the units' first names, and what was removed."""

    layers: Layers
    include: list[Tensor] = field(init=False)
    names: list[list[int]] = field(init=False)
    removed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.include = [torch.eye(n, dtype=torch.float64) for n in self.layers.widths]
        self.names = [list(range(n)) for n in self.layers.widths]

    def shrink(self, i: int) -> bool:
        """Fold, drop and merge what is redundant in hidden layer i (from 0); whether there was anything."""
        if _is_off(self.layers, i):
            return False
        constant, inactive, cloned = _redundant(self.layers, i)
        self._note(i, constant, inactive, cloned)
        gone = {*constant, *inactive, *cloned}
        if not gone:
            return False
        layers = _merged(_folded(self.layers, i, constant), i, cloned)
        if len(gone) == layers.widths[i]:  # one unit stays, and is switched off
            gone.remove(0)
            layers = _switched_off(layers, i, 0)
        self.layers, include = _dropped(layers, i, sorted(gone))
        place = {unit: small for small, unit in enumerate(u for u in range(len(include)) if u not in gone)}
        for unit, (into, factor) in cloned.items():
            include[unit, place[into]] = factor
        self.include[i] = self.include[i] @ include
        self.names[i] = [self.names[i][unit] for unit in place]
        return True

    def _note(self, i: int, constant: Sequence[int], inactive: Sequence[int], cloned: Clones) -> None:
        layer, names = f"layer {i + 1}, unit", self.names[i]
        self.removed += [f"{layer} {names[j]}: constant" for j in constant]
        self.removed += [f"{layer} {names[j]}: inactive" for j in inactive]
        self.removed += [f"{layer} {names[j]}: clone of unit {names[k]}" for j, (k, _) in cloned.items()]


def _redundant(layers: Layers, i: int) -> tuple[list[int], list[int], Clones]:
    """The constant, the inactive and the cloned units of hidden layer i (from 0), each unit once."""
    activation, rows = layers.activations[i], layers.rows(i)
    # scales that the activation allows must not decide what counts as small
    scale = free_scale(activation, rows)
    read = (layers.weights[i] / scale[:, None]).norm(dim=1)
    written = (layers.weights[i + 1] * outgoing(activation, scale)).norm(dim=0)
    constant = read <= NOTHING * read.max()
    inactive = (written <= NOTHING * written.max()) & ~constant
    live = (~(constant | inactive)).nonzero().flatten()
    first, factor = clones(activation, rows[live])
    pairs = zip(live.tolist(), live[first].tolist(), factor.tolist(), strict=True)
    cloned: Clones = {}
    for unit, into, by in pairs:
        if into in cloned:  # a clone of a clone, though too far from the first
            into, further = cloned[into]
            by *= further
        if unit != into:
            cloned[unit] = into, by
    return constant.nonzero().flatten().tolist(), inactive.nonzero().flatten().tolist(), cloned


def _is_off(layers: Layers, i: int) -> bool:
    """Whether hidden layer i has one unit, and that one is off: nothing read, nothing written."""
    parts = layers.rows(i), layers.weights[i + 1]
    return layers.widths[i] == 1 and not any(bool(part.any()) for part in parts)


def _switched_off(layers: Layers, i: int, unit: int) -> Layers:
    rows, weight = layers.rows(i).clone(), layers.weights[i + 1].clone()
    rows[unit], weight[:, unit] = 0, 0
    return layers.replaced(i, rows[:, :-1], rows[:, -1]).replaced(i + 1, weight)
