"""B-D1: deep models, and the symmetries of their latent spaces.  Chapter ``equivariance/model``."""

from __future__ import annotations

import numpy as np
import torch

from ...activations import Activation, get, monomial
from ...draw import Draw
from ...equivariance import finite
from ...equivariance.alignment import random_symmetry
from ...equivariance.attention import MultiHeadAttention, random_attention
from ...equivariance.model import (
    attention_layers,
    attention_symmetry,
    carelessly_moved,
    end_to_end_gap,
    identity,
    layer_gap,
    mlp_layers,
    mlp_symmetry,
)
from ...equivariance.planted import random_deep
from .. import Claim, require

claim = Claim(
    id="B-D1",
    title="Deep models: moving the latent spaces by K_1 × … × K_{L−1} keeps the function",
    source="[B], Definition 1",
    hypotheses=("layer i of θ' is k_i f_i k_{i−1}⁻¹, for every i", "k_0 and k_L are the identity"),
    uses=(),
    chapter="equivariance/model",
)


@claim.exact("finite sets: k·θ has the function of θ, and k'·(k·θ) = (k'k)·θ")
def finite_models(draw: Draw) -> str:
    for _ in range(20):
        theta, k, other = finite.random_parameter(generator=draw)
        moved = finite.act(k, theta)
        require(
            finite.function(moved) == finite.function(theta), f"k = {k} changes the function of θ = {theta}"
        )
        product = [finite.compose(p, q) for p, q in zip(other, k, strict=True)]
        require(finite.act(other, moved) == finite.act(product, theta), "k'·(k·θ) is not (k'k)·θ")
        require(finite.act([finite.inverse(p) for p in k], moved) == theta, "k⁻¹·(k·θ) is not θ")
    return "20 random models, L = 3"


@claim.numeric("of 729 rows a the 7 with a·tanh(z) = tanh(b·z), some b, are 0 and ± the unit rows")
def signed_permutations_only(draw: Draw) -> str:
    tanh, z = get("tanh"), draw.normal(200, 3)
    rows = torch.cartesian_prod(*[torch.linspace(-2, 2, 9)] * 3)
    slopes = tanh(1e-6 * torch.eye(3)) @ rows.T / 1e-6  # the only b there can be, from the slopes at 0
    passes = (tanh(z) @ rows.T - tanh(z @ slopes)).abs().amax(0) < 1e-6
    wanted = (rows == rows.round()).all(1) & (rows.abs().sum(1) <= 1)
    require(torch.equal(passes, wanted), f"tanh lets through the rows {rows[passes].tolist()}")
    return f"{int(passes.sum())} rows pass"


def _units(activation: str | Activation, draw: Draw) -> str:
    network = random_deep(activation, generator=draw)
    symmetry = random_symmetry(network, generator=draw)
    layers, moved = mlp_layers(network), mlp_layers(symmetry.apply(network))
    points = [draw.normal(100, n) for n in (3, 5, 4)]
    miss = layer_gap(layers, moved, mlp_symmetry(symmetry), points)
    change = end_to_end_gap(layers, moved, points[0])
    require(max(miss, change) < 1e-9, f"a layer is off by {miss:.1e}, the function by {change:.1e}")
    return f"layers {miss:.1e}, function {change:.1e}"


@claim.numeric("MLP with gelu units, K_i: permutation")
def gelu_units(draw: Draw) -> str:
    return _units("gelu", draw)


@claim.numeric("MLP with tanh units, K_i: sign")
def tanh_units(draw: Draw) -> str:
    return _units("tanh", draw)


@claim.numeric("MLP with relu units, K_i: positive scaling")
def relu_units(draw: Draw) -> str:
    return _units("relu", draw)


@claim.numeric("MLP with monomial(3) units, K_i: nonzero scaling")
def cubic_units(draw: Draw) -> str:
    return _units(monomial(3), draw)


