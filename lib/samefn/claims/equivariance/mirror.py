"""B-EXP: what the measured layer errors say of the error end to end, and back.  Chapter
``equivariance/mirror``.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from ...draw import Draw
from ...equivariance.approximate import (
    SIDE,
    end_to_end,
    first_layer,
    mirror_actions,
    nudged,
    planted_autoencoder,
    slope,
    smallest_singular_value,
    telescope,
    tilted,
    weight_misfit,
    with_faint_unit,
)
from ...equivariance.layerwise import least_squares_action
from ...equivariance.planted import opposite_pairs
from ...networks import DeepMLP
from .. import Claim, require

claim = Claim(
    id="B-EXP",
    title="Layer errors bound the error end to end; on compact sets of weights that are identifiable, "
    "also infinitesimally, the error end to end bounds how far the weights are from symmetric",
    source="what is measured: [B], experiments; the theorem is ours",
    hypotheses=(
        "least squares: the sampled values of the layer span",
        "layers to end to end: each misfit times the Lipschitz constants of the layers behind it",
        "converse: a compact set of weights",
        "converse: identifiable up to a finite group",
        "converse: no direction of the weights leaves the function as it is, infinitesimally",
    ),
    uses=("B-MLP", "B-T4.1"),
    chapter="equivariance/mirror",
)


def _mirror() -> Tensor:
    return mirror_actions()[0].matrices[1]


@claim.numeric("least squares finds the planted signed permutation of eight tanh units")
def least_squares_finds_the_action(draw: Draw) -> str:
    (network, q), x = planted_autoencoder(generator=draw), draw.normal(100, SIDE**2)
    fitted = least_squares_action(network.layer(1, x), network.layer(1, x @ _mirror().T))
    off = float((fitted - q).abs().max())
    require(off < 1e-7, f"least squares misses the planted signed permutation by {off:.1e}")
    return f"largest difference {off:.0e}"


@claim.numeric("error end to end ≤ Σ (Π λ_j) δ_i for random layers and random A_i")
def errors_add_up(draw: Draw) -> str:
    depth, g = draw.integer(2, 5), _mirror()
    sizes = [SIDE**2, *[6] * (depth - 1), SIDE**2]
    network = DeepMLP([draw.normal(m, n) / n**0.5 for n, m in pairwise(sizes)])
    matrices = [draw.normal(n, n) / n**0.5 for n in sizes[1:-1]]
    error, bound = telescope(network, [g, *matrices, g], draw.normal(100, SIDE**2))
    ratio = float((error / bound).max())
    require(ratio <= 1 + 1e-12, f"the error end to end is {ratio:.3f} of its bound")
    return f"{depth} layers: at most {ratio:.2f} of the bound"


@claim.numeric(
    "where layer 1 alone errs and layer 2 stretches it, the error is at least a tenth of the bound"
)
def bound_is_tight(draw: Draw) -> str:
    (network, q), g = planted_autoencoder(generator=draw), _mirror()
    # only layer 1 errs and layer 2 stretches it: the bound without λ_2 would be too small
    stretched = tilted(network, 10.0, generator=draw)
    error, bound = telescope(stretched, [g, q, g], draw.normal(100, SIDE**2))
    ratio = float((error / bound).max())
    require(0.1 < ratio <= 1 + 1e-12, f"where layer 1 alone errs, the error is {ratio:.3f} of its bound")
    return f"{ratio:.2f} of the bound"


def _nearer_and_nearer(draw: Draw) -> tuple[DeepMLP, Tensor, list[DeepMLP]]:
    """An exact network, its Q, and networks that lie from it in one direction, ever nearer."""
    network, q = planted_autoencoder(generator=draw)
    start, found = draw.get_state(), []
    for size in (1e-3, 1e-4, 1e-5):
        draw.set_state(start)
        found.append(nudged(network, size, generator=draw))
    return network, q, found


@claim.numeric("near an exact network ‖θ^g − kθ‖ ≤ ‖f∘ρ − ρ'f‖ / s, s the smallest singular value of dθ ↦ df")
def singular_value_bounds_the_weights(draw: Draw) -> str:
    g, (network, _, near) = _mirror(), _nearer_and_nearer(draw)
    x = draw.normal(100, SIDE**2)
    s = smallest_singular_value(network, x)
    require(s > 1e-4, f"a direction of the parameters is invisible: {s:.1e}")
    seen = [float((f(x @ g.T) - f(x) @ g.T).norm()) / len(x) ** 0.5 for f in near]
    share = max(weight_misfit(f, g) * s / error for f, error in zip(near, seen, strict=True))
    require(share < 1 + 1e-2, f"‖θ^g − kθ‖ is {share:.3f} of what the singular value allows")
    return f"at most {share:.2f} of the bound"


@claim.numeric("layer 1 against end to end on log scales as weights near an exact network")
def slope_one(draw: Draw) -> str:
    g, (_, _, near) = _mirror(), _nearer_and_nearer(draw)
    x = draw.normal(100, SIDE**2)
    points = [(end_to_end(f, g, x), first_layer(f, g, x)) for f in near]
    slopes = [slope(a, b) for a, b in pairwise(points)]
    require(all(abs(v - 1) < 0.02 for v in slopes), f"slopes {slopes}")
    return f"slope {slopes[-1]:.4f}"


@claim.numeric("near an exact network the best matrix A_1 fits layer 1 no worse than Q does")
def fit_is_no_worse_than_q(draw: Draw) -> str:
    g, (_, q, near) = _mirror(), _nearer_and_nearer(draw)
    x, shares = draw.normal(100, SIDE**2), []
    for f in near:
        h, moved = f.layer(1, x), f.layer(1, x @ g.T)
        with_q, best = float((moved - h @ q.T).norm() / h.norm()), first_layer(f, g, x)
        require(best <= with_q, f"layer 1 misses by {best:.2e}, with Q only by {with_q:.2e}")
        shares.append(best / with_q)
    return f"{min(shares):.2f} to {max(shares):.2f} of the misfit of Q"


@claim.control(
    "converse: a compact set of weights",
    "outgoing weights that tend to 0: the error end to end tends to 0, that of layer 1 does not",
)
def faint_unit(draw: Draw) -> str:
    network, _ = planted_autoencoder(generator=draw)
    g, x, start, points = _mirror(), draw.normal(100, SIDE**2), draw.get_state(), []
    for outgoing in (1e-2, 1e-5):
        draw.set_state(start)  # the same row
        faint = with_faint_unit(network, outgoing, generator=draw)
        points.append((end_to_end(faint, g, x), first_layer(faint, g, x)))
    (_, before), (whole, after) = points
    require(whole < 1e-4 and after > 0.02, f"end to end {whole:.1e}, layer 1 {after:.1e}")
    require(abs(slope(*points)) < 0.01, f"slope {slope(*points):.3f}")
    return f"end to end {whole:.0e}, layer 1 {after:.2f} (before: {before:.2f})"


@claim.control(
    "converse: identifiable up to a finite group",
    "± pairs of GELU units: equivariant end to end, layer 1 for no matrix A_1 at all",
)
def gelu_pairs(draw: Draw) -> str:
    (pairs, swap), x = opposite_pairs("gelu", generator=draw), draw.normal(100, 2)
    whole, layer = (measured(pairs, swap.matrices[1], x) for measured in (end_to_end, first_layer))
    require(whole < 1e-12 and layer > 0.01, f"end to end {whole:.1e}, layer 1 {layer:.1e}")
    invisible = smallest_singular_value(pairs, x)
    require(invisible < 1e-12, f"the smallest singular value is {invisible:.1e}")
    return f"end to end {whole:.0e}, layer 1 {layer:.2f}"


@claim.control(
    "errors on fresh samples",
    "eight samples fit any eight units: the residual is zero though nothing is equivariant",
)
def fitted_samples(draw: Draw) -> str:
    plain, x = DeepMLP([draw.normal(8, SIDE**2), torch.eye(8)]), draw.normal(100, SIDE**2)
    h, moved = plain.layer(1, x), plain.layer(1, x @ _mirror().T)
    a = least_squares_action(h[:8], moved[:8])
    miss = (moved - h @ a.T).norm(dim=1)
    fit, fresh = (float(miss[part].norm() / h[part].norm()) for part in (slice(8), slice(8, None)))
    require(fit < 1e-6 and fresh > 0.1, f"fitted {fit:.1e}, fresh {fresh:.1e}")
    return f"fitted {fit:.0e}, fresh {fresh:.1f}"


@claim.control(
    "least squares: the sampled values of the layer span", "four samples of eight units: Q is not what fits"
)
def too_few_samples(draw: Draw) -> str:
    (network, q), x = planted_autoencoder(generator=draw), draw.normal(4, SIDE**2)
    fitted = least_squares_action(network.layer(1, x), network.layer(1, x @ _mirror().T))
    off = float((fitted - q).abs().max())
    require(off > 0.1, f"four samples give the planted signed permutation, to {off:.1e}")
    return f"off by {off:.2f}"


@claim.control(
    "layers to end to end: each misfit times the Lipschitz constants of the layers behind it",
    "layer 2 stretches: the error end to end is larger than the misfits added up",
)
def stretched_misfit(draw: Draw) -> str:
    (network, q), g, x = planted_autoencoder(generator=draw), _mirror(), draw.normal(100, SIDE**2)
    stretched = tilted(network, 10.0, generator=draw)
    error, _ = telescope(stretched, [g, q, g], x)
    misfit = (stretched.layer(1, x @ g.T) - stretched.layer(1, x) @ q.T).norm(dim=1)
    ratio = float((error / misfit).max())
    require(ratio > 1, f"the error is {ratio:.2f} of the misfit of layer 1, the only one")
    return f"{ratio:.1f} times the misfit"


@claim.control(
    "converse: no direction of the weights leaves the function as it is, infinitesimally",
    "f(x; θ) = θ³x on [−1, 1], moved by x ↦ −x: identifiable, and the weights err like the cube root",
)
def cube() -> str:
    thetas = 0.1, 0.01, 0.001
    # θ^g = −θ, and f(−x; θ) − f(x; θ) = −2θ³x
    points = [(2 * theta**3, 2 * theta) for theta in thetas]
    slopes = [slope(a, b) for a, b in pairwise(points)]
    require(all(abs(v - 1 / 3) < 1e-12 for v in slopes), f"slopes {slopes}")
    return f"slope {slopes[-1]:.4f} in place of 1"
