"""B-ATT: an equivariant attention layer permutes its heads.  Chapter ``equivariance/attention``."""

from __future__ import annotations

import itertools
import math

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...equivariance.attention import MultiHeadAttention, head_action, random_attention, scramble
from ...equivariance.groups import Representation
from ...equivariance.layerwise import NotIdentifiable, equivariance_error
from ...equivariance.planted_attention import (
    equal_scores,
    equivariant_attention,
    from_products,
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
    title="On three tokens or more, distinct active heads are determined; an equivariant layer permutes them",
    source="[B], multi-head attention; the proof is ours",
    hypotheses=(
        "the M_h are pairwise distinct",
        "no R_h is 0",
        "three tokens or more",
        "all sequences of tokens, or an open set of them",
        "the layer is equivariant",
        "rank M_h = d_k and rank R_h = d_v, for the four weights of a head",
    ),
    uses=("B-D1", "B-D4", "B-T4.1"),
    chapter="equivariance/attention",
)


@claim.exact("the slowest exponentials of sigmoid(±tm − c), c ≠ 0, are independent")
def shifted_sigmoids() -> str:
    e, c = sympy.Symbol("e", positive=True), sympy.Symbol("c", real=True)
    sigmoid = get("sigmoid").expression
    # e = exp(tm), to 0 and to infinity
    plus, minus = (sympy.simplify(sigmoid(sign * sympy.log(e) - c)) for sign in (1, -1))
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
    scores, values = products(layer)
    for changed in (from_products(scores, 1.1 * values), from_products(1.1 * scores, values)):
        require(head_set_distance(layer, changed) > 1e-6, "ten percent of a head are not noticed")
    pairs = zip(products(layer), products(other), strict=True)
    off = max(float((a[order] - b).abs().max()) for a, b in pairs)
    require(off < 1e-11, f"the products are not reordered by the permutation that scrambled them: {off:.1e}")
    return f"{same:.0e}, {sets:.0e}"


def _small_layers() -> list[MultiHeadAttention]:
    """All layers on numbers (d = 1) of one or two heads with different M from −2 to 2, and R = ±1 or ±2."""
    active = [r for r in range(-2, 3) if r]
    heads = [list(zip(ms, rs)) for k in (1, 2) for ms in itertools.combinations(range(-2, 3), k)
             for rs in itertools.product(active, repeat=k)]  # fmt: skip
    columns = [torch.tensor(pairs, dtype=torch.float64).T[:, :, None, None] for pairs in heads]
    return [from_products(scores, values) for scores, values in columns]


def _closest(tokens: int, draw: Draw) -> float:
    """Of the values of two small layers on sequences of so many numbers, the least largest difference."""
    x = draw.normal(20, tokens, 1)
    values = torch.stack([layer(x).flatten() for layer in _small_layers()])
    apart = torch.cdist(values, values, p=torch.inf)
    return float(apart.fill_diagonal_(torch.inf).min())


@claim.numeric("all 180 layers on numbers with one or two heads of small M_h ≠ M_h′ and R_h ≠ 0: all differ")
def small_layers_are_told_apart(draw: Draw) -> str:
    closest = _closest(3, draw)
    require(closest > 1e-9, f"two layers with other heads have one function, to {closest:.1e}")
    return f"closest two differ by {closest:.3f} on 20 sequences of three tokens"


def _nullity(layer: MultiHeadAttention, x: torch.Tensor) -> int:
    """How many directions of the weights do not change the layer on x, to 1e-9 of the steepest."""
    weights = {name: w.detach() for name, w in layer.named_parameters()}
    jacobians = torch.func.jacrev(lambda w: torch.func.functional_call(layer, w, (x,)))(weights)
    rows = torch.cat([j.reshape(x.numel(), -1) for j in jacobians.values()], 1)
    values = torch.linalg.svdvals(rows)
    return rows.shape[1] - int((values > 1e-9 * values[0]).sum())


SHAPES = (2, 3, 2, 1), (2, 2, 1, 2)  # H, d, d_k, d_v
FLAT = {shape: shape[0] * (shape[2] ** 2 + shape[3] ** 2) for shape in SHAPES}


@claim.certificate("near random weights only GL(d_k) × GL(d_v) of each head keeps the function")
def directions_that_change_nothing(draw: Draw) -> str:
    for heads, d, d_k, d_v in SHAPES:
        found = _nullity(random_attention(heads, d, d_k, d_v, generator=draw), draw.normal(16, 3, d))
        wanted = FLAT[heads, d, d_k, d_v]
        require(found == wanted, f"{found} directions change nothing, {wanted} belong to the groups")
    return f"{', '.join(map(str, FLAT.values()))} directions for (H, d, d_k, d_v) = {SHAPES}"


