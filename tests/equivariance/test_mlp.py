"""The nearest permutation of units by plain loops, and the integer matrices by SymPy's determinants."""

import itertools
import math

import pytest
import sympy
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.groups import cyclic, permutation_representation, representation
from samefn.equivariance.mlp import closest_permutation, invertible_integer_matrices
from samefn.networks import DeepMLP

from .networks import random_network


def swap():
    return permutation_representation(cyclic(2))


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(["relu", "tanh", "gelu"]))
def test_the_closest_permutation_is_that_of_plain_loops(seed, width, kind):
    network, x = random_network([2, width, 1], kind, seed), Draw(seed).normal(9, 2)
    before, after = (network.layer(1, t).detach() for t in (x, x.flip(1)))
    total = float(after.square().sum())
    assume(total > 0)  # some units may be 0 on all points, not all of them
    best = float("inf")
    for order in itertools.permutations(range(width)):
        off = 0.0
        for i, j in enumerate(order):
            size = float(before[:, j].square().sum())
            scale = max(0.0, float(after[:, i] @ before[:, j]) / size) if size else 0.0
            off += float((after[:, i] - scale * before[:, j]).square().sum())
        best = min(best, off)
    assert closest_permutation(network, swap(), x) == pytest.approx(math.sqrt(best / total), abs=1e-7)


def test_permuted_and_scaled_relu_units_miss_nothing():
    up = torch.tensor([[1.0, 2.0], [6.0, 3.0], [1.0, 1.0]])  # the swap takes unit 0 to a third of unit 1
    network, x = DeepMLP([up, torch.ones(1, 3)], activation="relu"), Draw().normal(50, 2)
    assert closest_permutation(network, swap(), x) < 1e-7
    group = cyclic(2)
    minus = representation(group, {group.generators[0]: -torch.eye(2)})
    assert closest_permutation(network, minus, x) > 0.5


@pytest.mark.parametrize(("n", "largest"), [(2, 1), (2, 2), (3, 0)])
def test_integer_matrices_are_those_that_sympy_inverts(n, largest):
    every = itertools.product(range(-1, largest + 1), repeat=n * n)
    wanted = [m for m in every if sympy.Matrix(n, n, m).det() != 0]
    assert [tuple(m.flatten().tolist()) for m in invertible_integer_matrices(n, largest)] == wanted


def test_the_matrices_of_three_rows_by_their_determinants():
    found = {tuple(m.flatten().tolist()) for m in invertible_integer_matrices(3, 1)}
    entries = list(itertools.product((-1, 0, 1), repeat=9))
    for m in entries[:: len(entries) // 300]:
        assert (m in found) is (sympy.Matrix(3, 3, m).det() != 0)


@pytest.mark.parametrize("n", [1, 4])
def test_other_sizes_are_refused(n):
    with pytest.raises(ValueError, match=f"n must be one of 2, 3, got {n}"):
        invertible_integer_matrices(n, 1)
