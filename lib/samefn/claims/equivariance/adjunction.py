"""B-D4: moving the input is moving the weights.  Chapter ``equivariance/adjunction``."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import sympy
import torch
from torch import Tensor

from ...draw import Draw
from ...equivariance import finite
from ...equivariance.adjunction import convolve, householder, squared_deviations, variance_weights
from ...equivariance.attention import random_attention
from ...equivariance.groups import cyclic, dihedral, on_images, permutation_representation, symmetric
from ...equivariance.layerwise import transport
from ...equivariance.model import attention_layers
from ...equivariance.planted import random_deep
from ...equivariance.planted_attention import skewed
from .. import Claim, require

claim = Claim(
    id="B-D4",
    title="Adjunction: moving input or output is moving the first or last layer's weights",
    source="[B], adjunction; the general form with given latent actions is spelt out by us",
    hypotheses=(
        "f_i(g·y; θ_i) = g·f_i(y; g⁻¹·θ_i)",
        "MLP: g linear at both ends",
        "attention: g linear on features; tokens permuted; encodings learned",
        "convolution: shifts, turns, mirrors",
    ),
    uses=("B-D1",),
    chapter="equivariance/adjunction",
)


def _relative(a: Tensor, b: Tensor) -> float:
    """The largest difference relative to the largest entry of b."""
    return float((a - b).abs().max() / b.abs().max())


def _involutions(n: int) -> list[tuple[int, ...]]:
    return [p for p in itertools.permutations(range(n)) if all(p[p[i]] == i for i in range(n))]


@claim.exact("f(x; θ^g) = g f(g⁻¹x; θ) for every two-layer model on sets of 2 and 3 points, every g")
def every_small_model() -> str:
    tried = 0
    for n0, n1, n2 in itertools.product((2, 3), repeat=3):
        parameters = list(itertools.product(finite.all_maps(n0, n1), finite.all_maps(n1, n2)))
        moves = (symmetric(n0).elements, symmetric(n2).elements)
        for a, b, theta in itertools.product(*moves, parameters):
            moved = finite.function(finite.transport(theta, a, b))
            wanted = finite.compose(b, finite.compose(finite.function(theta), finite.inverse(a)))
            require(moved == wanted, f"θ^g of {theta} computes something else")
            tried += 1
    return f"{tried} models"


@claim.exact("sets of 2 and 3 points: orbits under C_2 are closed, a single moved map is not")
def orbits_are_closed() -> str:
    closed = 0
    for n0, n1, n2 in itertools.product((2, 3), repeat=3):
        stay, swap, end = tuple(range(n0)), _involutions(n0)[-1], tuple(range(n2))
        last, K = tuple(finite.all_maps(n1, n2)), (symmetric(n1),)
        for f in finite.all_maps(n0, n1):
            orbit = tuple({f, finite.compose(f, finite.inverse(swap))})
            for maps, adjoint in ((orbit, True), ((f,), len(orbit) == 1)):
                model = finite.DeepModel((n0, n1, n2), (maps, last), K)
                found = model.has_adjunction((stay, swap), (end, end))
                require(found is adjoint, f"Θ_1 = {maps}: adjunction {found}")
            closed += 1
    return f"{closed} orbits"


@claim.numeric("MLP: adjunction at both ends")
def mlp_ends(draw: Draw) -> str:
    group = draw.choice((cyclic(2), cyclic(4), dihedral(4)))
    network, x, worst = random_deep("tanh", (9, 5, 4, 9), generator=draw), draw.normal(50, 9), 0.0
    for g in on_images(group, 3).matrices:
        moved, inverse = transport(network, g, g), torch.linalg.inv(g)
        inward = transport(network, inverse, g).layer(1, x)
        worst = max(worst, _relative(network.layer(1, x @ g.T), inward))
        worst = max(worst, _relative(moved(x), network(x @ inverse.T) @ g.T))
    require(worst < 1e-12, f"MLP: adjunction off by {worst:.1e}")
    return f"{group.name}, relative difference {worst:.0e}"


@claim.numeric("MLP: θ ↦ θ^g is an action")
def mlp_action(draw: Draw) -> str:
    group = draw.choice((cyclic(2), cyclic(4), dihedral(4)))
    images, network, worst = on_images(group, 3), random_deep("tanh", (9, 5, 4, 9), generator=draw), 0.0
    for g, h in itertools.product(group.elements, repeat=2):
        twice = transport(transport(network, images(h), images(h)), images(g), images(g))
        gh = images(group.product(g, h))
        pairs = zip(twice.parameters(), transport(network, gh, gh).parameters(), strict=True)
        worst = max(worst, *(float((a - b).abs().max()) for a, b in pairs))
    require(worst < 1e-12, f"θ^(gh) is not (θ^h)^g: off by {worst:.1e}")
    return f"{group.name}, largest difference {worst:.0e}"


@claim.numeric("attention: features move W, token permutations move learned encodings")
def attention_moves(draw: Draw) -> str:
    places = on_images(
        draw.choice((cyclic(2), cyclic(4), dihedral(4))), 2
    )  # the same group moves the four tokens
    layer, worst = random_attention(2, 4, 3, 3, generator=draw), 0.0
    project, mix = attention_layers(layer)
    weights = torch.cat([layer.query, layer.key, layer.value], 1)
    x, encodings = draw.normal(20, 4, 4), draw.normal(4, 4)
    for g, p in zip(skewed(places, generator=draw).matrices, places.matrices, strict=True):
        inward = (x @ g.T).unsqueeze(-3) @ weights.mT
        worst = max(worst, _relative(x.unsqueeze(-3) @ (weights @ g).mT, inward))  # strict, on features
        worst = max(worst, _relative(mix(p @ project(x)), p @ mix(project(x))))  # tokens are absorbed
        encoded = project(p @ x @ g.T + encodings)
        carried = (x + p.T @ encodings @ torch.linalg.inv(g).T).unsqueeze(-3) @ (weights @ g).mT
        worst = max(worst, _relative(p @ carried, encoded))
    require(worst < 1e-11, f"attention: off by {worst:.1e}")
    return f"relative difference {worst:.0e}"


@claim.numeric("convolution: turns and mirrors move the kernel, shifts leave it")
def convolution_moves(draw: Draw) -> str:
    kernel, y = draw.normal(2, 3, 3, 3), draw.normal(5, 3, 6, 6)
    moves = (lambda a: torch.rot90(a, dims=(-2, -1)), lambda a: torch.flip(a, dims=(-1,)))
    worst = max(_relative(convolve(move(y), move(kernel)), move(convolve(y, kernel))) for move in moves)
    shift = tuple(draw.integers(0, 6, 2).tolist())
    rolled = torch.roll(convolve(y, kernel), shift, (-2, -1))
    worst = max(worst, _relative(convolve(torch.roll(y, shift, (-2, -1)), kernel), rolled))
    require(worst < 1e-12, f"convolution: off by {worst:.1e}")
    return f"relative difference {worst:.0e}"


@claim.exact("Deep Sets, n = 3, 4, 5: J/n is the only rank-one projection αI + βJ/n")
def rank_one_projections() -> str:
    # so g⁻¹(J/n)g = αI + βJ/n only if g commutes with J
    own, mean = sympy.symbols("own mean")
    for n in (3, 4, 5):
        spectrum = (own * sympy.eye(n) + mean * sympy.ones(n, n) / n).eigenvals()
        require(spectrum == {own: n - 1, own + mean: 1}, f"eigenvalues {spectrum}")
    return "eigenvalues α (n − 1 times) and α + β (SymPy)"


def _best_fit(target: Tensor, columns: Tensor) -> float:
    """The relative distance of ``target`` from the span of ``columns``, in least squares."""
    solution = torch.linalg.lstsq(columns, target).solution
    return float((columns @ solution - target).norm() / target.norm())


@claim.control("the inverse in g·W = Wρ(g)⁻¹", "without it, g·(h·W) ≠ (gh)·W")
def no_inverse(draw: Draw) -> str:
    D4, W = dihedral(4), draw.normal(3, 4)
    plane, pairs = permutation_representation(D4), list(itertools.product(D4.elements, repeat=2))
    twice = [(W @ plane(h)) @ plane(g) for g, h in pairs]
    once = [W @ plane(D4.product(g, h)) for g, h in pairs]
    broken = sum(not torch.allclose(a, b, rtol=0, atol=1e-9) for a, b in zip(twice, once, strict=True))
    require(broken > 0, "g·W = Wρ(g) is an action of D4")
    return f"{broken} of {len(pairs)} pairs in D4"


@claim.control("encodings that are parameters", "with fixed encodings no weights do for g⁻¹θ")
def fixed_encodings(draw: Draw) -> str:
    D4, W = dihedral(4), draw.normal(3, 4)
    x, encodings, g = draw.normal(200, 4), draw.normal(1, 4), permutation_representation(D4)(D4.generators[0])
    target = (x @ g.T + encodings) @ W.T
    fixed = _best_fit(target, x + encodings)
    learned = _best_fit(target, torch.cat([x, torch.ones(200, 1)], 1))
    require(learned < 1e-12 < 1e-6 < fixed, f"learned {learned:.1e}, fixed {fixed:.1e}")
    return f"best miss {fixed:.2f}, learned {learned:.0e}"


@claim.control("linear g", "(x, y) ↦ (x, x² − y): no weights compute w·gx + b")
def bent_action(draw: Draw) -> str:
    pair, w, b = draw.normal(100, 2), draw.normal(2), draw.normal(1)
    bent = torch.stack([pair[:, 0], pair[:, 0] ** 2 - pair[:, 1]], 1)  # an action of C_2, not linear
    miss = _best_fit((bent @ w + b)[:, None], torch.cat([pair, torch.ones(100, 1)], 1))
    require(miss > 1e-6, f"an affine function fits a quadratic one to {miss:.1e}")
    return f"best miss {miss:.2f}"


@claim.control("enough parameters: Deep Sets", "no λ', γ' do for g⁻¹θ")
def deep_sets_has_too_few(draw: Draw) -> str:
    n = draw.integer(3, 7)
    lean, (own, mean), eye = draw.normal(n, n), draw.normal(2).abs() + 0.1, torch.eye(n)
    layer, basis = own * eye + mean / n, torch.stack([eye.flatten(), torch.ones(n * n)], 1)
    strict = _best_fit((layer @ torch.roll(eye, 1, 0)).reshape(-1, 1), basis)
    general = _best_fit((torch.linalg.inv(lean) @ layer @ lean).reshape(-1, 1), basis)
    require(min(strict, general) > 1e-9, f"strict {strict:.1e}, general {general:.1e}")
    return f"n = {n}: best miss {strict:.2f} (permutation), {general:.2f} (linear g)"


VARIANCE = "variance as a Deep Sets network: "


@claim.control(
    "adjunction, in Part II's theorem", VARIANCE + "invariant under H, and the weights are determined"
)
def variance_is_invariant(draw: Draw) -> str:
    point = np.array([Fraction(a, 7) for a in draw.integers(-20, 21, 4).tolist()])
    moved, spread = np.array(householder()) @ point, (point**2).sum() - point.sum() ** 2 / 4
    require(
        squared_deviations(moved).sum() == squared_deviations(point).sum(), "the variance changes under H"
    )
    require(squared_deviations(point).sum() == spread, "the two layers do not compute the variance")
    ratios, own_weights = variance_weights()
    require(ratios == {-1} and own_weights == {0}, f"other weights do: {ratios}, {own_weights}")
    return "rational arithmetic, and all solutions for the weights (SymPy)"


@claim.control("adjunction, in Part II's theorem", VARIANCE + "layer 1 is equivariant for no action at all")
def variance_has_no_latent_action() -> str:
    H = np.array(householder())
    one, two = (np.array(p, dtype=object) * Fraction(1) for p in ((1, 1, -1, -1), (1, -1, 1, -1)))
    same = (squared_deviations(one) == squared_deviations(two)).all()
    require(same, "the layer tells the two points apart")
    apart = (squared_deviations(H @ one) != squared_deviations(H @ two)).any()
    require(apart, "the layer merges the two moved points")
    return "f₁(x) = f₁(x') but f₁(Hx) ≠ f₁(Hx') (rational arithmetic)"
