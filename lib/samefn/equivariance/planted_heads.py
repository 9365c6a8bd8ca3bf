"""Attention with positions and a known symmetry: planted layers, what is read off their weights, and what
escapes the theorem.

A group moves sequences X of shape (..., tokens, n), one row of pixels for each token, by gX = P_g X S_gᵀ.
Everything here serves the chapter ``equivariance/heads`` and its claim.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from ..arguments import Count, Finite
from .attention import MultiHeadAttention, match_heads, scramble
from .groups import Group, Representation, cyclic, dihedral, on_images, permutation_representation, trivial
from .heads import PatchAttention
from .planted_attention import equivariant_attention, from_products, moved_products

Case = tuple[Group, int, int, int, Representation]


@dataclass(frozen=True, eq=False)
class Planted:
    """An equivariant layer and what was planted: gX = P_g X S_gᵀ, E S_g = ρ(g) E, and g permutes heads by
    ``heads``.
    """

    layer: PatchAttention
    tokens: Representation
    pixels: Representation
    features: Representation
    heads: Representation


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _invertible(d: int, generator: torch.Generator) -> Float[Tensor, "d d"]:
    """A rotation times a unit triangular matrix: not orthogonal, and its inverse loses no digits."""
    q = torch.linalg.qr(_normal(d, d, generator=generator)).Q
    return q @ (torch.eye(d, dtype=torch.float64) + _normal(d, d, generator=generator).triu(1) / d)


def _outer_weights(layer: PatchAttention) -> tuple[Tensor, Tensor, Tensor]:
    """E, P and D without gradients."""
    return layer.embed.detach(), layer.positions.detach(), layer.decode.detach()


@cache
def cases() -> tuple[Case, ...]:
    """Group, columns of tokens, columns of pixels, d, and the action on heads: four for the mirror, one
    for D_4.
    """
    mirror, square = cyclic(2), dihedral(4)
    some = trivial(mirror, 2) + permutation_representation(mirror)
    corners = trivial(square) + permutation_representation(square)
    sizes = ((3, 3, 5), (4, 2, 3), (3, 2, 4), (2, 3, 7))
    return (*((mirror, *size, some) for size in sizes), (square, 3, 2, 4, corners))


def plant(
    group: Group,
    columns: Count,
    pixels: Count,
    d: Count,
    heads: Representation,
    *,
    generator: torch.Generator,
) -> Planted:
    """A random equivariant layer on columns² tokens of pixels² pixels with d features, d ≤ pixels².

    For the mirror any d will do; for other groups d must be pixels².
    """
    on_tokens, on_pixels = on_images(group, columns), on_images(group, pixels)
    s, p, n = on_pixels.matrices, on_tokens.matrices, pixels**2
    # eigenvectors of a matrix that commutes with the group span invariant subspaces
    draw = _normal(n, n, generator=generator)
    basis = torch.linalg.eigh((s @ (draw + draw.T) @ s.mT).mean(0)).eigenvectors.T[:d]
    embed = _invertible(d, generator) @ basis
    decode = torch.linalg.pinv(embed)
    features = Representation(group, embed @ s @ decode)
    draw = _normal(columns**2, d, generator=generator)
    positions = (p @ draw @ features.matrices.mT).mean(0) * len(group) ** 0.5
    attention = equivariant_attention(heads, features, generator=generator)
    layer = PatchAttention(embed, positions, attention, decode)
    return Planted(layer, on_tokens, on_pixels, features, heads)


def hide(layer: PatchAttention, *, generator: torch.Generator) -> tuple[PatchAttention, Int[Tensor, "H"]]:
    """The same function: features and outputs in other coordinates, heads scrambled; new head h is the
    former ``order[h]``.
    """
    d = layer.attention.dim_in
    t, b = _invertible(d, generator), _invertible(d, generator)
    query, key, value, output = (w.detach() for w in layer.attention.parameters())
    inverse = torch.linalg.inv(t)
    moved = MultiHeadAttention(query @ inverse, key @ inverse, value @ inverse, b @ output)
    attention, order = scramble(moved, generator=generator)
    embed, positions, decode = _outer_weights(layer)
    return PatchAttention(t @ embed, positions @ t.T, attention, decode @ torch.linalg.inv(b)), order


def moved_sequence(
    x: Float[Tensor, "... tokens n"],
    on_tokens: Float[Tensor, "tokens tokens"],
    on_pixels: Float[Tensor, "n n"],
) -> Float[Tensor, "... tokens n"]:
    """gX = P_g X S_gᵀ."""
    return on_tokens @ x @ on_pixels.T


@dataclass(frozen=True, eq=False)
class Recovered:
    """What :func:`recover` read off the weights for one g; the errors are relative."""

    action: Float[Tensor, "d d"]
    partner: Int[Tensor, "H"]
    pixels: float
    positions: float
    heads: float


def recover(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor) -> Recovered:
    """T = E S E⁺ and the heads' permutation, from the weights, with no bound on the errors."""
    embed, positions, _ = _outer_weights(layer)
    action = embed @ on_pixels @ torch.linalg.pinv(embed)
    inverse = torch.linalg.inv(action)
    scores, values = (w.detach() for w in layer.products())
    moved = inverse.T @ scores @ inverse, on_pixels @ values @ inverse
    partner, cost = match_heads(moved, (scores, values))
    pixels = (embed @ on_pixels - action @ embed).norm() / embed.norm()
    off = (positions - on_tokens @ positions @ action.T).norm() / positions.norm()
    heads = cost.gather(1, partner[:, None]).max()
    return Recovered(action, partner, float(pixels), float(off), float(heads))


