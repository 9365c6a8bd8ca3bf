"""Deep models as lists of functions: the layers f_i(·; θ_i), and maps k_i that act on the spaces between
them.

A multilayer perceptron and an attention layer become such lists, and so do their symmetries; what is
measured of a list holds for both.  Source: [B], Definition 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from ..functions import gap
from ..networks import DeepMLP
from .alignment import Symmetry
from .attention import MultiHeadAttention, random_invertible

LayerMap = Callable[[Tensor], Tensor]


def layer_gap(
    layers: Sequence[LayerMap], moved: Sequence[LayerMap], k: Sequence[LayerMap], points: Sequence[Tensor]
) -> float:
    """The largest ‖f_i(k_{i−1} y; θ'_i) − k_i f_i(y; θ_i)‖ over layers and points y, relative to the
    largest ‖k_i f_i(y; θ_i)‖.

    ``layers`` are f_i(·; θ_i), ``moved`` f_i(·; θ'_i), ``k`` the maps k_0, …, k_L, ``points[i − 1]`` lie in
    V_{i−1}; the norm is the largest entry.  Raises ValueError unless these are equally many (one more k).

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.model import layer_gap, mlp_layers, mlp_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.equivariance.submodels import anywhere
    >>> network = random_deep("tanh", generator=Draw(0))
    >>> k = random_symmetry(network, generator=Draw(1))
    >>> layers, moved = mlp_layers(network), mlp_layers(k.apply(network))
    >>> layer_gap(layers, moved, mlp_symmetry(k), anywhere(network, 20, generator=Draw(2))) < 1e-13
    True
    """
    for name, given, more in (("moved", moved, 0), ("k", k, 1), ("points", points, 0)):
        if len(given) != len(layers) + more:
            raise ValueError(f"{name} must hold {len(layers) + more}, got {len(given)}")
    steps = zip(layers, moved, k[:-1], k[1:], points)
    return max(gap(sequential([f, after]), sequential([before, g]), y) for f, g, before, after, y in steps)


def end_to_end_gap(layers: Sequence[LayerMap], moved: Sequence[LayerMap], x: Tensor) -> float:
    """The largest difference of the two compositions on x, relative to the largest value.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.model import end_to_end_gap, mlp_layers
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", generator=Draw(0))
    >>> moved = random_symmetry(network, generator=Draw(1)).apply(network)
    >>> end_to_end_gap(mlp_layers(network), mlp_layers(moved), Draw(2).normal(20, 3)) < 1e-13
    True
    """
    return gap(sequential(layers), sequential(moved), x)


def sequential(layers: Sequence[LayerMap]) -> LayerMap:
    """The composition, the first layer applied first.

    >>> from samefn.equivariance.model import sequential
    >>> sequential([lambda y: y + 1, lambda y: 2 * y])(torch.tensor(3.0)).item()
    8.0
    """
    return lambda x: reduce(lambda y, f: f(y), layers, x)


def identity(y: Tensor) -> Tensor:
    """y itself: k_0 and k_L.

    >>> from samefn.equivariance.model import identity
    >>> identity(torch.tensor(2.0)).item()
    2.0
    """
    return y


def mlp_layers(network: DeepMLP) -> list[LayerMap]:
    """The layers f_i(·; θ_i) as functions.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.model import mlp_layers, sequential
    >>> from samefn.equivariance.planted import random_deep
    >>> network, x = random_deep("tanh", generator=Draw(0)), Draw(1).normal(10, 3)
    >>> torch.equal(sequential(mlp_layers(network))(x), network(x))
    True
    """
    return [lambda y, i=i: network.layer(i, y) for i in range(1, len(network.weights) + 1)]


def mlp_symmetry(symmetry: Symmetry) -> list[LayerMap]:
    """k_0, …, k_L as functions, the identity at the ends.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.model import mlp_symmetry
    >>> from samefn.equivariance.planted import random_deep
    >>> network = random_deep("tanh", (3, 5, 4, 2), generator=Draw(0))
    >>> k = mlp_symmetry(random_symmetry(network, generator=Draw(1)))
    >>> len(k), k[1](torch.ones(5)).abs().tolist()
    (4, [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    moves = zip(symmetry.matrices(), symmetry.shifts, strict=True)
    return [identity, *(lambda y, m=m, shift=shift: y @ m.T + shift for m, shift in moves), identity]


def attention_layers(attention: MultiHeadAttention) -> list[LayerMap]:
    """Attention as a deep model with L = 2: tokens ↦ (queries, keys, values) of each head ↦ output.

    V_1 holds tensors of shape (..., H, tokens, 2 d_k + d_v); θ_1 = (W_Q, W_K, W_V), θ_2 = W_O.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_attention
    >>> from samefn.equivariance.model import attention_layers, sequential
    >>> layer, x = random_attention(2, 4, 3, 2, generator=Draw(0)), Draw(1).normal(5, 4)
    >>> torch.allclose(sequential(attention_layers(layer))(x), layer(x))
    True
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
    attention: MultiHeadAttention, *, generator: torch.Generator
) -> tuple[MultiHeadAttention, list[LayerMap]]:
    """A random k in (GL(d_k) × GL(d_v))^H ⋊ S_H: the layer with parameters k·θ, and k_0, k_1, k_2 as
    functions.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_attention
    >>> from samefn.equivariance.model import attention_symmetry
    >>> from samefn.functions import gap
    >>> layer = random_attention(2, 4, 3, 2, generator=Draw(0))
    >>> moved, k = attention_symmetry(layer, generator=Draw(1))
    >>> gap(layer, moved, Draw(2).normal(10, 5, 4)) < 1e-12
    True
    """
    query, key, value, output = (
        w.detach() for w in (attention.query, attention.key, attention.value, attention.output)
    )
    a, c = (random_invertible(attention.heads, w.shape[1], generator=generator) for w in (query, value))
    order = torch.randperm(attention.heads, generator=generator)
    b = torch.linalg.inv(a).mT
    weights = a @ query, b @ key, c @ value, output @ torch.linalg.inv(c)
    blocks = torch.stack([torch.block_diag(*some) for some in zip(a, b, c, strict=True)])
    k = [identity, lambda y: (y @ blocks.mT)[..., order, :, :], identity]
    return MultiHeadAttention(*(w[order] for w in weights)), k


def carelessly_moved(network: DeepMLP, k: Float[Tensor, "n n"]) -> DeepMLP:
    """Layer 1 with weights k W_1, k b_1, and layer 2 with W_2 k⁻¹, as if the matrix k passed through the
    activation.  Raises ValueError without a layer 2, or if k does not fit.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.model import carelessly_moved
    >>> from samefn.equivariance.planted import random_deep
    >>> from samefn.functions import gap
    >>> network = random_deep("tanh", (3, 2, 2), generator=Draw(0))
    >>> moved = carelessly_moved(network, 2 * torch.eye(2))  # tanh lets no factor 2 through
    >>> gap(network, moved, Draw(1).normal(100, 3)) > 0.1
    True
    """
    layers = network.layers
    if layers.widths[:1] != k.shape[:1]:
        raise ValueError(f"k must fit the first of the hidden layers {layers.widths}, got {tuple(k.shape)}")
    layers = layers.replaced(0, k @ layers.weights[0], k @ layers.biases[0])
    return network.rebuilt(layers.replaced(1, layers.weights[1] @ torch.linalg.inv(k)))
