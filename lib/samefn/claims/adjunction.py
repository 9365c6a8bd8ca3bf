"""B-D4: moving the input is moving the weights.  Chapter ``equivariance/adjunction``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import models
from ..attention import random_attention
from ..equivariance import transport
from ..groups import cyclic, dihedral, on_images, permutation_representation
from .attention import skewed
from .model import attention_layers, random_deep
from . import Claim, Control, Evidence, require


def relative(a: Tensor, b: Tensor) -> float:
    """The largest difference relative to the largest entry."""
    return float((a - b).detach().abs().max() / b.detach().abs().max())


def convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution of (batch, c, n, n) with a kernel (c', c, 3, 3)."""
    return F.conv2d(F.pad(images, (1, 1, 1, 1), mode="circular"), kernel)


SPATIAL = {  # the moves of an image that a convolution turns into moves of its kernel
    "turn": lambda y: torch.rot90(y, dims=(-2, -1)),
    "mirror": lambda y: torch.flip(y, dims=(-1,)),
}


def deep_sets(x: Tensor, own: float, mean: float) -> Tensor:
    """The Deep Sets layer λx + γ·mean(x), one number per element of the set."""
    return own * x + mean * x.mean(-1, keepdim=True)


@cache
def rank_one_projections() -> str:
    """For n ≥ 3, the only rank-one projection αI + βJ/n is J/n: so g⁻¹(J/n)g = αI + βJ/n only if g commutes with J."""
    for n in (3, 4, 5):
        own, mean = sympy.symbols("own mean")
        matrix = own * sympy.eye(n) + mean * sympy.ones(n, n) / n
        spectrum = matrix.eigenvals()
        require(spectrum == {own: n - 1, own + mean: 1}, f"eigenvalues {spectrum}")
    return "eigenvalues α (n − 1 times) and α + β, n = 3, 4, 5 (SymPy)"


def householder() -> list[list[Fraction]]:
    """The reflection I − 2uuᵀ/u·u with u = (1, 1, 0, −2): it fixes (1, 1, 1, 1) and permutes nothing."""
    u = (1, 1, 0, -2)
    return [[Fraction(int(i == j)) - Fraction(2 * a * b, 6) for j, b in enumerate(u)] for i, a in enumerate(u)]


def squared_deviations(x: np.ndarray) -> np.ndarray:
    """The layer (x − mean)², a Deep Sets layer with λ = 1, γ = −1 and the square as activation."""
    return (x - x.sum() / len(x)) ** 2


@cache
def variance_weights() -> tuple[set, set]:
    """All (λ_1, γ_1/λ_1, λ_2, γ_2 λ_1²) for which two Deep Sets layers, the square between, compute the variance."""
    x = sympy.symbols("x1:5")
    own, ratio, last_own, last_mean = sympy.symbols("own ratio last_own last_mean")
    mean = sum(x) / 4
    hidden = [(own * (a + ratio * mean)) ** 2 for a in x]
    output = last_own * hidden[0] + last_mean * sum(hidden) / 4
    variance = sum((a - mean) ** 2 for a in x) / 4
    equations = sympy.Poly(sympy.expand(output - variance), *x).coeffs()
    solutions = sympy.solve(equations, [ratio, last_own, last_mean], dict=True)
    return {s[ratio] for s in solutions}, {s[last_own] for s in solutions}


@cache
def all_small_models() -> tuple[int, int]:
    """On all two-layer models over sets of 2 or 3 points with C_2: f(x; θ^g) = g f(g⁻¹x; θ), and the orbits are closed."""
    tried = closed = 0
    for n0, n1, n2 in itertools.product((2, 3), repeat=3):
        first, last = models.all_maps(n0, n1), models.all_maps(n1, n2)
        for a, b in itertools.product(_involutions(n0), _involutions(n2)):
            for theta in itertools.product(first, last):
                moved = models.transport(theta, a, b)
                wanted = models.compose(b, models.compose(models.function(theta), models.inverse(a)))
                require(models.function(moved) == wanted, f"θ^g of {theta} computes something else")
                tried += 1
        # Θ_1 an orbit of one map: adjunction; Θ_1 a single map that g moves: none
        a, b = _involutions(n0)[-1], tuple(range(n2))
        action_in, action_out = (tuple(range(n0)), a), (b, b)
        for f in first:
            orbit = tuple({f, models.compose(f, models.inverse(a))})
            full = models.DeepModel((n0, n1, n2), (orbit, tuple(last)), (models.symmetric(n1),))
            lone = models.DeepModel((n0, n1, n2), ((f,), tuple(last)), (models.symmetric(n1),))
            require(models.has_adjunction(full, action_in, action_out), "an orbit is not closed")
            require(models.has_adjunction(lone, action_in, action_out) is (len(orbit) == 1), "a moved map has no place to go")
            closed += 1
    return tried, closed


