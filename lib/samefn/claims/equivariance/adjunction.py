"""B-D4: moving the input is moving the weights.  Chapter ``equivariance/adjunction``."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from ...draw import Draw
from ...equivariance import finite
from ...equivariance import finite_examples as examples
from ...equivariance.adjunction import (
    convolve,
    deep_sets,
    householder,
    moved_encodings,
    squared_deviations,
    variance_weights,
)
from ...equivariance.attention import random_attention
from ...equivariance.groups import cyclic, dihedral, on_images, permutation_representation, symmetric
from ...equivariance.layerwise import transport
from ...equivariance.model import attention_layers
from ...equivariance.planted import random_deep
from ...equivariance.planted_attention import skewed
from .. import Claim, require

claim = Claim(
    id="B-D4",
    title="Adjunction of perceptrons, attention and convolutions: moving input and output is moving weights",
    source="[B], adjunction; the general form with given latent actions is spelt out by us",
    hypotheses=(
        "strict form, at both ends only: L ≥ 2",
        "g⁻¹ f_i(g y; θ_i) = f_i(y; g⁻¹θ_i), where G acts on all V_i and all Θ_i",
        "perceptron: g linear at both ends, or affine if the layer has biases",
        "attention: g linear on the features, tokens permuted; encodings, if any, are parameters",
        "convolution: images that wrap around; shifts, quarter turns, mirrors",
        "latent action in the general form: g K_i g⁻¹ = K_i",
        "which linear maps Deep Sets can take: n ≥ 3",
    ),
    uses=("B-D1",),
    chapter="equivariance/adjunction",
)
STRICT, GENERAL, PERCEPTRON, ATTENTION, CONVOLUTION, NORMAL, SETS = claim.hypotheses
D4 = dihedral(4)  # not commutative, so that a forgotten inverse shows


def _relative(a: Tensor, b: Tensor) -> float:
    """The largest difference relative to the largest entry of b."""
    return float((a - b).abs().max() / b.abs().max())


@claim.exact("general form, small sets, C₂ and S₃: wherever θ is identifiable, ρ = k⁻¹g is an action")
def latent_action() -> str:
    """Checked by brute force, as the equivariance of both layers is: no part of the proof is used."""
    still, swap, one = ((0, 1),) * 2, ((0, 1), (1, 0)), ((0,),) * 6
    ends = [(cyclic(2), *pair) for pair in itertools.product((still, swap), repeat=2)]
    three = symmetric(3)
    ends += [(three, three.elements, out) for out in (three.elements, one)]
    tried = 0
    for group, *pair in ends:
        for model, theta, actions in examples.general_cases(group, *pair, 3):
            (rho,) = examples.composed_actions(model, theta, actions)
            require(finite.is_action(group, rho), f"{group.name}: ρ = {rho} is no action")
            layers = zip(theta, (actions[0], rho), (rho, actions[2]), strict=True)
            require(
                all(finite.equivariant(*layer) for layer in layers), f"{theta} is not equivariant for {rho}"
            )
            tried += 1
    require(tried, "no identifiable parameter was found")
    return f"{tried:,} identifiable parameters of two-layer models, 0 exceptions"


@claim.numeric("perceptron, D₄ on images: adjunction at both ends, f(x; θ^g) = g f(g⁻¹x; θ)")
def perceptron_ends(draw: Draw) -> str:
    network, x, worst = random_deep("tanh", (9, 5, 4, 9), generator=draw), draw.normal(50, 9), 0.0
    for g in on_images(D4, 3).matrices:
        moved, inverse = transport(network, g, g), torch.linalg.inv(g)
        inward = transport(network, inverse, g).layer(1, x)
        worst = max(worst, _relative(network.layer(1, x @ g.T), inward))
        worst = max(worst, _relative(moved(x), network(x @ inverse.T) @ g.T))
    require(worst < 1e-12, f"perceptron: adjunction off by {worst:.1e}")
    return f"relative difference {worst:.0e}"


@claim.numeric("perceptron, D₄ on images: θ ↦ θ^g is an action on the parameters")
def perceptron_action(draw: Draw) -> str:
    images, network, worst = on_images(D4, 3), random_deep("tanh", (9, 5, 4, 9), generator=draw), 0.0
    for g, after in itertools.product(D4.elements, D4.generators):
        once = transport(network, images(g), images(g))
        both = images(D4.product(after, g))
        twice = transport(once, images(after), images(after))
        pairs = zip(twice.parameters(), transport(network, both, both).parameters(), strict=True)
        worst = max(worst, *(float((a - b).abs().max()) for a, b in pairs))
    require(worst < 1e-12, f"g'(gθ) is not (g'g)θ: off by {worst:.1e}")
    return f"largest difference {worst:.0e}"


@claim.numeric(
    "attention, D₄: features move W_Q, W_K, W_V and W_O; tokens are permuted, which moves encodings"
)
def attention_moves(draw: Draw) -> str:
    places = on_images(D4, 2)  # of four tokens
    layer, worst = random_attention(2, 4, 3, 3, generator=draw), 0.0
    project, mix = attention_layers(layer)
    weights = torch.cat([layer.query, layer.key, layer.value], 1)
    x, encodings = draw.normal(20, 4, 4), draw.normal(4, 4)
    y = project(x)
    for g, p in zip(skewed(places, generator=draw).matrices, places.matrices, strict=True):
        layer_2 = attention_layers(type(layer)(layer.query, layer.key, layer.value, g @ layer.output))[1]
        carried = moved_encodings(encodings, p.mT, torch.linalg.inv(g))
        inward = (x + carried).unsqueeze(-3) @ (weights @ g).mT
        worst = max(worst, _relative(p @ inward, project(p @ x @ g.T + encodings)))
        worst = max(worst, _relative(layer_2(y), mix(y) @ g.T), _relative(mix(p @ y), p @ mix(y)))
    require(worst < 1e-11, f"attention: off by {worst:.1e}")
    return f"relative difference {worst:.0e}"


@claim.numeric("convolution: turns and mirrors move the kernel, shifts leave it")
def convolution_moves(draw: Draw) -> str:
    kernel, y = draw.normal(2, 3, 3, 3), draw.normal(5, 3, 6, 6)
    moves = (lambda a: torch.rot90(a, dims=(-2, -1)), lambda a: torch.flip(a, dims=(-1,)))
    worst = max(_relative(convolve(move(y), move(kernel)), move(convolve(y, kernel))) for move in moves)
    for shift in ((1, 0), tuple(draw.integers(0, 6, 2).tolist())):
        rolled = torch.roll(convolve(y, kernel), shift, (-2, -1))
        worst = max(worst, _relative(convolve(torch.roll(y, shift, (-2, -1)), kernel), rolled))
    require(worst < 1e-12, f"convolution: off by {worst:.1e}")
    return f"relative difference {worst:.0e}"


def _matrices(n: int) -> np.ndarray:
    """Every invertible n × n matrix of −1, 0 and 1."""
    every = np.array(list(itertools.product((-1, 0, 1), repeat=n * n))).reshape(-1, n, n)
    return every[np.abs(np.linalg.det(every)) > 0.5]


def _taken(g: np.ndarray, layer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each g whether g⁻¹ · layer · g = p I + q J for some p, q, and whether it is ``layer`` itself.

    In integers: multiplied by det g, which the adjugate does.
    """
    det = np.rint(np.linalg.det(g))[:, None, None]
    conjugate = np.rint(np.linalg.inv(g) * det) @ layer @ g
    n = layer.shape[-1]
    off, eye = conjugate[:, 0, 1, None, None], np.eye(n)
    form = (conjugate == off + (conjugate[:, 0, 0, None, None] - off) * eye).all((1, 2))
    return form, (conjugate == det * layer).all((1, 2))


