"""Whether a function determines the weights, against plain loops over units, sets and symmetries."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.alignment import random_symmetry
from samefn.equivariance.identifiable import (
    SPARE,
    closest_symmetry,
    exact_tanh,
    first_pole,
    harmless_turns,
    irreducible,
    random_legible,
    random_shallow,
    read_network,
    read_units,
    residue,
    spare_unit_pair,
    turned,
    value_matrix,
    vanishing_sets,
    with_vanishing_sum,
)
from samefn.networks import DeepMLP

from .networks import awkward_weights, difference, random_network


def parts(network):
    """Lists of u_i, a_i, b_i."""
    (up, down), bias = network.weights, network.biases[0]
    return up.tolist(), down.T.tolist(), bias.tolist()


@given(awkward_weights(((1, 2, 1), (2, 3, 1), (2, 4, 2))))
def test_irreducible_reads_sussmanns_conditions(weights):
    network = DeepMLP(*weights)
    up, down, bias = parts(network)
    forms = [(*u, b) for u, b in zip(up, bias)]
    negated = [tuple(-x for x in form) for form in forms]
    pairs = list(itertools.combinations(range(len(up)), 2))
    wanted = all(map(any, up)) and all(map(any, down))
    wanted = wanted and not any(forms[i] in (forms[j], negated[j]) for i, j in pairs)
    assert irreducible(network) is wanted


def test_random_networks_are_irreducible():
    network = random_shallow("tanh", 5, (3, 4), generator=Draw())
    assert (network.dim_in, network.widths, network.dim_out) == (3, (5,), 4) and irreducible(network)


@pytest.mark.parametrize("call", [irreducible, vanishing_sets, lambda n: turned(n, [0])])
def test_other_depths_are_refused(call):
    with pytest.raises(ValueError, match="network must have one hidden layer, got 2"):
        call(random_network([2, 3, 3, 2]))
    with pytest.raises(ValueError, match="network must have one hidden layer, got 0"):
        call(random_network([2, 2]))


@pytest.mark.parametrize("kind", SPARE)
@pytest.mark.parametrize("seed", range(5))
def test_pairs_with_one_function_and_other_weights(kind, seed):
    one, other = spare_unit_pair(kind, generator=Draw(seed))
    assert difference(one, other) < 1e-12
    assert (
        max(float((a - b).detach().abs().max()) for a, b in zip(one.parameters(), other.parameters())) > 1e-3
    )
    (up, down), bias = (w.detach() for w in one.weights), one.biases[0].detach()
    conditions = {
        "zero outgoing column": not down[:, 2].any(),
        "equal up to sign": torch.equal(up[2], -up[1]) and torch.equal(bias[2], -bias[1]),
        "constant unit": not up[2].any(),
    }
    assert [name for name, holds in conditions.items() if holds] == [kind]
    assert not irreducible(one)


def test_there_are_no_other_pairs():
    with pytest.raises(ValueError, match=r"kind must be one of 'zero outgoing column', .*, got 'twin'"):
        spare_unit_pair("twin", generator=Draw())


@given(st.integers(0, 10**6), st.sampled_from(["relu", "gelu", "silu"]))
def test_turning_units_subtracts_their_sum(seed, kind):
    """σ(−z) = σ(z) − z: the turned network computes f(x) − P_S x."""
    draw = Draw(seed)
    network = random_shallow(kind, 4, generator=draw)
    units = draw.subset(4, draw.integer(0, 5))
    (up, down), x = (w.detach() for w in network.weights), draw.normal(20, 2)
    total = sum((torch.outer(down[:, i], up[i]) for i in units), torch.zeros(2, 2))
    wanted = network(x).detach() - torch.stack([total @ row for row in x])
    torch.testing.assert_close(turned(network, units)(x).detach(), wanted, rtol=0, atol=1e-11)


def plain_vanishing(network):
    up, down = (w.detach() for w in network.weights)
    found = []
    for size in range(1, len(up) + 1):
        for S in itertools.combinations(range(len(up)), size):
            if float(sum(torch.outer(down[:, i], up[i]) for i in S).norm()) <= 1e-9:
                found.append(S)
    return sorted(found)


@given(st.integers(0, 10**6), st.sampled_from(["relu", "gelu", "tanh"]))
def test_sets_that_vanish_and_turns_that_do_no_harm(seed, kind):
    draw = Draw(seed)
    units = draw.subset(5, draw.integer(3, 5))
    network = with_vanishing_sum(random_shallow(kind, 5, generator=draw), units)
    assert sorted(vanishing_sets(network)) == plain_vanishing(network) and units in vanishing_sets(network)
    x = draw.normal(30, 2)
    every = [S for size in range(1, 6) for S in itertools.combinations(range(5), size)]
    values = network(x).detach()
    off = lambda S: float((turned(network, S)(x).detach() - values).abs().max() / values.abs().max())
    wanted = sorted(S for S in every if off(S) <= 1e-9)
    assert sorted(harmless_turns(network, x)) == wanted
    assert (wanted == plain_vanishing(network)) is (kind != "tanh")


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_the_closest_symmetry_is_that_of_plain_loops(seed, units):
    one, two = (random_shallow("tanh", units, generator=Draw(s)) for s in (seed, seed + 1))
    (up, down), (bias, out) = one.weights, one.biases
    best = float("inf")
    for order in itertools.permutations(range(units)):
        for signs in itertools.product((1, -1), repeat=units):
            worst = float((out - two.biases[1]).abs().max())
            for i, (j, s) in enumerate(zip(order, signs)):
                gaps = s * up[j] - two.weights[0][i], s * down[:, j] - two.weights[1][:, i]
                worst = max(worst, *(float(g.abs().max()) for g in gaps))
                worst = max(worst, abs(float(s * bias[j] - two.biases[0][i])))
            best = min(best, worst)
    assert closest_symmetry(one, two) == pytest.approx(best)
    assert closest_symmetry(one, random_symmetry(one, generator=Draw(seed)).apply(one)) < 1e-14


@given(st.floats(0.2, 3), st.booleans(), st.floats(-2, 2))
def test_the_first_pole_is_one(slope, negative, offset):
    slope = -slope if negative else slope
    pole = first_pole(slope, offset)
    assert pole.imag > 0
    with np.errstate(all="ignore"):
        assert abs(np.cosh(slope * pole + offset)) < 1e-13 * (1 + abs(slope * pole + offset))
        below = [
            np.cosh(slope * complex(pole.real, y) + offset) for y in np.linspace(0, 0.99, 20) * pole.imag
        ]
    assert min(map(abs, below)) > 1e-3  # none nearer to the line


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.floats(0.3, 1))
def test_residues_of_rational_functions(coefficients, radius):
    """Of a/(t − p) + b/(t − p)² + c, at p: a."""
    a, b, c = coefficients
    pole = 0.3 + 0.7j
    f = lambda t: np.stack([a / (t - pole) + b / (t - pole) ** 2 + c, t**2], 1)
    np.testing.assert_allclose(residue(f, pole, radius), [a, 0], rtol=0, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
def test_legible_networks_keep_their_units_apart(seed, units, d):
    network = random_legible(units, d, generator=Draw(seed))
    (up, down), bias = (w.detach().abs() for w in network.weights), network.biases[0].detach().abs()
    assert (network.dim_in, network.widths, network.dim_out) == (d, (units,), 1) and irreducible(network)
    for sizes, low, high in [*((row, 1, 2) for row in up.T), (bias, 0.3, 1.2)]:
        ordered = [low, *sorted(sizes.tolist()), high]
        gaps = [b - a for a, b in itertools.pairwise(ordered)]
        assert min(gaps) >= 0 and min(gaps[1:]) >= 0.4 * (high - low) / units - 1e-12
    assert ((down >= 0.5) & (down < 1.5)).all()


def test_units_read_off_values():
    t = np.linspace(-4, 4, 400)
    values = 0.3 + 2 * np.tanh(0.9 * t - 0.5) - np.tanh(-1.7 * t + 0.2)
    np.testing.assert_allclose(read_units(t, values, 2), [[1.7, -0.2, 1], [0.9, -0.5, 2]], rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("units, d", [(1, 1), (2, 1), (2, 3)])
def test_networks_read_off_values(units, d, seed):
    network = random_legible(units, d, generator=Draw(seed))
    asked = []
    found = read_network(lambda x: (asked.append(x), network(x).detach())[1], d, units)
    assert closest_symmetry(network, found) < 1e-4
    assert all((row != 0).sum() <= 1 for x in asked for row in x)  # on the axes only


@pytest.mark.parametrize(
    "slope, scale, y", [(1, Fraction(1), 1), (3, Fraction(5, 2), 2), (-2, Fraction(3), 2)]
)
def test_exact_values_of_tanh(slope, scale, y):
    assert float(exact_tanh(slope, scale, y)) == pytest.approx(
        np.tanh((slope * np.log(y) + np.log(float(scale))) / 2)
    )


def test_values_and_ranks_against_sympy():
    slopes, scales = [1, 2, 2], [Fraction(1, 2), Fraction(3), Fraction(3, 4)]
    matrix = value_matrix(slopes, scales)
    assert matrix.shape == (6, 4)
    for row, y in zip(matrix.to_Matrix().tolist(), range(1, 7)):
        wanted = [1]
        for s, c in zip(slopes, scales):
            t = sympy.log(y) / 2
            unit = sympy.tanh(s * t + sympy.log(sympy.Rational(c.numerator, c.denominator)) / 2)
            wanted.append(sympy.nsimplify(sympy.simplify(unit.rewrite(sympy.exp))))
        assert [sympy.simplify(a - b) for a, b in zip(row, wanted)] == [0] * 4
    assert matrix.rank() == 4
    assert value_matrix([1, 1], [Fraction(2), Fraction(2)]).rank() == 2
    assert value_matrix([1, 2], [Fraction(2), Fraction(1)]).rank() == 3
