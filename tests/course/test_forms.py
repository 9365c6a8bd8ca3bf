"""Forms: two networks have one form exactly if numpy finds them equal at random points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samefn.course import forms
from samefn.course.answers import Malformed, read_number
from samefn.course.forms import linear, plus

INTEGERS = st.integers(-3, 3)
ROWS = st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS, INTEGERS), min_size=1, max_size=4)  # u, b, a
POINTS = np.random.default_rng(0).uniform(-2, 2, (9, 2))
ZERO, HALF, THIRD = map(read_number, ("0", "1/2", "1/3"))


def kinked(z):
    return z / 3 + abs(z) / 2


def softplus(z):
    return np.logaddexp(0, z)


def units(rows):
    exact = [tuple(map(read_number, row)) for row in rows]
    return [row[:2] for row in exact], [row[2] for row in exact], [row[3:] for row in exact]


def value(activation, rows, biased=True):
    rows = np.array(rows, float)
    return activation(POINTS @ rows[:, :2].T + biased * rows[:, 2]) @ rows[:, 3]


KINDS = {
    "kinked": (lambda up, b, down: forms.positively_homogeneous(up, down, THIRD, HALF), kinked, False),
    "softplus": (lambda up, b, down: forms.shifted(up, b, down, HALF), softplus, True),
    "tanh": (forms.odd, np.tanh, True),
}


@pytest.mark.parametrize("kind", KINDS)
@given(first=ROWS, second=ROWS, data=st.data())
def test_one_form_exactly_if_one_function(kind, first, second, data):
    """``second`` is either free or ``first`` with units scaled, turned, split and put in another order."""
    form, activation, biased = KINDS[kind]
    first = [row for row in first if any(row[:2])]
    second = [row for row in second if any(row[:2])]
    if data.draw(st.booleans()):
        second = [
            (-u, -v, -b, -a if kind == "tanh" else a) for u, v, b, a in data.draw(st.permutations(first))
        ]
        second += [(1, 2, 0, 1), (1, 2, 0, -1)]
    if first and second:
        equal = np.allclose(value(activation, first, biased), value(activation, second, biased), atol=1e-9)
        assert (form(*units(first)) == form(*units(second))) == equal


@given(rows=ROWS)
def test_a_turned_unit_leaves_its_linear_part(rows):
    """softplus(z) = z + softplus(-z), and the same for the kink with its slope."""
    rows = [row for row in rows if any(row[:2])]
    if rows:
        up, bias, down = units(rows)
        turned = [[-x for x in u] for u in up]
        left = linear(
            [[sum(a[0] * u[j] for u, a in zip(up, down)) for j in range(2)]],
            [sum(a[0] * b for a, b in zip(down, bias))],
        )
        softplus = forms.shifted(turned, [-b for b in bias], down, HALF)
        assert forms.shifted(up, bias, down, HALF) == plus(left, softplus)


@given(gates=ROWS, values=ROWS)
def test_gates(gates, values):
    """sigmoid(w·x)(u·x) with every gate turned is the values' linear map minus the block."""
    pairs = list(zip(gates, values))
    w, u, a = [g[:2] for g, _ in pairs], [v[:2] for _, v in pairs], [g[3:] for g, _ in pairs]
    w, u, a = ([tuple(map(read_number, row)) for row in rows] for rows in (w, u, a))
    form = forms.gated(w, u, a)
    both = plus(form, forms.gated([[-x for x in row] for row in w], u, a))
    assert both == linear([[sum(s[0] * row[j] for s, row in zip(a, u)) for j in range(2)]])
    W, U, A = (np.array(rows, float) for rows in (w, u, a))
    found = sum(
        float(c) * (x if name == "linear" else x / (1 + np.exp(-POINTS @ np.array(name[1], float))))
        for name, entries in form.items()
        for c, x in zip(entries, POINTS.T)
    )
    assert np.allclose((POINTS @ U.T / (1 + np.exp(-POINTS @ W.T))) @ A[:, 0], found)


def test_a_unit_without_a_row_is_refused():
    for form in (forms.odd, lambda *units: forms.shifted(*units, HALF)):
        with pytest.raises(Malformed, match="rows of weights must not be zero"):
            form([(ZERO, ZERO)], [HALF], [(HALF,)])
        assert form([(ZERO, ZERO)], [HALF], [(ZERO,)]) == {}
