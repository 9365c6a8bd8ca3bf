"""Attention layers with known products M_h and R_h: planted head permutations, and layers that escape the
theorem.
"""

from __future__ import annotations

import itertools
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import Count
from .attention import MultiHeadAttention
from .groups import (
    Representation,
    cyclic,
    dihedral,
    permutation_representation,
    representation,
    symmetric,
    trivial,
)

Products = tuple[Float[Tensor, "H d d"], Float[Tensor, "H d d"]]


def from_products(scores: Float[Tensor, "H d d"], values: Float[Tensor, "H d d"]) -> MultiHeadAttention:
    """Attention with given M_h and R_h and d_k = d_v = d."""
    eye = torch.eye(scores.shape[1], dtype=scores.dtype).expand_as(scores)
    return MultiHeadAttention(scores.mT, eye.clone(), eye.clone(), values)


def products(attention: MultiHeadAttention) -> Products:
    """M_h and R_h as plain tensors, without gradients."""
    scores, values = attention.products()
    return scores.detach(), values.detach()


def moved_products(scores: Tensor, values: Tensor, g: Float[Tensor, "... d d"]) -> tuple[Tensor, Tensor]:
    """The products of X ↦ g·f(g⁻¹·X): ρ⁻ᵀ M_h ρ⁻¹ and ρ R_h ρ⁻¹."""
    inverse = torch.linalg.inv(g)
    return inverse.mT @ scores @ inverse, g @ values @ inverse


def equivariant_attention(
    heads: Representation, rho: Representation, *, generator: torch.Generator
) -> MultiHeadAttention:
    """Equivariant attention whose heads the group permutes by ``heads``: M_h and R_h are averages over the
    group.
    """
    count, d = heads.dimension, rho.dimension
    drawn = (torch.randn(count, d, d, generator=generator, dtype=torch.float64) for _ in range(2))
    moved = moved_products(next(drawn), next(drawn), rho.matrices[:, None])
    scores, values = (torch.einsum("gkh,ghij->kij", heads.matrices, p) / len(rho.group) for p in moved)
    return from_products(scores, values)


def orbit(attention: MultiHeadAttention, rho: Representation) -> MultiHeadAttention:
    """|G| times the Reynolds average of an attention layer: |G| copies of every head, moved by the group."""
    inverse = torch.linalg.inv(rho.matrices)
    weights = (attention.query, attention.key, attention.value)
    query, key, value = (torch.cat([w.detach() @ g for g in inverse]) for w in weights)
    output = torch.cat([g @ attention.output.detach() for g in rho.matrices])
    return MultiHeadAttention(query, key, value, output)


def head_set_distance(f: MultiHeadAttention, other: MultiHeadAttention) -> float:
    """How far the sets {(M_h, R_h)} of two layers are apart, by trying all orders of the heads (H ≤ 6)."""
    pairs, others = (torch.cat([p.flatten(1) for p in products(layer)], 1) for layer in (f, other))
    orders = itertools.permutations(range(len(others)))
    return min(float((pairs - others[list(order)]).abs().max()) for order in orders)


def unpermuted(attention: MultiHeadAttention, g: Float[Tensor, "d d"]) -> float:
    """How far the moved heads are from the heads in any order, by trying all of them (H ≤ 6)."""
    return head_set_distance(attention, from_products(*moved_products(*products(attention), g)))


@cache
def head_groups() -> list[tuple[Representation, Representation]]:
    """Pairs of a representation that permutes heads and an orthogonal one on the features, for C_2, C_4,
    D_4, S_3.
    """
    points = map(permutation_representation, (cyclic(2), cyclic(4), dihedral(4), symmetric(3)))
    return [(trivial(rho.group, 2) + rho, rho + trivial(rho.group)) for rho in points]


def skewed(rho: Representation, *, generator: torch.Generator) -> Representation:
    """A representation by matrices that are not orthogonal: T ρ T⁻¹ with a unit triangular T."""
    n = rho.dimension
    lean = torch.randn(n, n, generator=generator, dtype=torch.float64).triu(1) / 2
    t = torch.eye(n, dtype=torch.float64) + lean
    return Representation(rho.group, t @ rho.matrices @ torch.linalg.inv(t))


def reflection(d: Count = 2) -> Representation:
    """C_2 acting on R^d by diag(1, −1, 1, …)."""
    group = cyclic(2)
    sign = torch.ones(d, dtype=torch.float64)
    sign[1] = -1
    return representation(group, {group.generators[0]: torch.diag(sign)})


def two_token_pair(*, generator: torch.Generator) -> tuple[MultiHeadAttention, MultiHeadAttention]:
    """(M_1, R), (M_2, −R) and (−M_1, −R), (−M_2, R): one function of two tokens, two functions of three.

    All matrices anticommute with the reflection diag(1, −1), which turns the first layer into the second.
    """
    off_diagonal = torch.tensor([[0.0, 1], [1, 0]], dtype=torch.float64)
    anti = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64) * off_diagonal
    scores, values = anti[:2], torch.stack([anti[2], -anti[2]])
    return from_products(scores, values), from_products(-scores, -values)


def equal_scores(rho: Representation, *, generator: torch.Generator) -> MultiHeadAttention:
    """Two heads with one M, equivariant because R_1 + R_2 is, though neither R_1 nor R_2 is."""
    layer = equivariant_attention(trivial(rho.group, 2), rho, generator=generator)
    scores, values = products(layer)
    lean = torch.randn(values.shape[1:], generator=generator, dtype=torch.float64)
    return from_products(scores[[0, 0]], values + torch.stack([lean, -lean]))


def zero_head(rho: Representation, *, generator: torch.Generator) -> MultiHeadAttention:
    """An equivariant head, and one with R = 0 and any M."""
    layer = equivariant_attention(trivial(rho.group, 2), rho, generator=generator)
    scores, values = (p.clone() for p in products(layer))
    scores[1] = torch.randn(scores.shape[1:], generator=generator, dtype=torch.float64)
    values[1] = 0
    return from_products(scores, values)
