"""Squares that commute, and the slow list of moves, against plain loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.planted import with_spare_units
from samefn.equivariance.redundancy import drop, merge, reduce
from samefn.equivariance.submodels import (
    anywhere,
    available_moves,
    insert_clone,
    occurring,
    parameters,
    reduce_in_random_order,
    square_gaps,
    two_opposite_pairs,
)

from .networks import difference, random_network


@given(st.integers(0, 10**6))
def test_square_gaps_are_those_of_plain_loops(seed):
    large, small, draw = (
        random_network([2, 4, 3, 2], "tanh", seed),
        random_network([2, 3, 3, 2], "tanh"),
        Draw(seed),
    )
    project = [draw.normal(3, 4), draw.normal(3, 3)]
    points = [draw.normal(5, n) for n in (2, 4, 3)]
    stars = [torch.eye(2), *project, torch.eye(2)]
    for i, (y, gap) in enumerate(zip(points, square_gaps(large, small, project, points), strict=True)):
        left = [stars[i + 1] @ large.layer(i + 1, row) for row in y]
        right = [small.layer(i + 1, stars[i] @ row) for row in y]
        off = max(float((a - b).abs().max()) for a, b in zip(left, right))
        assert gap == pytest.approx(off / max(float(b.abs().max()) for b in right))


@given(st.integers(0, 10**6), st.sampled_from(["tanh", "relu", "gelu"]))
def test_squares_of_a_reduced_network_commute(seed, kind):
    large = with_spare_units(random_network([2, 3, 2, 2], kind, seed), generator=Draw(seed))
    found, x = reduce(large), Draw(seed).normal(9, 2)
    assert max(square_gaps(large, found.network, found.project, occurring(large, x))) < 1e-9
    points = anywhere(large, 9, generator=Draw(seed))
    assert max(square_gaps(found.embed(), found.network, found.project, points)) < 1e-9
    assert max(square_gaps(large, found.network, found.project, points)) > 1e-6  # unequal shares


def test_points_occur_or_are_anywhere():
    network, x = random_network([2, 4, 3, 2], "gelu"), Draw().normal(5, 2)
    first = network.layer(1, x)
    for found, wanted in zip(occurring(network, x), (x, first, network.layer(2, first)), strict=True):
        assert torch.equal(found, wanted) and not found.requires_grad
    draw = Draw(3)
    for found, n in zip(anywhere(network, 7, generator=Draw(3)), (2, 4, 3), strict=True):
        assert torch.equal(found, draw.normal(7, n))


def test_parameters_are_copies():
    network = random_network([2, 4, 2], biases=False)
    before = [w.detach().clone() for w in network.weights]
    weights, biases = parameters(network)
    for t in (*weights, *biases):
        t += 1
    assert all(torch.equal(w, b) for w, b in zip(network.weights, before))
    assert [b.tolist() for b in biases] == [[1] * 4, [1] * 2]


@pytest.mark.parametrize(("kind", "factor"), [("tanh", -1.0), ("relu", 2.0), ("gelu", 1.0)])
def test_the_moves_of_one_network(kind, factor):
    """Unit 3 a clone of unit 0, 4 inactive, 5 constant, in the second layer."""
    large = with_spare_units(random_network([2, 3, 3, 2], kind), layers=[2], generator=Draw())
    moves = {(name, *rest[:2]): rest for name, *rest in available_moves(large)}
    found = {(what, *rest[:3]): rest[3:] for what, *rest in available_moves(large)}
    assert set(found) == {("merge", 2, 3, 0), ("merge", 2, 0, 3), ("drop", 2, 4), ("fold", 2, 5)}
    assert found["merge", 2, 3, 0] == [pytest.approx(factor)]
    assert found["merge", 2, 0, 3] == [pytest.approx(1 / factor)]
    assert len(moves) == 4
    assert available_moves(random_network([2, 3, 3, 2], kind)) == []
    assert available_moves(random_network([2, 1, 2], kind)) == []


@given(st.integers(0, 10**6), st.sampled_from(["tanh", "relu", "gelu"]))
def test_a_random_order_of_moves_finds_the_small_network(seed, kind):
    small = random_network([2, 3, 2, 1], kind, seed)
    end = reduce_in_random_order(with_spare_units(small, generator=Draw(seed)), Draw(seed).rng())
    assert end.widths == (3, 2) and difference(small, end) < 1e-9 and available_moves(end) == []


@given(st.integers(0, 10**6), st.sampled_from([("tanh", -1.0, -1.0), ("relu", 3.0, 3.0), ("gelu", 1.0, 1.0)]))
def test_an_inserted_clone_keeps_the_function_and_merges_back(seed, case):
    kind, scale, factor = case
    small = random_network([2, 3, 4, 2], kind, seed)
    column = Draw(seed).normal(2)
    large = insert_clone(small, 2, 1, column, scale=scale, factor=factor)
    assert large.widths == (3, 5) and difference(small, large) < 1e-12
    assert torch.equal(large.weights[2][:, 4], column)
    assert torch.equal(large.layers.rows(1)[4], scale * small.layers.rows(1)[1])
    back = merge(large, 2, 4, 1, factor).network
    for w, v in zip(back.weights, small.weights, strict=True):
        torch.testing.assert_close(w, v.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layer", "unit"), [(0, 0), (2, 0), (1, 3), (1, -1)])
def test_a_clone_of_no_unit_is_refused(layer, unit):
    with pytest.raises(ValueError, match="layer and into must name a hidden unit"):
        insert_clone(random_network([2, 3, 1], "tanh"), layer, unit, torch.ones(1))


@pytest.mark.parametrize("kind", ["gelu", "relu", "silu"])
def test_two_opposite_pairs_are_a_sum(kind):
    pairs, x = two_opposite_pairs(kind), Draw().normal(41, 2)
    torch.testing.assert_close(pairs(x).detach(), x.sum(1, keepdim=True), rtol=0, atol=1e-13)
    assert available_moves(pairs) == [] and reduce(pairs).removed == ()
    for move in (drop(pairs, 1, 0), merge(pairs, 1, 1, 0, -1.0)):
        assert difference(pairs, move.network) > 0.1
