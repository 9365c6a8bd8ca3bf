"""Planted layers with positions: equivariant as said, one function where said, the formulas written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.heads import untrained_patch_attention
from samefn.equivariance.planted_heads import (
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


def mirrors(columns, pixels):
    """The left-right mirror on tokens and on pixels, as matrices made of indices."""
    found = []
    for n in (columns, pixels):
        matrix = torch.zeros(n * n, n * n)
        for r in range(n):
            for c in range(n):
                matrix[r * n + n - 1 - c, r * n + c] = 1
        found.append(matrix)
    return found


def off(f, other, x):
    return float((f(x) - other(x)).detach().abs().max() / f(x).detach().abs().max())


@pytest.mark.parametrize("case", range(5))
def test_planted_layers_are_what_they_say(case):
    group, columns, pixels, d, heads = cases()[case]
    known = plant(group, columns, pixels, d, heads, generator=Draw(case))
    layer, x = known.layer, Draw(1).normal(4, columns**2, pixels**2)
    size = float(layer(x).detach().abs().max())
    embed, positions = layer.embed.detach(), layer.positions.detach()
    for e in group.elements:
        p, s, rho = known.tokens(e), known.pixels(e), known.features(e)
        torch.testing.assert_close(embed @ s, rho @ embed, rtol=0, atol=1e-10)
        torch.testing.assert_close(p @ positions, positions @ torch.linalg.inv(rho).T, rtol=0, atol=1e-9)
        moved = torch.stack([p @ one @ s.T for one in x])
        assert torch.equal(moved, moved_sequence(x, p, s))
        gap = float((layer(moved).detach() - p @ layer(x).detach() @ s.T).abs().max()) / size
        assert gap < 1e-10 and violation(layer, p, s, x) == pytest.approx(gap, abs=1e-13)
        assert best_action(layer, p, s) < 1e-10 and maps_apart(layer, p, s, x) < 1e-9
        found = recover(layer, p, s)
        torch.testing.assert_close(found.action, rho, rtol=0, atol=1e-9)
        assert max(found.pixels, found.positions, found.heads) < 1e-9


def test_the_mirror_is_left_and_right():
    group, columns, pixels, d, heads = cases()[0]
    known = plant(group, columns, pixels, d, heads, generator=Draw())
    for found, wanted in zip((known.tokens, known.pixels), mirrors(columns, pixels)):
        assert torch.equal(found.matrices[1], wanted)


def random_layer(seed, tokens=9, n=4):
    return untrained_patch_attention(n, tokens, 3, 2, 4, 2, generator=Draw(seed))


def test_a_random_layer_misses_everything():
    layer, (p, s), x = random_layer(0), mirrors(3, 2), Draw(1).normal(5, 9, 4)
    found = recover(layer, p, s)
    misses = found.pixels, found.positions, found.heads, best_action(layer, p, s), maps_apart(layer, p, s, x)
    assert min(misses) > 1e-2 and violation(layer, p, s, x) > 1e-2


def test_best_action_is_least_squares():
    layer, (p, s) = random_layer(2), mirrors(3, 2)
    embed, positions = layer.embed.detach(), layer.positions.detach()
    before = torch.cat([embed, positions.T], 1)
    after = torch.cat([embed @ s, (p.T @ positions).T], 1)
    t = torch.linalg.solve(before @ before.T, before @ after.T).T  # normal equations
    assert best_action(layer, p, s) == pytest.approx(float((after - t @ before).norm() / after.norm()))


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_hidden_and_widened_layers_have_the_same_function(seed):
    layer, x = random_layer(seed), Draw(seed).normal(4, 9, 4)
    hidden, order = hide(layer, generator=Draw(seed))
    assert sorted(order.tolist()) == [0, 1] and off(layer, hidden, x) < 1e-10
    wider = with_extra_feature(layer, generator=Draw(seed))
    assert wider.embed.shape == (4, 4) and off(layer, wider, x) < 1e-10
    assert float((from_visible(layer, x) - layer(x).detach()).abs().max()) < 1e-10


def test_an_extra_feature_hides_the_action():
    group, columns, pixels, d, heads = cases()[1]
    known = plant(group, columns, pixels, d, heads, generator=Draw())
    wider = with_extra_feature(known.layer, generator=Draw(1))
    p, s = known.tokens.matrices[1], known.pixels.matrices[1]
    x = Draw(2).normal(5, columns**2, pixels**2)
    assert violation(wider, p, s, x) < 1e-10 and best_action(wider, p, s) > 1e-2


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_sum_of_sigmoids_is_the_function(seed, a):
    """Against the layer itself, with token a moved along y."""
    layer, draw = random_layer(seed), Draw(seed)
    x, y, t = draw.normal(9, 4), draw.normal(4), draw.normal(6)
    moved = x.repeat(6, 1, 1)
    moved[:, a] += t[:, None] * y
    found = sum_of_sigmoids(layer, x, y, a, t).detach()
    torch.testing.assert_close(found, layer(moved)[:, 0].detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("columns", [2, 3])
def test_positions_only(seed, columns):
    """Constant maps A ± kD: f is A X Uᵀ + D X Vᵀ and equivariant, but the mirror takes no map to a map."""
    layer, (p, s) = positions_only(columns, 2, generator=Draw(seed)), mirrors(columns, 2)
    x = Draw(seed).normal(6, columns**2, 4)
    assert violation(layer, p, s, x) < 1e-11 and maps_apart(layer, p, s, x) > 1e-3
    maps = layer.maps(x).detach()
    assert float((maps - maps[:1]).abs().max()) < 1e-13
    one, two = maps[0]
    even, odd = 2 * one - two, two - one
    torch.testing.assert_close(p @ even @ p.T, even, rtol=0, atol=1e-13)
    torch.testing.assert_close(p @ odd @ p.T, -odd, rtol=0, atol=1e-13)
    _, values = layer.products()
    u, v = (values[0] + values[1]).detach(), (values[0] + 2 * values[1]).detach()
    n = u.shape[0]
    wanted = even @ x @ u[:, :n].T + odd @ x @ v[:, :n].T
    torch.testing.assert_close(layer(x).detach(), wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("columns", [3, 4])
def test_memory(seed, columns):
    """One head, v φ(a·x_t) with odd φ: equivariant, although positions know nothing of the mirror."""
    layer, (p, s) = memory(columns, 3, generator=Draw(seed)), mirrors(columns, 3)
    x = Draw(seed).normal(6, columns**2, 9)
    assert violation(layer, p, s, x) < 1e-11 and maps_apart(layer, p, s, x) > 1e-4
    torch.testing.assert_close(layer(-x), -layer(x))
    permuted = x[:, torch.arange(columns**2).roll(1)]  # each token answers for itself
    torch.testing.assert_close(layer(permuted), layer(x)[:, torch.arange(columns**2).roll(1)])


@pytest.mark.parametrize("seed", range(3))
def test_odd_heads_are_equivariant_to_first_order(seed):
    (p, s), x = mirrors(3, 2), Draw(seed).normal(6, 9, 4)
    misses = [violation(odd_heads(e, generator=Draw(seed)), p, s, x) for e in (1e-2, 1e-3)]
    assert 1e-7 < misses[1] < misses[0] and misses[0] / misses[1] == pytest.approx(10, rel=0.3)
    scores, values = (w.detach() for w in odd_heads(0.1, generator=Draw(seed)).products())
    twice = odd_heads(0.2, generator=Draw(seed)).products()[0].detach()
    torch.testing.assert_close(twice, 2 * scores)
    torch.testing.assert_close(values[0], -values[1])


@pytest.mark.parametrize("seed", range(3))
def test_twin_heads_share_their_map(seed):
    layer, (p, s), x = twin_heads(generator=Draw(seed)), mirrors(3, 2), Draw(seed).normal(6, 9, 4)
    assert violation(layer, p, s, x) < 1e-10 and recover(layer, p, s).heads > 1e-2
    maps = layer.maps(x).detach()
    torch.testing.assert_close(maps[:, 0], maps[:, 1])
    assert maps_apart(layer, p, s, x) < 1e-10
