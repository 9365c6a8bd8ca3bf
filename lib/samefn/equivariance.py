"""Equivariance of networks, end to end and layer by layer ([B], Theorem 4.1 made constructive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from sympy.combinatorics import Permutation
from torch import Tensor

from .groups import Representation, representation
from .networks import DeepMLP
from .symmetry import Reduction, _parameters, _rebuilt, _rows, align, reduce


class NotEquivariant(ValueError):
    """The network does not satisfy f(ρ_in(g)x) = ρ_out(g)f(x); the message names g and the violation."""


class NotIdentifiable(ValueError):
    """Networks with the same function were found that no symmetry of the units was found to relate."""


def equivariance_error(
    f: Callable[[Tensor], Tensor], rho_in: Representation, rho_out: Representation, x: Float[Tensor, "batch n"]
) -> float:
    """The largest ‖f(ρ_in(g)x) − ρ_out(g)f(x)‖ over g and the rows of x, relative to the largest ‖f(x)‖.

    ``x`` has the dtype that f takes; the representations are converted to it.  Raises ValueError if
    the representations belong to different groups or do not fit x and f(x), TypeError if they are none.
    """
    return _worst(f, rho_in, rho_out, x)[0]


def _worst(f, rho_in: Representation, rho_out: Representation, x: Tensor) -> tuple[float, int]:
    """The error and the position of the element with the largest one."""
    _same_group(rho_in, rho_out)
    if x.shape[-1] != rho_in.dimension:
        raise ValueError(f"x must have {rho_in.dimension} columns to be acted on by rho_in, got shape {tuple(x.shape)}")
    y = f(x).detach()
    if y.shape[-1] != rho_out.dimension:
        raise ValueError(f"rho_out must act on the {y.shape[-1]} outputs of f, but has dimension {rho_out.dimension}")
    pairs = zip(rho_in.matrices.to(x.dtype), rho_out.matrices.to(y.dtype))
    gaps = [(f(x @ a.T).detach() - y @ b.T).norm(dim=-1).max() for a, b in pairs]
    size = y.norm(dim=-1).max().clamp_min(torch.finfo(y.dtype).tiny)
    worst = int(torch.stack(gaps).argmax())
    return float(gaps[worst] / size), worst


def _same_group(rho_in: Representation, rho_out: Representation) -> None:
    for name, rho in (("rho_in", rho_in), ("rho_out", rho_out)):
        if not isinstance(rho, Representation):
            raise TypeError(f"{name} must be a Representation, got {type(rho).__name__}")
    if rho_in.group != rho_out.group:
        raise ValueError(
            f"rho_in and rho_out must be representations of the same group, got {rho_in.group.name} and {rho_out.group.name}"
        )


def symmetrise(network: DeepMLP, representations: Sequence[Representation]) -> DeepMLP:
    """The network with each layer replaced by its average over the group: W ← mean of ρ_i(g) W ρ_{i-1}(g)⁻¹.

    ``representations`` are those on the input, each hidden layer and the output.  Each layer of the
    result is equivariant if the hidden representations commute with the activations (signed
    permutations for odd ones).  Raises ValueError if they do not fit the layers.
    """
    sizes = [network.dim_in, *network.widths, network.dim_out]
    if [r.dimension for r in representations] != sizes:
        raise ValueError(f"representations must have dimensions {sizes}, got {[r.dimension for r in representations]}")
    weights, biases = _parameters(network)
    for i, (before, after) in enumerate(zip(representations, representations[1:])):
        _same_group(before, after)
        weights[i] = (after.matrices @ weights[i] @ torch.linalg.inv(before.matrices)).mean(0)
        biases[i] = (after.matrices @ biases[i]).mean(0)
    return _rebuilt(network, weights, biases)


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
    whole layer as α ρ̃ α* + (id − α α*), and it is :meth:`samefn.symmetry.Reduction.embed` whose
    layers are equivariant.  An alignment is accepted for its weights and the ρ_i for their
    homomorphism, so what is returned does not rest on any theorem of identifiability; only that
    something is returned does.

    Raises TypeError for anything but a DeepMLP and Representations, ValueError if the
    representations do not belong to one group or do not fit, :class:`NotEquivariant` with the group
    element and the violation if the network is not equivariant to ``tolerance`` on 64 normal inputs
    from ``generator``, and :class:`NotIdentifiable` naming group element, layer and unit if θ and
    θ^g are not aligned by any symmetry to ``tolerance``.
    """
    if not isinstance(network, DeepMLP):
        raise TypeError(f"network must be a DeepMLP, got {type(network).__name__}")
    generator = generator or torch.Generator().manual_seed(0)
    x = torch.randn(64, network.dim_in, generator=generator, dtype=torch.float64)
    error, worst = _worst(_in_double(network), rho_in, rho_out, x)
    if not error <= tolerance:
        raise NotEquivariant(
            f"network is not equivariant: at g = {rho_in.group.elements[worst]} f(gx) and g f(x) differ by "
            f"{error:.1e} of the largest output"
        )
    reduction = reduce(_in_double(network))
    small = reduction.network
    actions: list[dict[Permutation, Tensor]] = [{} for _ in small.widths]
    for g in rho_in.group.generators:  # what commutes with the generators commutes with all their products
        moved = transport(small, rho_in(g).to(torch.float64), rho_out(g).to(torch.float64))
        symmetry = align(small, moved, tolerance)
        if symmetry is None:
            why = _why(reduction, moved)
            raise NotIdentifiable(f"network is not identifiable by symmetries of its units: at g = {g}, {why}")
        for layer, matrix in zip(actions, symmetry.matrices()):
            layer[g] = torch.linalg.inv(matrix)
    found = []
    for layer, include, project in zip(actions, reduction.include, reduction.project):
        rest = torch.eye(len(include), dtype=torch.float64) - include @ project
        found.append(representation(rho_in.group, {g: include @ m @ project + rest for g, m in layer.items()}))
    return found


