"""When two units are one: every rule of scale against σ itself, distances and clones against plain loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.equivariance.units import (
    SAME,
    clones,
    distances,
    free_scale,
    incoming,
    is_even,
    is_signed,
    outgoing,
    same_units,
)

from .networks import KINDS, name

ALL = [
    *activations.CATALOGUE.values(),
    activations.leaky_relu(0.2),
    activations.leaky_relu(-1),
    activations.leaky_relu(-3),
    activations.relu_power(0.5),
    activations.relu_power(3),
    *(activations.monomial(k) for k in (2, 3, 4, 5)),
]
KINDS = [activations.get(kind) for kind in KINDS]


@pytest.mark.parametrize("f", ALL, ids=name)
def test_even_and_odd_are_what_the_function_is(f):
    z = torch.linspace(-4, 4, 101)
    assert is_even(f) is torch.allclose(f(z), f(-z), rtol=0, atol=1e-12)
    odd = torch.allclose(f(-z), -f(z), rtol=0, atol=1e-12)
    assert is_signed(f) is (odd or is_even(f))


@pytest.mark.parametrize("f", ALL, ids=name)
def test_scales_pass_through_the_activation(f):
    """σ(s z) = outgoing(s) σ(z) for every scale that is divided out, and incoming undoes outgoing."""
    z, factors = torch.linspace(-3, 3, 61), torch.tensor([0.01, 0.5, 1.0, 3.0])
    free = f.symmetry in ("positive scaling", "nonzero scaling")
    scales = factors if free else torch.ones(1)
    if is_signed(f):
        scales = torch.cat([scales, -scales])
    for s, out in zip(scales, outgoing(f, scales)):
        torch.testing.assert_close(f(s * z), out * f(z), rtol=1e-10, atol=1e-12)
    values = outgoing(f, scales)
    torch.testing.assert_close(outgoing(f, incoming(f, values)), values, rtol=1e-12, atol=0)
    for value, s in zip(values, incoming(f, values)):
        torch.testing.assert_close(f(s * z), value * f(z), rtol=1e-10, atol=1e-12)


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


def plain_same(f, row, other):
    """Whether two rows are one unit, and the factor between the values; by σ's own scales, in plain loops."""
    norms = [math.hypot(*r) for r in (row, other)]
    scales = [n if n and f.degree is not None else 1.0 for n in norms]
    one, two = ([x / s for x in r] for r, s in zip((row, other), scales))
    near = SAME * max(math.hypot(*one), math.hypot(*two))
    for sign in (1, -1) if is_signed(f) else (1,):
        if math.dist(one, [sign * y for y in two]) <= near:
            s = sign * scales[0] / scales[1]
            # the value of σ(s·z) relative to σ(z), read off at z = 0.7
            z = torch.tensor([0.7, -0.3])
            ratio = (f(s * z) / f(z))[0 if f(z)[0] != 0 else 1]
            return sign, float(ratio)
    return None


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
def test_clones_are_those_of_plain_loops(f, seed):
    draw = Draw(seed)
    originals = draw.normal(3, 4)
    rows = []
    for _ in range(draw.integer(1, 12)):
        row = draw.choice(list(originals)) * (draw.choice([1.0, 2.0, 0.3]) if draw.integer(0, 2) else 1.0)
        rows.append(row * draw.choice([1.0, -1.0]) + draw.choice([0.0, 1e-10, 1e-6]) * draw.normal(4))
    rows = torch.stack(rows)
    first, factor = clones(f, rows)
    plus, either = same_units(f, rows)
    for i, row in enumerate(rows.tolist()):
        found = [(j, plain_same(f, row, other)) for j, other in enumerate(rows.tolist())]
        same = [(j, by) for j, by in found if by]
        assert either[i].tolist() == [by is not None for _, by in found]
        assert plus[i].nonzero().flatten().tolist() == [j for j, by in same if by[0] == 1]
        assert int(first[i]) == same[0][0]
        assert float(factor[i]) == pytest.approx(same[0][1][1], rel=1e-6)


def test_no_rows_have_no_clones():
    first, factor = clones(activations.get("relu"), torch.zeros(0, 3))
    assert first.shape == factor.shape == (0,)
    assert first.dtype == torch.long and factor.dtype == torch.float64


def test_zero_rows_are_clones_of_each_other():
    rows = torch.tensor([[1.0, 2.0], [0, 0], [0, 0]])
    for f in KINDS:
        first, factor = clones(f, rows)
        assert first.tolist() == [0, 1, 1] and factor.abs().tolist() == [1.0] * 3