@torch.no_grad()
def violation(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor, x: Tensor) -> float:
    """The largest |f(gX) − g f(X)|, relative to the largest |f(X)|."""
    y, after = layer(x), layer(moved_sequence(x, on_tokens, on_pixels))
    return float((after - moved_sequence(y, on_tokens, on_pixels)).abs().max() / y.abs().max())


def best_action(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor) -> float:
    """The relative misfit of E S = T E and p_τ(t) = T p_t for the best T."""
    embed, positions, _ = _outer_weights(layer)
    before = torch.cat([embed, positions.mT], 1)
    after = torch.cat([embed @ on_pixels, (on_tokens.T @ positions).mT], 1)
    return float((after - after @ torch.linalg.pinv(before) @ before).norm() / after.norm())


@torch.no_grad()
def maps_apart(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor, x: Tensor) -> float:
    """The largest difference of attention maps on gX and moved maps on X, for the best order of the heads
    (H ≤ 6).
    """
    moved = on_tokens @ layer.maps(x) @ on_tokens.T
    maps = layer.maps(moved_sequence(x, on_tokens, on_pixels))
    orders = itertools.permutations(range(maps.shape[1]))
    return min(float((maps[:, list(order)] - moved).abs().max()) for order in orders)


@torch.no_grad()
def from_visible(
    layer: PatchAttention, x: Float[Tensor, "batch tokens n"]
) -> Float[Tensor, "batch tokens n"]:
    """The function, computed from :meth:`PatchAttention.visible` alone."""
    scores, values, constant = layer.visible()
    tokens = x.shape[-2]
    places = tokens**0.5 * torch.eye(tokens, dtype=x.dtype).expand(*x.shape[:-1], tokens)
    x = torch.cat([x, places], -1).unsqueeze(-3)
    return (torch.softmax(x @ scores @ x.mT, -1) @ x @ values.mT).sum(-3) + constant


@torch.no_grad()
def sum_of_sigmoids(
    layer: PatchAttention,
    x: Float[Tensor, "tokens n"],
    y: Float[Tensor, "n"],
    a: Count,
    t: Float[Tensor, "k"],
) -> Float[Tensor, "k n"]:
    """Token 0 of f when token a is x_a + ty, by the formula Σ_h C_h + s(t m_h − c_h)(A_h + t B_h)."""
    if not a < len(x):
        raise ValueError(f"a must be a token from 1 to {len(x) - 1}, got {a}")
    scores, values = layer.products()
    z, step = layer.features(x), layer.embed @ y
    rest, root = [s for s in range(len(x)) if s != a], layer.attention.query.shape[1] ** 0.5
    slope, given = (torch.einsum("i,hij,...j->h...", z[0], scores, v) / root for v in (step, z))
    c = torch.logsumexp(given[:, rest], 1) - given[:, a]
    others = torch.einsum("hs,hns->hn", torch.softmax(given[:, rest], 1), values @ z[rest].T)
    start, speed = values @ z[a] - others, values @ step
    weight = torch.sigmoid(t[:, None] * slope - c)
    return others.sum(0) + weight @ start + (t[:, None] * weight) @ speed


# ---------------------------------------------------------------------------------------------
# Layers that escape the theorem, each by one hypothesis; the group is the mirror


def with_extra_feature(layer: PatchAttention, *, generator: torch.Generator) -> PatchAttention:
    """The same function with one feature more, arbitrary in pixels and positions, which no head reads;
    then hidden.
    """
    embed, positions, decode = _outer_weights(layer)
    row, column = (_normal(size, 1, generator=generator) for size in (embed.shape[1], len(positions)))
    query, key, value, output = (w.detach() for w in layer.attention.parameters())
    query, key, value = (pad(w, (0, 1)) for w in (query, key, value))
    attention = MultiHeadAttention(query, key, value, pad(output, (0, 0, 0, 1)))
    embed, positions = torch.cat([embed, row.T]), torch.cat([positions, column], 1)
    return hide(PatchAttention(embed, positions, attention, pad(decode, (0, 1))), generator=generator)[0]


