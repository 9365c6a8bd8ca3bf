"""When two units are one: every rule of scale against σ itself, sizes and distances against plain loops."""

import dataclasses
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.equivariance.units import (
    about_centres,
    directions,
    distances,
    free_scale,
    gaps,
    incoming,
    is_even,
    is_scaled,
    is_signed,
    outgoing,
    ratio,
    same_function,
    sizes,
)

from .networks import name, random_network

ALL = [
    *activations.CATALOGUE.values(),
    activations.leaky_relu(0.2),
    activations.leaky_relu(-1),
    activations.leaky_relu(-3),
    activations.relu_power(0.5),
    activations.relu_power(3),
    *(activations.monomial(k) for k in (2, 3, 4, 5)),
]


@pytest.mark.parametrize("f", ALL, ids=name)
def test_even_and_odd_are_what_the_function_is(f):
    z = torch.linspace(-9, 9, 181)
    assert is_even(f) is torch.allclose(f(z), f(-z), rtol=0, atol=1e-12)
    p, q = f.centre
    odd = torch.allclose(f(p - z) - q, q - f(p + z), rtol=0, atol=1e-12)
    assert is_signed(f) is (odd or is_even(f))


@pytest.mark.parametrize("f", ALL, ids=name)
def test_only_the_declared_point_is_a_centre(f):
    """σ(2p − z) + σ(z) is constant in z for no other p of a grid."""
    z = torch.linspace(-9, 9, 181)
    centres = []
    for p in torch.linspace(-4, 4, 33).tolist():
        total = f(2 * p - z) + f(z)
        if float(total.max() - total.min()) < 1e-9:
            centres.append((p, float(total.mean()) / 2))
    if f.name == "identity":  # linear units have more symmetries than K_i uses
        assert len(centres) == 33
    else:
        wanted = [f.centre] if is_signed(f) and not is_even(f) else []
        assert centres == [pytest.approx(c, abs=1e-12) for c in wanted]


@pytest.mark.parametrize("f", ALL, ids=name)
def test_scales_pass_through_the_activation(f):
    """σ(s z) = outgoing(s) σ(z) for every scale that is divided out, and incoming undoes outgoing."""
    z, factors = torch.linspace(-3, 3, 61), torch.tensor([0.01, 0.5, 1.0, 3.0])
    scales = factors if is_scaled(f) else torch.ones(1)
    if is_signed(f):
        scales = torch.cat([scales, -scales])
    p, q = f.centre
    for s, out in zip(scales, outgoing(f, scales)):
        torch.testing.assert_close(f(p + s * z) - q, out * (f(p + z) - q), rtol=1e-10, atol=1e-12)
    values = outgoing(f, scales)
    torch.testing.assert_close(outgoing(f, incoming(f, values)), values, rtol=1e-12, atol=0)
    for value, s in zip(values, incoming(f, values)):
        torch.testing.assert_close(f(p + s * z) - q, value * (f(p + z) - q), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("f", ALL, ids=name)
def test_a_scale_is_free_only_where_the_function_allows_it(f):
    """The least-squares factor of σ(2z) on σ(z) leaves nothing exactly where a scale may be divided out."""
    rows, z = torch.tensor([[3.0, 4.0], [0, 0], [0, -2]]), torch.linspace(-7, 7, 61)  # relu6 bends at 6
    before, after = f(z), f(2 * z)
    miss = after - (after @ before / (before @ before)) * before
    free = float(miss.norm() / after.norm()) < 1e-9
    assert free_scale(f, rows).tolist() == ([5.0, 1.0, 2.0] if free else [1.0] * 3)


def plain_distances(a, b):
    return [[math.dist(p, q) for q in b.tolist()] for p in a.tolist()]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 6), st.integers(0, 10**6), st.floats(-15, 2))
def test_distances_are_those_of_plain_loops(n, m, k, seed, size):
    """Also where torch multiplies matrices (more than 25 rows) and rows nearly coincide."""
    draw = Draw(seed)
    a = 10**size * draw.normal(n, k)
    b = 10**size * draw.normal(m, k)
    for i in range(min(n, m)):  # from equal rows to clearly different ones, at most 1e-13 of their size apart
        b[i] = a[i] + 10 ** (size - 16 + i % 16) * draw.normal(k) * (i % 3 > 0)
    wanted = torch.tensor(plain_distances(a, b))
    torch.testing.assert_close(distances(a, b), wanted, rtol=1e-8, atol=1e-15 * 10**size)


def test_distances_of_no_rows():
    assert distances(torch.zeros(0, 3), torch.ones(4, 3)).shape == (0, 4)


