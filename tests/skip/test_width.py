"""Spare units and the least width of a block without its skip, against exact enumeration."""

import itertools
import warnings
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn.networks import MLP, GatedMLP, Residual
from samefn.skip.absorption import absorb
from samefn.skip.collect import collect
from samefn.skip.criterion import Refuted
from samefn.skip.width import Realisation, build, minimal_width, realise, spend

from .blocks import (
    ODD_LINEAR,
    assert_absorbs,
    assert_same_function,
    normal,
    planted,
    random_block,
)

# --- degenerate blocks --------------------------------------------------------------------------


def rank(rows: list[list[Fraction]]) -> int:
    """By elimination, exactly."""
    rows, result = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(result, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[result], rows[pivot] = rows[pivot], rows[result]
        for i in range(result + 1, len(rows)):
            factor = rows[i][column] / rows[result][column]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[result])]
        result += 1
    return result


def least_width(up: list, down: list, skip: list, homogeneous: bool) -> int:
    """Least width without skip, from X-DEG in exact arithmetic, for 2c = 1; ``down`` lists the a_i."""
    d = len(skip)
    linear = [[Fraction(x) for x in row] for row in skip]
    even: dict[tuple, list[Fraction]] = {}
    for u, a in zip(up, down):
        for r in range(d):
            linear[r] = [x + Fraction(a[r] * y, 2) for x, y in zip(linear[r], u)]
        if any(u):
            leading = next(x for x in u if x)
            scale = abs(leading) if homogeneous else 1
            line = tuple(Fraction(x, scale) * (1 if leading > 0 else -1) for x in u)
            even[line] = [e + x * scale for e, x in zip(even.get(line, [Fraction(0)] * d), a)]
    lines = [(v, e) for v, e in even.items() if any(e)]
    extra = []
    for signs in itertools.product((1, -1, 0), repeat=len(lines)):  # 0: two units on this line
        rest = linear
        for sign, (v, e) in zip(signs, lines):
            rest = [[x - Fraction(sign) * e[r] * y / 2 for x, y in zip(rest[r], v)] for r in range(d)]
        free = [list(v) for sign, (v, _) in zip(signs, lines) if sign == 0]
        extra.append(len(free) + 2 * (rank(rest + free) - rank(free)))
    return max(1, len(lines) + min(extra))


@given(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.data())
@settings(max_examples=150)
def test_degenerate_blocks_agree_with_exact_enumeration(d, m, homogeneous, data):
    row = st.lists(st.integers(-2, 2), min_size=d, max_size=d)
    up = data.draw(st.lists(row, min_size=m, max_size=m))
    down = data.draw(st.lists(row, min_size=m, max_size=m))
    skip = data.draw(st.lists(row, min_size=d, max_size=d))
    block = MLP(
        torch.tensor(up).double(), torch.tensor(down).double().T.clone(), "relu" if homogeneous else "gelu"
    )
    residual, width = Residual(block, torch.tensor(skip).double()), least_width(up, down, skip, homogeneous)
    answer = absorb(residual)
    assert answer.absorbed is (width <= m)
    assert minimal_width(residual) == width
    if answer.absorbed:
        assert_absorbs(residual)
    else:
        assert answer.margin > 0


DUPLICATED = torch.tensor([[1.0, 2], [1, 2], [3, -1], [-3, 1], [0, 1]], dtype=torch.float64)
COLUMNS = torch.tensor([[1.0, 2, 3, 4, 1], [1, 0, 2, -1, -2]], dtype=torch.float64)


@pytest.mark.parametrize("name", ODD_LINEAR)
def test_spare_units_absorb_any_skip(name):
    """Two spare units with spanning lines, d = 2."""
    bias = (torch.tensor([1.0, 1, -2, 2, 0.5]), torch.tensor([0.3, -1]))
    for biases in ((), (None, bias[1]), bias):
        residual = Residual(MLP(DUPLICATED, COLUMNS, name, *biases), normal(2, 2, seed=4))
        if name == "hardswish" and biases == bias:
            assert absorb(residual).absorbed is None
        else:
            assert absorb(residual).reason == "degenerate"
            assert_absorbs(residual)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_degenerate_blocks_with_rows_of_very_different_size(name):
    """Two lines, both needed, sixteen orders of magnitude apart."""
    scale = torch.tensor([1e8, 1e8, 1e-8, 1e-8])
    assert_absorbs(Residual(MLP(DUPLICATED[:4] * scale[:, None], COLUMNS[:, :4] / scale, name)))


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_one_spare_unit_does_not_absorb_the_identity_of_the_plane(name):
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    for kind in ("dead", "zero", "duplicate", "opposite"):
        rows, columns = up.clone(), down.clone()
        if kind == "dead":
            columns[:, 3] = 0
        else:
            rows[3] = {"zero": 0.0, "duplicate": 1.0, "opposite": -1.0}[kind] * rows[2]
        answer = absorb(Residual(MLP(rows, columns, name)))
        assert (answer.absorbed, answer.reason) == (False, "degenerate") and answer.margin > 0


def test_many_lines_in_a_degenerate_block():
    """Dead units do not hide a planted set, nor a near miss, nor what needs the spare unit."""
    residual = planted("gelu", 3, 14, (0, 2, 3, 6, 7), seed=5)
    up, down = residual.block.up.detach().clone(), residual.block.down.detach().clone()
    up[13] = 0
    residual = Residual(MLP(up, down, "gelu"))
    assert_absorbs(residual)
    down[0, 0] += 1e-3
    answer = absorb(Residual(MLP(up, down, "gelu")))
    assert (answer.absorbed, answer.reason) == (True, "degenerate")  # unit 0 is doubled
    down[:2, 0] += torch.tensor([0.1, 0.2])
    down[0, 2] += 1e-3
    answer = absorb(Residual(MLP(up, down, "gelu")))
    assert (answer.absorbed, answer.reason) == (False, "degenerate") and 0 < answer.margin < 1


