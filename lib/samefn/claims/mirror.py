"""B-EXP: what the measured layer errors say of the error end to end, and back.  Chapter ``equivariance/mirror``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from ..equivariance import symmetrise, transport
from ..groups import Representation, cyclic, direct_sum, on_images, permutation_representation, representation, trivial
from ..mirror import least_squares_action
from ..networks import DeepMLP
from ..symmetry import align, random_symmetry
from . import Claim, Control, Evidence, require
from .mlp import opposite_pairs

SIDE = 3  # images of 3 × 3 pixels


@cache
def actions() -> tuple[Representation, Representation]:
    """The mirror on images, and on eight units: two symmetric, two pairs, two negated."""
    group = cyclic(2)
    negated = representation(group, {group.generators[0]: -torch.eye(2, dtype=torch.float64)})
    hidden = direct_sum(trivial(group, 2), *[permutation_representation(group)] * 2, negated)
    return on_images(group, SIDE), hidden


def planted(generator: torch.Generator) -> tuple[DeepMLP, Tensor]:
    """A reduced tanh autoencoder with equivariant layers, its units in random order and with random signs; Q = ρ_1(g)."""
    images, hidden = actions()
    sizes = [(hidden.dimension, images.dimension), (images.dimension, hidden.dimension)]
    weights = [torch.randn(*size, generator=generator, dtype=torch.float64) / 2 for size in sizes]
    biases = [torch.randn(m, generator=generator, dtype=torch.float64) / 2 for m, _ in sizes]
    network = symmetrise(DeepMLP(weights, biases), [images, hidden, images])
    hiding = random_symmetry(network, generator)
    (k,) = hiding.matrices()
    return hiding.apply(network), k @ hidden.matrices[1] @ k.T


def nudged(network: DeepMLP, size: float, generator: torch.Generator) -> DeepMLP:
    """The network with normal noise of standard deviation ``size`` on all weights and biases."""
    noisy = [p.detach() + size * torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in network.parameters()]
    half = len(noisy) // 2
    return DeepMLP(noisy[:half], noisy[half:], network.activations)


def tilted(network: DeepMLP, scale: float, generator: torch.Generator) -> DeepMLP:
    """The network with noise of size 0.1 on the rows of layer 1 alone, and layer 2 multiplied by ``scale``."""
    (w1, w2), (b1, b2) = ([p.detach() for p in group] for group in (network.weights, network.biases))
    w1 = w1 + 0.1 * torch.randn(w1.shape, generator=generator, dtype=torch.float64)
    return DeepMLP([w1, scale * w2], [b1, scale * b2], network.activations)


def with_faint_unit(network: DeepMLP, outgoing: float, generator: torch.Generator) -> DeepMLP:
    """One more unit with a random row, whose outgoing weights have norm ``outgoing``."""
    (w1, w2), (b1, b2) = ([p.detach() for p in group] for group in (network.weights, network.biases))
    row = torch.randn(1, w1.shape[1] + 1, generator=generator, dtype=torch.float64)
    column = torch.nn.functional.normalize(torch.randn(len(w2), 1, generator=generator, dtype=torch.float64), dim=0)
    weights = [torch.cat([w1, row[:, :-1]]), torch.cat([w2, outgoing * column], 1)]
    return DeepMLP(weights, [torch.cat([b1, row[:, -1]]), b2], network.activations)


def end_to_end(network: DeepMLP, g: Tensor, x: Tensor) -> float:
    """Root mean square over x of ‖f(gx) − g f(x)‖, relative to that of ‖f(x)‖."""
    with torch.no_grad():
        y = network(x)
        return float((network(x @ g.T) - y @ g.T).norm() / y.norm())


def first_layer(network: DeepMLP, g: Tensor, x: Tensor) -> float:
    """The same for layer 1, with the matrix A_1 that fits best."""
    with torch.no_grad():
        h, moved = network.layer(1, x), network.layer(1, x @ g.T)
        return float((moved - h @ least_squares_action(h, moved).T).norm() / h.norm())


def telescope(network: DeepMLP, fitted: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of x: ‖f(A_0 x) − A_L f(x)‖, and the bound Σ_i (Π_{j>i} λ_j) δ_i with λ_j = ‖W_j‖, for tanh layers."""
    norms = [float(torch.linalg.matrix_norm(w.detach(), 2)) for w in network.weights]
    bound = torch.zeros(len(x), dtype=x.dtype)
    with torch.no_grad():
        whole, y = network(x @ fitted[0].T), x
        for i in range(1, len(fitted)):
            after = network.layer(i, y)
            gap = network.layer(i, y @ fitted[i - 1].T) - after @ fitted[i].T
            bound += math.prod(norms[i:]) * gap.norm(dim=1)
            y = after
        return (whole - y @ fitted[-1].T).norm(dim=1), bound


