"""B-ATT: an equivariant attention layer permutes its heads.  Chapter ``equivariance/attention``."""

from __future__ import annotations

import itertools
import math

import sympy
import torch

from ...draw import Draw
from ...equivariance.attention import MultiHeadAttention, head_action, random_attention, scramble
from ...equivariance.groups import Representation
from ...equivariance.layerwise import NotIdentifiable, equivariance_error
from ...equivariance.planted_attention import (
    equal_scores,
    equivariant_attention,
    head_groups,
    head_set_distance,
    orbit,
    products,
    reflection,
    skewed,
    two_token_pair,
    unpermuted,
    zero_head,
)
from ...functions import gap
from .. import Claim, ClaimFailed, require

claim = Claim(
    id="B-ATT",
    title="Equivariant attention with distinct active heads permutes them",
    source="[B], multi-head attention; the proof is ours",
    hypotheses=(
        "the M_h are pairwise distinct",
        "no R_h is 0",
        "three tokens or more, all values allowed",
        "the layer is equivariant; ρ orthogonal, or M moved by ρ⁻ᵀMρ⁻¹",
    ),
    uses=("B-D1", "B-D4", "B-T4.1"),
    chapter="equivariance/attention",
)


@claim.exact("the slowest exponentials of s(tm − c) and s(−tm − c), c ≠ 0, are independent")
def shifted_sigmoids() -> str:
    e, c = (
        sympy.Symbol("e", positive=True),
        sympy.Symbol("c", real=True),
    )  # e = exp(t m), to 0 and to infinity
    plus = e / (e + sympy.exp(c))  # s(tm − c)
    minus = 1 / (1 + e * sympy.exp(c))  # s(−tm − c)
    left = [sympy.limit((f - sympy.limit(f, e, 0)) / e, e, 0) for f in (plus, minus)]
    right = [sympy.limit((f - sympy.limit(f, e, sympy.oo)) * e, e, sympy.oo) for f in (plus, minus)]
    determinant = sympy.simplify(sympy.Matrix([left, right]).det())
    wanted = sympy.exp(-2 * c) - sympy.exp(2 * c)
    same = sympy.simplify((determinant - wanted).rewrite(sympy.exp)) == 0
    require(same, f"the determinant is {determinant}")
    require(sympy.solveset(wanted, c, sympy.S.Reals) == sympy.FiniteSet(0), "it vanishes elsewhere")
    return "e^(−2c) − e^(2c) ≠ 0 for c = log(n − 1), n ≥ 3 (SymPy)"


@claim.numeric("heads moved by GL(d_k) × GL(d_v) and reordered: same function, same set {(M_h, R_h)}")
def scrambled_heads(draw: Draw) -> str:
    layer = random_attention(3, 4, 2, 3, generator=draw)
    other, order = scramble(layer, generator=draw)
    same, sets = gap(layer, other, draw.normal(100, 5, 4)), head_set_distance(layer, other)
    require(max(same, sets) < 1e-11, f"scrambled: function off by {same:.1e}, set by {sets:.1e}")
    pairs = zip(products(layer), products(other), strict=True)
    off = max(float((a[order] - b).abs().max()) for a, b in pairs)
    require(off < 1e-11, f"the products are not reordered by the permutation that scrambled them: {off:.1e}")
    return f"{same:.0e}, {sets:.0e}"


@claim.numeric("token 1 of (q, q + tv, q, …, q) is a sum of sigmoids s(tm_h − log(n − 1))")
def one_token_moves(draw: Draw) -> str:
    tokens, (q, v) = draw.integer(3, 7), draw.normal(2, 4)
    layer = random_attention(3, 4, 2, 3, generator=draw)
    scores, values = products(layer)
    slopes = torch.einsum("i,hij,j->h", q, scores, v) / 2**0.5
    t = torch.linspace(-8, 8, 17)
    x = q.repeat(17, tokens, 1)
    x[:, 1] += t[:, None] * v
    weights = torch.sigmoid(t[:, None] * slopes - math.log(tokens - 1))
    wanted = values.sum(0) @ q + t[:, None] * torch.einsum("th,hij,j->ti", weights, values, v)
    worst = float(((layer(x)[:, 0] - wanted).abs().amax(1) / wanted.abs().amax(1)).max())
    require(worst < 1e-11, f"token 1 is off the sum of shifted sigmoids by {worst:.1e}")
    return f"n = {tokens}, relative difference {worst:.0e}"


