"""Deep models as lists of functions: what is measured of them, against plain loops, and their symmetries."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.alignment import random_symmetry
from samefn.equivariance.attention import random_attention
from samefn.equivariance.model import (
    attention_layers,
    attention_symmetry,
    carelessly_moved,
    end_to_end_gap,
    identity,
    layer_gap,
    mlp_layers,
    mlp_symmetry,
    sequential,
)

from .networks import KINDS, random_network


@given(st.integers(0, 10**6))
def test_gaps_are_those_of_plain_loops(seed):
    """Linear layers A_i, moved layers B_i and maps K_i that have nothing to do with each other."""
    draw, sizes = Draw(seed), (3, 4, 2)
    A, B = ([draw.normal(m, n) for n, m in pairwise(sizes)] for _ in range(2))
    K = [draw.normal(n, n) for n in sizes]
    points = [draw.normal(5, n) for n in sizes[:2]]
    as_maps = lambda matrices: [lambda y, a=a: y @ a.T for a in matrices]
    worst = 0.0
    for a, b, before, after, y in zip(A, B, K, K[1:], points):
        wanted = [after @ a @ row for row in y]
        off = [b @ before @ row - w for row, w in zip(y, wanted)]
        worst = max(worst, max(float(v.abs().max()) for v in off) / max(float(w.abs().max()) for w in wanted))
    assert layer_gap(as_maps(A), as_maps(B), as_maps(K), points) == pytest.approx(worst)
    whole = [A[1] @ A[0] @ row for row in points[0]]
    off = [B[1] @ B[0] @ row - w for row, w in zip(points[0], whole)]
    wanted = max(float(v.abs().max()) for v in off) / max(float(w.abs().max()) for w in whole)
    assert end_to_end_gap(as_maps(A), as_maps(B), points[0]) == pytest.approx(wanted)


def test_sequential_applies_the_first_layer_first():
    assert float(sequential([lambda y: y + 1, lambda y: 3 * y])(torch.tensor(2.0))) == 9
    x = Draw().normal(3)
    assert sequential([])(x) is x and identity(x) is x


@pytest.mark.parametrize("lost", ["layers", "moved", "k", "points"])
def test_lists_must_have_one_length(lost):
    lists = {
        "layers": [identity] * 2,
        "moved": [identity] * 2,
        "k": [identity] * 3,
        "points": [torch.ones(1)] * 2,
    }
    assert layer_gap(**lists) == 0
    with pytest.raises(ValueError):
        layer_gap(**lists | {lost: lists[lost][1:]})


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
def test_symmetries_of_perceptrons_make_all_squares_commute(kind, seed):
    network, draw = random_network([2, 4, 3, 2], kind, seed), Draw(seed)
    symmetry = random_symmetry(network, generator=draw)
    moved = symmetry.apply(network)
    points = [draw.normal(9, n) for n in (2, 4, 3)]
    maps = mlp_layers(network), mlp_layers(moved)
    torch.testing.assert_close(sequential(maps[0])(points[0]), network(points[0]))
    assert layer_gap(*maps, mlp_symmetry(symmetry), points) < 1e-9
    assert end_to_end_gap(*maps, points[0]) < 1e-9
    (first, p, q, last), (a, b) = mlp_symmetry(symmetry), symmetry.matrices()
    r, s = symmetry.shifts
    squares = (first, torch.eye(2), torch.zeros(2), points[0]), (p, a, r, points[1]), (q, b, s, points[2])
    for k, wanted, shift, y in squares:
        torch.testing.assert_close(k(y), torch.stack([wanted @ row + shift for row in y]))
    assert last is identity


@given(st.integers(0, 10**6))
def test_attention_is_the_composition_of_its_two_layers(seed):
    draw = Draw(seed)
    attention = random_attention(3, 4, 2, 5, generator=draw)
    first, second = attention_layers(attention)
    x = draw.normal(2, 6, 4)
    y = first(x).detach()
    assert y.shape == (2, 3, 6, 2 + 2 + 5)
    for h in range(3):
        q, k, v = (w[h].detach() for w in (attention.query, attention.key, attention.value))
        torch.testing.assert_close(y[:, h], torch.cat([x @ q.T, x @ k.T, x @ v.T], -1))
    torch.testing.assert_close(second(y), attention(x))


@given(st.integers(0, 10**6))
def test_symmetries_of_attention_make_both_squares_commute(seed):
    draw = Draw(seed)
    attention = random_attention(3, 4, 2, 3, generator=draw)
    moved, k = attention_symmetry(attention, generator=draw)
    points = [draw.normal(5, 6, 4), draw.normal(5, 3, 6, 7)]
    maps = attention_layers(attention), attention_layers(moved)
    assert layer_gap(*maps, k, points) < 1e-10 and end_to_end_gap(*maps, points[0]) < 1e-10
    assert k[0] is k[2] is identity
    assert min(float((a - b).abs().max()) for a, b in zip(attention.parameters(), moved.parameters())) > 1e-3
    assert layer_gap(*maps, [identity] * 3, points) > 1e-3


def test_a_matrix_does_not_pass_through_the_activation():
    network, k = random_network([2, 3, 2], "tanh"), Draw(1).normal(3, 3)
    moved, x = carelessly_moved(network, k), Draw(2).normal(9, 2)
    (w1, w2), (b1, b2) = network.weights, network.biases
    wanted = torch.tanh(x @ (k @ w1).T + k @ b1) @ (w2 @ torch.linalg.inv(k)).T + b2
    torch.testing.assert_close(moved(x), wanted)
    assert not torch.allclose(moved(x), network(x))
    linear = random_network([2, 3, 2], "identity")
    torch.testing.assert_close(carelessly_moved(linear, k)(x), linear(x))