def _involutions(n: int) -> list[tuple[int, ...]]:
    return [p for p in itertools.permutations(range(n)) if all(p[p[i]] == i for i in range(n))]


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tried, closed = all_small_models()
    yield Evidence("exact", "f(x; θ^g) = g f(g⁻¹x; θ) for every model on sets of 2 and 3 points", f"{tried} models, {closed} orbits closed")

    group = (cyclic(2), cyclic(4), dihedral(4))[seed % 3]
    images = on_images(group, 3)
    network = random_deep("tanh", generator, (9, 5, 4, 9))
    x, worst = normal(50, 9), 0.0
    for g in images.matrices:
        moved = transport(network, g, g)
        worst = max(worst, relative(network.layer(1, x @ g.T), transport(network, g.T, g).layer(1, x)))
        worst = max(worst, relative(moved(x), network(x @ torch.linalg.inv(g).T) @ g.T))
    for g, h in itertools.product(group.generators, repeat=2):
        twice = transport(transport(network, images(h), images(h)), images(g), images(g))
        once = transport(network, images(group.product(g, h)), images(group.product(g, h)))
        require(all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(twice.weights, once.weights)), "θ^(gh) is not (θ^h)^g")
    require(worst < 1e-12, f"MLP: adjunction off by {worst:.1e}")
    yield Evidence("numeric", "MLP: adjunction at both ends, and θ ↦ θ^g is an action", f"{group.name}, relative difference {worst:.0e}")

    tokens, rho = 4, skewed(on_images(group, 2), generator)
    places = on_images(group, 2)  # the same group moves the four tokens
    layer = random_attention(2, 4, 3, 3, generator=generator)
    project, mix = attention_layers(layer)
    x, encodings, worst = normal(20, tokens, 4), normal(tokens, 4), 0.0
    for g, p in zip(rho.matrices, places.matrices):
        weights = torch.cat([layer.query, layer.key, layer.value], 1).detach()
        inward = (x @ g.T).unsqueeze(-3) @ weights.mT
        worst = max(worst, relative(x.unsqueeze(-3) @ (weights @ g).mT, inward))  # strict, on features
        worst = max(worst, relative(mix(p @ project(x)), p @ mix(project(x))))  # tokens are absorbed
        both = p @ x @ g.T
        encoded = project(both + encodings)
        carried = (x + p.T @ encodings @ torch.linalg.inv(g).T).unsqueeze(-3) @ (weights @ g).mT
        worst = max(worst, relative(p @ carried, encoded))
    require(worst < 1e-11, f"attention: off by {worst:.1e}")
    yield Evidence("numeric", "attention: features move W, token permutations move learned encodings", f"relative difference {worst:.0e}")

    kernel, y, worst = normal(2, 3, 3, 3), normal(5, 3, 6, 6), 0.0
    for move in SPATIAL.values():
        worst = max(worst, relative(convolve(move(y), move(kernel)), move(convolve(y, kernel))))
    shift = tuple(torch.randint(6, (2,), generator=generator).tolist())
    rolled = torch.roll(y, shift, (-2, -1))
    worst = max(worst, relative(convolve(rolled, kernel), torch.roll(convolve(y, kernel), shift, (-2, -1))))
    require(worst < 1e-12, f"convolution: off by {worst:.1e}")
    yield Evidence("numeric", "convolution: turns and mirrors move the kernel, shifts leave it", f"relative difference {worst:.0e}")
    yield Evidence("exact", "Deep Sets, n ≥ 3: J/n is the only rank-one projection αI + βJ/n", rank_one_projections())