def smallest_singular_value(network: DeepMLP, x: Tensor) -> float:
    """Of the derivative of the parameters ↦ the outputs on x, root mean square over x: 0 if a direction is invisible."""
    names = [name for name, _ in network.named_parameters()]
    values = tuple(p.detach() for p in network.parameters())

    def outputs(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, parameters)), (x,))

    jacobian = torch.func.jacrev(outputs, argnums=tuple(range(len(values))))(*values)
    stacked = torch.cat([part.reshape(len(x) * network.dim_out, -1) for part in jacobian], 1)
    return float(torch.linalg.svdvals(stacked / len(x) ** 0.5)[-1])


def weight_misfit(network: DeepMLP, g: Tensor) -> float:
    """The distance ‖θ^g − kθ‖ of all weights and biases, for the symmetry k found by ``align``."""
    moved = transport(network, g, g)
    symmetry = align(network, moved, tolerance=float("inf"))
    return _distance(symmetry.apply(network), moved)


def _distance(a: DeepMLP, b: DeepMLP) -> float:
    return float(sum((p - q).detach().square().sum() for p, q in zip(a.parameters(), b.parameters())).sqrt())


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    g = actions()[0].matrices[1]
    x = torch.randn(100, SIDE**2, generator=generator, dtype=torch.float64)

    network, q = planted(generator)
    with torch.no_grad():
        fitted = least_squares_action(network.layer(1, x), network.layer(1, x @ g.T))
    gap = float((fitted - q).abs().max())
    require(gap < 1e-7, f"least squares misses the planted signed permutation by {gap:.1e}")
    yield Evidence(
        "numeric", "least squares finds the planted signed permutation of eight tanh units", f"largest difference {gap:.0e}"
    )

    depth = 2 + seed % 3
    sizes = [SIDE**2, *[6] * (depth - 1), SIDE**2]
    weights = [torch.randn(m, n, generator=generator, dtype=torch.float64) / n**0.5 for n, m in zip(sizes, sizes[1:])]
    matrices = [torch.randn(n, n, generator=generator, dtype=torch.float64) / n**0.5 for n in sizes[1:-1]]
    violation, bound = telescope(DeepMLP(weights), [g, *matrices, g], x)
    ratio = float((violation / bound).max())
    require(ratio <= 1 + 1e-12, f"the error end to end is {ratio:.3f} of its bound")
    # only layer 1 errs and layer 2 stretches it: the bound without λ_2 would be too small
    violation, bound = telescope(tilted(network, 10.0, generator), [g, q, g], x)
    tight = float((violation / bound).max())
    require(0.1 < tight <= 1 + 1e-12, f"where layer 1 alone errs, the error is {tight:.3f} of its bound")
    yield Evidence(
        "numeric",
        f"error end to end ≤ Σ (Π λ_j) δ_i for random layers and any A_i, {depth} layers",
        f"at most {ratio:.2f} of the bound; {tight:.2f} where layer 1 alone errs",
    )

    s = smallest_singular_value(network, x)
    require(s > 1e-4, f"a direction of the parameters is invisible: {s:.1e}")
    start = generator.get_state()
    sizes, points, share = (1e-3, 1e-4, 1e-5), [], 0.0
    for size in sizes:
        generator.set_state(start)  # the same direction, ever nearer
        near = nudged(network, size, generator)
        with torch.no_grad():
            seen = float((near(x @ g.T) - near(x) @ g.T).norm() / len(x) ** 0.5)
        misfit = weight_misfit(near, g)
        share = max(share, misfit * s / seen)
        points.append((end_to_end(near, g, x), first_layer(near, g, x)))
        with torch.no_grad():
            h, moved = near.layer(1, x), near.layer(1, x @ g.T)
            with_q = float((moved - h @ q.T).norm() / h.norm())
        require(points[-1][1] <= with_q, f"layer 1 misses by {points[-1][1]:.2e}, with Q only by {with_q:.2e}")
    require(share < 1 + 1e-2, f"‖θ^g − kθ‖ is {share:.3f} of what the singular value allows")
    yield Evidence(
        "numeric",
        "near an exact network ‖θ^g − kθ‖ ≤ ‖f∘ρ − ρ'f‖ / s, s the smallest singular value of dθ ↦ df",
        f"at most {share:.2f} of the bound",
    )
    slopes = [slope(a, b) for a, b in zip(points, points[1:])]
    require(all(abs(v - 1) < 0.02 for v in slopes), f"slopes {slopes}")
    yield Evidence(
        "numeric", "layer 1 against end to end on log scales as weights near an exact network", f"slope {slopes[-1]:.4f}"
    )


def slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Of the line through two points (error end to end, error of layer 1) on logarithmic axes."""
    return math.log(b[1] / a[1]) / math.log(b[0] / a[0])


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    g = actions()[0].matrices[1]
    x = torch.randn(100, SIDE**2, generator=generator, dtype=torch.float64)
    network, _ = planted(generator)

    start = generator.get_state()
    points = []
    for outgoing in (1e-2, 1e-5):
        generator.set_state(start)  # the same row
        faint = with_faint_unit(network, outgoing, generator)
        points.append((end_to_end(faint, g, x), first_layer(faint, g, x)))
    (_, before), (whole, after) = points
    require(whole < 1e-4 and after > 0.02, f"end to end {whole:.1e}, layer 1 {after:.1e}")
    require(abs(slope(*points)) < 0.01, f"slope {slope(*points):.3f}")
    yield Control(
        "compactness: a unit's outgoing weights tend to 0",
        "the error end to end tends to 0 and that of layer 1 does not: no constant serves all networks",
        f"end to end {whole:.0e}, layer 1 {after:.2f} (before: {before:.2f})",
    )

    pairs, swap = opposite_pairs("gelu", generator)
    y = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    whole, layer = (measured(pairs, swap.matrices[1], y) for measured in (end_to_end, first_layer))
    require(whole < 1e-12 and layer > 0.01, f"end to end {whole:.1e}, layer 1 {layer:.1e}")
    invisible = smallest_singular_value(pairs, y)
    require(invisible < 1e-12, f"the smallest singular value is {invisible:.1e}")
    yield Control(
        "identifiability: ± pairs of GELU units",
        "equivariant end to end, layer 1 for no matrix A_1 at all; some direction of the parameters is invisible",
        f"end to end {whole:.0e}, layer 1 {layer:.2f}",
    )

    rows = torch.randn(8, SIDE**2, generator=generator, dtype=torch.float64)
    plain = DeepMLP([rows, torch.eye(8, dtype=torch.float64)])
    with torch.no_grad():
        h, moved = plain.layer(1, x), plain.layer(1, x @ g.T)
    a = least_squares_action(h[:8], moved[:8])
    fit, fresh = (float((moved[part] - h[part] @ a.T).norm() / h[part].norm()) for part in (slice(8), slice(8, None)))
    require(fit < 1e-6 and fresh > 0.1, f"fitted {fit:.1e}, fresh {fresh:.1e}")
    yield Control(
        "errors on fresh samples",
        "eight samples fit any eight units: the residual is zero though nothing is equivariant",
        f"fitted {fit:.0e}, fresh {fresh:.1f}",
    )


CLAIM = Claim(
    id="B-EXP",
    title="Layer errors bound the error end to end; on compact sets of identifiable weights the converse holds",
    source="what is measured: [B], experiments; the theorem is ours",
    hypotheses=(
        "least squares: the sampled values of the layer span",
        "layers to end to end: Lipschitz layers",
        "converse: a compact set of weights, each identifiable up to a finite group, with injective derivative",
    ),
    uses=("B-MLP", "B-T4.1"),
    chapter="equivariance/mirror",
    evidence=evidence,
    controls=controls,
)
