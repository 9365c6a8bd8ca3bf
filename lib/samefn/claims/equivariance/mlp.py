"""B-MLP: layerwise equivariance of multilayer perceptrons, constructed.  Chapter ``equivariance/mlp``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import torch

from ...activations import get
from ...draw import Draw
from ...equivariance.alignment import random_symmetry
from ...equivariance.groups import Representation
from ...equivariance.identifiable import exact_tanh
from ...equivariance.layerwise import (
    NotEquivariant,
    NotIdentifiable,
    equivariance_error,
    latent_actions,
    layer_errors,
)
from ...equivariance.mlp import closest_permutation, invertible_integer_matrices
from ...equivariance.planted import (
    as_sigmoid,
    equivariant_network,
    groups,
    opposite_pairs,
    with_spare_units,
)
from ...equivariance.redundancy import reduce
from ...functions import gap
from ...networks import DeepMLP
from .. import Claim, ClaimFailed, require

claim = Claim(
    id="B-MLP",
    title="Latent actions of an equivariant MLP can be computed, and permute and negate units for tanh",
    source="[B], Section on MLPs; the algorithm and the ReLU proof are ours",
    hypotheses=(
        "the network is equivariant end to end",
        "no constant and no cloned units",
        "determined by its function up to the units' symmetries (proved for reduced tanh networks "
        "with one hidden layer)",
        "ReLU, one hidden layer without biases: W₁ is square and invertible",
        "ReLU, one hidden layer without biases: W₂ is square and invertible",
    ),
    uses=("B-D2", "B-D3", "B-D4", "B-T4.1"),
    chapter="equivariance/mlp",
)
EQUIVARIANT, REDUCED, DETERMINED, SQUARE_1, SQUARE_2 = claim.hypotheses


@claim.exact(
    "tanh, 2 → n → 1, n ≤ 3, small weights: f∘g = ±f for a quarter turn or mirror g only if "
    "a signed permutation carries the weights"
)
def all_small_tanh_networks() -> str:
    forms = [form for form in itertools.product(range(-1, 2), repeat=3) if form[:2] > (0, 0)]  # one of ±
    grid = list(itertools.product(range(-2, 3), repeat=2))  # points x with e^{2x} = 2^grid

    def values(places: list[tuple[int, int]]) -> list[list[Fraction]]:
        scales = [[Fraction(2) ** (u * a + v * b + s) for a, b in places] for u, v, s in forms]
        return [[exact_tanh(1, scale, 1) for scale in row] for row in scales]

    common = math.lcm(*(value.denominator for row in values(grid) for value in row))
    integers = lambda places: np.array([[int(value * common) for value in row] for row in values(places)])
    outgoing = _outgoing(len(forms))
    here, equivariant = outgoing @ integers(grid), 0
    for turn in (lambda a, b: (-b, a), lambda a, b: (-a, b)):
        there = outgoing @ integers([turn(*place) for place in grid])
        carried = outgoing @ _carried(forms, turn)
        for sign in (1, -1):
            same = (there == sign * here).all(1)
            wrong = same != (carried == sign * outgoing).all(1)
            require(not wrong.any(), f"outgoing weights {outgoing[wrong][:1]} of the forms {forms}")
            equivariant += int(same.sum())
    require(equivariant, "no small network is equivariant")
    return f"{equivariant} equivariant among {4 * len(outgoing):,} cases"


def _outgoing(forms: int) -> np.ndarray:
    """Every choice of outgoing weights ±1, ±2 for one, two or three of the forms, and 0 for the others."""
    chosen = [units for n in (1, 2, 3) for units in itertools.combinations(range(forms), n)]
    rows = []
    for units in chosen:
        weights = np.array(list(itertools.product((-2, -1, 1, 2), repeat=len(units))))
        rows.append(np.zeros((len(weights), forms), dtype=int))
        rows[-1][:, units] = weights
    return np.concatenate(rows)


def _carried(forms: list[tuple[int, ...]], turn: Callable) -> np.ndarray:
    """The signed permutation of forms that g makes: u·gx + b is one of them, or the opposite of one."""
    matrix = np.zeros((len(forms), len(forms)), dtype=int)
    for i, (u, v, s) in enumerate(forms):
        (a, c), (b, d) = turn(1, 0), turn(0, 1)  # the columns of g
        moved = (u * a + v * c, u * b + v * d, s)
        sign = 1 if moved in forms else -1
        matrix[i, forms.index(tuple(sign * x for x in moved))] = sign
    return matrix


@claim.exact(
    "ReLU(Pz) = B ReLU(z) only for permutations with positive factors: "
    "every invertible P of −1, …, 3 (2×2) or −1, 0, 1 (3×3)"
)
def matrices_through_relu() -> str:
    counts, relu = [], get("relu")
    for n, largest in ((2, 3), (3, 1)):
        matrices = torch.from_numpy(invertible_integer_matrices(n, largest))
        z = torch.tensor(list(itertools.product(range(-2, 3), repeat=n))).T
        B = relu(matrices)  # read off at the basis vectors
        passes = (relu(matrices @ z) == B @ relu(z)).flatten(1).all(1)
        monomial = (matrices >= 0).flatten(1).all(1) & ((matrices != 0).sum(2) == 1).all(1)
        wrong = matrices[passes != monomial]
        require(not len(wrong), f"ReLU commutes with another matrix, or not with one of these:\n{wrong[:1]}")
        counts.append(f"{int(passes.sum())} of {len(matrices)} invertible {n}×{n}")
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


@claim.numeric("with clones and inactive units: θ' has the same function and equivariant layers")
def spare_units(draw: Draw) -> str:
    tried, worst, change = [], 0.0, 0.0
    for name, network, reps in _instances(draw):
        large = with_spare_units(network, ("clone", "inactive"), generator=draw)
        large = random_symmetry(large, generator=draw).apply(large)
        found, in_step = latent_actions(large, reps[0], reps[-1]), reduce(large).embed()
        fits = all(r.dimension == n for r, n in zip(found, large.widths, strict=True))
        require(fits, f"{name}: an action on the wrong space")
        change = max(change, gap(network, in_step, draw.normal(20, network.dim_in)))
        worst = max(worst, *layer_errors(in_step, [reps[0], *found, reps[-1]], generator=draw))
        tried.append(name)
    off = f"a layer misses equivariance by {worst:.0e}, the function changes by {change:.0e}"
    require(max(worst, change) < 1e-10, f"{', '.join(tried)}: {off}")
    return f"{', '.join(tried)}: {off}"


@claim.numeric("sigmoid: where tanh negates a unit, y becomes 1 − y, and every layer is equivariant")
def reflected_units(draw: Draw) -> str:
    tried, worst = [], 0.0
    for name, network, reps in _instances(draw):
        moved = random_symmetry(network, generator=draw).apply(network)
        other = as_sigmoid(moved)
        hidden = [rho.matrices for rho in latent_actions(moved, reps[0], reps[-1])]
        ends = [(rho.matrices, torch.zeros(len(rho.group), rho.dimension)) for rho in (reps[0], reps[-1])]
        moves = [ends[0], *((Q, (1 - Q.sum(2)) / 2) for Q in hidden), ends[1]]
        worst = max(worst, gap(network, other, draw.normal(20, network.dim_in)))
        for i, ((Q, shift), (after, shift_after)) in enumerate(itertools.pairwise(moves), 1):
            y = draw.uniform(20, 1, Q.shape[1])
            there = other.layer(i, (Q @ y[..., None])[..., 0] + shift)
            here = (after @ other.layer(i, y)[..., None])[..., 0] + shift_after
            worst = max(worst, float((there - here).abs().max() / here.abs().max()))
        tried.append(name)
    require(worst < 1e-10, f"{', '.join(tried)}: off by {worst:.1e}")
    return f"{', '.join(tried)}: off by {worst:.0e}"


@claim.numeric("each such matrix does occur for ReLU: f∘ρ = ρ'∘f with W₁ρW₁⁻¹ = P")
def every_monomial_matrix_occurs(draw: Draw) -> str:
    d, (w1, w2), relu = 3, draw.normal(2, 3, 3), get("relu")
    p = torch.diag(draw.uniform(d) + 0.5)[draw.permutation(d)]
    rho, rho_out = torch.linalg.solve(w1, p @ w1), w2 @ p @ torch.linalg.inv(w2)
    x = draw.normal(50, d)
    y, moved = relu(x @ w1.T) @ w2.T, relu(x @ rho.T @ w1.T) @ w2.T
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


@claim.control(DETERMINED, f"relu, opposite units: {PAIRS}")
def relu_pairs(draw: Draw) -> str:
    return _pairs("relu", draw)


@claim.control(DETERMINED, f"gelu, opposite units: {PAIRS}")
def gelu_pairs(draw: Draw) -> str:
    return _pairs("gelu", draw)


@claim.control(REDUCED, "four clones: k is not unique, and for most choices ρ = k⁻¹ is no representation")
def clones_in_a_circle(draw: Draw) -> str:
    u, v, s = draw.integers(1, 9, 3).tolist()
    rows = torch.tensor([[u, -v], [-v, u], *[[s, s]] * 4])  # x ↦ (x₂, x₁) swaps two units, fixes the clones
    carrying = [
        order for order in itertools.permutations(range(6)) if torch.equal(rows[list(order)], rows.flip(1))
    ]
    twice = [all(order[order[j]] == j for j in range(6)) for order in carrying]
    require((len(twice), sum(twice)) == (24, 10), f"{len(twice)} k, {sum(twice)} of order 2")
    return f"{len(twice)} k, {sum(twice)} with k² = I"


@claim.control(SQUARE_1, "five rows in the plane: f∘(−I) = B∘f, but layer 1 for no permutation with factors")
def dependent_rows(draw: Draw) -> str:
    v, w = draw.integers(1, 9, 2, 2) * torch.tensor([[1, 1], [1, -1]])  # not parallel
    rows = torch.stack([v + w, v, -v, w, -w])  # W₁, up to columns of zeros; W₂ = I
    B = torch.tensor([[1, -1, 1, -1, 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]])
    x = draw.integers(-9, 10, 100, 2)
    there, here = torch.relu(-x @ rows.T), torch.relu(x @ rows.T)
    require(torch.equal(there, here @ B.T) and torch.equal(B @ B, torch.eye(5).long()), "f(−x) is not B f(x)")
    parallel = rows[:, 0] * rows[0, 1] == rows[:, 1] * rows[0, 0]
    same_side = rows @ rows[0] < 0
    require(not (parallel & same_side).any(), "−(v + w) is a positive multiple of a row")
    return "equal on 100 inputs"


@claim.control(SQUARE_2, "f(ρx) = f(x) although W₁ρW₁⁻¹ has two nonzero entries in a row")
def blind_second_layer(draw: Draw) -> str:
    # W_1 = I, W_2 = (v, 0): the second unit has no effect, so ρ may do anything to it
    w2 = torch.cat([draw.integers(1, 9, 2, 1).double(), torch.zeros(2, 1)], 1)
    rho, x = torch.tensor([[1.0, 0], [draw.integer(1, 9), -1]]), draw.normal(200, 2)
    require(torch.equal(torch.relu(x @ rho.T) @ w2.T, torch.relu(x) @ w2.T), "f(ρx) is not f(x)")
    require((rho[1] != 0).sum() == 2, "ρ is a permutation with factors")
    return "equal on 200 inputs"


@claim.control(EQUIVARIANT, "one weight moved by 0.1: refused")
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
