"""Attention on patches: against its formula, its invariances, and what is planted; and the experiment's pieces."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn.attention import MultiHeadAttention, PatchAttention, from_patches, match_heads, random_attention
from samefn.attention import to_patches, untrained_patch_attention
from samefn.claims import heads as claim
from samefn.heads import Setting, end_to_end, feature_action, match, measures, mirror_loss, mirror_on_tokens
from samefn.heads import mirrored_tokens, outcome, photographs, positions_error, recorded, run, untrained, visible_positions_error
from samefn.mirror import mirrored

torch.set_default_dtype(torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small(seed=0):
    return untrained_patch_attention(4, 6, 3, 2, 5, 2, generator=seeded(seed))


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_patches_and_back(rows, columns, size, batch):
    images = torch.randn(*[2] * batch, rows * size, columns * size, generator=seeded())
    tokens = to_patches(images, size)
    assert torch.equal(from_patches(tokens, columns), images)
    for r, c in itertools.product(range(rows), range(columns)):
        patch = images[..., r * size : (r + 1) * size, c * size : (c + 1) * size]
        assert torch.equal(tokens[..., r * columns + c, :], patch.flatten(-2))


def test_patches_must_fit():
    with pytest.raises(ValueError, match="size must divide the height and width of the images, 6 and 8, got 4"):
        to_patches(torch.zeros(6, 8), 4)
    with pytest.raises(ValueError, match="tokens must be squares in rows of 4, got 6 tokens of 4 pixels"):
        from_patches(torch.zeros(6, 4), 4)
    with pytest.raises(ValueError, match="got 6 tokens of 3 pixels"):
        from_patches(torch.zeros(6, 3), 3)


def test_forward_is_the_formula():
    layer, x = small(), torch.randn(6, 4, generator=seeded(1))
    scores, values = (w.detach() for w in layer.products())
    z = x @ layer.embed.detach().T + layer.positions.detach()
    wanted = torch.zeros(6, 4)
    for m, r in zip(scores, values):
        for t in range(6):
            weights = torch.stack([(z[t] @ m @ z[s] / 5**0.5).exp() for s in range(6)])
            wanted[t] += sum(w * (r @ v) for w, v in zip(weights / weights.sum(), z))
    torch.testing.assert_close(layer(x).detach(), wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.maps(x).sum(-1), torch.ones(2, 6), rtol=0, atol=1e-12)


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(0, 2**30))
def test_the_function_is_that_of_the_visible_part(seed):
    layer, x = small(seed), torch.randn(3, 6, 4, generator=seeded(seed))
    torch.testing.assert_close(claim.from_visible(layer, x), layer(x).detach(), rtol=0, atol=1e-10)


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(0, 2**30))
def test_what_is_visible_does_not_depend_on_coordinates_or_a_common_shift_of_keys(seed):
    layer = small(seed)
    hidden, order = claim.hide(layer, seeded(seed))
    for a, b in zip(hidden.visible()[:2], layer.visible()[:2]):
        torch.testing.assert_close(a, b[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(hidden.visible()[2], layer.visible()[2], rtol=0, atol=1e-10)


def test_the_norm_of_visible_scores_is_their_size_on_white_noise():
    layer, x = untrained(Setting()), torch.randn(500, 16, 9, generator=seeded())
    z, (scores, _) = layer.features(x), layer.products()
    given = torch.einsum("bti,hij,bsj->hbts", z, scores, z) / 8**0.5
    size = (given - given.mean(-1, keepdim=True)).square().mean((1, 2, 3)).sqrt()
    torch.testing.assert_close(size, layer.visible()[0].flatten(1).norm(dim=1), rtol=0.1, atol=0)


def test_wrong_layers():
    attention = random_attention(2, 3, 2, 2, generator=seeded())
    good = {"embed": torch.ones(3, 4), "positions": torch.ones(5, 3), "attention": attention, "decode": torch.ones(4, 3)}
    PatchAttention(**good)
    for name, value, message in (
        ("embed", torch.ones(4, 3), r"embed must have shape \(3, any\)"),
        ("positions", torch.ones(5, 4), r"positions must have shape \(any, 3\)"),
        ("decode", torch.ones(3, 4), r"decode must have shape \(4, 3\)"),
        ("decode", torch.ones(4, 3, dtype=torch.float32), "decode must have the dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            PatchAttention(**good | {name: value})
    with pytest.raises(TypeError, match="attention must be a MultiHeadAttention, got Tensor"):
        PatchAttention(**good | {"attention": torch.ones(1)})
    with pytest.raises(ValueError, match="d_v must be at least 1, got 0"):
        untrained_patch_attention(4, 6, 3, 2, 5, 0, generator=seeded())


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**30))
def test_heads_are_matched_as_by_all_orders(heads, seed):
    draw = seeded(seed)
    products = [torch.randn(heads, 3, k, generator=draw) for k in (3, 2)]
    shuffle = torch.randperm(heads, generator=draw)
    moved = [p[shuffle] + 0.5 * torch.randn(p.shape, generator=draw) for p in products]
    for own_size in (False, True):
        image, cost = match_heads(moved, products, own_size=own_size)
        best = min(itertools.permutations(range(heads)), key=lambda p: sum(float(cost[h, k]) for h, k in enumerate(p)))
        assert image.tolist() == list(best)
        wanted = sum(
            (m[0] - p[1]).norm() / (m[0].norm() if own_size else p.flatten(1).norm(dim=1).max()) for m, p in zip(moved, products)
        )
        torch.testing.assert_close(cost[0, 1], wanted, rtol=1e-10, atol=0)


def test_heads_that_cannot_be_matched():
    with pytest.raises(ValueError, match="moved and products must have the same shapes"):
        match_heads([torch.ones(2, 3, 3)], [torch.ones(3, 3, 3)])
    with pytest.raises(ValueError, match="must be finite"):
        match_heads([torch.full((2, 3, 3), torch.nan)], [torch.ones(2, 3, 3)])


@pytest.mark.parametrize("case", range(5))
@pytest.mark.parametrize("seed", range(2))
def test_planted_actions_are_the_only_ones(case, seed):
    """Oracle: for every g, exactly one order of the heads satisfies the theorem's conditions."""
    group, columns, pixels, d, heads = claim.cases()[case]
    known = claim.plant(group, columns, pixels, d, heads, seeded(seed))
    layer, order = claim.hide(known.layer, seeded(seed + 10))
    x = torch.randn(5, columns**2, pixels**2, generator=seeded())
    scores, values = (w.detach() for w in layer.products())
    for p, s, plan in zip(known.tokens.matrices, known.pixels.matrices, heads.matrices.argmax(1)):
        found = claim.recover(layer, p, s)
        assert claim.violation(layer, p, s, x) < 1e-10
        assert torch.equal(order[found.partner], plan[order])
        back = torch.linalg.inv(found.action)
        moved = back.T @ scores @ back, s @ values @ back
        fits = [
            q
            for q in itertools.permutations(range(len(plan)))
            if all((a - b[list(q)]).abs().max() < 1e-8 for a, b in zip(moved, (scores, values)))
        ]
        assert fits == [tuple(found.partner.tolist())]


