"""Equivariance of networks, end to end and layer by layer ([B], Theorem 4.1 made constructive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import Count, Positive
from ..networks import DeepMLP
from .alignment import Symmetry, align, mismatches, nearest_symmetry
from .groups import Group, Permutation, Representation, cycles, multiplied_out
from .redundancy import Reduced, reduce
from .units import about_centres, incoming, outgoing, sizes

__all__ = [
    "LatentAction",
    "NotEquivariant",
    "NotIdentifiable",
    "equivariance_error",
    "hidden_values",
    "latent_actions",
    "layer_errors",
    "least_squares_action",
    "symmetrise",
    "transport",
    "worst_violation",
]

UNRELATED = "network is not identifiable by symmetries of its units"


class NotEquivariant(ValueError):
    """The network does not satisfy f(ρ_in(g)x) = ρ_out(g)f(x); the message names g and the violation.

    >>> from samefn import latent_actions
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic, on_images
    >>> from samefn.equivariance.layerwise import NotEquivariant
    >>> from samefn.equivariance.planted import random_deep
    >>> mirror = on_images(cyclic(2), 2)
    >>> try:
    ...     latent_actions(random_deep("tanh", (4, 5, 4), generator=Draw(0)), mirror, mirror)
    ... except NotEquivariant as error:
    ...     print(str(error).partition(":")[0])
    network is not equivariant
    """


class NotIdentifiable(ValueError):
    """Networks with the same function were found that no symmetry of the units was found to relate.

    >>> from samefn import latent_actions
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.layerwise import NotIdentifiable
    >>> from samefn.equivariance.planted import opposite_pairs
    >>> network, mirror = opposite_pairs("gelu", generator=Draw(0))
    >>> try:
    ...     latent_actions(network, mirror, mirror)
    ... except NotIdentifiable:
    ...     print("equivariant, and no latent action found")
    equivariant, and no latent action found
    """


def equivariance_error(
    f: Callable[[Tensor], Tensor],
    rho_in: Representation,
    rho_out: Representation,
    x: Float[Tensor, "*batch n"],
) -> float:
    """The largest ‖f(ρ_in(g)x) − ρ_out(g)f(x)‖ over g and the rows of x, relative to the largest ‖f(x)‖.

    ``x`` has the dtype that f takes; the representations are converted to it.  Raises ValueError if
    the representations belong to different groups or do not fit x and f(x), or if f has two values for
    one x, TypeError if they are none.

    >>> from samefn import equivariance_error
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic, on_images
    >>> mirror, x = on_images(cyclic(2), 3), Draw(0).normal(10, 9)
    >>> equivariance_error(torch.tanh, mirror, mirror, x) < 1e-15
    True
    >>> equivariance_error(lambda x: x.cumsum(1), mirror, mirror, x) > 0.1
    True
    """
    return worst_violation(f, rho_in, rho_out, x)[0]


@torch.no_grad()
def worst_violation(
    f: Callable[[Tensor], Tensor],
    rho_in: Representation,
    rho_out: Representation,
    x: Float[Tensor, "*batch n"],
) -> tuple[float, Permutation]:
    """:func:`equivariance_error`, and the element of the group at which it is reached.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic, cycles, on_images
    >>> from samefn.equivariance.layerwise import worst_violation
    >>> mirror, x = on_images(cyclic(2), 3), Draw(0).normal(10, 9)
    >>> error, g = worst_violation(lambda x: x.cumsum(1), mirror, mirror, x)
    >>> cycles(g)
    '(0 1)'
    """
    require_one_group(rho_in, rho_out)
    if x.shape[-1] != rho_in.dimension:
        raise ValueError(
            f"x must have {rho_in.dimension} columns to be acted on by rho_in, got shape {tuple(x.shape)}"
        )
    if x.numel() == 0:
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    y, again = f(x), f(x)
    if not isinstance(y, Tensor):
        raise TypeError(f"f must return a Tensor, got {type(y).__name__}")
    if y.shape[-1] != rho_out.dimension:
        raise ValueError(
            f"rho_out must act on the {y.shape[-1]} outputs of f, but has dimension {rho_out.dimension}"
        )
    size = y.norm(dim=-1).max().clamp_min(torch.finfo(y.dtype).tiny)
    apart = float((again - y).norm(dim=-1).max() / size)
    if apart > 1e3 * torch.finfo(y.dtype).eps:
        raise ValueError(
            f"f must be a function, but two calls with the same x differ by {apart:.1e} of the largest "
            "output: is it random, or in training mode (f.eval() ends that)?"
        )
    elements = rho_in.group.elements
    gaps = [(f(rho_in.move(i, x)) - rho_out.move(i, y)).norm(dim=-1).max() for i in range(len(elements))]
    worst = int(torch.stack(gaps).argmax())
    return float(gaps[worst] / size), elements[worst]


def require_one_group(rho_in: Representation, rho_out: Representation) -> None:
    """Raises ValueError unless both are representations of one group."""
    if rho_in.group != rho_out.group:
        raise ValueError(
            "rho_in and rho_out must be representations of the same group, "
            f"got {rho_in.group.name} and {rho_out.group.name}"
        )


def layer_errors(
    network: DeepMLP,
    representations: Sequence[Representation],
    *,
    generator: torch.Generator,
    count: Count = 20,
) -> list[float]:
    """How far each layer is from equivariance, on ``count`` normal inputs of that layer.

    ``representations`` are those on the input, each hidden layer and the output.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic
    >>> from samefn.equivariance.layerwise import layer_errors
    >>> from samefn.equivariance.planted import equivariant_network
    >>> network, rhos = equivariant_network(cyclic(3), 2, generator=Draw(0))
    >>> max(layer_errors(network, rhos, generator=Draw(1))) < 1e-14
    True
    """
    _require_fitting(network, representations)
    errors = []
    for i, (before, after) in enumerate(pairwise(representations), 1):
        y = torch.randn(count, before.dimension, generator=generator, dtype=torch.float64)
        y = y.to(network.weights[0])
        errors.append(equivariance_error(lambda y, i=i: network.layer(i, y), before, after, y))
    return errors


def symmetrise(network: DeepMLP, representations: Sequence[Representation]) -> DeepMLP:
    """The network with each layer replaced by its average over the group: W ← mean of ρ_i(g) W ρ_{i-1}(g)⁻¹.

    ``representations`` are those on the input, each hidden layer and the output; on hidden layers they are
    taken to act about the centre of the activation, where it has one (sigmoid, ReLU6).  Each layer of the
    result is equivariant if the hidden representations commute with the activations (signed
    permutations for odd ones).  What cancels in a mean to rounding is set to 0.  Raises ValueError if they
    do not fit the layers.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic, permutation_representation
    >>> from samefn.equivariance.layerwise import layer_errors, symmetrise
    >>> from samefn.equivariance.planted import random_deep
    >>> rho = permutation_representation(cyclic(4))
    >>> network = symmetrise(random_deep("tanh", (4, 4, 4), generator=Draw(0)), [rho] * 3)
    >>> max(layer_errors(network, [rho] * 3, generator=Draw(1))) < 1e-14
    True
    """
    _require_fitting(network, representations)
    layers = about_centres(network.layers)
    for i, (before, after) in enumerate(pairwise(representations)):
        left, right = (rho.matrices.to(layers.weights[i]) for rho in (after, before))
        weights, biases = left @ layers.weights[i] @ torch.linalg.inv(right), left @ layers.biases[i]
        layers = layers.replaced(i, _mean(weights), _mean(biases))
    return network.rebuilt(about_centres(layers, -1))


def _require_fitting(network: DeepMLP, representations: Sequence[Representation]) -> None:
    wanted, got = [network.dim_in, *network.widths, network.dim_out], [r.dimension for r in representations]
    if got != wanted:
        raise ValueError(f"representations must have dimensions {wanted}, got {got}")
    if any(rho.group != representations[0].group for rho in representations):
        raise ValueError(
            f"representations must be of one group, got {[r.group.name for r in representations]}"
        )


def _mean(terms: Tensor) -> Tensor:
    mean = terms.mean(0)
    return torch.where(mean.abs() <= 32 * torch.finfo(terms.dtype).eps * terms.abs().amax(0), 0.0, mean)


@dataclass(frozen=True, eq=False)
class LatentAction(Representation):
    """A representation on a hidden layer, about a ``centre`` for sigmoid and ReLU6; see
    :func:`latent_actions`.

    >>> from samefn import latent_actions
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic
    >>> from samefn.equivariance.planted import equivariant_network
    >>> network, rhos = equivariant_network(cyclic(3), 2, generator=Draw(0))
    >>> first, second = latent_actions(network, rhos[0], rhos[-1])
    >>> first.dimension == network.widths[0], first.error < 1e-12
    (True, True)
    """

    error: float = 0.0


def latent_actions(
    network: DeepMLP,
    rho_in: Representation,
    rho_out: Representation,
    *,
    tolerance: Positive = 1e-6,
    generator: torch.Generator | None = None,
) -> list[LatentAction]:
    """The representations ρ_1, …, ρ_{L-1} on the hidden layers for which every layer is equivariant.

    The proof of [B], Theorem 4.1, as an algorithm.  The network is reduced; for each generator g the network
    θ^g = (W_1 ρ_in(g)⁻¹, W_2, …, ρ_out(g) W_L) has the same function, so θ and θ^g are aligned; the
    alignment k(g) takes θ to θ^g, and ρ_i(g) = k_i(g)⁻¹.  Where units were removed, ρ_i acts on the
    whole layer as α ρ̃ α* + (id − α α*), and it is :meth:`samefn.equivariance.redundancy.Reduced.embed`
    whose layers are equivariant.  Sigmoid and ReLU6 units may be reflected: then ρ_i acts about the
    ``centre`` ½ or 3 of all units.

    The network is reduced to ``tolerance``, or 0.01 if that is less, and numbers that are rounding beside
    others, as averages over a group leave them, count as 0; but neither where it shows in the function at
    the inputs below: then it is reduced to rounding.

    What is returned rests on no theorem of identifiability; only that something is returned does.  The
    ρ_i are homomorphisms (positive factors of units are averaged over the group to be one exactly), and
    the ``error`` of each, computed from the weights for all generators, is how far k(g)·θ is from θ^g in
    the sense of :func:`samefn.equivariance.alignment.mismatches`; it is at most ``tolerance``.  All is
    computed in float64 from the weights as they are.  Weights of lower precision, which were rounded, need
    a ``tolerance`` above their rounding.

    Raises TypeError for anything but a DeepMLP and Representations, ValueError if the
    representations do not belong to one group or do not fit, or if weights overflow,
    :class:`NotEquivariant` with the group element and the violation if the network is not equivariant to
    ``tolerance`` on 64 normal inputs from ``generator`` (seed 0 if none is given), and
    :class:`NotIdentifiable` naming group element, layer and unit if θ and θ^g are not aligned by any
    symmetry to ``tolerance``, or saying that the alignments of the generators do not compose to an action.

    >>> from samefn import latent_actions
    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic
    >>> from samefn.equivariance.planted import hidden_tanh_network, plane
    >>> rho = plane(cyclic(4))
    >>> network = hidden_tanh_network(cyclic(4), generator=Draw(0))
    >>> first, second = latent_actions(network, rho, rho)
    >>> quarter_turn = first.matrices[1]  # permutes the six units, with signs
    >>> torch.allclose(quarter_turn.abs().sum(1), torch.ones(6))
    True
    """
    double = DeepMLP(network.layers.weights, network.layers.biases, network.activations)
    generator = generator or torch.Generator().manual_seed(0)
    x = torch.randn(64, network.dim_in, generator=generator, dtype=torch.float64)
    x = x.to(double.weights[0].device)
    error, where = worst_violation(double, rho_in, rho_out, x)
    if not error <= tolerance:
        raise NotEquivariant(
            f"network is not equivariant: at g = {cycles(where)} f(gx) and g f(x) differ by {error:.1e} "
            "of the largest output"
        )
    reduced = _reduced(double, x, tolerance)
    alignments, moved = [], []
    for g in rho_in.group.generators:  # what commutes with the generators commutes with all their products
        moved.append(transport(reduced.network, rho_in(g).to(x), rho_out(g).to(x)))
        symmetry = align(reduced.network, moved[-1], tolerance=tolerance)
        if symmetry is None:
            why = _why(reduced, moved[-1])
            raise NotIdentifiable(f"{UNRELATED}: at g = {cycles(g)}, {why}")
        alignments.append(symmetry)
    small, alignments = _homomorphisms(rho_in.group, alignments)
    pairs = zip(alignments, moved, strict=True)
    layers = [mismatches(k.act(reduced.network.layers), other.layers) for k, other in pairs]
    errors = [max(float(gap.max()) for gap in gaps) for gaps in zip(*layers, strict=True)]
    if not max(errors) <= tolerance:
        raise NotIdentifiable(f"{UNRELATED}: with factors that compose, weights miss by {max(errors):.1e}")
    actions = []
    for i, (rho, alpha, star) in enumerate(zip(small, reduced.include, reduced.project, strict=True)):
        matrices = alpha @ rho @ star + torch.eye(len(alpha)).to(star) - alpha @ star
        q = network.activations[i].centre[1]
        centre = torch.full_like(matrices[0, 0], q) if q else None
        actions.append(LatentAction(rho_in.group, matrices, centre, max(errors[i : i + 2])))
    return actions


def _reduced(network: DeepMLP, x: Tensor, tolerance: float) -> Reduced:
    """The network reduced to ``tolerance``, or to rounding where its values at x do not allow more."""
    y = network(x)
    for candidate in (_without_noise(network), network):
        reduced = reduce(candidate, tolerance=min(tolerance, 0.01))
        if (reduced.network(x) - y).norm(dim=1).max() <= tolerance * y.norm(dim=1).max():
            return reduced
    return reduce(network)


def _without_noise(network: DeepMLP) -> DeepMLP:
    """Numbers set to 0 that are rounding beside others: weights in their row; a unit's weights, or its bias,
    beside those of other units, each times what the next layer makes of it.

    Averages over a group leave such numbers where a unit has nothing equivariant to read.
    """
    layers, rounding = network.layers, 32 * torch.finfo(torch.float64).eps
    for i, activation in enumerate(layers.activations):
        (weight, bias), written = (layers.weights[i], layers.biases[i]), sizes(layers.weights[i + 1].T)
        read = outgoing(activation, sizes(weight)) * written
        noise = rounding * read.max()
        small = weight.abs() <= rounding * weight.abs().amax(dim=1, keepdim=True)
        weight = torch.where(small | (read <= noise)[:, None], 0.0, weight)
        bias = torch.where(outgoing(activation, bias.abs()) * written <= noise, 0.0, bias)
        layers = layers.replaced(i, weight, bias)
    return network.rebuilt(layers)


def _homomorphisms(group: Group, alignments: Sequence[Symmetry]) -> tuple[list[Tensor], list[Symmetry]]:
    """ρ_i(g) = k_i(g)⁻¹ for all elements, from k for the generators, and k with factors that compose.

    If factors compose, those of ρ_i(g) are d_j/d_l from unit l to unit j; log d_j is then the mean over g
    of log |ρ_i(g)_jl|, up to a constant for each orbit, and for factors off by rounding d is so defined.
    """
    found, scales = [], [[] for _ in alignments]
    for i, activation in enumerate(alignments[0].activations):
        inverses = (torch.linalg.inv(k.matrices()[i]) for k in alignments)
        matrices = multiplied_out(group, dict(zip(group.generators, inverses, strict=True)))
        d = matrices.abs().sum(2).log().mean(0).exp()
        try:
            signed = Representation(group, matrices.sign()).matrices
        except ValueError as error:
            why = f"in layer {i + 1} the matches for the generators do not compose to an action"
            raise NotIdentifiable(f"{UNRELATED}: {why}") from error
        found.append(signed * d[:, None] / d)
        for k, own in zip(alignments, scales, strict=True):
            own.append(k.scales[i].sign() * incoming(activation, d / d[k.permutations[i]]))
    return found, [replace(k, scales=tuple(own)) for k, own in zip(alignments, scales, strict=True)]


def transport(
    network: DeepMLP,
    a: Float[Tensor, "{network.dim_in} {network.dim_in}"],
    b: Float[Tensor, "{network.dim_out} {network.dim_out}"],
) -> DeepMLP:
    """θ^g = (g·θ_1, θ_2, …, g·θ_L): the network with the function b f(a⁻¹ x) ([B], the adjunction for
    MLPs).

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.layerwise import transport
    >>> from samefn.equivariance.planted import random_deep
    >>> f, a, b = random_deep("tanh", generator=Draw(0)), 2 * torch.eye(3), -torch.eye(2)
    >>> x = Draw(1).normal(10, 3)
    >>> torch.allclose(transport(f, a, b)(x), -f(x / 2))
    True
    """
    layers = network.layers
    layers = layers.replaced(0, layers.weights[0] @ torch.linalg.inv(a))
    last = len(layers.weights) - 1
    return network.rebuilt(layers.replaced(last, b @ layers.weights[last], b @ layers.biases[last]))


def _why(reduced: Reduced, moved: DeepMLP) -> str:
    """Where the reduced network and ``moved`` part: the first layer that does not match, and its worst
    unit.
    """
    best = nearest_symmetry(reduced.network, moved)
    gaps = mismatches(best.act(reduced.network.layers), moved.layers)
    # the search weighs incoming against outgoing weights, so rounding in one layer must not hide the next
    largest = max(float(gap.max()) for gap in gaps)
    layer = next(i for i, gap in enumerate(gaps) if gap.max() >= 1e-3 * largest)
    unit, miss = int(gaps[layer].argmax()), float(gaps[layer].max())
    if layer == len(gaps) - 1:
        return f"the units match but output {unit} does not, by {miss:.1e} of its weights"
    name = int(reduced.include[layer][:, unit].abs().argmax())
    return (
        f"unit {name} of layer {layer + 1} ({moved.activations[layer].name}) is carried to no unit of "
        f"its layer; the best match misses by {miss:.1e} of its weights (a pair of opposite units, "
        "or another relation between units, can hide an equivariant function)"
    )


@torch.no_grad()
def hidden_values(network: DeepMLP, x: Float[Tensor, "n d"]) -> list[Float[Tensor, "n _"]]:
    """The values of each hidden layer, and of the output last, without gradients.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.layerwise import hidden_values
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", (3, 5, 4, 2), generator=Draw(0))
    >>> [tuple(y.shape) for y in hidden_values(network, Draw(1).normal(10, 3))]
    [(10, 5), (10, 4), (10, 2)]
    """
    values = []
    for i in range(1, len(network.weights) + 1):
        x = network.layer(i, x)
        values.append(x)
    return values


def least_squares_action(
    values: Float[Tensor, "samples n"], moved: Float[Tensor, "samples n"]
) -> Float[Tensor, "n n"]:
    """The matrix A with A · values ≈ moved, row by row, that minimises the sum of squares.

    Where the values do not span R^n it is the smallest of many; units that are always zero do no harm.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.layerwise import least_squares_action
    >>> values, A = Draw(0).normal(20, 3), Draw(1).normal(3, 3)
    >>> torch.allclose(least_squares_action(values, values @ A.T), A)
    True
    """
    # not torch's driver "gelsy", whose order of pivots is left to chance: a first column of zeros ends it
    return torch.linalg.lstsq(values, moved, driver="gelsd").solution.T
