"""B-MLP: layerwise equivariance of multilayer perceptrons, constructed.  Chapter ``equivariance/mlp``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..equivariance import NotEquivariant, NotIdentifiable, equivariance_error, latent_actions, symmetrise
from ..groups import (
    Group,
    Representation,
    cyclic,
    dihedral,
    direct_sum,
    permutation_representation,
    representation,
    symmetric,
)
from ..networks import DeepMLP
from ..symmetry import random_symmetry, reduce
from . import Claim, Control, Evidence, require


@cache
def groups() -> tuple[Group, ...]:
    """C_2 to C_12, D_4 and S_4."""
    return (*(cyclic(n) for n in range(2, 13)), dihedral(4), symmetric(4))


@cache
def points_and_signed_points(group: Group) -> Representation:
    """The permuted points, and once more the permuted points with the sign of the permutation."""
    points = permutation_representation(group)
    sign = torch.tensor([float(g.signature()) for g in group.elements], dtype=torch.float64)
    return direct_sum(points, Representation(group, sign[:, None, None] * points.matrices))


def equivariant_network(
    group: Group, depth: int, generator: torch.Generator
) -> tuple[DeepMLP, list[Representation]]:
    """A random tanh network with ``depth`` hidden layers, each layer equivariant, and its representations."""
    rho = points_and_signed_points(group)
    n = rho.dimension
    weights = [torch.randn(n, n, generator=generator, dtype=torch.float64) for _ in range(depth + 1)]
    biases = [torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(depth + 1)]
    network = symmetrise(DeepMLP(weights, biases, "tanh"), [rho] * (depth + 2))
    return network, [rho] * (depth + 2)


def with_spare_units(network: DeepMLP, generator: torch.Generator) -> DeepMLP:
    """The same function with two more units in each hidden layer: a negated clone of unit 0 and an inactive one."""
    weights = [w.detach() for w in network.weights]
    biases = [b.detach() for b in network.biases]
    for i in range(len(weights) - 1):
        idle = torch.randn(1, weights[i].shape[1] + 1, generator=generator, dtype=torch.float64)
        weights[i] = torch.cat([weights[i], -weights[i][:1], idle[:, :-1]])
        biases[i] = torch.cat([biases[i], -biases[i][:1], idle[:, -1]])
        share = torch.tensor([0.7] + [1.0] * (weights[i + 1].shape[1] - 1), dtype=torch.float64)
        clone, nothing = -0.3 * weights[i + 1][:, :1], torch.zeros(len(weights[i + 1]), 1, dtype=torch.float64)
        weights[i + 1] = torch.cat([weights[i + 1] * share, clone, nothing], 1)
    return DeepMLP(weights, biases, network.activations)


def layer_errors(network: DeepMLP, reps: list[Representation], generator: torch.Generator) -> list[float]:
    """How far each layer is from equivariance, on 20 random inputs of that layer."""
    return [
        equivariance_error(
            lambda y, i=i: network.layer(i + 1, y),
            reps[i],
            reps[i + 1],
            torch.randn(20, reps[i].dimension, generator=generator, dtype=torch.float64),
        )
        for i in range(len(reps) - 1)
    ]


def opposite_pairs(activation: str, generator: torch.Generator) -> tuple[DeepMLP, Representation]:
    """A⁻¹(σ(Ax) − σ(−Ax)) = x in the plane for a random A, and the mirror that swaps the coordinates.

    The rows of A lie 10° to 30° and 50° to 70° from the mirror's axis, so that none is near the mirror
    image of another or of its opposite, and A is far from singular.
    """
    draw = torch.rand(2, 2, generator=generator, dtype=torch.float64)
    angle = torch.deg2rad(torch.tensor([55.0, 95.0], dtype=torch.float64) + 20 * draw[0])
    a = torch.stack([angle.cos(), angle.sin()], 1) * (0.5 + 1.5 * draw[1])[:, None]
    inverse = torch.linalg.inv(a)
    network = DeepMLP([torch.cat([a, -a]), torch.cat([inverse, -inverse], 1)], activation=activation)
    mirror = groups()[0]
    swap = representation(mirror, {mirror.generators[0]: torch.tensor([[0, 1], [1, 0]], dtype=torch.float64)})
    return network, swap


def closest_permutation(network: DeepMLP, rho: Representation, x: Tensor) -> float:
    """How near layer 1 comes to equivariance with any permutation of its units, each with its best scale.

    The smallest relative error of f_1(ρ(g)x) against ρ_1 f_1(x) for the last element g, over all n! permutations.
    """
    before, after = network.layer(1, x), network.layer(1, x @ rho.matrices[-1].T)
    scale = ((after.T @ before) / (before**2).sum(0)).clamp(min=0)  # best factor of unit j as image of unit i
    errors = (after.T[:, None] - scale[:, :, None] * before.T[None]).square().sum(2)
    orders = torch.tensor(list(itertools.permutations(range(len(errors)))))
    least = errors[torch.arange(len(errors)), orders].sum(1).min()
    return float((least / after.square().sum()).sqrt())


@cache
def relu_matrices(n: int, largest: int) -> tuple[int, int]:
    """Exact: which invertible A of integers up to ``largest`` satisfy ReLU(Az) = B ReLU(z) for some B.

    Tries all A, with B read off at the basis vectors, on all z in {-2, …, 2}^n.  Returns how many
    invertible A there are and how many pass; requires that those are the permutations with positive factors.
    """
    entries = np.array(list(itertools.product(range(-1, largest + 1), repeat=n * n))).reshape(-1, n, n)
    determinant = (
        entries[:, 0, 0] * entries[:, 1, 1] - entries[:, 0, 1] * entries[:, 1, 0]
        if n == 2
        else (entries[:, 0] * np.cross(entries[:, 1], entries[:, 2])).sum(1)
    )
    entries = entries[determinant != 0]
    z = np.array(list(itertools.product(range(-2, 3), repeat=n))).T
    passes = (np.maximum(entries @ z, 0) == np.maximum(entries, 0) @ np.maximum(z, 0)).all(axis=(1, 2))
    monomial = (entries >= 0).all(axis=(1, 2)) & ((entries != 0).sum(1) == 1).all(1)
    require((passes == monomial).all(), f"ReLU commutes with another matrix:\n{entries[passes != monomial][:1]}")
    return len(entries), int(passes.sum())


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)

    (all_2, pass_2), (all_3, pass_3) = relu_matrices(2, 3), relu_matrices(3, 1)
    yield Evidence(
        "exact",
        "ReLU(Az) = B ReLU(z) only for permutations with positive factors, all small integer matrices",
        f"{pass_2} of {all_2} invertible 2×2, {pass_3} of {all_3} invertible 3×3 matrices",
    )

    tried, worst = [], 0.0
    for depth in (1, 2 + seed % 4):  # all depths to 5 with all groups, as the seed runs
        group = groups()[(seed + depth // 2) % len(groups())]
        network, reps = equivariant_network(group, depth, generator)
        scramble = random_symmetry(network, generator)
        found = latent_actions(scramble.apply(network), reps[0], reps[-1])
        require(len(found) == depth, f"{len(found)} representations for {depth} hidden layers")
        for rho, known, k in zip(found, reps[1:], scramble.matrices()):
            require(torch.equal(rho.matrices, k @ known.matrices @ k.T), f"{group.name}: another action came back")
        tried.append((depth, group.name))

        large = with_spare_units(network, generator)
        large = random_symmetry(large, generator).apply(large)
        found = latent_actions(large, reps[0], reps[-1])
        require(all(r.dimension == n for r, n in zip(found, large.widths)), "an action on the wrong space")
        errors = layer_errors(reduce(large).embed(), [reps[0], *found, reps[-1]], generator)
        worst = max(worst, *errors)
    require(worst < 1e-10, f"a layer misses equivariance by {worst:.1e}")
    depths = ", ".join(f"{name} depth {i}" for i, name in tried)
    yield Evidence("certificate", "planted signed permutation representations come back exactly after scrambling", depths)
    yield Evidence("numeric", "with clones and inactive units: every layer is equivariant", f"largest error {worst:.0e}")

    d = 3
    w1, w2 = (torch.randn(d, d, generator=generator, dtype=torch.float64) for _ in range(2))
    positive = torch.rand(d, generator=generator, dtype=torch.float64) + 0.5
    p = torch.diag(positive)[torch.randperm(d, generator=generator)]
    rho, rho_out = torch.linalg.solve(w1, p @ w1), w2 @ p @ torch.linalg.inv(w2)
    x = torch.randn(50, d, generator=generator, dtype=torch.float64)
    f = lambda y: torch.relu(y @ w1.T) @ w2.T  # noqa: E731
    condition = float(torch.linalg.cond(w1) * torch.linalg.cond(w2))
    gap = float((f(x @ rho.T) - f(x) @ rho_out.T).norm() / f(x).norm())
    require(gap < 1e-13 * condition, f"f(ρx) and ρ'f(x) differ by {gap:.1e} at condition {condition:.0f}")
    yield Evidence("numeric", "each such matrix does occur for ReLU: f∘ρ = ρ'∘f with W₁ρW₁⁻¹ = P", f"relative difference {gap:.0e}")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, 2, generator=generator, dtype=torch.float64)

    for activation in ("relu", "gelu"):
        network, swap = opposite_pairs(activation, generator)
        whole = equivariance_error(network, swap, swap, x)
        require(whole < 1e-12, f"{activation}: not equivariant end to end, {whole:.1e}")
        miss = closest_permutation(network, swap, x)
        require(miss > 0.05, f"{activation}: a permutation makes layer 1 equivariant to {miss:.1e}")
        try:
            latent_actions(network, swap, swap)
        except NotIdentifiable:
            yield Control(
                f"identifiability: ± pairs of {activation} units",
                "equivariant end to end, layer 1 for no permutation with positive factors; latent_actions refuses",
                f"end to end {whole:.0e}, layer 1 at best {miss:.2f} over all 24",
            )
        else:
            require(False, f"{activation}: latent_actions did not refuse")

    # W_1 = I, W_2 = (v, 0): the second unit has no effect, so ρ may do anything to it
    v = torch.randint(1, 9, (2, 1), generator=generator).to(torch.float64)
    w2 = torch.cat([v, torch.zeros(2, 1, dtype=torch.float64)], 1)
    rho = torch.tensor([[1, 0], [float(torch.randint(1, 9, (1,), generator=generator)), -1]], dtype=torch.float64)
    require(torch.equal(torch.relu(x @ rho.T) @ w2.T, torch.relu(x) @ w2.T), "f(ρx) is not f(x)")
    require((rho[1] != 0).sum() == 2, "ρ is a permutation with factors")
    yield Control("W₂ invertible", "f(ρx) = f(x) although W₁ρW₁⁻¹ has two nonzero entries in a row", "equal on 200 inputs")

    network, reps = equivariant_network(groups()[-2], 2, generator)
    weights = [w.detach().clone() for w in network.weights]
    weights[1][0, 0] += 0.1
    try:
        latent_actions(DeepMLP(weights, [b.detach() for b in network.biases], "tanh"), reps[0], reps[-1])
    except NotEquivariant as refusal:
        yield Control("equivariance end to end", "one weight moved by 0.1: refused", str(refusal).split(": ", 1)[1])
    else:
        require(False, "a network that is not equivariant was not refused")


CLAIM = Claim(
    id="B-MLP",
    title="Latent representations of an equivariant MLP can be computed, and are signed permutations for tanh",
    source="[B], Section on MLPs; the algorithm and the ReLU proof are ours",
    hypotheses=(
        "the network is equivariant end to end",
        "reduced by removing inactive, constant and cloned units",
        "identifiable up to the units' symmetries (tanh: proved)",
        "ReLU: one hidden layer, W₁ and W₂ square and invertible",
    ),
    uses=("B-D2", "B-D3", "B-D4", "B-T4.1"),
    chapter="equivariance/mlp",
    evidence=evidence,
    controls=controls,
)