def positions_only(columns: Count, pixels: Count, *, generator: torch.Generator) -> PatchAttention:
    """Two heads with constant maps A + D and A + 2D, D odd under the mirror, which makes them A − D and A
    − 2D.

    The layer is equivariant all the same: values are 2U − V and V − U with U even and V odd, so that
    f(X) = A X Uᵀ + D X Vᵀ.
    """
    p, s = (on_images(cyclic(2), k).matrices[1] for k in (columns, pixels))
    tokens, n = len(p), len(s)

    def half(g: Tensor, sign: int) -> Tensor:
        draw = torch.rand(len(g), len(g), generator=generator, dtype=torch.float64)
        return (draw + sign * g @ draw @ g.T) / 2

    even, odd = half(p, 1) + 1, half(p, -1)
    even, odd = even / even.sum(1, keepdim=True), odd - odd.mean(1, keepdim=True)
    odd = odd * 0.4 * even.min() / odd.abs().max()
    u, v = half(s, 1), half(s, -1)
    scale = (n + tokens) ** 0.5  # √d_k
    scores = [pad(scale * torch.log(even + k * odd), (n, 0, n, 0)) for k in (1, 2)]
    values = [pad(w, (0, tokens, 0, tokens)) for w in (2 * u - v, v - u)]
    eye = torch.eye(n + tokens, dtype=torch.float64)
    attention = from_products(torch.stack(scores), torch.stack(values))
    return PatchAttention(eye[:, :n].clone(), eye[n:].clone(), attention, eye[:n].clone())


def memory(columns: Count, pixels: Count, *, generator: torch.Generator) -> PatchAttention:
    """One head whose query reads pixels and whose keys and values are positions: f(X)_t = v φ(a·x_t),
    equivariant for odd φ, a and v.

    φ(u) = Σ_s α_s softmax_s(α_s u) is odd because the numbers α_s are symmetric, in an order that has
    nothing to do with the mirror.
    """
    s, tokens = on_images(cyclic(2), pixels).matrices[1], columns**2
    a, v = (w - s @ w for w in _normal(2, pixels**2, generator=generator))
    half = _normal(tokens // 2, generator=generator)
    alpha = torch.cat([half, -half, torch.zeros(tokens % 2, dtype=torch.float64)])
    alpha = alpha[torch.randperm(tokens, generator=generator)]
    eye = torch.eye(len(s) + 1, dtype=torch.float64)
    scores, values = (torch.outer(pad(w, (0, 1)), eye[-1])[None] for w in (a, v))
    attention = from_products(scores, values)
    return PatchAttention(eye[:, :-1].clone(), torch.outer(alpha, eye[-1]), attention, eye[:-1].clone())


def _one_head(generator: torch.Generator) -> Planted:
    """One equivariant head on 3 × 3 tokens of 2 × 2 pixels."""
    mirror = cyclic(2)
    return plant(mirror, 3, 2, 4, trivial(mirror, 1), generator=generator)


def odd_heads(strength: Finite, *, generator: torch.Generator) -> PatchAttention:
    """Heads (εM, R), (εM', −R) on 3 × 3 tokens of 2 × 2 pixels that the mirror takes to (−εM, −R), (−εM', R).

    Equivariant to first order in ε = ``strength``.
    """
    known = _one_head(generator)
    rho = known.features.matrices[1]
    m, r = _normal(2, 4, 4, generator=generator), _normal(4, 4, generator=generator)
    moved_m, moved_r = moved_products(m, r, rho)
    m, r = m - moved_m, r - moved_r
    embed, positions, decode = _outer_weights(known.layer)
    return PatchAttention(embed, positions, from_products(strength * m, torch.stack([r, -r])), decode)


def twin_heads(*, generator: torch.Generator) -> PatchAttention:
    """Two heads with one M on 3 × 3 tokens of 2 × 2 pixels: equivariant since R_1 + R_2 is, though R_1 and
    R_2 are not.
    """
    known = _one_head(generator)
    embed, positions, decode = _outer_weights(known.layer)
    scores, values = (w.detach() for w in known.layer.attention.products())
    lean = _normal(*values.shape, generator=generator)
    attention = from_products(scores.repeat(2, 1, 1), torch.cat([values + lean, -lean]))
    return PatchAttention(embed, positions, attention, decode)