def best_fit(target: Tensor, columns: Tensor) -> float:
    """The relative distance of ``target`` from the span of ``columns``, in least squares."""
    solution = torch.linalg.lstsq(columns, target).solution
    return float((columns @ solution - target).norm() / target.norm())


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    D4 = dihedral(4)
    plane = permutation_representation(D4)
    W = normal(3, 4)
    broken = sum(
        not torch.allclose(W @ plane(D4.product(g, h)), (W @ plane(h)) @ plane(g), rtol=0, atol=1e-9)
        for g, h in itertools.product(D4.elements, repeat=2)
    )
    require(broken > 0, "g·W = Wρ(g) is an action of D4")
    yield Control("the inverse in g·W = Wρ(g)⁻¹", "without it, g·(h·W) ≠ (gh)·W", f"{broken} of 64 pairs in D4")

    x, encodings, g = normal(200, 4), normal(1, 4), plane(D4.generators[0])
    target = (x @ g.T + encodings) @ W.T
    fixed = best_fit(target, x + encodings)
    learned = best_fit(target, torch.cat([x, torch.ones(200, 1, dtype=torch.float64)], 1))
    require(learned < 1e-12 < 1e-6 < fixed, f"learned {learned:.1e}, fixed {fixed:.1e}")
    yield Control("encodings that are parameters", "with fixed encodings no weights do for g⁻¹θ", f"best miss {fixed:.2f}, learned {learned:.0e}")

    pair = normal(100, 2)
    bent = torch.stack([pair[:, 0], pair[:, 0] ** 2 - pair[:, 1]], 1)  # an action of C_2, not linear
    w, b = normal(2), normal(1)
    miss = best_fit((bent @ w + b)[:, None], torch.cat([pair, torch.ones(100, 1, dtype=torch.float64)], 1))
    require(miss > 1e-6, f"an affine function fits a quadratic one to {miss:.1e}")
    yield Control("linear g", "(x, y) ↦ (x, x² − y): no weights compute w·gx + b", f"best miss {miss:.2f}")

    n = 3 + seed % 4
    lean = normal(n, n)
    own, mean = normal(2).abs() + 0.1
    layer = own * torch.eye(n, dtype=torch.float64) + mean / n
    basis = torch.stack([torch.eye(n, dtype=torch.float64).flatten(), torch.ones(n * n, dtype=torch.float64)], 1)
    strict = best_fit((layer @ torch.roll(torch.eye(n, dtype=torch.float64), 1, 0)).reshape(-1, 1), basis)
    general = best_fit((torch.linalg.inv(lean) @ layer @ lean).reshape(-1, 1), basis)
    require(min(strict, general) > 1e-9, f"strict {strict:.1e}, general {general:.1e}")
    yield Control("enough parameters: Deep Sets", "no λ', γ' do for g⁻¹θ", f"n = {n}: best miss {strict:.2f} (permutation), {general:.2f} (linear g)")

    H = np.array(householder())
    rng = np.random.default_rng(seed)
    point = np.array([Fraction(int(a), 7) for a in rng.integers(-20, 21, 4)])
    require(squared_deviations(H @ point).sum() == squared_deviations(point).sum(), "the variance is not invariant under H")
    spread = (point**2).sum() - point.sum() ** 2 / 4
    require(squared_deviations(point).sum() == spread, "the two layers do not compute the variance")
    ratios, own_weights = variance_weights()
    require(ratios == {-1} and own_weights == {0}, f"other weights compute the variance: {ratios}, {own_weights}")
    one, two = (np.array(p, dtype=object) * Fraction(1) for p in ((1, 1, -1, -1), (1, -1, 1, -1)))
    require((squared_deviations(one) == squared_deviations(two)).all(), "the layer tells the two points apart")
    require((squared_deviations(H @ one) != squared_deviations(H @ two)).any(), "the layer merges the two moved points")
    yield Control(
        "adjunction, in Part II's theorem",
        "variance as a Deep Sets network: invariant under H, weights determined, and layer 1 equivariant for no action at all",
        "f₁(x) = f₁(x') but f₁(Hx) ≠ f₁(Hx') (rational arithmetic)",
    )


CLAIM = Claim(
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
    evidence=evidence,
    controls=controls,
)