@claim.exact("Deep Sets, n = 3, every invertible matrix of −1, 0, 1: a layer stays a layer iff gJ = Jg")
def deep_sets_takes_its_own() -> str:
    g, layer = _matrices(3), deep_sets(2, 5, 3)
    form, fixed = _taken(g, layer)
    require((form == fixed).all(), f"{(form != fixed).sum()} matrices move the layer to another one")
    require(0 < fixed.sum() < len(g), "all matrices or none commute with J")
    return f"{len(g):,} matrices, {fixed.sum()} commute with J (integers)"


@claim.control(SETS, "n = 2: other matrices take the layer to a layer with other weights")
def two_elements() -> str:
    form, fixed = _taken(_matrices(2), deep_sets(2, 5, 2))
    require(not fixed[form].all(), "for n = 2 too, only gJ = Jg")
    return f"{(form & ~fixed).sum()} matrices of −1, 0, 1 that do not commute with J"


@claim.control(STRICT, "one layer f(x; θ) = θx and g = −1: both equations hold, but f(x; θ^g) ≠ g f(g⁻¹x; θ)")
def one_layer() -> str:
    f = lambda x, theta: theta * x
    points = list(itertools.product(range(-2, 3), repeat=2))
    inward = all(f(-x, theta) == f(x, -theta) for x, theta in points)
    outward = all(-f(x, theta) == f(x, -theta) for x, theta in points)
    apart = sum(f(x, -theta) != -f(-x, theta) for x, theta in points)
    require(inward and outward and apart, f"equations {inward}, {outward}; {apart} points differ")
    return f"at {apart} of {len(points)} integer points"


