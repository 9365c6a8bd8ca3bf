"""Networks that are nearly equivariant: errors of layers against the error end to end (chapter
``equivariance/mirror``).

g is one matrix that acts on inputs and outputs alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import Finite, Positive
from ..networks import DeepMLP, Layers
from .alignment import nearest_symmetry, random_symmetry
from .groups import Representation, cyclic, on_images, permutation_representation, representation, trivial
from .layerwise import least_squares_action, symmetrise, transport

SIDE = 3  # images of 3 × 3 pixels


@cache
def mirror_actions() -> tuple[Representation, Representation]:
    """The mirror on images of 3 × 3 pixels, and on eight units: two symmetric, two pairs, two negated.

    >>> from samefn.equivariance.approximate import mirror_actions
    >>> on_pixels, on_units = mirror_actions()
    >>> on_pixels.dimension, on_units.dimension
    (9, 8)
    """
    group = cyclic(2)
    negated = representation(group, {group.generators[0]: -torch.eye(2, dtype=torch.float64)})
    return on_images(group, SIDE), trivial(group, 2) + 2 * permutation_representation(group) + negated


def planted_autoencoder(*, generator: torch.Generator) -> tuple[DeepMLP, Float[Tensor, "8 8"]]:
    """A reduced tanh autoencoder with equivariant layers, its units in random order and with random signs;
    Q = ρ_1(g).

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import end_to_end, mirror_actions, planted_autoencoder
    >>> network, Q = planted_autoencoder(generator=Draw(0))
    >>> mirror = mirror_actions()[0].matrices[1]
    >>> end_to_end(network, mirror, Draw(1).normal(50, 9)) < 1e-13
    True
    """
    images, hidden = mirror_actions()
    sizes = [(hidden.dimension, images.dimension), (images.dimension, hidden.dimension)]
    weights = [torch.randn(*size, generator=generator, dtype=torch.float64) / 2 for size in sizes]
    biases = [torch.randn(m, generator=generator, dtype=torch.float64) / 2 for m, _ in sizes]
    network = symmetrise(DeepMLP(weights, biases), [images, hidden, images])
    hiding = random_symmetry(network, generator=generator)
    (k,) = hiding.matrices()
    return hiding.apply(network), k @ hidden.matrices[1] @ k.T


def nudged(network: DeepMLP, size: Finite, *, generator: torch.Generator) -> DeepMLP:
    """The network with normal noise of standard deviation ``size`` on all weights and biases.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import nudged
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.functions import gap
    >>> network = random_deep("tanh", generator=Draw(0))
    >>> 0 < gap(network, nudged(network, 1e-6, generator=Draw(1)), Draw(2).normal(50, 3)) < 1e-3
    True
    """
    layers = network.layers
    both = layers.weights + layers.biases
    noisy = [p + size * torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in both]
    half = len(layers.weights)
    return DeepMLP(noisy[:half], noisy[half:], network.activations)


def tilted(network: DeepMLP, scale: Finite, *, generator: torch.Generator) -> DeepMLP:
    """The network with noise of size 0.1 on the rows of layer 1 alone, and layer 2 multiplied by
    ``scale``.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import tilted
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> other = tilted(network, 0.5, generator=Draw(1))
    >>> torch.equal(other.weights[1], network.weights[1] / 2)
    True
    """
    layers = _two_layers(network)
    first, second = layers.weights
    noise = torch.randn(first.shape, generator=generator, dtype=torch.float64)
    moved = layers.replaced(0, first + 0.1 * noise).replaced(1, scale * second, scale * layers.biases[1])
    return network.rebuilt(moved)


def with_faint_unit(network: DeepMLP, outgoing: Finite, *, generator: torch.Generator) -> DeepMLP:
    """One more unit with a random row, whose outgoing weights have norm ``outgoing``.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import with_faint_unit
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", (3, 5, 2), generator=Draw(0))
    >>> faint = with_faint_unit(network, 1e-3, generator=Draw(1))
    >>> faint.widths, f"{float(faint.weights[1][:, 5].norm()):.1e}"
    ((6,), '1.0e-03')
    """
    layers = _two_layers(network)
    second = layers.weights[1]
    row = torch.randn(1, layers.weights[0].shape[1] + 1, generator=generator, dtype=torch.float64)
    draw = torch.randn(len(second), 1, generator=generator, dtype=torch.float64)
    column = torch.nn.functional.normalize(draw, dim=0)
    rows = torch.cat([layers.rows(0), row])
    wider = layers.replaced(0, rows[:, :-1], rows[:, -1])
    return network.rebuilt(wider.replaced(1, torch.cat([second, outgoing * column], 1)))


def _two_layers(network: DeepMLP) -> Layers:
    if len(network.weights) != 2:
        raise ValueError(f"network must have two layers, got {len(network.weights)}")
    return network.layers


@torch.no_grad()
def end_to_end(network: DeepMLP, g: Float[Tensor, "n n"], x: Float[Tensor, "batch n"]) -> float:
    """Root mean square over x of ‖f(gx) − g f(x)‖, relative to that of ‖f(x)‖.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import end_to_end, mirror_actions, nudged
    >>> from samefn.equivariance.approximate import planted_autoencoder
    >>> network, _ = planted_autoencoder(generator=Draw(0))
    >>> mirror, x = mirror_actions()[0].matrices[1], Draw(1).normal(50, 9)
    >>> near = nudged(network, 1e-3, generator=Draw(2))
    >>> end_to_end(network, mirror, x) < 1e-13 < end_to_end(near, mirror, x)
    True
    """
    y = network(x)
    return float((network(x @ g.T) - y @ g.T).norm() / y.norm())


@torch.no_grad()
def first_layer(network: DeepMLP, g: Float[Tensor, "n n"], x: Float[Tensor, "batch n"]) -> float:
    """The same for layer 1, with the matrix A_1 that fits best.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import first_layer, mirror_actions, planted_autoencoder
    >>> network, _ = planted_autoencoder(generator=Draw(0))
    >>> first_layer(network, mirror_actions()[0].matrices[1], Draw(1).normal(50, 9)) < 1e-13
    True
    """
    h, moved = network.layer(1, x), network.layer(1, x @ g.T)
    return float((moved - h @ least_squares_action(h, moved).T).norm() / h.norm())


@torch.no_grad()
def telescope(
    network: DeepMLP, fitted: Sequence[Float[Tensor, "_ _"]], x: Float[Tensor, "batch n"]
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """For each row of x: ‖f(A_0 x) − A_L f(x)‖, and the bound Σ_i (Π_{j>i} λ_j) δ_i with λ_j = ‖W_j‖, for
    tanh layers.

    ``fitted`` are A_0, …, A_L; δ_i is the error of layer i on the value of the layers below.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import mirror_actions, nudged
    >>> from samefn.equivariance.approximate import planted_autoencoder, telescope
    >>> network, Q = planted_autoencoder(generator=Draw(0))
    >>> mirror, near = mirror_actions()[0].matrices[1], nudged(network, 0.01, generator=Draw(1))
    >>> miss, bound = telescope(near, [mirror, Q, mirror], Draw(2).normal(50, 9))
    >>> bool((miss <= bound).all())
    True
    """
    sizes = [network.dim_in, *network.widths, network.dim_out]
    if [f.shape[1] for f in fitted] != sizes or [f.shape[0] for f in fitted] != sizes:
        raise ValueError(
            f"fitted must be square matrices of sizes {sizes}, got shapes {[tuple(f.shape) for f in fitted]}"
        )
    norms = [float(torch.linalg.matrix_norm(w, 2)) for w in network.weights]
    bound = torch.zeros(len(x), dtype=x.dtype)
    whole, y = network(x @ fitted[0].T), x
    for i in range(1, len(fitted)):
        after = network.layer(i, y)
        miss = network.layer(i, y @ fitted[i - 1].T) - after @ fitted[i].T
        bound += math.prod(norms[i:]) * miss.norm(dim=1)
        y = after
    return (whole - y @ fitted[-1].T).norm(dim=1), bound


def smallest_singular_value(network: DeepMLP, x: Float[Tensor, "batch n"]) -> float:
    """Of the derivative of the parameters ↦ the outputs on x, root mean square over x: 0 if a direction is
    invisible.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import planted_autoencoder, smallest_singular_value
    >>> network, _ = planted_autoencoder(generator=Draw(0))
    >>> smallest_singular_value(network, Draw(1).normal(100, 9)) > 1e-6  # no direction is invisible
    True
    """
    names = [name for name, _ in network.named_parameters()]
    values = tuple(p.detach() for p in network.parameters())

    def outputs(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), (x,))

    jacobian = torch.func.jacrev(outputs, argnums=tuple(range(len(values))))(*values)
    stacked = torch.cat([part.reshape(len(x) * network.dim_out, -1) for part in jacobian], 1)
    return float(torch.linalg.svdvals(stacked / len(x) ** 0.5)[-1])


@torch.no_grad()
def weight_misfit(network: DeepMLP, g: Float[Tensor, "n n"]) -> float:
    """The distance ‖θ^g − kθ‖ of all weights and biases, for the nearest symmetry k that ``align`` finds.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.approximate import mirror_actions, planted_autoencoder, weight_misfit
    >>> network, _ = planted_autoencoder(generator=Draw(0))
    >>> weight_misfit(network, mirror_actions()[0].matrices[1]) < 1e-13
    True
    """
    moved = transport(network, g, g)
    symmetry = nearest_symmetry(network, moved)
    pairs = zip(symmetry.apply(network).parameters(), moved.parameters(), strict=True)
    return math.sqrt(sum(float((p - q).square().sum()) for p, q in pairs))


def slope(a: tuple[Positive, Positive], b: tuple[Positive, Positive]) -> float:
    """Of the line through two points (error end to end, error of layer 1) on logarithmic axes.

    >>> from samefn.equivariance.approximate import slope
    >>> f"{slope((1e-2, 1e-3), (1e-4, 1e-5)):.2f}"
    '1.00'
    """
    if a[0] == b[0]:
        raise ValueError(f"b must not lie above or below a, got {a} and {b}")
    return math.log(b[1] / a[1]) / math.log(b[0] / a[0])
