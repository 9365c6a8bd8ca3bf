"""B-HEADS: with learned positions, the mirror acts on features, encodings and heads.  Chapter
``equivariance/heads``.
"""

from __future__ import annotations

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...equivariance.attention import random_attention
from ...equivariance.groups import Representation, cyclic, on_images, trivial
from ...equivariance.heads import PatchAttention
from ...equivariance.planted_attention import from_products, products, reflection, two_token_pair
from ...equivariance.planted_heads import (
    best_action,
    cases,
    from_visible,
    hide,
    maps_apart,
    memory,
    moved_sequence,
    odd_heads,
    plant,
    positions_only,
    recover,
    sum_of_sigmoids,
    twin_heads,
    violation,
    with_extra_feature,
)
from ...functions import gap
from .. import Claim, require

claim = Claim(
    id="B-HEADS",
    title="In an equivariant attention layer with learned positions, distinct active heads that read "
    "everything: the positions are equivariant, and each head flips in place or swaps",
    source="[B], Theorem 4.1, for attention with positions; the proof is ours",
    hypotheses=(
        "three tokens or more",
        "E is onto",
        "the M_h are pairwise distinct",
        "no M_h is 0",
        "no R_h is 0",
        "every direction of R^d is read",
        "the layer is exactly equivariant",
    ),
    uses=("B-D4", "B-T4.1", "B-ATT"),
    chapter="equivariance/heads",
)


@claim.exact("(A + tB) sigmoid(tm − c) has a pole at (c + iπ)/m, its residue 0 only for A = B = 0")
def poles_with_residues() -> str:
    # so the pole of one head's sigmoid cancels against no other head's, whose poles lie elsewhere
    t, (a, b, c) = sympy.Symbol("t"), sympy.symbols("A B c", real=True)
    m = sympy.Symbol("m", positive=True)
    at = (c + sympy.I * sympy.pi) / m
    found = sympy.residue((a + t * b) * get("sigmoid").expression(t * m - c), t, at)
    require(sympy.simplify(found - (a + at * b) / m) == 0, f"the residue is {found}")
    imaginary = sympy.simplify(sympy.im(sympy.expand(found * m)))
    require(imaginary == b * sympy.pi / m, "a residue 0 does not force B = 0")
    return "residue (A + t₀B)/m at t₀ = (c + iπ)/m (SymPy)"


@claim.numeric("the function needs only what is visible, and no change of coordinates changes that")
def only_the_visible(draw: Draw) -> str:
    known = plant(*draw.choice(cases()), generator=draw)
    layer, order = hide(known.layer, generator=draw)
    x = draw.normal(20, len(layer.positions), layer.embed.shape[1])
    same, seen = gap(layer, known.layer, x), gap(layer, lambda x: from_visible(layer, x), x)
    require(max(same, seen) < 1e-10, f"hidden layer off by {same:.1e}, from what is visible by {seen:.1e}")
    pairs = zip(layer.visible()[:2], known.layer.visible()[:2], strict=True)
    off = max(float((a - b[order]).abs().max() / b.abs().max()) for a, b in pairs)
    require(off < 1e-10, f"the visible matrices changed by {off:.1e}")
    return f"{seen:.0e}, {off:.0e}"


@claim.certificate("T from the pixels moves positions and heads as planted; it represents the group")
def action_from_the_pixels(draw: Draw) -> str:
    group, columns, pixels, d, heads = draw.choice(cases())
    known = plant(group, columns, pixels, d, heads, generator=draw)
    layer, order = hide(known.layer, generator=draw)
    moves = zip(known.tokens.matrices, known.pixels.matrices, strict=True)
    found = [recover(layer, p, s) for p, s in moves]
    for f, plan in zip(found, heads.matrices.argmax(1), strict=True):
        same = torch.equal(f.partner, order.argsort()[plan[order]])
        require(same, f"{group.name}: the planted permutation is not found")
    worst = max(max(f.pixels, f.positions, f.heads) for f in found)
    # three pseudo-inverses and products of well-conditioned matrices: a few hundred roundings
    require(worst < 1e-9, f"{group.name}: the weights are off by {worst:.1e}")
    Representation(group, torch.stack([f.action for f in found]))  # raises unless T is a homomorphism
    where = f"{columns}² tokens of {pixels}² pixels"
    return f"{group.name}, {where}, {len(order)} heads, d = {d}: misfit {worst:.0e}"


@claim.numeric("f(gX) = g f(X), and the map of head h moves to that of head π(h)")
def function_and_maps_move(draw: Draw) -> str:
    known = plant(*draw.choice(cases()), generator=draw)
    layer, _ = hide(known.layer, generator=draw)
    x = draw.normal(20, len(layer.positions), layer.embed.shape[1])
    before, whole, maps = layer.maps(x), 0.0, 0.0
    for p, s in zip(known.tokens.matrices, known.pixels.matrices, strict=True):
        whole = max(whole, violation(layer, p, s, x))
        after = layer.maps(moved_sequence(x, p, s))[:, recover(layer, p, s).partner]
        maps = max(maps, float((after - p @ before @ p.T).abs().max()))
    require(max(whole, maps) < 1e-9, f"function {whole:.1e}, maps {maps:.1e}")
    return f"{whole:.0e}, {maps:.0e}"