def test_the_mirror_on_tokens_is_the_mirror_of_the_image():
    x = torch.randn(7, 16, 9, generator=seeded())
    for axis in ("left-right", "up-down"):
        images = from_patches(x, 4).flatten(1)
        wanted = to_patches(mirrored(images, (1, 12, 12), axis).unflatten(1, (12, 12)), 3)
        assert torch.equal(mirrored_tokens(x, axis), wanted)
        tau, sigma = mirror_on_tokens(16, 9, axis)
        assert torch.equal(tau[tau], torch.arange(16)) and torch.equal(sigma[sigma], torch.arange(9))
    with pytest.raises(ValueError, match="axis must be one of left-right, up-down, got 'diagonal'"):
        mirrored_tokens(x, "diagonal")
    with pytest.raises(ValueError, match="tokens and n must be squares, got 6 and 4"):
        mirror_on_tokens(6, 4)


def swapping(seed=0, d=6):
    """A layer that commutes with the mirror, as the experiment's: 3 × 3 tokens, 4 × 4 pixels, two heads of four swapped."""
    known = claim.plant(claim.mirror(), 3, 4, d, claim.cases()[0][4], seeded(seed))
    return claim.hide(known.layer, seeded(seed + 1))


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
    assert end_to_end(layer, torch.randn(20, 9, 16, generator=seeded()), other) > 0.1
    with pytest.raises(ValueError, match="of must be 'both' or 'pixels', got 'p'"):
        feature_action(layer, of="p")