def test_many_close_pairs_are_taken_in_chunks(monkeypatch):
    monkeypatch.setattr("samefn.equivariance.units.CHUNK", 7)
    a = Draw().normal(1, 4) + 1e-9 * Draw(1).normal(30, 4)
    torch.testing.assert_close(distances(a, a), torch.tensor(plain_distances(a, a)), rtol=1e-12, atol=0)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 4), st.integers(0, 10**6))
def test_gaps_are_relative_to_the_longer_row(n, m, k, seed):
    """Rows from 1e-200 to 1e200, some zero, against exact rational arithmetic."""
    draw = Draw(seed)
    a, b = (draw.normal(c, k) * 10.0 ** draw.integers(-200, 200, c, 1) for c in (n, m))
    a[0], b[-1] = 0, a[-1] * (1 + 1e-9)
    found = gaps(directions(a), directions(b)), gaps(directions(a), directions(b), -1.0)
    for sign, gap in zip((1, -1), found):
        for i, row in enumerate(a.tolist()):
            for j, other in enumerate(b.tolist()):
                u, v = ([Fraction(x) for x in some] for some in (row, other))
                off, size = sum((x - sign * y) ** 2 for x, y in zip(u, v)), max(square(u), square(v))
                wanted = math.sqrt(off / size) if size else 0.0
                assert float(gap[i, j]) == pytest.approx(wanted, rel=1e-6, abs=1e-15)


def square(row):
    return sum(x * x for x in row)


@given(st.integers(1, 6), st.integers(0, 10**6), st.integers(-300, 300))
def test_scales_know_neither_order_nor_sign_nor_powers_of_two(k, seed, power):
    rows, relu = Draw(seed).normal(3, k), activations.get("relu")
    moved = rows[:, Draw(seed).permutation(k)] * Draw(seed).signs(k)
    assert torch.equal(free_scale(relu, moved), free_scale(relu, rows))
    assert torch.equal(free_scale(relu, rows * 2.0**power), free_scale(relu, rows) * 2.0**power)
    assert torch.equal(sizes(rows * 2.0**power), sizes(rows) * 2.0**power)
    torch.testing.assert_close(sizes(rows), rows.norm(dim=1), rtol=1e-14, atol=0)


def test_directions_of_rows_of_any_size():
    rows = torch.tensor([[3e300, 4e300], [0, 0], [3e-320, 4e-320]])
    direction, size = directions(rows)
    torch.testing.assert_close(direction, torch.tensor([[0.6, 0.8], [0, 0], [0.6, 0.8]]), rtol=1e-3, atol=0)
    assert size[:2].tolist() == [pytest.approx(5e300), 0] and float(size[2]) > 0


def test_ratio_says_zero_and_infinity():
    a, b = torch.tensor([0.0, 1, 0, 2, torch.nan, 1]), torch.tensor([0.0, 0, torch.inf, 4, 1, torch.nan])
    assert ratio(a, b).tolist() == [0, math.inf, math.inf, 0.5, math.inf, math.inf]
    assert ratio(torch.tensor([torch.inf]), torch.tensor([1.0])).tolist() == [math.inf]


@given(st.sampled_from(ALL), st.integers(0, 10**6))
def test_layers_about_centres_have_the_same_function(f, seed):
    """There σ is z ↦ σ(p + z) − q, odd where a reflection is allowed."""
    network = random_network([2, 4, 3, 1], f, seed)
    layers, (p, q), x = about_centres(network.layers), f.centre, Draw(seed).normal(20, 2)
    y = x
    for i in range(2):
        y = f(y @ layers.weights[i].T + layers.biases[i] + p) - q
    torch.testing.assert_close(y @ layers.weights[2].T + layers.biases[2], network(x).detach())
    back = about_centres(layers, -1)
    for one, other in zip(back.biases, network.layers.biases):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("f", ALL, ids=name)
def test_one_function_has_one_identity(f):
    """By its expression, whatever it is called; and no other of the list is taken for it."""
    twin = dataclasses.replace(f, name="twin", function=lambda z: f(z))
    assert same_function(f, twin) and same_function(f, f)
    z = torch.linspace(-9, 9, 1001)
    for g in ALL:
        assert same_function(f, g) is torch.allclose(f(z), g(z), rtol=0, atol=1e-12)


def test_spellings_of_one_function():
    for one, other in [
        ("leaky_relu", activations.leaky_relu(0.01)),
        ("relu", activations.leaky_relu(0)),
        ("relu_squared", activations.relu_power(2)),
        ("softplus", activations.softplus(1.0)),
    ]:
        assert same_function(activations.get(one), other)
    near = activations.leaky_relu(0.2000001)
    assert near.name == "leaky_relu(0.2)" and not same_function(near, activations.leaky_relu(0.2))