TOKENS, SIZE, FEATURES, HEADS, VALUES = 3, 3, 2, 2, 1  # of a small layer, d_k = d
CHANGES = 2 * FEATURES**2 + HEADS * (FEATURES**2 + VALUES**2)


def _nullity(layer: PatchAttention, x: torch.Tensor) -> int:
    """How many directions of all weights do not change the layer on x, to 1e-9 of the steepest."""
    weights = {name: w.detach() for name, w in layer.named_parameters()}
    jacobians = torch.func.jacrev(lambda w: torch.func.functional_call(layer, w, (x,)))(weights)
    values = torch.linalg.svdvals(torch.cat([j.reshape(x.numel(), -1) for j in jacobians.values()], 1))
    return sum(w.numel() for w in weights.values()) - int((values > 1e-9 * values[0]).sum())


@claim.certificate("near random weights only coordinates of features, outputs, keys and values can change")
def directions_that_change_nothing(draw: Draw) -> str:
    attention = random_attention(HEADS, FEATURES, FEATURES, VALUES, generator=draw)
    outer = draw.normal(FEATURES, SIZE), draw.normal(TOKENS, FEATURES), draw.normal(SIZE, FEATURES)
    layer = PatchAttention(outer[0], outer[1], attention, outer[2])
    found = _nullity(layer, draw.normal(24, TOKENS, SIZE))
    require(found == CHANGES, f"{found} directions change nothing, {CHANGES} are coordinates")
    return f"{found} directions of {sum(w.numel() for w in layer.parameters())}"


@claim.numeric("along one token f is a sum of C + sigmoid(tm − c)(A + tB)")
def sigmoids_along_one_token(draw: Draw) -> str:
    layer, _ = hide(plant(*draw.choice(cases()), generator=draw).layer, generator=draw)
    (tokens, _), n = layer.positions.shape, layer.embed.shape[1]
    x, y, t = draw.normal(tokens, n), draw.normal(n), torch.linspace(-3, 3, 13)
    along = x.repeat(len(t), 1, 1)
    along[:, -1] += t[:, None] * y
    wanted = layer(along)[:, 0]
    off = float((sum_of_sigmoids(layer, x, y, tokens - 1, t) - wanted).abs().max() / wanted.abs().max())
    require(off < 1e-10, f"the sum of sigmoids is off by {off:.1e}")
    return f"{tokens} tokens, relative difference {off:.0e}"