def _reflected(activation: str, centre: float, total: float, draw: Draw) -> str:
    """σ(centre − z) = total − σ(z): the first unit turned around, its value y replaced by total − y."""
    network = random_deep(activation, generator=draw)
    layers = network.layers
    (rows, after), bias = (w.clone() for w in layers.weights[:2]), layers.biases[0].clone()
    rows[0], bias[0], after[:, 0] = -rows[0], centre - bias[0], -after[:, 0]
    shift = layers.biases[1] + total * layers.weights[1][:, 0]
    moved = network.rebuilt(layers.replaced(0, rows, bias).replaced(1, after, shift))

    def reflect(y: torch.Tensor) -> torch.Tensor:
        return torch.cat([total - y[..., :1], y[..., 1:]], -1)

    points = [3 * draw.normal(100, n) for n in (3, 5, 4)]
    k = [identity, reflect, identity, identity]
    miss = layer_gap(mlp_layers(network), mlp_layers(moved), k, points)
    change = end_to_end_gap([network], [moved], points[0])
    require(max(miss, change) < 1e-12, f"a layer is off by {miss:.1e}, the function by {change:.1e}")
    return f"layers {miss:.1e}, function {change:.1e}"


@claim.numeric("MLP with sigmoid units: y ↦ 1 − y for one unit")
def sigmoid_reflection(draw: Draw) -> str:
    return _reflected("sigmoid", 0, 1, draw)


@claim.numeric("MLP with relu6 units: y ↦ 6 − y for one unit")
def relu6_reflection(draw: Draw) -> str:
    return _reflected("relu6", 6, 6, draw)


@claim.numeric("attention, K_1 = (GL(d_k) × GL(d_v))^H ⋊ S_H")
def attention_heads(draw: Draw) -> str:
    attention = random_attention(3, 4, 2, 3, generator=draw)
    moved, k = attention_symmetry(attention, generator=draw)
    x, hidden = draw.normal(20, 5, 4), draw.normal(20, 3, 5, 7)
    miss = layer_gap(attention_layers(attention), attention_layers(moved), k, [x, hidden])
    change = end_to_end_gap([attention], [moved], x)
    require(max(miss, change) < 1e-10, f"a layer is off by {miss:.1e}, the function by {change:.1e}")
    return f"layers {miss:.1e}, function {change:.1e}"


def _changes(k: torch.Tensor, draw: Draw) -> str:
    network = random_deep("tanh", generator=draw)
    change = end_to_end_gap([network], [carelessly_moved(network, k)], draw.normal(100, 3))
    require(change > 1e-6, f"the function changed by {change:.1e} only")
    return f"by {change:.1e}"


@claim.control(
    claim.hypotheses[0], "one tanh unit scaled by 2, divided out in the next layer: the function changes"
)
def scaled_unit(draw: Draw) -> str:
    return _changes(torch.diag(torch.tensor([2.0, 1, 1, 1, 1])), draw)


@claim.control(
    claim.hypotheses[0], "two tanh units rotated, rotated back in the next layer: the function changes"
)
def rotated_units(draw: Draw) -> str:
    turn = torch.eye(5)
    turn[:2, :2] = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    return _changes(turn, draw)


@claim.control(claim.hypotheses[0], "queries scaled by 2, keys left alone: the function changes")
def scaled_queries(draw: Draw) -> str:
    attention = random_attention(3, 4, 2, 3, generator=draw)
    scaled = MultiHeadAttention(2 * attention.query, attention.key, attention.value, attention.output)
    change = end_to_end_gap(attention_layers(attention), attention_layers(scaled), draw.normal(20, 5, 4))
    require(change > 1e-6, f"scaled queries: the function changed by {change:.1e} only")
    return f"by {change:.1e}"


@claim.control(claim.hypotheses[0], "finite sets, V_1 renamed by one layer only: the function changes")
def not_undone(draw: Draw) -> str:
    theta, shift = _bijective(draw)
    forgotten = (finite.compose(shift, theta[0]), *theta[1:])
    require(finite.function(forgotten) != finite.function(theta), "the function stayed the same")
    return f"sets of {len(shift)} points"


@claim.control("k_0 and k_L are the identity", "finite sets, the outputs renamed: the function changes")
def renamed_outputs(draw: Draw) -> str:
    theta, shift = _bijective(draw)
    renamed = (*theta[:-1], finite.compose(shift, theta[-1]))
    require(finite.function(renamed) != finite.function(theta), "the function stayed the same")
    return f"sets of {len(shift)} points"


def _bijective(draw: Draw) -> tuple[finite.Parameter, finite.FiniteMap]:
    """Layers that are permutations of one set, and a cyclic shift of it."""
    theta, k, _ = finite.random_parameter(onto=True, generator=draw)
    return theta, tuple(np.roll(range(len(k[0])), 1).tolist())