@claim.certificate("planted head permutations are found after scrambling")
def planted_permutations(draw: Draw) -> str:
    (by_heads, rho), error = draw.choice(head_groups()), 0.0
    for acting in (rho, skewed(rho, generator=draw)):
        layer = equivariant_attention(by_heads, acting, generator=draw)
        layer, order = scramble(layer, generator=draw)  # new head h is the former head order[h]
        found = head_action(layer, acting, generator=draw)
        wanted = torch.stack([order.argsort()[p[order]] for p in by_heads.matrices.argmax(1)])
        same = torch.equal(found.permutations, wanted)
        require(same, f"{rho.group.name}: the planted permutations are not found")
        represents = found.representation().dimension == layer.heads
        require(represents, "the permutations do not represent the group")
        error = max(error, found.error)
    return f"{rho.group.name}, {by_heads.dimension} heads, misfit {error:.0e}"


@claim.certificate("the Reynolds average copies a head for each g, and the group permutes the copies")
def averaged_head(draw: Draw) -> str:
    _, rho = draw.choice(head_groups())
    layer = orbit(random_attention(1, rho.dimension, 2, 2, generator=draw), rho)
    found = head_action(layer, rho, generator=draw)
    free = all(not (p == torch.arange(len(rho.group))).any() for p in found.permutations[1:])
    require(free, "some g other than e fixes a head of the averaged layer")
    return f"{rho.group.name}, {layer.heads} heads, no head fixed"


def _escapes(layer: MultiHeadAttention, rho: Representation, draw: Draw) -> str:
    whole = equivariance_error(layer, rho, rho, draw.normal(50, 4, rho.dimension))
    miss = unpermuted(layer, rho.matrices[1])
    require(whole < 1e-12 and miss > 1e-3, f"equivariance {whole:.1e}, heads {miss:.1e}")
    try:
        head_action(layer, rho, generator=draw)
    except NotIdentifiable:
        return f"f to {whole:.0e}, heads off by {miss:.2f}"
    raise ClaimFailed("head_action did not refuse")


@claim.control("distinct M_h", "equivariant, but no permutation of the heads fits; head_action refuses")
def heads_with_equal_scores(draw: Draw) -> str:
    rho = reflection(3)
    return _escapes(equal_scores(rho, generator=draw), rho, draw)


@claim.control("R_h ≠ 0", "equivariant, but no permutation of the heads fits; head_action refuses")
def inactive_head(draw: Draw) -> str:
    rho = reflection(3)
    return _escapes(zero_head(rho, generator=draw), rho, draw)


@claim.control("three tokens", "on two tokens equivariant without permuting heads")
def two_tokens(draw: Draw) -> str:
    layer, other = two_token_pair(generator=draw)
    same, differs = (gap(layer, other, draw.normal(100, n, 2)) for n in (2, 3))
    sets = head_set_distance(layer, other)
    apart = same < 1e-12 < 1e-9 < min(differs, sets)
    require(apart, f"2 tokens {same:.1e}, 3 tokens {differs:.1e}, sets {sets:.1e}")
    small = reflection()
    whole = equivariance_error(layer, small, small, draw.normal(50, 2, 2))
    miss = unpermuted(layer, small.matrices[1])
    require(whole < 1e-12 and miss > 1e-9, f"on two tokens: equivariance {whole:.1e}, heads {miss:.1e}")
    return f"two tokens {whole:.0e}, three {differs:.0e}, sets off by {sets:.2f}"


@claim.control("three tokens", "on two tokens (M, R) may become (−M, −R) at the price of R(x₁ + x₂)")
def two_token_identity() -> str:
    z, r, x, y = sympy.symbols("z r x y", real=True)

    def head(z: sympy.Expr, r: sympy.Expr) -> sympy.Expr:
        """Output at token 1 of a head with scores 0 and z: value r times a weighted mean of x and y."""
        return r * (x + sympy.exp(z) * y) / (1 + sympy.exp(z))

    difference = sympy.simplify(head(z, r) - head(-z, -r) - r * (x + y))
    require(difference == 0, f"the identity fails by {difference}")
    return "difference R(x₁ + x₂) (SymPy)"


@claim.control("orthogonal ρ", "ρMρ⁻¹ fits no order of the heads, ρ⁻ᵀMρ⁻¹ does")
def skew_representation(draw: Draw) -> str:
    by_heads, rho = head_groups()[0]
    acting = skewed(rho, generator=draw)
    layer, g = equivariant_attention(by_heads, acting, generator=draw), acting.matrices[1]
    scores, _ = products(layer)
    wrong = g @ scores @ torch.linalg.inv(g)
    orders = itertools.permutations(range(len(scores)))
    miss = min(float((wrong[list(order)] - scores).abs().max()) for order in orders)
    right = unpermuted(layer, g)
    require(right < 1e-10 and miss > 1e-9, f"ρ⁻ᵀMρ⁻¹ off by {right:.1e}, ρMρ⁻¹ by {miss:.1e}")
    return f"off by {miss:.2f} and {right:.0e}"