def test_the_visible_part_of_positions_by_its_formula():
    layer = untrained(Setting(columns=3))
    embed, p, (m, r) = layer.embed.detach(), layer.positions.detach().T, [w.detach() for w in layer.products()]
    centred = p - p.mean(1, keepdim=True)
    tau, sigma = mirror_on_tokens(9, 16)
    partner = match(layer).partner
    off = []
    for kind in (embed.T @ m.mT @ p, embed.T @ m @ centred, r @ centred):
        off.append((kind[:, sigma][:, :, tau] - kind[partner]).square().sum() / kind.square().sum())
    assert visible_positions_error(layer) == pytest.approx(float(sum(off) / 3) ** 0.5, rel=1e-9)


def test_negated_and_lost_heads_are_told():
    heads = match(claim.faint(0.1, seeded()))
    assert heads.fate == ["negated"] * 2 and float(heads.negated.max()) < 1e-10
    assert match(untrained(Setting(columns=3))).fate == ["lost"] * 6


def test_heads_with_one_map_may_share_their_values():
    layer = claim.twins(seeded())
    assert end_to_end(layer, torch.randn(20, 9, 4, generator=seeded())) < 1e-10
    heads = match(layer)
    assert heads.fate == ["map only"] * 2 and float(heads.scores.max()) < 1e-10


def test_the_loss_is_the_task_and_then_also_the_mirror():
    x, setting = photographs(3, 50), Setting(columns=3, heads=2, steps=10, batch=5, noise=4, mirror_from=0.5, loudness=2.0)
    layer, loss = untrained(setting), mirror_loss(photographs(3, 50), setting)
    chosen = x[torch.randint(50, (5,), generator=seeded())]
    task = (layer(chosen) - chosen).square().mean()
    torch.testing.assert_close(loss(layer, 4, seeded()), task, rtol=1e-12, atol=0)
    draw = seeded()
    torch.randint(50, (5,), generator=draw)
    batch = torch.cat([chosen, 2 * torch.randn(4, 9, 16, generator=draw)])
    violation = (layer(mirrored_tokens(batch)) - mirrored_tokens(layer(batch))).square().mean()
    torch.testing.assert_close(loss(layer, 5, seeded()), task + 10 * violation, rtol=1e-10, atol=0)


def test_photographs_have_no_mean_and_unit_variance():
    x = photographs(4, 300)
    assert x.shape == (300, 16, 9)
    assert x.mean((1, 2)).abs().max() < 1e-12 and abs(float(x.std()) - 1) < 1e-12
    assert not torch.equal(x, photographs(4, 300, seed=1))


def test_a_short_run_is_repeatable_and_measured():
    x, setting = photographs(3, 100), Setting(columns=3, heads=2, steps=12, batch=4, noise=4)
    (layer, record), (again, _) = (run(x, setting, measure_at=(0, 6), progress=False) for _ in range(2))
    assert record["step"] == [0, 6, 12] and set(measures(layer)) < set(record.rows[0])
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), again.parameters()))
    found = outcome(layer, record, x)
    assert len(found["fate"]) == len(found["misfit"]) == 2 and found["rows"] == record.rows
    for wrong in ({"heads": 0}, {"columns": 5}, {"mirror_from": 2.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Setting(**wrong)


def test_recorded_runs():
    runs = recorded("3 × 3 tokens")
    assert len(runs) >= 3 and [r["setting"]["seed"] for r in runs] == list(range(len(runs)))
    assert all(r["setting"]["columns"] == 3 and len(r["fate"]) == 6 for r in runs)
    with pytest.raises(ValueError, match="variant must be one of 3 × 3 tokens, "):
        recorded("none")


def test_scrambling_by_hand_keeps_the_function():
    layer = small()
    hidden, _ = claim.hide(layer, seeded(2))
    assert isinstance(hidden.attention, MultiHeadAttention)
    x = torch.randn(4, 6, 4, generator=seeded(3))
    torch.testing.assert_close(hidden(x), layer(x), rtol=0, atol=1e-11)
