"""Attention on patches: against its formula, its invariances, and what is planted."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance import planted_heads
from samefn.equivariance.attention import MultiHeadAttention, match_heads, random_attention
from samefn.equivariance.groups import cyclic
from samefn.equivariance.heads import (
    PatchAttention,
    feature_action,
    match,
    positions_error,
    untrained_patch_attention,
    visible_positions_error,
)
from samefn.equivariance.images import mirror_on_tokens
from samefn.experiments.mirror_attention import Setting, end_to_end, untrained


def small(seed=0):
    return untrained_patch_attention(4, 6, 3, 2, 5, 2, generator=Draw(seed))


def test_forward_is_the_formula():
    layer, x = small(), Draw(1).normal(6, 4)
    scores, values = (w.detach() for w in layer.products())
    z = x @ layer.embed.detach().T + layer.positions.detach()
    wanted = torch.zeros(6, 4)
    for m, r in zip(scores, values):
        for t in range(6):
            weights = torch.stack([(z[t] @ m @ z[s] / 5**0.5).exp() for s in range(6)])
            wanted[t] += sum(w * (r @ v) for w, v in zip(weights / weights.sum(), z))
    torch.testing.assert_close(layer(x).detach(), wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.maps(x).sum(-1), torch.ones(2, 6), rtol=0, atol=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 2**30))
def test_the_function_is_that_of_the_visible_part(seed):
    layer, x = small(seed), Draw(seed).normal(3, 6, 4)
    torch.testing.assert_close(planted_heads.from_visible(layer, x), layer(x).detach(), rtol=0, atol=1e-10)


@settings(max_examples=20)
@given(st.integers(0, 2**30))
def test_what_is_visible_does_not_depend_on_coordinates_or_a_common_shift_of_keys(seed):
    layer = small(seed)
    hidden, order = planted_heads.hide(layer, generator=Draw(seed))
    for a, b in zip(hidden.visible()[:2], layer.visible()[:2]):
        torch.testing.assert_close(a, b[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(hidden.visible()[2], layer.visible()[2], rtol=0, atol=1e-10)


def test_scrambling_by_hand_keeps_the_function():
    layer = small()
    hidden, _ = planted_heads.hide(layer, generator=Draw(2))
    assert isinstance(hidden.attention, MultiHeadAttention)
    x = Draw(3).normal(4, 6, 4)
    torch.testing.assert_close(hidden(x), layer(x), rtol=0, atol=1e-11)


def test_the_norm_of_visible_scores_is_their_size_on_white_noise():
    layer, x = untrained(Setting()), Draw().normal(500, 16, 9)
    z, (scores, _) = layer.features(x), layer.products()
    given = torch.einsum("bti,hij,bsj->hbts", z, scores, z) / 8**0.5
    size = (given - given.mean(-1, keepdim=True)).square().mean((1, 2, 3)).sqrt()
    torch.testing.assert_close(size, layer.visible()[0].flatten(1).norm(dim=1), rtol=0.1, atol=0)


def test_wrong_layers():
    attention = random_attention(2, 3, 2, 2, generator=Draw())
    good = {
        "embed": torch.ones(3, 4),
        "positions": torch.ones(5, 3),
        "attention": attention,
        "decode": torch.ones(4, 3),
    }
    PatchAttention(**good)
    for name, value, message in (
        ("positions", torch.ones(5, 4), r"positions must be .* with d = 3"),
        ("decode", torch.ones(3, 4), r"decode must be .* with d = 3, n = 4"),
        ("decode", torch.ones(4, 3, dtype=torch.float32), "decode must have the dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            PatchAttention(**good | {name: value})
    with pytest.raises(ValueError, match=r"embed must have shape \(3, any\)"):
        PatchAttention(torch.ones(4, 4), torch.ones(5, 4), attention, torch.ones(4, 4))
    with pytest.raises(
        TypeError, match=r"attention must be a MultiHeadAttention, got a torch.float64 Tensor"
    ):
        PatchAttention(**good | {"attention": torch.ones(1)})
    with pytest.raises(ValueError, match="d_v must be an integer of at least 1, got 0"):
        untrained_patch_attention(4, 6, 3, 2, 5, 0, generator=Draw())


@settings(max_examples=20)
@given(st.integers(2, 5), st.integers(0, 2**30))
def test_heads_are_matched_as_by_all_orders(heads, seed):
    draw = Draw(seed)
    products = [draw.normal(heads, 3, k) for k in (3, 2)]
    shuffle = torch.randperm(heads, generator=draw)
    moved = [p[shuffle] + 0.5 * draw.normal(*p.shape) for p in products]
    for own_size in (False, True):
        image, cost = match_heads(moved, products, own_size=own_size)
        best = min(
            itertools.permutations(range(heads)),
            key=lambda p: sum(float(cost[h, k]) for h, k in enumerate(p)),
        )
        assert image.tolist() == list(best)
        wanted = sum(
            (m[0] - p[1]).norm() / (m[0].norm() if own_size else p.flatten(1).norm(dim=1).max())
            for m, p in zip(moved, products)
        )
        torch.testing.assert_close(cost[0, 1], wanted, rtol=1e-10, atol=0)


def test_heads_that_cannot_be_matched():
    with pytest.raises(ValueError, match=r"products\[0\] must be .* with H = 2"):
        match_heads([torch.ones(2, 3, 3)], [torch.ones(3, 3, 3)])
    with pytest.raises(ValueError, match="moved and products must have the same shapes"):
        match_heads([torch.ones(2, 3, 3)], [torch.ones(2, 3, 4)])
    with pytest.raises(ValueError, match="must be finite"):
        match_heads([torch.full((2, 3, 3), torch.nan)], [torch.ones(2, 3, 3)])


@pytest.mark.parametrize("case", range(5))
@pytest.mark.parametrize("seed", range(2))
def test_planted_actions_are_the_only_ones(case, seed):
    """Oracle: for every g, exactly one order of the heads satisfies the theorem's conditions."""
    group, columns, pixels, d, heads = planted_heads.cases()[case]
    known = planted_heads.plant(group, columns, pixels, d, heads, generator=Draw(seed))
    layer, order = planted_heads.hide(known.layer, generator=Draw(seed + 10))
    x = Draw().normal(5, columns**2, pixels**2)
    scores, values = (w.detach() for w in layer.products())
    for p, s, plan in zip(known.tokens.matrices, known.pixels.matrices, heads.matrices.argmax(1)):
        found = planted_heads.recover(layer, p, s)
        assert planted_heads.violation(layer, p, s, x) < 1e-10
        assert torch.equal(order[found.partner], plan[order])
        back = torch.linalg.inv(found.action)
        moved = back.T @ scores @ back, s @ values @ back
        fits = [
            q
            for q in itertools.permutations(range(len(plan)))
            if all((a - b[list(q)]).abs().max() < 1e-8 for a, b in zip(moved, (scores, values)))
        ]
        assert fits == [tuple(found.partner.tolist())]


