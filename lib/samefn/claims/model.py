"""B-D1: deep models, and the symmetries of their latent spaces.  Chapter ``equivariance/model``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import sympy
import torch
from torch import Tensor

from ..activations import Activation, get, monomial
from ..attention import MultiHeadAttention, random_attention
from ..models import act, compose, function, inverse
from ..networks import DeepMLP
from ..symmetry import Symmetry, random_symmetry
from . import Claim, Control, Evidence, require

Map = Callable[[Tensor], Tensor]

FAMILIES = (get("gelu"), get("tanh"), get("relu"), monomial(3))  # one activation for each kind of unit symmetry


def layer_gap(layers: Sequence[Map], moved: Sequence[Map], k: Sequence[Map], points: Sequence[Tensor]) -> float:
    """The largest ‖f_i(k_{i−1} y; θ'_i) − k_i f_i(y; θ_i)‖ over layers and points y, relative to the largest ‖k_i f_i(y; θ_i)‖.

    ``layers`` are f_i(·; θ_i), ``moved`` f_i(·; θ'_i), ``k`` the maps k_0, …, k_L, ``points[i − 1]`` lie in V_{i−1}.
    """
    gaps = []
    for f, g, before, after, y in zip(layers, moved, k[:-1], k[1:], points, strict=True):
        wanted = after(f(y))
        gaps.append(float((g(before(y)) - wanted).abs().max() / wanted.abs().max()))
    return max(gaps)


def end_to_end_gap(layers: Sequence[Map], moved: Sequence[Map], x: Tensor) -> float:
    """The largest difference of the two compositions on x, relative to the largest value."""
    y, z = x, x
    for f, g in zip(layers, moved, strict=True):
        y, z = f(y), g(z)
    return float((y - z).abs().max() / y.abs().max())


def random_deep(
    activation: str | Activation, generator: torch.Generator, sizes: Sequence[int] = (3, 5, 4, 2)
) -> DeepMLP:
    """A multilayer perceptron with standard normal biases, and weights divided by the square root of the inputs."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = [normal(m, n) / n**0.5 for n, m in zip(sizes, sizes[1:])]
    return DeepMLP(weights, [normal(m) for m in sizes[1:]], activation)


def mlp_layers(network: DeepMLP) -> list[Map]:
    """The layers f_i(·; θ_i) as functions."""
    return [lambda y, i=i: network.layer(i, y) for i in range(1, len(network.weights) + 1)]


def mlp_symmetry(symmetry: Symmetry) -> list[Map]:
    """k_0, …, k_L as functions, the identity at the ends."""
    return [_identity, *(lambda y, m=m: y @ m.T for m in symmetry.matrices()), _identity]


def _identity(y: Tensor) -> Tensor:
    return y


def attention_layers(attention: MultiHeadAttention) -> list[Map]:
    """Attention as a deep model with L = 2: tokens ↦ (queries, keys, values) of each head ↦ output.

    V_1 holds tensors of shape (..., H, tokens, 2 d_k + d_v); θ_1 = (W_Q, W_K, W_V), θ_2 = W_O.
    """
    d_k = attention.query.shape[1]
    incoming = torch.cat([attention.query, attention.key, attention.value], 1)

    def first(x: Tensor) -> Tensor:
        return x.unsqueeze(-3) @ incoming.mT

    def second(y: Tensor) -> Tensor:
        query, key, value = y[..., :d_k], y[..., d_k : 2 * d_k], y[..., 2 * d_k :]
        maps = torch.softmax(query @ key.mT / d_k**0.5, dim=-1)
        return (maps @ value @ attention.output.mT).sum(-3)

    return [first, second]


def attention_symmetry(
    attention: MultiHeadAttention, generator: torch.Generator
) -> tuple[MultiHeadAttention, list[Map]]:
    """A random k in (GL(d_k) × GL(d_v))^H ⋊ S_H: the layer with parameters k·θ, and k_0, k_1, k_2 as functions."""
    query, key, value, output = (w.detach() for w in (attention.query, attention.key, attention.value, attention.output))
    a, c = (_invertible(attention.heads, w.shape[1], generator) for w in (query, value))
    order = torch.randperm(attention.heads, generator=generator)
    b = torch.linalg.inv(a).mT
    moved = MultiHeadAttention((a @ query)[order], (b @ key)[order], (c @ value)[order], (output @ torch.linalg.inv(c))[order])
    blocks = torch.stack([torch.block_diag(*some) for some in zip(a, b, c)])
    return moved, [_identity, lambda y: (y @ blocks.mT)[..., order, :, :], _identity]


def _invertible(count: int, n: int, generator: torch.Generator) -> Tensor:
    """Random rotations times diagonal matrices with entries between 1/2 and 2, so that inverses lose no digits."""
    rotation = torch.linalg.qr(torch.randn(count, n, n, generator=generator, dtype=torch.float64)).Q
    return rotation * 4 ** (torch.rand(count, 1, n, generator=generator, dtype=torch.float64) - 0.5)


def random_finite(rng: np.random.Generator, onto: bool = False):
    """θ and k on four random sets of 2 to 6 points; with ``onto`` all sets are equal and all layers permutations."""
    sizes = rng.integers(2, 7, size=4)
    if onto:
        sizes[:] = sizes[0]
        theta = tuple(tuple(map(int, rng.permutation(n))) for n in sizes[1:])
    else:
        theta = tuple(tuple(map(int, rng.integers(m, size=n))) for n, m in zip(sizes, sizes[1:]))
    return theta, *([tuple(map(int, rng.permutation(n))) for n in sizes[1:-1]] for _ in range(2))


@cache
def _tanh_row() -> None:
    """The three limits of the proof that only signed permutations pass through tanh."""
    a, t = sympy.Symbol("a", positive=True), sympy.Symbol("t", positive=True)
    require(sympy.limit(a * sympy.tanh(t), t, sympy.oo) == a, "a tanh(t) does not tend to a")
    require(sympy.limit(sympy.tanh(a * t), t, sympy.oo) == 1, "tanh(at) does not tend to 1")
    require(sympy.diff(a * sympy.tanh(t), t).subs(t, 0) == a, "a tanh has another slope at 0")
    z = sympy.Symbol("z", real=True)
    require(sympy.tanh(-z) == -sympy.tanh(z), "tanh is not odd")


def evidence(seed: int) -> Iterator[Evidence]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(20):
        theta, k, other = random_finite(rng)
        require(function(act(k, theta)) == function(theta), f"k = {k} changes the function of θ = {theta}")
        product = [compose(p, q) for p, q in zip(other, k)]
        require(act(other, act(k, theta)) == act(product, theta), "k'·(k·θ) is not (k'k)·θ")
        require(act([inverse(p) for p in k], act(k, theta)) == theta, "k⁻¹·(k·θ) is not θ")
    yield Evidence("exact", "finite sets: k·θ has the function of θ, and k'·(k·θ) = (k'k)·θ", "20 random models, L = 3")

    _tanh_row()
    yield Evidence("exact", "a row a with a·tanh(z) = tanh(b·z) has entries 0 and ±1, not two of them nonzero", "limits and slope (SymPy)")

    for activation in FAMILIES:
        name, kind = activation.name, activation.symmetry
        network = random_deep(activation, generator)
        symmetry = random_symmetry(network, generator)
        moved = symmetry.apply(network)
        points = [torch.randn(100, n, generator=generator, dtype=torch.float64) for n in (3, 5, 4)]
        gap = layer_gap(mlp_layers(network), mlp_layers(moved), mlp_symmetry(symmetry), points)
        change = end_to_end_gap(mlp_layers(network), mlp_layers(moved), points[0])
        require(max(gap, change) < 1e-9, f"{name}: a layer is off by {gap:.1e}, the function by {change:.1e}")
        yield Evidence("numeric", f"MLP with {name} units, K_i: {kind}", f"layers {gap:.1e}, function {change:.1e}")

    attention = random_attention(3, 4, 2, 3, generator=generator)
    moved, k = attention_symmetry(attention, generator)
    x = torch.randn(20, 5, 4, generator=generator, dtype=torch.float64)
    hidden = torch.randn(20, 3, 5, 7, generator=generator, dtype=torch.float64)
    gap = layer_gap(attention_layers(attention), attention_layers(moved), k, [x, hidden])
    change = float((attention(x) - moved(x)).abs().max() / attention(x).abs().max())
    require(max(gap, change) < 1e-10, f"attention: a layer is off by {gap:.1e}, the function by {change:.1e}")
    yield Evidence("numeric", "attention, K_1 = (GL(d_k) × GL(d_v))^H ⋊ S_H", f"layers {gap:.1e}, function {change:.1e}")


def carelessly_moved(network: DeepMLP, k: Tensor) -> DeepMLP:
    """Layer 1 with weights k W_1, k b_1, and layer 2 with W_2 k⁻¹, as if the matrix k passed through the activation."""
    weights, biases = [w.detach().clone() for w in network.weights], [b.detach().clone() for b in network.biases]
    weights[0], biases[0], weights[1] = k @ weights[0], k @ biases[0], weights[1] @ torch.linalg.inv(k)
    return DeepMLP(weights, biases, network.activations)


def controls(seed: int) -> Iterator[Control]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    network = random_deep("tanh", generator)
    x = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    double = torch.diag(torch.tensor([2.0, 1, 1, 1, 1], dtype=torch.float64))
    turn = torch.eye(5, dtype=torch.float64)
    turn[:2, :2] = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    for what, k in (("one tanh unit scaled by 2", double), ("two tanh units rotated", turn)):
        change = end_to_end_gap(mlp_layers(network), mlp_layers(carelessly_moved(network, k)), x)
        require(change > 1e-6, f"{what}: the function changed by {change:.1e} only")
        yield Control("k_i acts on the parameters", f"{what}, undone in the next layer: the function changes", f"by {change:.1e}")

    attention = random_attention(3, 4, 2, 3, generator=generator)
    scaled = MultiHeadAttention(2 * attention.query.detach(), attention.key, attention.value, attention.output)
    tokens = torch.randn(20, 5, 4, generator=generator, dtype=torch.float64)
    change = end_to_end_gap(attention_layers(attention), attention_layers(scaled), tokens)
    require(change > 1e-6, f"scaled queries: the function changed by {change:.1e} only")
    yield Control("keys move against queries", "queries scaled by 2, keys left alone: the function changes", f"by {change:.1e}")

    theta, k, _ = random_finite(rng, onto=True)
    shift = tuple(np.roll(range(len(k[0])), 1).tolist())
    forgotten = (compose(shift, theta[0]), *theta[1:])
    require(function(forgotten) != function(theta), "the function stayed the same")
    yield Control("k_{i−1}⁻¹ in the next layer", "layers permuted but not undone: the function changes", f"sets of {len(shift)} points")


CLAIM = Claim(
    id="B-D1",
    title="Deep models: moving the latent spaces by K_1 × … × K_{L−1} keeps the function",
    source="[B], Definition 1",
    hypotheses=("f_i(x; θ'_i) = k_i f_i(k_{i−1}⁻¹ x; θ_i) for all x and i", "k_0 and k_L are the identity"),
    uses=(),
    chapter="equivariance/model",
    evidence=evidence,
    controls=controls,
)
