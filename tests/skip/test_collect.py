"""Units collected by line: which share one, and what is left of the block."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.networks import MLP, GatedMLP, Residual
from samefn.skip.absorption import absorb
from samefn.skip.collect import collect, equivalent, units_of
from samefn.skip.criterion import criterion_of
from samefn.skip.width import minimal_width

from .blocks import (
    KINDS,
    ODD_LINEAR,
    assert_refuted,
    distances,
    normal,
    planted,
    random_block,
    unscaled,
    with_weights,
)

# --- lines --------------------------------------------------------------------------------------


def same_class(row: list[int], other: list[int], up_to: str) -> bool:
    """In integers: parallel by the 2×2 minors, or equal up to sign."""
    if up_to == "sign":
        return row == other or row == [-x for x in other]
    if not any(row) or not any(other):
        return not any(row) and not any(other)
    return all(row[i] * other[j] == row[j] * other[i] for i in range(len(row)) for j in range(len(row)))


@pytest.mark.parametrize("up_to", ["line", "sign"])
@given(st.integers(1, 3), st.integers(1, 8), st.data())
def test_classes_are_those_of_all_pairs(up_to, n, m, data):
    rows = data.draw(st.lists(st.lists(st.integers(-2, 2), min_size=n, max_size=n), min_size=m, max_size=m))
    stands = equivalent(torch.tensor(rows).double(), up_to).tolist()
    for i in range(m):
        assert stands[stands[i]] == stands[i] and same_class(rows[i], rows[stands[i]], up_to)
        for j in range(m):
            assert (stands[i] == stands[j]) is same_class(rows[i], rows[j], up_to)


@pytest.mark.parametrize(
    "factor, lines, signs", [(1.0, 1, 1), (-1.0, 1, 1), (3.0, 1, 2), (-1e-8, 1, 2), (0.0, 2, 2)]
)
def test_multiples_and_opposites(factor, lines, signs):
    row = normal(1, 5, seed=0)
    rows = torch.cat([row, factor * row])
    assert len(equivalent(rows, "line").unique()) == lines
    assert len(equivalent(rows, "sign").unique()) == signs


@pytest.mark.parametrize("up_to", ["line", "sign"])
def test_a_thousand_rows_and_their_opposites(up_to):
    rows = normal(1000, 300, seed=0)
    stands = equivalent(torch.cat([rows, -rows]), up_to)
    assert torch.equal(stands[:1000], stands[1000:]) and len(stands.unique()) == 1000


# --- the collected block ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_unit_is_redundant_the_criterion_is_the_blocks_own(kind):
    residual = Residual(random_block(kind, 3, 6, seed=0))
    collected, own = collect(residual), criterion_of(residual)
    assert (collected.spare, collected.lines, collected.criterion.noise) == (0, 6, 0)
    assert collected.criterion.exponent == own.exponent
    for name in ("up", "down", "target", "shift"):
        assert torch.equal(getattr(collected.criterion, name), getattr(own, name))


@pytest.mark.parametrize("kind", ["relu", "leaky_relu(-3)", "gelu", "hardswish", "both biases", "down bias"])
@pytest.mark.parametrize("planted_it", [True, False])
def test_a_dead_unit_changes_no_criterion(kind, planted_it):
    """The general formula, at a block where it must give the block's own criterion."""
    residual = (
        planted(kind, 3, 6, (0, 1, 4), seed=3) if planted_it else Residual(random_block(kind, 3, 6, seed=0))
    )
    down = torch.cat([residual.block.down.detach(), torch.zeros(3, 1)], 1)
    up = torch.cat([residual.block.up.detach(), normal(1, 3, seed=9)])
    bias = residual.block.up_bias
    extended = with_weights(
        residual,
        up=up,
        down=down,
        **({} if bias is None else {"up_bias": torch.cat([bias.detach(), torch.ones(1)])}),
    )
    collected, own = collect(extended), criterion_of(residual)
    assert (collected.spare, collected.lines) == (1, 6)
    for name in ("up", "down", "target"):
        torch.testing.assert_close(getattr(collected.criterion, name), getattr(own, name))


@pytest.mark.parametrize("name", ODD_LINEAR)
@pytest.mark.parametrize("biases", [False, True])
def test_the_collected_block_is_the_residual_block_up_to_a_constant(name, biases):
    up, down = normal(7, 3, seed=0), normal(3, 7, seed=1)
    bias, down_bias = normal(7, seed=2), normal(3, seed=3)
    for i, j, factor in ((1, 0, -1.0), (3, 2, 1.0), (4, 2, 2.5)):
        up[i], bias[i] = factor * up[j], factor * bias[j]
    down[:, 5] = 0
    residual = Residual(MLP(up, down, name, *((bias, down_bias) if biases else ())), normal(3, 3, seed=4))
    collected = collect(residual)
    homogeneous = name in ("relu", "leaky_relu")
    assert collected.lines == (3 if homogeneous else 4) and collected.spare == 7 - collected.lines
    x, rows_bias = normal(50, 3, seed=5), bias[collected.stands] if biases else torch.zeros(collected.lines)
    even, rows, target = unscaled(collected.criterion, residual.block.activation.odd_slope)
    rebuilt = x @ target.T + MLP(rows, even, name, rows_bias)(x)
    difference = residual(x) - rebuilt
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))


def test_a_line_whose_even_part_cancels_is_gone():
    up, down = torch.tensor([[1.0, 2], [-1, -2], [0, 1]]), torch.tensor([[1.0, -1, 3], [2, -2, 1]])
    collected = collect(Residual(MLP(up, down, "gelu")))
    _, rows, target = unscaled(collected.criterion, 0.5)
    assert collected.lines == 1 and torch.equal(rows, up[2:])
    torch.testing.assert_close(target, torch.eye(2) + torch.outer(down[:, 0], up[0]))