def swapping(seed=0, d=6):
    """A layer that commutes with the mirror: 3 × 3 tokens, 4 × 4 pixels, two heads of four swapped."""
    known = planted_heads.plant(cyclic(2), 3, 4, d, planted_heads.cases()[0][4], generator=Draw(seed))
    return planted_heads.hide(known.layer, generator=Draw(seed + 1))


@pytest.mark.parametrize("seed", range(3))
def test_an_equivariant_layer_has_no_errors_and_known_fates(seed):
    layer, order = swapping(seed)
    axis, other = "left-right", "up-down"
    heads = match(layer, axis)
    wanted = torch.tensor([0, 1, 3, 2])
    assert torch.equal(order[heads.partner], wanted[order])
    assert heads.fate == ["swapped" if h > 1 else "in place" for h in order.tolist()]
    assert max(heads.scores.max(), heads.values.max()) < 1e-10
    assert visible_positions_error(layer, axis) < 1e-10 < 0.1 < visible_positions_error(layer, other)
    for of in ("both", "pixels"):
        assert positions_error(layer, axis, of=of) < 1e-10 < 0.1 < positions_error(layer, other, of=of)
        action = feature_action(layer, axis, of=of)
        torch.testing.assert_close(action @ action, torch.eye(6), rtol=0, atol=1e-9)
    assert end_to_end(layer, Draw().normal(20, 9, 16), other) > 0.1
    with pytest.raises(ValueError, match="of must be one of 'both', 'pixels', got 'p'"):
        feature_action(layer, of="p")


def test_the_visible_part_of_positions_by_its_formula():
    layer = untrained(Setting(columns=3))
    embed, p, (m, r) = (
        layer.embed.detach(),
        layer.positions.detach().T,
        [w.detach() for w in layer.products()],
    )
    centred = p - p.mean(1, keepdim=True)
    tau, sigma = mirror_on_tokens(9, 16)
    partner = match(layer).partner
    off = []
    for kind in (embed.T @ m.mT @ p, embed.T @ m @ centred, r @ centred):
        off.append((kind[:, sigma][:, :, tau] - kind[partner]).square().sum() / kind.square().sum())
    assert visible_positions_error(layer) == pytest.approx(float(sum(off) / 3) ** 0.5, rel=1e-9)


def test_negated_and_lost_heads_are_told():
    heads = match(planted_heads.odd_heads(0.1, generator=Draw()))
    assert heads.fate == ["negated"] * 2 and float(heads.negated.max()) < 1e-10
    assert match(untrained(Setting(columns=3))).fate == ["lost"] * 6


def test_heads_with_one_map_may_share_their_values():
    layer = planted_heads.twin_heads(generator=Draw())
    assert end_to_end(layer, Draw().normal(20, 9, 4)) < 1e-10
    heads = match(layer)
    assert heads.fate == ["map only"] * 2 and float(heads.scores.max()) < 1e-10


def test_the_misfit_of_a_pair_is_the_mean_of_its_two_parts():
    found = match(untrained(Setting(columns=3)))
    pairs = found.misfit[torch.arange(6), found.partner]
    torch.testing.assert_close(pairs, (found.scores + found.values) / 2, rtol=1e-12, atol=0)


def test_untrained_weights_are_uniform_with_the_variance_of_one_over_the_inputs():
    layer = untrained_patch_attention(30, 4, 60, 5, 20, 10, generator=Draw())
    attention = layer.attention
    for weight, inputs in (
        (layer.embed, 30),
        (layer.decode, 60),
        (attention.query, 60),
        (attention.key, 60),
        (attention.value, 60),
        (attention.output, 50),
    ):
        weight, edge = weight.detach(), (3 / inputs) ** 0.5
        assert 0.99 * edge < float(weight.max()) < edge and -edge < float(weight.min()) < -0.99 * edge
        assert float(weight.square().mean()) == pytest.approx(1 / inputs, rel=0.1)