@claim.control(NORMAL, "C₂ on five hidden points: θ is identifiable, and k⁻¹g has order 6")
def not_normalised() -> str:
    model, theta, actions = examples.not_normalised()
    require(finite.equivariant(finite.function(theta), actions[0], actions[2]), "f is not equivariant")
    require(model.identifiable(theta), "θ is not identifiable")
    require(not examples.normalised(model.symmetries[0], actions[1]), "the action normalises K_1")
    (rho,) = examples.composed_actions(model, theta, actions)
    require(not finite.is_action(cyclic(2), rho), "k⁻¹g is an action of C₂")
    return f"k⁻¹g = {rho[1]}"


@claim.control("the inverse in g·W = Wρ(g)⁻¹", "without it, g'(gW) ≠ (g'g)W")
def no_inverse(draw: Draw) -> str:
    W, plane = draw.normal(3, 4), permutation_representation(D4)
    pairs = list(itertools.product(D4.elements, repeat=2))
    twice = [(W @ plane(g)) @ plane(after) for after, g in pairs]
    once = [W @ plane(D4.product(after, g)) for after, g in pairs]
    broken = sum(not torch.allclose(a, b, rtol=0, atol=1e-9) for a, b in zip(twice, once, strict=True))
    require(broken > 0, "g·W = Wρ(g) is an action of D4")
    return f"{broken} of {len(pairs)} pairs in D₄"


def _best_fit(target: Tensor, columns: Tensor) -> float:
    """The relative distance of ``target`` from the span of ``columns``, in least squares."""
    solution = torch.linalg.lstsq(columns, target).solution
    return float((columns @ solution - target).norm() / target.norm())


@claim.control(ATTENTION, "with fixed encodings no weights do for g⁻¹θ")
def fixed_encodings(draw: Draw) -> str:
    W, x, encodings = draw.normal(3, 4), draw.normal(200, 4), draw.normal(1, 4)
    target = (x @ permutation_representation(D4)(D4.generators[0]).T + encodings) @ W.T
    fixed = _best_fit(target, x + encodings)
    learned = _best_fit(target, torch.cat([x, torch.ones(200, 1)], 1))
    require(learned < 1e-12 < 1e-6 < fixed, f"learned {learned:.1e}, fixed {fixed:.1e}")
    return f"best miss {fixed:.2f}, learned {learned:.0e}"


@claim.control(PERCEPTRON, "(x, y) ↦ (x, x² − y): no weights compute w·gx + b")
def bent_action(draw: Draw) -> str:
    pair, w, b = draw.normal(100, 2), draw.normal(2), draw.normal(1)
    bent = torch.stack([pair[:, 0], pair[:, 0] ** 2 - pair[:, 1]], 1)  # an action of C_2, not linear
    miss = _best_fit((bent @ w + b)[:, None], torch.cat([pair, torch.ones(100, 1)], 1))
    require(miss > 1e-6, f"an affine function fits a quadratic one to {miss:.1e}")
    return f"best miss {miss:.2f}"


@claim.control(CONVOLUTION, "zeros around the image: no kernel does for a shift")
def padded_with_zeros(draw: Draw) -> str:
    kernel, y = draw.normal(1, 1, 3, 3), draw.normal(8, 1, 6, 6)
    padded = lambda images, weights: torch.nn.functional.conv2d(images, weights, padding=1)
    target = padded(torch.roll(y, 1, -1), kernel).roll(-1, -1).reshape(-1, 1)
    every = torch.stack([padded(y, w.view(1, 1, 3, 3)).flatten() for w in torch.eye(9)], 1)
    miss = _best_fit(target, every)
    require(miss > 1e-6, f"some kernel fits to {miss:.1e}")
    return f"best miss {miss:.2f}"


VARIANCE = "variance as a Deep Sets network: "


@claim.control(GENERAL, VARIANCE + "invariant under H, and the weights are determined")
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


@claim.control(GENERAL, VARIANCE + "layer 1 is equivariant for no action at all")
def variance_has_no_latent_action() -> str:
    H = np.array(householder())
    one, two = (np.array(p, dtype=object) * Fraction(1) for p in ((1, 1, -1, -1), (1, -1, 1, -1)))
    same = (squared_deviations(one) == squared_deviations(two)).all()
    require(same, "the layer tells the two points apart")
    apart = (squared_deviations(H @ one) != squared_deviations(H @ two)).any()
    require(apart, "the layer merges the two moved points")
    return "f₁(x) = f₁(x') but f₁(Hx) ≠ f₁(Hx') (rational arithmetic)"