def test_gated_units_that_share_a_gate_are_not_collected():
    gate, up, down = normal(4, 2, seed=5), normal(4, 2, seed=0), normal(2, 4, seed=1)
    assert collect(Residual(GatedMLP(gate, up, down, "sigmoid"))).spare == 0
    gate[3] = -gate[1]
    assert collect(Residual(GatedMLP(gate, up, down, "sigmoid"))) is None
    bias = torch.tensor([1.0, 2, 3, 4])
    assert collect(Residual(GatedMLP(gate, up, down, "sigmoid", bias))).spare == 0  # shifted gates
    down[:, 3] = 0
    assert collect(Residual(GatedMLP(gate, up, down, "sigmoid"))).spare == 1


def test_a_unit_bends_if_all_that_it_multiplies_is_not_zero():
    gate, up, down = normal(5, 2, seed=5), normal(5, 2, seed=0), normal(2, 5, seed=1)
    up[0], down[:, 1], gate[2] = 0, 0, 0
    assert units_of(MLP(up, down, "relu"), constants=False).bending.tolist() == [2, 3, 4]
    gated = units_of(GatedMLP(gate, up, down, "sigmoid"), constants=True)
    assert (gated.bending.tolist(), gated.fixed.tolist()) == ([3, 4], [2])


def test_constants_that_no_bias_takes_up_need_a_unit():
    up, down, bias = normal(4, 2, seed=0), normal(2, 4, seed=1), normal(4, seed=2)
    up[0] = 0
    assert collect(Residual(MLP(up, down, "gelu"))).constant is None  # GELU(0) = 0
    lost = collect(Residual(MLP(up, down, "softplus")))
    torch.testing.assert_close(lost.constant, down[:, 0] * torch.tensor(2.0).log())
    assert (lost.lines, lost.spare) == (3, 0)
    for biases in ((None, torch.ones(2)), (bias, torch.ones(2)), (bias, None)):
        found = collect(Residual(MLP(up, down, "softplus", *biases)))
        assert (found.constant, found.spare) == (None, 1)


# --- through absorb -----------------------------------------------------------------------------


def test_nearly_equal_rows():
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    for distance, reason in ((1e-6, "submatrix"), (1e-13, "submatrix"), (2e-16, "degenerate")):
        up[3] = up[2] * (1 + distance * torch.tensor([1.0, 0]))
        answer = absorb(Residual(MLP(up, down, "relu")))
        assert (answer.absorbed, answer.reason) == (False, reason)
        parallel = up.clone()
        parallel[3] = -3 * up[3]
        assert absorb(Residual(MLP(parallel, down, "relu"))).reason == reason
        assert absorb(Residual(MLP(parallel, down, "gelu"))).reason == "submatrix"


@pytest.mark.parametrize("distance", [1e-9, 1e-10, 1e-11, 1e-12])
def test_nearly_collinear_spare_lines_are_not_refuted_by_rounding(distance):
    """Two doubled lines span the plane, however close they are: True or undecided, never False."""
    line, close = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + distance])
    up, down = torch.stack([line, line, close, close]), torch.tensor([[1.0, 2, 3, 4], [1, 0, 2, -1]])
    assert absorb(Residual(MLP(up, down, "relu"))).absorbed is not False


def test_gated_units_that_share_a_gate_are_left_undecided():
    gate, up, down = normal(4, 2, seed=5), normal(4, 2, seed=6), normal(2, 4, seed=1)
    gate[3] = -gate[1]
    answer = absorb(Residual(GatedMLP(gate, up, down, "sigmoid")))
    assert (answer.absorbed, answer.reason) == (None, "degenerate")


def test_shifted_parallel_hardswish_units_are_dependent():
    """Kinks that pair the points 0, 2, 3, 5 in two ways: a block of width 3 absorbs though no set S works."""
    pairs = [(0, 2), (3, 5), (0, 3), (2, 5), (0, 5), (2, 3)]
    up = torch.tensor([[6.0 / (q - p)] for p, q in pairs])
    bias = torch.tensor([-3.0 - 6 * p / (q - p) for p, q in pairs])
    up[3], bias[3] = -up[3], -bias[3]
    x, y, z = Fraction(4, 5), Fraction(-9, 5), Fraction(1)
    down = torch.tensor([[float(c * (q - p)) for c, (p, q) in zip((x, x, y, y, z, z), pairs)]])
    points = torch.linspace(-4, 9, 200)[:, None]
    combined = MLP(up, down, "hardswish", bias, torch.zeros(1))(points)
    slope = float((combined[-1] - combined[0]) / (points[-1] - points[0]))
    constant = float(combined[0] - slope * points[0])
    torch.testing.assert_close(combined, slope * points + constant)  # six units, one affine function

    first, last = slice(0, 3), slice(3, 6)
    residual = Residual(MLP(up[first], -down[:, first] / slope, "hardswish", bias[first], torch.zeros(1)))
    network = MLP(up[last], down[:, last] / slope, "hardswish", bias[last], torch.tensor([-constant / slope]))
    torch.testing.assert_close(network(points), residual(points))
    assert distances(residual).min() > 0.1
    assert (absorb(residual).absorbed, absorb(residual).reason) == (None, "biases")
    with pytest.raises(ValueError, match="parallel hardswish"):
        minimal_width(residual)
    assert_refuted(Residual(MLP(normal(4, 2, seed=0), normal(2, 4, seed=1), "hardswish", normal(4, seed=2))))