def _in_double(network: DeepMLP) -> DeepMLP:
    weights, biases = _parameters(network)
    return DeepMLP(weights, biases, network.activations)


def transport(network: DeepMLP, a: Float[Tensor, "n n"], b: Float[Tensor, "k k"]) -> DeepMLP:
    """θ^g = (g·θ_1, θ_2, …, g·θ_L): the network with the function b f(a⁻¹ x) ([B], the adjunction for MLPs)."""
    weights, biases = _parameters(network)
    weights[0] = weights[0] @ torch.linalg.inv(a)
    weights[-1], biases[-1] = b @ weights[-1], b @ biases[-1]
    return _rebuilt(network, weights, biases)


def _why(reduction: Reduction, moved: DeepMLP) -> str:
    """Where the reduced network and ``moved`` part: the first layer that does not match, and its worst unit."""
    best = align(reduction.network, moved, tolerance=float("inf"))
    (weights_a, biases_a), (weights_b, biases_b) = _parameters(best.apply(reduction.network)), _parameters(moved)
    gaps = [
        (_rows(weights_a, biases_a, i) - _rows(weights_b, biases_b, i)).norm(dim=1)
        / _rows(weights_b, biases_b, i).norm(dim=1).max()
        for i in range(len(weights_b))
    ]
    # the search weighs incoming against outgoing weights, so rounding in one layer must not hide the next
    layer = next(i for i, gap in enumerate(gaps) if gap.max() >= 1e-3 * max(g.max() for g in gaps))
    unit, miss = int(gaps[layer].argmax()), float(gaps[layer].max())
    if layer == len(gaps) - 1:
        return f"the units match but output {unit} does not, by {miss:.1e} of the largest weights"
    name = int(reduction.include[layer][:, unit].abs().argmax())
    return (
        f"unit {name} of layer {layer + 1} ({moved.activations[layer].name}) is carried to no unit of its layer; the best "
        f"match misses by {miss:.1e} of the largest weights (a pair of opposite units, or another relation between "
        "units, can hide an equivariant function)"
    )
