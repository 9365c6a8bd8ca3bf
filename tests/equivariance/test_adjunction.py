"""Convolution against index sums, the reflection and the variance against exact arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.adjunction import (
    convolve,
    deep_sets,
    householder,
    moved_encodings,
    squared_deviations,
    variance_weights,
)


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_convolution_wraps_around(seed, n):
    draw = Draw(seed)
    images, kernel = draw.normal(2, 3, n, n), draw.normal(2, 3, 3, 3)
    wanted = torch.zeros(2, 2, n, n)
    for b, c, i, j in itertools.product(range(2), range(2), range(n), range(n)):
        for k, di, dj in itertools.product(range(3), (-1, 0, 1), (-1, 0, 1)):
            wanted[b, c, i, j] += kernel[c, k, di + 1, dj + 1] * images[b, k, (i + di) % n, (j + dj) % n]
    torch.testing.assert_close(convolve(images, kernel), wanted)


@given(st.integers(0, 10**6))
def test_encodings_are_carried_to_their_tokens(seed):
    """Token i of P·X holds ρ applied to the token that P puts there."""
    draw = Draw(seed)
    encodings, features, order = draw.normal(3, 2), draw.normal(2, 2), draw.permutation(3)
    moved = moved_encodings(encodings, torch.eye(3)[order], features)
    for i, j in enumerate(order.tolist()):
        torch.testing.assert_close(moved[i], features @ encodings[j])


@given(*[st.integers(-5, 5)] * 2, st.integers(1, 5), st.integers(0, 10**6))
def test_a_deep_sets_layer_reads_each_element_and_the_mean(own, mean, n, seed):
    x = Draw(seed).integers(-9, 10, n).numpy()
    assert (deep_sets(own, mean, n) @ x == n * own * x + mean * x.sum()).all()


def test_the_reflection_is_orthogonal_and_permutes_nothing():
    h = np.array(householder())
    assert all(isinstance(entry, Fraction) for entry in h.flat)
    assert (h @ h == np.eye(4, dtype=int)).all() and (h == h.T).all()
    assert (h @ [1, 1, 1, 1] == [1, 1, 1, 1]).all() and (h @ [1, 1, 0, -2] == [-1, -1, 0, 2]).all()
    assert sympy.Matrix(h.tolist()).det() == -1
    assert sorted(h[0]) != [0, 0, 0, 1]


@given(st.lists(st.fractions(-5, 5, max_denominator=9), min_size=4, max_size=4))
def test_squared_deviations_add_up_to_the_variance(numbers):
    x = np.array(numbers)
    mean = sum(numbers, Fraction(0)) / 4
    assert squared_deviations(x).tolist() == [(a - mean) ** 2 for a in numbers]
    moved = np.array(householder()) @ x
    assert squared_deviations(moved).sum() == squared_deviations(x).sum()


def test_the_weights_that_compute_the_variance():
    """The only ones, γ_1 = −λ_1 and λ_2 = 0, with γ_2 = 1/λ_1², do; others fail at some integer point."""
    ratios, last = variance_weights()
    assert ratios == {-1} and last == {0}

    def network(own, ratio, last_own, last_mean, x):
        mean = Fraction(sum(x), 4)
        hidden = [(own * (a + ratio * mean)) ** 2 for a in x]
        return last_own * hidden[0] + last_mean * sum(hidden) / 4

    def variance(x):
        return sum((a - Fraction(sum(x), 4)) ** 2 for a in x) / 4

    points = list(itertools.product((0, 1, 3), repeat=4))
    assert all(network(2, -1, 0, Fraction(1, 4), x) == variance(x) for x in points)
    for ratio, last_own, last_mean in itertools.product((-2, -1, 0, 1), (0, 1), (0, 1, 2)):
        fits = all(network(1, ratio, last_own, last_mean, x) == variance(x) for x in points)
        assert fits is ((ratio, last_own, last_mean) == (-1, 0, 1))