def _mirror(columns: int, pixels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """P and S of the mirror on columns² tokens of pixels² pixels."""
    mirror = cyclic(2)
    return on_images(mirror, columns).matrices[1], on_images(mirror, pixels).matrices[1]


@claim.control("p_τ(t) = T p_t", "one encoding moved by 0.1: the layer is no longer equivariant")
def one_encoding_moved(draw: Draw) -> str:
    group, columns, pixels, d, heads = draw.choice(cases()[:2])
    layer = plant(group, columns, pixels, d, heads, generator=draw).layer
    shifted = layer.positions.clone()
    shifted[0] += 0.1 * draw.normal(d)
    moved = PatchAttention(layer.embed, shifted, layer.attention, layer.decode)
    whole = violation(moved, *_mirror(columns, pixels), draw.normal(50, columns**2, pixels**2))
    require(whole > 1e-6, f"a moved encoding is not noticed: {whole:.1e}")
    return f"off by {whole:.0e}"


@claim.control("every direction of R^d is read", "equivariant, but no T moves pixels and positions")
def unread_feature(draw: Draw) -> str:
    group, columns, pixels, d, heads = draw.choice(cases()[:2])
    layer = plant(group, columns, pixels, d, heads, generator=draw).layer
    wider, moves = with_extra_feature(layer, generator=draw), _mirror(columns, pixels)
    whole = violation(wider, *moves, draw.normal(50, columns**2, pixels**2))
    miss = best_action(wider, *moves)
    require(
        whole < 1e-10 and miss > 1e-6, f"extra feature: equivariance {whole:.1e}, best T off by {miss:.1e}"
    )
    return f"f to {whole:.0e}, best T off by {miss:.2f}"


@claim.control(
    "the M_h are pairwise distinct", "two heads with one map: equivariant, and only the sum of R_h is moved"
)
def two_heads_with_one_map(draw: Draw) -> str:
    shared, moves = twin_heads(generator=draw), _mirror(3, 2)
    whole, miss = violation(shared, *moves, draw.normal(50, 9, 4)), recover(shared, *moves).heads
    require(
        whole < 1e-10 and miss > 1e-6, f"two heads with one map: equivariance {whole:.1e}, heads {miss:.1e}"
    )
    return f"f to {whole:.0e}, heads off by {miss:.2f}"


@claim.control("E is onto", "scores of positions only: equivariant, and no order of the heads fits")
def scores_of_positions(draw: Draw) -> str:
    columns = draw.integer(3, 5)
    fixed, moves = positions_only(columns, 2, generator=draw), _mirror(columns, 2)
    x = draw.normal(50, columns**2, 4)
    whole, miss = violation(fixed, *moves, x), maps_apart(fixed, *moves, x)
    require(whole < 1e-10 and miss > 1e-6, f"positions only: equivariance {whole:.1e}, maps {miss:.1e}")
    return f"f to {whole:.0e}, maps off by {miss:.0e}"


@claim.control("E is onto", "a head that uses positions as a memory: equivariant, though it does not flip")
def positions_as_a_memory(draw: Draw) -> str:
    columns = draw.integer(3, 5)
    head, (p, s) = memory(columns, 2, generator=draw), _mirror(columns, 2)
    scores, both = head.visible()[0], torch.block_diag(s, p)
    whole = violation(head, p, s, draw.normal(50, columns**2, 4))
    miss = float((both @ scores @ both.T - scores).norm() / scores.norm())
    require(whole < 1e-10 and miss > 1e-6, f"memory: equivariance {whole:.1e}, head {miss:.1e}")
    return f"f to {whole:.0e}, head off by {miss:.1f}"


@claim.control(
    "the layer is exactly equivariant",
    "scores of size ε = 1e-2, 1e-3, 1e-4: nearly equivariant, and heads change sign",
)
def nearly_linear_heads(draw: Draw) -> str:
    moves, x, state, errors, misses = _mirror(3, 2), draw.normal(50, 9, 4), draw.get_state(), [], []
    for strength in (1e-2, 1e-3, 1e-4):
        draw.set_state(state)
        layer = odd_heads(strength, generator=draw)
        errors.append(violation(layer, *moves, x))
        misses.append(recover(layer, *moves).heads)
    faint = errors[2] < 0.1 * errors[0] and min(misses) > 0.1
    require(faint, f"faint heads: errors {errors}, misfits {misses}")
    figures = ", ".join(f"{error:.0e}" for error in errors)
    return f"f off by {figures}; heads by {min(misses):.1f}"


@claim.control("three tokens or more", "two tokens: equivariant, and no order of the heads fits")
def two_tokens(draw: Draw) -> str:
    eye, reflect = torch.eye(2), reflection().matrices[1]
    layer = PatchAttention(eye, torch.zeros(2, 2), two_token_pair(generator=draw)[0], eye)
    whole, miss = violation(layer, eye, reflect, draw.normal(50, 2, 2)), recover(layer, eye, reflect).heads
    require(whole < 1e-10 and miss > 1e-6, f"two tokens: equivariance {whole:.1e}, heads {miss:.1e}")
    return f"f to {whole:.0e}, heads off by {miss:.2f}"


def _one_head(draw: Draw) -> PatchAttention:
    """A planted layer of one head, on 4 × 4 tokens of 2 × 2 pixels."""
    return plant(cyclic(2), 4, 2, 3, trivial(cyclic(2), 1), generator=draw).layer


@claim.control("no M_h is 0", "a head that takes the mean: equivariant, though positions are not")
def mean_head(draw: Draw) -> str:
    known, moves, x = _one_head(draw), _mirror(4, 2), draw.normal(50, 16, 4)
    (scores, values), away = products(known.attention), draw.normal(16, 3)
    attention = from_products(torch.zeros_like(scores), values)
    layer = PatchAttention(known.embed, known.positions + away - away.mean(0), attention, known.decode)
    whole, miss = violation(layer, *moves, x), recover(layer, *moves).positions
    require(whole < 1e-10 and miss > 1e-6, f"mean: equivariance {whole:.1e}, positions {miss:.1e}")
    return f"f to {whole:.0e}, positions off by {miss:.2f}"


@claim.control("no R_h is 0", "a head that writes nothing: equivariant, and no order of the heads fits")
def silent_head(draw: Draw) -> str:
    known, moves, x = _one_head(draw), _mirror(4, 2), draw.normal(50, 16, 4)
    scores, values = products(known.attention)
    both = torch.cat([scores, draw.normal(1, 3, 3)]), torch.cat([values, torch.zeros_like(values)])
    layer = PatchAttention(known.embed, known.positions, from_products(*both), known.decode)
    whole, miss = violation(layer, *moves, x), recover(layer, *moves).heads
    require(whole < 1e-10 and miss > 1e-6, f"silent head: equivariance {whole:.1e}, heads {miss:.1e}")
    return f"f to {whole:.0e}, heads off by {miss:.2f}"
