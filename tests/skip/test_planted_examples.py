"""The examples that several chapters share: every set of units is tried, and B' is built by hand."""

import itertools

import numpy as np
import pytest
import torch

from samefn.activations import leaky_relu
from samefn.draw import Draw
from samefn.functions import gap
from samefn.networks import MLP, Residual, random_mlp
from samefn.skip.planted import (
    SPARE_UNITS,
    plant,
    running_example,
    spare_unit_block,
    subsets_that_work,
)


def distances(residual, factor=1.0):
    """‖A + factor · P_S‖ for every set S of units, one set after the other."""
    up, down = residual.block.up.numpy(force=True), residual.block.down.numpy(force=True)
    skip = residual.skip_matrix().numpy(force=True)
    for size in range(len(up) + 1):
        for units in itertools.combinations(range(len(up)), size):
            sums = sum((np.outer(down[:, i], up[i]) for i in units), np.zeros(skip.shape))
            yield units, np.linalg.norm(skip + factor * sums)


def test_one_set_of_the_running_example_adds_up_to_minus_the_identity():
    assert [units for units, distance in distances(running_example()) if distance == 0] == [(0, 1, 2)]


def test_the_moved_example_misses_by_what_it_was_moved():
    moved = dict(distances(running_example(moved=0.25)))
    assert moved[0, 1, 2] == 0.25 and min(moved.values()) > 0


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "logsigmoid"])
@pytest.mark.parametrize("kind", SPARE_UNITS)
def test_the_spare_unit_takes_the_skip_although_no_set_of_units_does(kind, activation):
    for seed in range(20):
        residual = spare_unit_block(kind, activation, generator=Draw(seed))
        sets = dict(distances(residual))
        assert min(sets.values()) > 1e-6
        up, down = residual.block.up.clone(), residual.block.down.clone()
        missed = torch.eye(2) + down[:, 1:4] @ up[1:4]
        v = missed @ up[0] / (up[0] @ up[0])
        assert torch.allclose(missed, torch.outer(v, up[0]), rtol=0, atol=1e-9)
        # v (u_0·x) = v σ(u_0·x) - v σ(-u_0·x): unit 0 takes one half, unit 5 the other
        up[1:4] *= -1
        down[:, 0] += v + (down[:, 5] if kind == "duplicated unit" else 0)
        down[:, 5] = -v + (down[:, 5] if kind == "opposite pair" else 0)
        up[5] = -up[0]
        assert gap(residual, MLP(up, down, activation), Draw(seed).normal(200, 2)) < 1e-9


def test_the_spare_unit_is_of_the_kind_that_was_asked_for():
    dead, twice, opposite = (spare_unit_block(kind, generator=Draw(0)).block for kind in SPARE_UNITS)
    assert not dead.down[:, 5].any() and dead.up[5].any()
    assert torch.equal(twice.up[5], twice.up[0]) and twice.down[:, 5].any()
    assert torch.equal(opposite.up[5], -opposite.up[0]) and opposite.down[:, 5].any()


def test_a_spare_unit_of_another_kind_or_without_an_odd_part_to_use_is_refused():
    with pytest.raises(ValueError, match=r"kind must be one of 'dead unit', .*, got 'twin'"):
        spare_unit_block("twin", generator=Draw(0))
    for activation in ("tanh", leaky_relu(0.25)):
        with pytest.raises(ValueError, match=r"activation must satisfy σ\(z\) - σ\(-z\) = z"):
            spare_unit_block("dead unit", activation, generator=Draw(0))


@pytest.mark.parametrize(("activation", "factor"), [("relu", 1.0), ("gelu", 1.0), (leaky_relu(0.25), 1.25)])
def test_the_subsets_that_work_are_those_that_a_loop_over_all_finds(activation, factor):
    for seed in range(10):
        draw = Draw(seed)
        drawn, units, skip = (
            random_mlp(3, 7, activation, generator=draw),
            draw.subset(7, 5),
            draw.normal(3, 3),
        )
        assert subsets_that_work(Residual(drawn, skip)) == []
        planted = plant(drawn, units, skip)
        works = [found for found, distance in distances(planted, factor) if distance < 1e-9]
        assert subsets_that_work(planted) == works == [units]


def test_every_set_that_works_is_returned_the_empty_one_too():
    e = torch.tensor([[1.0], [1.0], [-1.0]])
    minus = torch.tensor([[-1.0, -1.0, -1.0]])  # a u = -1, -1, 1
    assert sorted(subsets_that_work(Residual(MLP(e, minus)))) == [(0,), (0, 1, 2), (1,)]
    assert sorted(subsets_that_work(Residual(MLP(e, minus), torch.zeros(1, 1)))) == [
        (),
        (0, 2),
        (1, 2),
    ]


def test_the_tolerance_is_on_the_distance():
    assert subsets_that_work(running_example(moved=1e-3)) == []
    assert subsets_that_work(running_example(moved=1e-3), tolerance=2e-3) == [(0, 1, 2)]


def test_too_many_units_to_try_are_refused():
    with pytest.raises(ValueError, match="20 units"):
        subsets_that_work(Residual(random_mlp(2, 21, generator=Draw(0))))