@claim.numeric("token 1 of (q, q + tv, q, …, q) is a sum of sigmoids of tm_h − log(n − 1)")
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
    (by_heads, rho), error = draw.choice(head_groups()[1:]), 0.0  # of order 3 or 4, some elements
    for acting in (rho, skewed(rho, generator=draw)):
        layer = equivariant_attention(by_heads, acting, generator=draw)
        layer, order = scramble(layer, generator=draw)  # new head h is the former head order[h]
        whole = equivariance_error(layer, acting, acting, draw.normal(20, 4, acting.dimension))
        require(whole < 1e-10, f"{rho.group.name}: the planted layer is not equivariant: {whole:.1e}")
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
    whole = equivariance_error(layer, rho, rho, draw.normal(20, 4, rho.dimension))
    require(whole < 1e-10, f"{rho.group.name}: the average is not equivariant: {whole:.1e}")
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


@claim.control(
    "the M_h are pairwise distinct", "equivariant, but no permutation of the heads fits; head_action refuses"
)
def heads_with_equal_scores(draw: Draw) -> str:
    rho = reflection(3)
    return _escapes(equal_scores(rho, generator=draw), rho, draw)


@claim.control("no R_h is 0", "equivariant, but no permutation of the heads fits; head_action refuses")
def inactive_head(draw: Draw) -> str:
    rho = reflection(3)
    return _escapes(zero_head(rho, generator=draw), rho, draw)


@claim.control("three tokens or more", "on two tokens equivariant without permuting heads")
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


@claim.control("three tokens or more", "on two tokens (M, R) may become (−M, −R) at the price of R(x₁ + x₂)")
def two_token_identity() -> str:
    z, r, x, y = sympy.symbols("z r x y", real=True)

    def head(z: sympy.Expr, r: sympy.Expr) -> sympy.Expr:
        """Output at token 1 of a head with scores 0 and z: value r times a weighted mean of x and y."""
        return r * (x + sympy.exp(z) * y) / (1 + sympy.exp(z))

    difference = sympy.simplify(head(z, r) - head(-z, -r) - r * (x + y))
    require(difference == 0, f"the identity fails by {difference}")
    return "difference R(x₁ + x₂) (SymPy)"


@claim.control(
    "M moved by ρ⁻ᵀMρ⁻¹ where ρ is not orthogonal", "ρMρ⁻¹ fits no order of the heads, ρ⁻ᵀMρ⁻¹ does"
)
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


@claim.control("three tokens or more", "on two tokens, two of the 180 small layers have one function")
def small_layers_on_two_tokens(draw: Draw) -> str:
    closest = _closest(2, draw)
    require(closest < 1e-12, f"on two tokens all small layers differ, by {closest:.1e}")
    return f"difference {closest:.0e}"


@claim.control(
    "all sequences of tokens, or an open set of them", "layers of other M_h agree where all tokens are equal"
)
def equal_tokens(draw: Draw) -> str:
    layer = random_attention(3, 4, 2, 3, generator=draw)
    scores, values = products(layer)
    other = from_products(scores.flip(0) + 1, values)
    x = draw.normal(50, 1, 4).expand(50, 5, 4)
    same, sets = gap(layer, other, x), head_set_distance(layer, other)
    require(same < 1e-12 and sets > 1e-3, f"function off by {same:.1e}, heads by {sets:.1e}")
    return f"difference {same:.0e}, heads off by {sets:.2f}"


@claim.control(
    "the layer is equivariant", "no order of a random layer's heads is what a reflection makes of them"
)
def not_equivariant(draw: Draw) -> str:
    miss = unpermuted(random_attention(3, 3, 2, 2, generator=draw), reflection(3).matrices[1])
    require(miss > 1e-3, f"the heads of a random layer are permuted, to {miss:.1e}")
    return f"off by {miss:.2f}"


@claim.control(
    "rank M_h = d_k and rank R_h = d_v, for the four weights of a head",
    "of lower rank: more directions of the weights change nothing, beyond the groups",
)
def lower_rank(draw: Draw) -> str:
    (heads, d, d_k, d_v), wanted = SHAPES[0], FLAT[SHAPES[0]]
    full = random_attention(heads, d, d_k, d_v, generator=draw)
    query, key = full.query.detach().clone(), full.key.detach().clone()
    query[:, 1], key[:, 1] = query[:, 0], key[:, 0]
    layer = MultiHeadAttention(query, key, full.value.detach(), full.output.detach())
    found = _nullity(layer, draw.normal(16, 3, d))
    require(found > wanted, f"{found} directions change nothing, {wanted} at full rank")
    return f"{found} directions, {wanted} at full rank"
