"""B-MLP: layerwise equivariance of multilayer perceptrons, constructed.  Chapter ``equivariance/mlp``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from ...draw import Draw
from ...equivariance.alignment import random_symmetry
from ...equivariance.groups import Representation
from ...equivariance.layerwise import (
    NotEquivariant,
    NotIdentifiable,
    equivariance_error,
    latent_actions,
    layer_errors,
)
from ...equivariance.mlp import closest_permutation, invertible_integer_matrices
from ...equivariance.planted import equivariant_network, groups, opposite_pairs, with_spare_units
from ...equivariance.redundancy import reduce
from ...networks import DeepMLP
from .. import Claim, ClaimFailed, require

claim = Claim(
    id="B-MLP",
    title="Latent representations of an equivariant MLP can be computed, "
    "and are signed permutations for tanh",
    source="[B], Section on MLPs; the algorithm and the ReLU proof are ours",
    hypotheses=(
        "the network is equivariant end to end",
        "reduced by removing inactive, constant and cloned units",
        "identifiable up to the units' symmetries (tanh: proved)",
        "ReLU: one hidden layer, W₁ and W₂ square and invertible",
    ),
    uses=("B-D2", "B-D3", "B-D4", "B-T4.1"),
    chapter="equivariance/mlp",
)


@claim.exact(
    "ReLU(Az) = B ReLU(z) only for permutations with positive factors: "
    "every invertible A of −1, …, 3 (2×2) or −1, 0, 1 (3×3)"
)
def matrices_through_relu() -> str:
    counts = []
    for n, largest in ((2, 3), (3, 1)):
        A = invertible_integer_matrices(n, largest)
        z = np.array(list(itertools.product(range(-2, 3), repeat=n))).T
        B = np.maximum(A, 0)  # read off at the basis vectors
        passes = (np.maximum(A @ z, 0) == B @ np.maximum(z, 0)).all(axis=(1, 2))
        monomial = (A >= 0).all(axis=(1, 2)) & ((A != 0).sum(1) == 1).all(1)
        wrong = A[passes != monomial]
        require(not len(wrong), f"ReLU commutes with another matrix, or not with one of these:\n{wrong[:1]}")
        counts.append(f"{int(passes.sum())} of {len(A)} invertible {n}×{n}")
    return ", ".join(counts) + " matrices"


def _instances(draw: Draw) -> Iterator[tuple[str, DeepMLP, list[Representation]]]:
    """Equivariant networks with one hidden layer and with 2 to 5, and the representations of their layers."""
    for depth in (1, draw.integer(2, 6)):
        group = draw.choice(groups())
        yield f"{group.name} depth {depth}", *equivariant_network(group, depth, generator=draw)


@claim.certificate("planted signed permutation representations come back exactly after scrambling")
def planted_actions(draw: Draw) -> str:
    tried = []
    for name, network, reps in _instances(draw):
        scramble = random_symmetry(network, generator=draw)
        found = latent_actions(scramble.apply(network), reps[0], reps[-1])
        require(len(found) == len(network.widths), f"{name}: {len(found)} representations")
        for rho, known, k in zip(found, reps[1:-1], scramble.matrices(), strict=True):
            same = torch.equal(rho.matrices, k @ known.matrices @ k.T)
            require(same, f"{name}: another action came back")
        tried.append(name)
    return ", ".join(tried)


@claim.numeric("with clones and inactive units: every layer is equivariant")
def spare_units(draw: Draw) -> str:
    tried, worst = [], 0.0
    for name, network, reps in _instances(draw):
        large = with_spare_units(network, ("clone", "inactive"), generator=draw)
        large = random_symmetry(large, generator=draw).apply(large)
        found = latent_actions(large, reps[0], reps[-1])
        fits = all(r.dimension == n for r, n in zip(found, large.widths, strict=True))
        require(fits, f"{name}: an action on the wrong space")
        rhos = [reps[0], *found, reps[-1]]
        worst = max(worst, *layer_errors(reduce(large).embed(), rhos, generator=draw))
        tried.append(name)
    require(worst < 1e-10, f"{', '.join(tried)}: a layer misses equivariance by {worst:.1e}")
    return f"{', '.join(tried)}: largest error {worst:.0e}"


@claim.numeric("each such matrix does occur for ReLU: f∘ρ = ρ'∘f with W₁ρW₁⁻¹ = P")
def every_monomial_matrix_occurs(draw: Draw) -> str:
    d, (w1, w2) = 3, draw.normal(2, 3, 3)
    p = torch.diag(draw.uniform(d) + 0.5)[draw.permutation(d)]
    rho, rho_out = torch.linalg.solve(w1, p @ w1), w2 @ p @ torch.linalg.inv(w2)
    x = draw.normal(50, d)
    y, moved = torch.relu(x @ w1.T) @ w2.T, torch.relu(x @ rho.T @ w1.T) @ w2.T
    condition = float(torch.linalg.cond(w1) * torch.linalg.cond(w2))
    off = float((moved - y @ rho_out.T).norm() / y.norm())
    require(off < 1e-13 * condition, f"f(ρx) and ρ'f(x) differ by {off:.1e} at condition {condition:.0f}")
    return f"relative difference {off:.0e}"


def _pairs(activation: str, draw: Draw) -> str:
    (network, swap), x = opposite_pairs(activation, generator=draw), draw.normal(200, 2)
    whole = equivariance_error(network, swap, swap, x)
    require(whole < 1e-12, f"{activation}: not equivariant end to end, {whole:.1e}")
    miss = closest_permutation(network, swap, x)
    require(miss > 0.05, f"{activation}: a permutation makes layer 1 equivariant to {miss:.1e}")
    try:
        latent_actions(network, swap, swap)
    except NotIdentifiable:
        return f"end to end {whole:.0e}, layer 1 at best {miss:.2f} over all 24"
    raise ClaimFailed(f"{activation}: latent_actions did not refuse")


PAIRS = "equivariant end to end, layer 1 for no permutation with positive factors; latent_actions refuses"


@claim.control("identifiability: ± pairs of relu units", PAIRS)
def relu_pairs(draw: Draw) -> str:
    return _pairs("relu", draw)


@claim.control("identifiability: ± pairs of gelu units", PAIRS)
def gelu_pairs(draw: Draw) -> str:
    return _pairs("gelu", draw)


@claim.control("W₂ invertible", "f(ρx) = f(x) although W₁ρW₁⁻¹ has two nonzero entries in a row")
def blind_second_layer(draw: Draw) -> str:
    # W_1 = I, W_2 = (v, 0): the second unit has no effect, so ρ may do anything to it
    w2 = torch.cat([draw.integers(1, 9, 2, 1).double(), torch.zeros(2, 1)], 1)
    rho, x = torch.tensor([[1.0, 0], [draw.integer(1, 9), -1]]), draw.normal(200, 2)
    require(torch.equal(torch.relu(x @ rho.T) @ w2.T, torch.relu(x) @ w2.T), "f(ρx) is not f(x)")
    require((rho[1] != 0).sum() == 2, "ρ is a permutation with factors")
    return "equal on 200 inputs"


@claim.control("equivariance end to end", "one weight moved by 0.1: refused")
def one_weight_moved(draw: Draw) -> str:
    network, reps = equivariant_network(groups()[-2], 2, generator=draw)
    layers = network.layers
    weight = layers.weights[1].clone()
    weight[0, 0] += 0.1
    try:
        latent_actions(network.rebuilt(layers.replaced(1, weight)), reps[0], reps[-1])
    except NotEquivariant as refusal:
        return str(refusal).split(": ", 1)[1]
    raise ClaimFailed("a network that is not equivariant was not refused")