def test_few_lines_in_many_dimensions_are_refuted_at_once():
    up, down = normal(11, 300, seed=0), normal(300, 11, seed=1)
    up[1] = up[0]
    answer = absorb(Residual(MLP(up, down, "relu")))
    assert (answer.absorbed, answer.reason) == (False, "degenerate") and answer.margin > 0
    up, down = normal(40, 300, seed=0), normal(300, 40, seed=1)
    up[1] = up[0]
    assert absorb(Residual(MLP(up, down, "relu"))).absorbed is False


def test_a_closed_gate_is_a_linear_unit():
    """With gate 0 the unit is a (u·x)/2, which any skip of rank one joins: absorb must not refute."""
    one = torch.ones(1, 1)
    residual = Residual(GatedMLP(torch.zeros(1, 1), one, one, "sigmoid"))
    torch.testing.assert_close(GatedMLP(torch.zeros(1, 1), 3 * one, one, "sigmoid")(one), residual(one))
    assert absorb(residual).absorbed is not False


def test_two_units_absorb_any_skip_of_the_line():
    """d = 1: two ReLU units are collinear, hence always degenerate."""
    for seed in range(5):
        assert_absorbs(Residual(random_block("relu", 1, 2, seed), normal(1, 1, seed=seed)))


# --- width --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relu", "gelu", "leaky_relu(-3)", "both biases"])
@pytest.mark.parametrize("d, m", [(1, 1), (2, 1), (2, 3), (3, 2), (3, 5), (4, 4)])
def test_the_price_of_a_skip(kind, d, m):
    assert minimal_width(Residual(random_block(kind, d, m, seed=d + m))) == d + max(m, d)


def test_an_absorbed_block_needs_no_more_than_its_width():
    assert minimal_width(planted("gelu", 3, 5, (0, 1, 2, 4), seed=0)) == 5


def test_lines_that_span_too_little_cost_more():
    """Three lines in a plane of space: two can be doubled, the third dimension needs a pair."""
    up = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 0]])
    assert minimal_width(Residual(MLP(up, normal(3, 3, seed=0), "relu"))) == 3 + 2 + 2


def test_a_block_that_cancels_its_skip_needs_one_dead_unit():
    assert minimal_width(Residual(MLP(torch.tensor([[1.0], [-1]]), torch.tensor([[-1.0, 1]]), "relu"))) == 1


def test_lines_beyond_enumeration_are_warned_about_where_nothing_decides():
    with pytest.warns(RuntimeWarning, match="50 lines"):
        assert minimal_width(Residual(random_block("gelu", 2, 50, 0))) == 52
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert minimal_width(Residual(random_block("gelu", 2, 11, 0))) == 13
        assert minimal_width(planted("gelu", 2, 5, (0, 1, 2), seed=0)) == 5


# --- realisations -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relu", "gelu", "leaky_relu(-3)", "both biases"])
@pytest.mark.parametrize("d, m, spare", [(2, 3, 2), (3, 2, 4), (3, 5, 3), (1, 1, 1)])
def test_a_realisation_is_a_block_without_skip(kind, d, m, spare):
    """d + max(m, d) units are enough, and one fewer is refuted; built, they compute the residual block."""
    residual = Residual(random_block(kind, d, m, seed=d + m))
    collected = collect(residual)
    match realise(collected, spare):
        case Realisation(flips, doubled, pairs) as found:
            assert len(flips) == m and len(doubled) + 2 * pairs <= spare
            network = build(collected, found)
            assert network.width <= m + spare
            assert_same_function(residual, network)
        case other:
            pytest.fail(repr(other))
    assert isinstance(realise(collected, spare - 1), Refuted)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_the_distance_that_one_line_leaves_is_sharp(d):
    """Two units on the first axis: they make any map of x_1, and no map of x_2, which the skip keeps."""
    up = torch.eye(d)[:1].expand(2, d).contiguous()
    collected = collect(Residual(MLP(up, normal(d, 2, seed=0), "gelu")))
    refuted = realise(collected, collected.spare)
    assert isinstance(refuted, Refuted) and 1 - 1e-9 <= collected.criterion.unscaled(refuted.margin) <= 1


def test_flips_are_tried_before_spare_units():
    residual = planted("gelu", 3, 14, (0, 2, 3, 6, 7), seed=5)
    collected = collect(residual)
    for found in (spend(collected), realise(collected, 0)):
        assert found.flips.nonzero().flatten().tolist() == [0, 2, 3, 6, 7]
        assert (found.doubled, found.pairs) == ((), 0)
    assert_same_function(residual, build(collected, found))


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: minimal_width(Residual(MLP(normal(3, 2, seed=0), normal(2, 3, seed=1), "tanh"))),
            "residual.block must be an MLP whose activation.*tanh",
        ),
        (lambda: minimal_width(Residual(random_block("sigmoid gate", 2, 3, 0))), "GatedMLP"),
        (lambda: minimal_width(Residual(random_block("up bias", 2, 3, 0))), "must have down_bias"),
        (
            lambda: minimal_width(Residual(MLP(torch.zeros(1, 2), torch.ones(2, 1), "softplus"))),
            "must have down_bias",
        ),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_only_residual_blocks_are_taken():
    with pytest.raises(TypeError, match="residual must be a Residual, got MLP"):
        minimal_width(random_block("relu", 2, 3, 0))
