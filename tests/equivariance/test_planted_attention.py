"""Planted attention: products, equivariance and what its layers lack, against formulas written out."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.attention import random_attention
from samefn.equivariance.groups import cyclic, permutation_representation, trivial
from samefn.equivariance.planted_attention import (
    equal_scores,
    equivariant_attention,
    from_products,
    head_groups,
    head_set_distance,
    moved_products,
    orbit,
    products,
    reflection,
    skewed,
    two_token_pair,
    unpermuted,
    zero_head,
)


def attend(scores, values, x, d_k):
    """Σ_h softmax(x_i·M_h x_j / √d_k) R_h x_j for one sequence, by plain loops."""
    out = torch.zeros_like(x)
    for m, r in zip(scores, values):
        for i in range(len(x)):
            weights = torch.stack([torch.exp(x[i] @ m @ y / d_k**0.5) for y in x])
            out[i] += sum(w * (r @ y) for w, y in zip(weights, x)) / weights.sum()
    return out


def violation(layer, rho, seed=0):
    """The largest |f(gX) − g f(X)| over g, relative to the largest value."""
    x = Draw(seed).normal(10, 4, rho.dimension)
    y = layer(x).detach()
    gaps = [(layer(x @ g.T).detach() - y @ g.T).abs().max() for g in rho.matrices]
    return float(max(gaps) / y.abs().max())


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4))
def test_layers_have_the_products_they_are_given(seed, heads, d):
    draw = Draw(seed)
    scores, values = draw.normal(2, heads, d, d)
    layer = from_products(scores, values)
    for found, wanted in zip(products(layer), (scores, values)):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
        assert not found.requires_grad
    x = draw.normal(4, d)
    torch.testing.assert_close(layer(x).detach(), attend(scores, values, x, d), rtol=0, atol=1e-11)


@given(st.integers(0, 10**6))
def test_moved_products_are_those_of_the_moved_function(seed):
    draw = Draw(seed)
    scores, values = draw.normal(2, 2, 3, 3)
    g = torch.eye(3) + 0.3 * draw.normal(3, 3)
    x = draw.normal(4, 3)
    wanted = attend(scores, values, x @ torch.linalg.inv(g).T, 3) @ g.T
    torch.testing.assert_close(attend(*moved_products(scores, values, g), x, 3), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("skew", [False, True])
def test_equivariant_attention_permutes_its_heads(case, skew):
    heads, rho = head_groups()[case]
    assert heads.group == rho.group
    rho = skewed(rho, generator=Draw(1)) if skew else rho
    layer = equivariant_attention(heads, rho, generator=Draw(case))
    assert violation(layer, rho) < 1e-10
    scores, values = products(layer)
    for e in rho.group.elements:
        back = torch.linalg.inv(rho(e))
        for h in range(len(scores)):
            to = int(heads(e)[:, h].argmax())
            torch.testing.assert_close(scores[to], back.T @ scores[h] @ back, rtol=0, atol=1e-10)
            torch.testing.assert_close(values[to], rho(e) @ values[h] @ back, rtol=0, atol=1e-10)
    assert violation(from_products(scores, values.flip(0)), rho) > 1e-3


def test_skewed_representations_are_not_orthogonal():
    rho = head_groups()[2][1]
    lean = skewed(rho, generator=Draw())
    assert lean.violation()[0] < 1e-12
    assert float((lean.matrices @ lean.matrices.mT - torch.eye(rho.dimension)).abs().max()) > 0.1
    traces = [m.diagonal(dim1=1, dim2=2).sum(1) for m in (lean.matrices, rho.matrices)]
    torch.testing.assert_close(*traces)  # an equivalent representation


def test_orbits_hold_every_moved_head():
    rho = permutation_representation(cyclic(3))
    base = random_attention(2, 3, 2, 2, generator=Draw())
    layer = orbit(base, rho)
    scores, values = products(layer)
    for i, g in enumerate(rho.matrices):
        m, r = moved_products(*products(base), g)
        torch.testing.assert_close(scores[2 * i : 2 * i + 2], m)
        torch.testing.assert_close(values[2 * i : 2 * i + 2], r)
    assert violation(layer, rho) < 1e-11


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_head_sets_are_compared_in_every_order(seed, heads):
    draw = Draw(seed)
    one, two = draw.normal(2, heads, 2, 2), draw.normal(2, heads, 2, 2)
    distance = min(
        max(float((one[:, h] - two[:, p[h]]).abs().max()) for h in range(heads))
        for p in itertools.permutations(range(heads))
    )
    assert head_set_distance(from_products(*one), from_products(*two)) == pytest.approx(distance)
    shuffled = one[:, draw.permutation(heads)]
    assert head_set_distance(from_products(*one), from_products(*shuffled)) < 1e-13
    g = reflection().matrices[1]
    moved = torch.stack([torch.stack([g @ m @ g for m in kind]) for kind in one])  # g = g⁻¹ = gᵀ
    wanted = head_set_distance(from_products(*one), from_products(*moved))
    assert unpermuted(from_products(*one), g) == pytest.approx(wanted)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_reflection(d):
    assert reflection(d).matrices[1].diagonal().tolist() == [1, -1, *[1] * (d - 2)]


@pytest.mark.parametrize("seed", range(5))
def test_layers_that_lack_a_hypothesis_are_equivariant_all_the_same(seed):
    rho = reflection(3)
    g = rho.matrices[1]
    equal, zero = equal_scores(rho, generator=Draw(seed)), zero_head(rho, generator=Draw(seed))
    for layer in (equal, zero):
        assert violation(layer, rho) < 1e-11 and unpermuted(layer, g) > 1e-3
    scores, values = products(equal)
    assert torch.equal(scores[0], scores[1]) and not torch.allclose(values[0], g @ values[0] @ g)
    scores, values = products(zero)
    assert not values[1].any() and scores[1].any() and values[0].any()


@pytest.mark.parametrize("seed", range(5))
def test_the_reflection_turns_one_two_token_layer_into_the_other(seed):
    layer, other = two_token_pair(generator=Draw(seed))
    for found, wanted in zip(moved_products(*products(layer), reflection().matrices[1]), products(other)):
        torch.testing.assert_close(found, wanted)
    x = Draw(seed).normal(20, 3, 2)
    assert not torch.allclose(layer(x), other(x))
    torch.testing.assert_close(layer(x[:, :2]), other(x[:, :2]))


def test_all_pairs_of_representations_fit():
    assert [rho.group.name for _, rho in head_groups()] == ["C2", "C4", "D4", "S3"]
    for heads, rho in head_groups():
        fixed = trivial(rho.group, 2)
        assert torch.equal(heads.matrices[:, :2, :2], fixed.matrices)
        torch.testing.assert_close(
            rho.matrices @ rho.matrices.mT, torch.eye(rho.dimension).expand_as(rho.matrices)
        )
