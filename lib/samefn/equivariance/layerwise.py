"""Equivariance of networks, end to end and layer by layer ([B], Theorem 4.1 made constructive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..networks import DeepMLP, Layers
from .alignment import align, nearest_symmetry
from .groups import Permutation, Representation, cycles, representation
from .redundancy import Reduced, reduce


class NotEquivariant(ValueError):
    """The network does not satisfy f(ρ_in(g)x) = ρ_out(g)f(x); the message names g and the violation."""


class NotIdentifiable(ValueError):
    """Networks with the same function were found that no symmetry of the units was found to relate."""


def equivariance_error(
    f: Callable[[Tensor], Tensor],
    rho_in: Representation,
    rho_out: Representation,
    x: Float[Tensor, "*batch n"],
) -> float:
    """The largest ‖f(ρ_in(g)x) − ρ_out(g)f(x)‖ over g and the rows of x, relative to the largest ‖f(x)‖.

    ``x`` has the dtype that f takes; the representations are converted to it.  Raises ValueError if
    the representations belong to different groups or do not fit x and f(x), TypeError if they are none.
    """
    return worst_violation(f, rho_in, rho_out, x)[0]


@torch.no_grad()
def worst_violation(
    f: Callable[[Tensor], Tensor],
    rho_in: Representation,
    rho_out: Representation,
    x: Float[Tensor, "*batch n"],
) -> tuple[float, Permutation]:
    """:func:`equivariance_error`, and the element of the group at which it is reached."""
    require_one_group(rho_in, rho_out)
    if x.shape[-1] != rho_in.dimension:
        raise ValueError(
            f"x must have {rho_in.dimension} columns to be acted on by rho_in, got shape {tuple(x.shape)}"
        )
    y = f(x)
    if y.shape[-1] != rho_out.dimension:
        raise ValueError(
            f"rho_out must act on the {y.shape[-1]} outputs of f, but has dimension {rho_out.dimension}"
        )
    pairs = zip(rho_in.matrices.to(x.dtype), rho_out.matrices.to(y.dtype), strict=True)
    gaps = torch.stack([(f(x @ a.T) - y @ b.T).norm(dim=-1).max() for a, b in pairs])
    size = y.norm(dim=-1).max().clamp_min(torch.finfo(y.dtype).tiny)
    worst = int(gaps.argmax())
    return float(gaps[worst] / size), rho_in.group.elements[worst]


def require_one_group(rho_in: Representation, rho_out: Representation) -> None:
    """Raises TypeError unless both are representations, ValueError unless of one group."""
    for name, rho in (("rho_in", rho_in), ("rho_out", rho_out)):
        if not isinstance(rho, Representation):
            raise TypeError(f"{name} must be a Representation, got {type(rho).__name__}")
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
    count: int = 20,
) -> list[float]:
    """How far each layer is from equivariance, on ``count`` normal inputs of that layer.

    ``representations`` are those on the input, each hidden layer and the output.
    """
    errors = []
    for i, (before, after) in enumerate(pairwise(representations), 1):
        y = torch.randn(count, before.dimension, generator=generator, dtype=torch.float64)
        errors.append(equivariance_error(lambda y, i=i: network.layer(i, y), before, after, y))
    return errors


def symmetrise(network: DeepMLP, representations: Sequence[Representation]) -> DeepMLP:
    """The network with each layer replaced by its average over the group: W ← mean of ρ_i(g) W ρ_{i-1}(g)⁻¹.

    ``representations`` are those on the input, each hidden layer and the output.  Each layer of the
    result is equivariant if the hidden representations commute with the activations (signed
    permutations for odd ones).  Raises ValueError if they do not fit the layers.
    """
    sizes = [network.dim_in, *network.widths, network.dim_out]
    if [r.dimension for r in representations] != sizes:
        raise ValueError(
            f"representations must have dimensions {sizes}, got {[r.dimension for r in representations]}"
        )
    layers = network.layers
    for i, (before, after) in enumerate(pairwise(representations)):
        require_one_group(before, after)
        weight = (after.matrices @ layers.weights[i] @ torch.linalg.inv(before.matrices)).mean(0)
        layers = layers.replaced(i, weight, (after.matrices @ layers.biases[i]).mean(0))
    return network.rebuilt(layers)


def latent_actions(
    network: DeepMLP,
    rho_in: Representation,
    rho_out: Representation,
    *,
    tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> list[Representation]:
    """The representations ρ_1, …, ρ_{L-1} on the hidden layers for which every layer is equivariant.

    The proof of [B], Theorem 4.1, as an algorithm.  The network is reduced; for each generator g the network
    θ^g = (W_1 ρ_in(g)⁻¹, W_2, …, ρ_out(g) W_L) has the same function, so θ and θ^g are aligned; the
    alignment k(g) takes θ to θ^g, and ρ_i(g) = k_i(g)⁻¹.  Where units were removed, ρ_i acts on the
    whole layer as α ρ̃ α* + (id − α α*), and it is :meth:`samefn.equivariance.redundancy.Reduced.embed`
    whose layers are equivariant.  An alignment is accepted for its weights and the ρ_i for their
    homomorphism, so what is returned does not rest on any theorem of identifiability; only that
    something is returned does.

    Raises TypeError for anything but a DeepMLP and Representations, ValueError if the
    representations do not belong to one group or do not fit, :class:`NotEquivariant` with the group
    element and the violation if the network is not equivariant to ``tolerance`` on 64 normal inputs
    from ``generator`` (seed 0 if none is given), and :class:`NotIdentifiable` naming group element,
    layer and unit if θ and θ^g are not aligned by any symmetry to ``tolerance``.
    """
    if not isinstance(network, DeepMLP):
        raise TypeError(f"network must be a DeepMLP, got {type(network).__name__}")
    double = DeepMLP(network.layers.weights, network.layers.biases, network.activations)
    generator = generator or torch.Generator().manual_seed(0)
    x = torch.randn(64, network.dim_in, generator=generator, dtype=torch.float64)
    error, where = worst_violation(double, rho_in, rho_out, x)
    if not error <= tolerance:
        raise NotEquivariant(
            f"network is not equivariant: at g = {cycles(where)} f(gx) and g f(x) differ by {error:.1e} "
            "of the largest output"
        )
    reduced = reduce(double)
    actions: list[dict[Permutation, Tensor]] = [{} for _ in network.widths]
    for g in rho_in.group.generators:  # what commutes with the generators commutes with all their products
        for layer, matrix in zip(actions, _carried(reduced, g, rho_in, rho_out, tolerance), strict=True):
            layer[g] = matrix
    return [representation(rho_in.group, layer) for layer in actions]


def _carried(
    reduced: Reduced, g: Permutation, rho_in: Representation, rho_out: Representation, tolerance: float
) -> list[Tensor]:
    """ρ_i(g) on each hidden layer of the large network, from the alignment of the reduced θ with θ^g."""
    moved = transport(reduced.network, rho_in(g).to(torch.float64), rho_out(g).to(torch.float64))
    symmetry = align(reduced.network, moved, tolerance=tolerance)
    if symmetry is None:
        why = _why(reduced, moved)
        raise NotIdentifiable(
            f"network is not identifiable by symmetries of its units: at g = {cycles(g)}, {why}"
        )
    matrices = []
    for k, alpha, star in zip(symmetry.matrices(), reduced.include, reduced.project, strict=True):
        rest = torch.eye(len(alpha), dtype=torch.float64) - alpha @ star
        matrices.append(alpha @ torch.linalg.inv(k) @ star + rest)
    return matrices


def transport(network: DeepMLP, a: Float[Tensor, "n n"], b: Float[Tensor, "k k"]) -> DeepMLP:
    """θ^g = (g·θ_1, θ_2, …, g·θ_L): the network with the function b f(a⁻¹ x) ([B], the adjunction for
    MLPs).
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
    gaps = _row_gaps(best.apply(reduced.network).layers, moved.layers)
    # the search weighs incoming against outgoing weights, so rounding in one layer must not hide the next
    largest = max(float(gap.max()) for gap in gaps)
    layer = next(i for i, gap in enumerate(gaps) if gap.max() >= 1e-3 * largest)
    unit, miss = int(gaps[layer].argmax()), float(gaps[layer].max())
    if layer == len(gaps) - 1:
        return f"the units match but output {unit} does not, by {miss:.1e} of the largest weights"
    name = int(reduced.include[layer][:, unit].abs().argmax())
    return (
        f"unit {name} of layer {layer + 1} ({moved.activations[layer].name}) is carried to no unit of "
        f"its layer; the best match misses by {miss:.1e} of the largest weights (a pair of opposite units, "
        "or another relation between units, can hide an equivariant function)"
    )


def _row_gaps(a: Layers, b: Layers) -> list[Tensor]:
    """For each layer the distances of the units' rows, relative to the longest."""
    pairs = [(a.rows(i), b.rows(i)) for i in range(len(b.weights))]
    return [(rows - others).norm(dim=1) / others.norm(dim=1).max() for rows, others in pairs]


@torch.no_grad()
def hidden_values(network: DeepMLP, x: Float[Tensor, "n d"]) -> list[Float[Tensor, "n _"]]:
    """The values of each hidden layer, and of the output last, without gradients."""
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
    """
    # not torch's driver "gelsy", whose order of pivots is left to chance: a first column of zeros ends it
    return torch.linalg.lstsq(values, moved, driver="gelsd").solution.T
