"""What ``absorb`` promises, tried with exact arithmetic and with oracles that share no code with it."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from samefn.activations import leaky_relu
from samefn.draw import Draw
from samefn.networks import MLP, GatedMLP, Residual, hyper_connection, random_mlp
from samefn.skip.absorption import absorb, flip
from samefn.skip.criterion import accurate_product, exact_pivots, trace_test
from samefn.skip.planted import plant

from .blocks import (
    KINDS,
    assert_absorbs,
    exact_squared_distance,
    normal,
    planted,
    random_block,
    unimodular,
    with_weights,
)

# --- the bound of every True, against exact evaluation ------------------------------------------


def norm(vector):
    """With thirty digits, and no overflow."""
    square = sum(x * x for x in vector)
    with mpmath.workdps(30):
        return mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator)


def rationals(tensor):
    return [[Fraction(x) for x in row] for row in torch.atleast_2d(tensor.detach()).tolist()]


def times(matrix, x):
    return [sum((a * b for a, b in zip(row, x)), Fraction(0)) for row in matrix]


def relu_terms(block: MLP, x: list[Fraction]) -> list[list[Fraction]]:
    """What each unit and the output bias add at x, exactly."""
    bias = [Fraction(0)] * block.width if block.up_bias is None else rationals(block.up_bias)[0]
    hidden = [max(z + b, Fraction(0)) for z, b in zip(times(rationals(block.up), x), bias)]
    columns = zip(*rationals(block.down))
    terms = [[a * z for a in column] for column, z in zip(columns, hidden)]
    return terms if block.down_bias is None else terms + rationals(block.down_bias)


def deviation_at(residual: Residual, network: MLP, x: list[Fraction]):
    """‖F(x) - F'(x)‖ and the sum of the norms of all terms."""
    skip = times(rationals(residual.skip_matrix()), x)
    ours, theirs = relu_terms(residual.block, x), relu_terms(network, x)
    difference = [sum(parts) for parts in zip(skip, *ours, *[[-y for y in term] for term in theirs])]
    return norm(difference), sum(norm(term) for term in [skip, *ours, *theirs])


def hard_directions(residual: Residual, seed: int) -> list[list[Fraction]]:
    """Random inputs at several scales, the axes, 0, and inputs to which some units are blind."""
    d, up = residual.dim_in, rationals(residual.block.up)
    inputs = [[Fraction(x) * 10**k for x in normal(d, seed=seed + k).tolist()] for k in (0, 3, 30)]
    inputs += [[Fraction(int(i == j)) for i in range(d)] for j in range(d)] + [[Fraction(0)] * d]
    if d == 2:
        inputs += [[-b, a] for a, b in up] + [[b, -a] for a, b in up]
    if d == 3:
        for (a, b, c), (p, q, r) in itertools.combinations(up, 2):
            inputs.append([b * r - c * q, c * p - a * r, a * q - b * p])
    return inputs


def assert_promise_kept(residual: Residual) -> None:
    answer = absorb(residual)
    assert answer.absorbed is True and answer.error <= 2.0**-40, answer
    for x in hard_directions(residual, seed=1):
        difference, terms = deviation_at(residual, answer.network, x)
        assert difference <= answer.error * terms * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("biases", [(), ("up", "down"), ("down",), ("up",)])
def test_the_error_bounds_the_deviation_in_every_direction(seed, biases):
    d, m, draw = 2 + seed % 2, 7, Draw(seed)
    given = (draw.normal(m) if "up" in biases else None, draw.normal(d) if "down" in biases else None)
    block = MLP(draw.normal(m, d), draw.normal(d, m), "relu", *given)
    assert_promise_kept(plant(block, tuple(range(d + 2)), draw.normal(d, d)))
    up, down = block.up.clone(), block.down.clone()
    up[3], down[:, 5] = -2.7 * up[1], 0
    if given[0] is not None:
        given[0][3] = -2.7 * given[0][1]
    if d == 2 and biases != ("up",):  # else two spare units are too few
        assert_promise_kept(Residual(MLP(up, down, "relu", *given)))


@pytest.mark.parametrize("seed", range(10))
def test_inverses_computed_in_float64_absorb(seed):
    up = Draw(seed).normal(2 + seed % 5, 2 + seed % 5)
    residual = Residual(MLP(up, -torch.linalg.inv(up)))
    assert trace_test(residual) <= 0
    assert_promise_kept(residual)


@pytest.mark.parametrize("seed", range(60))
def test_what_a_solver_planted_is_never_refuted(seed):
    draw = Draw(seed)
    d = 2 + seed % 4
    up, down = draw.normal(d + 3, d), draw.normal(d, d + 3)
    rows = up[: d + 2]
    down[:, : d + 2] -= (torch.eye(d) + down[:, : d + 2] @ rows) @ torch.linalg.pinv(rows)
    assert absorb(Residual(MLP(up, down))).absorbed is not False


@pytest.mark.parametrize("height", [1e8, 1e13, 1e16, 1e20])
@pytest.mark.parametrize("row", [(1.0, 0.0), (1.0, 1.0), (2.0, 1.0)])
def test_a_huge_unit_does_not_hide_what_dead_units_cannot_do(height, row):
    """One live unit and two dead ones in the plane: the rest has rank two, and one pair makes rank one."""
    up, down = torch.tensor([row, (0, 1), (1, 1)]), torch.tensor([[height, 0, 0], [0, 0, 0]])
    assert absorb(Residual(MLP(up, down))).absorbed is not True


@pytest.mark.parametrize("k", [20, 36, 44])
def test_cancellation_of_large_integers(k):
    K, up = 2.0**k, torch.tensor([[1.0, 0], [0, 1], [1, 1]])
    exact = Residual(MLP(up, torch.tensor([[-K - 1, -K, K], [0, -1.0, 0]])))
    assert absorb(exact).flipped == (0, 1, 2) and absorb(exact).error == 0
    off = 2.0 ** (k - 44)  # 256 roundings of the largest weight
    answer = absorb(Residual(MLP(up, torch.tensor([[-K - 1 - off, -K, K], [0, -1.0, 0]]))))
    assert answer.absorbed is False and 0 < answer.margin <= off


@given(st.integers(2, 3), st.integers(1, 5), st.integers(0, 10**6))
@settings(max_examples=40)
def test_near_misses_of_exact_solutions(d, more, seed):
    """Integer weights with P_S = -I, one entry moved by a power of two: the judge is exact, on all sets."""
    draw, residual = Draw(seed), unimodular(d, d + more, seed)
    move = 2.0 ** -draw.integer(1, 36)
    down = residual.block.down.detach().clone()
    down[draw.integer(0, d), draw.integer(0, d + more)] += move
    moved = with_weights(residual, down=down)
    square, answer = exact_squared_distance(moved), absorb(moved)
    assert answer.absorbed is (square == 0)
    assert Fraction(answer.margin) ** 2 <= square


# --- what scaling, order and precision may not change --------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(-120, 120), st.integers(-200, 200), st.booleans(), st.integers(0, 500))
@settings(max_examples=6)
def test_scaling_by_powers_of_two(kind, k, g, plant_it, seed):
    """W_up × 2^k and W_down × 2^(g - k) with the skip × 2^g have the criterion × 2^g, in every bit."""
    chosen = (0, 2, 3, 6, 7)
    residual = planted(kind, 3, 8, chosen, seed) if plant_it else Residual(random_block(kind, 3, 8, seed))
    weights = {
        "up": residual.block.up.detach() * 2.0**k,
        "down": residual.block.down.detach() * 2.0 ** (g - k),
    }
    if getattr(residual.block, "up_bias", None) is not None:
        weights["up_bias"] = residual.block.up_bias.detach() * 2.0**k
    if getattr(residual.block, "down_bias", None) is not None:
        weights["down_bias"] = residual.block.down_bias.detach() * 2.0**g
    scaled = with_weights(Residual(residual.block, residual.skip_matrix().detach() * 2.0**g), **weights)
    before, after = absorb(residual), absorb(scaled)
    assert (after.absorbed, after.flipped) == (before.absorbed, before.flipped)
    assert after.margin == math.ldexp(before.margin, g)
    if kind != "softplus(4)":
        assert after.error == before.error


@given(st.lists(st.integers(-300, 300), min_size=8, max_size=8), st.booleans(), st.integers(0, 500))
@settings(max_examples=20)
def test_scaling_each_relu_unit(powers, plant_it, seed):
    residual = (
        planted("relu", 3, 8, (0, 2, 3, 6, 7), seed)
        if plant_it
        else Residual(random_block("relu", 3, 8, seed))
    )
    scale = torch.tensor([2.0**k for k in powers])
    up, down = residual.block.up.detach() * scale[:, None], residual.block.down.detach() / scale
    before, after = absorb(residual), absorb(with_weights(residual, up=up, down=down))
    assert (after.absorbed, after.flipped, after.margin) == (before.absorbed, before.flipped, before.margin)


@given(st.permutations(range(9)), st.sampled_from(["relu", "gelu"]), st.integers(0, 3), st.integers(0, 500))
@settings(max_examples=30)
def test_the_order_of_units(order, name, spare, seed):
    residual = planted(name, 3, 9, (0, 2, 3, 6, 7), seed)
    up, down = residual.block.up.detach().clone(), residual.block.down.detach().clone()
    for unit in (8, 5, 4)[:spare]:
        down[:, unit] = 0
    if seed % 2:
        down[0, 0] += 0.5
    order = list(order)
    answers = absorb(Residual(MLP(up, down, name))), absorb(Residual(MLP(up[order], down[:, order], name)))
    before, after = answers
    assert after.absorbed is before.absorbed is not None
    assert after.margin == pytest.approx(before.margin, rel=1e-6)
    if before.flipped is not None:
        assert {order[i] for i in after.flipped} == set(before.flipped)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=15)
def test_low_precision_is_its_float64_copy(dtype, seed, rounded):
    draw = Draw(seed)
    up, down, bias, down_bias = (draw.normal(*shape).to(dtype) for shape in ((5, 2), (2, 5), (5,), (2,)))
    block = MLP(up, down, "relu", bias, down_bias)
    residual = Residual(block)
    if not rounded:
        residual = plant(block, (0, 1, 3))
        assert residual.block.up.dtype == torch.float64  # a planted set cannot be rounded
        assert torch.equal(residual.block.up, up.double())
        assert_absorbs(residual, (0, 1, 3))
    copy = Residual(with_weights(residual, up=residual.block.up.detach()).block.double())
    first, second = absorb(residual), absorb(copy)
    assert (first.absorbed, first.flipped, first.margin) == (second.absorbed, second.flipped, second.margin)


def test_a_network_that_float32_holds_stays_float32():
    exact = unimodular(2, 4, 0).block
    narrow = Residual(
        MLP(exact.up.float(), exact.down.float(), "relu", torch.ones(4).float(), torch.ones(2).float())
    )
    assert absorb(narrow).network.up.dtype == torch.float32
    third = Residual(
        MLP(
            exact.up.float(),
            exact.down.float(),
            "relu",
            torch.full((4,), 1 / 3).float(),
            torch.ones(2).float(),
        )
    )
    answer = absorb(third)
    assert answer.absorbed is True and answer.error < 1e-15 and answer.network.up.dtype == torch.float64


@pytest.mark.parametrize("size", [1e-200, 1e-20, 1e-12, 1e20, 1e160, 1e300])
def test_skips_of_any_size_are_refuted(size):
    for kind in ("relu", "gelu", "both biases"):
        answer = absorb(Residual(random_block(kind, 2, 4, 0), size * torch.eye(2)))
        assert answer.absorbed is False and 0 < answer.margin <= size * 2**0.5


def test_a_steep_leaky_relu():
    steep = random_mlp(3, 5, leaky_relu(1e200), generator=Draw(0))
    assert absorb(Residual(steep)).absorbed is False
    assert absorb(plant(MLP(steep.up, steep.down * 1e-200, leaky_relu(1e200)), (0, 1, 4))).flipped == (
        0,
        1,
        4,
    )


# --- decided since spare units are counted ---------------------------------------------------------


def nearest(R: np.ndarray, even: np.ndarray, rows: np.ndarray, spare: int) -> float:
    """Least Frobenius distance by flips and ``spare`` doubled lines, by trying everything; 2c = 1."""
    best = math.inf
    for doubled in itertools.combinations(range(len(rows)), spare):
        free = [i for i in range(len(rows)) if i not in doubled]
        project = np.eye(R.shape[1])
        for i in doubled:
            project = project - np.outer(rows[i], rows[i]) / (rows[i] @ rows[i])
        sums = (R @ project)[None]
        for i in free:
            sums = np.concatenate([sums, sums + np.outer(even[:, i], rows[i] @ project)])
        best = min(best, float(np.sqrt((sums**2).sum((1, 2))).min()))
    return best


@pytest.mark.parametrize("m", [6, 12])
@pytest.mark.parametrize("name", ["relu", "gelu"])
@pytest.mark.parametrize("kind", ["dead", "duplicate"])
@pytest.mark.parametrize("needs", ["nothing", "flips", "the spare unit"])
def test_one_spare_unit(m, name, kind, needs):
    draw = Draw(m)
    up, down = draw.normal(m, 4), draw.normal(4, m)
    if kind == "dead":
        down[:, 0] = 0
    else:
        up[0] = up[1]
    lines = np.arange(1, m)
    even, rows = down[:, 1:].clone(), up[1:]
    even[:, 0] += down[:, 0]
    if needs != "nothing":
        missing = torch.outer(draw.normal(4), rows[0]) if needs == "the spare unit" else 0
        wanted = -torch.eye(4) - missing - even[:, 1:5] @ rows[1:5]
        down[:, 2:6] += wanted @ torch.linalg.inv(rows[1:5])
        even[:, 1:5] = down[:, 2:6]
    distance = nearest(np.eye(4), even.numpy(), rows.numpy(), 1)
    assert len(lines) == len(rows) and (distance < 1e-10) is (needs != "nothing")
    residual = Residual(MLP(up, down, name))
    if needs == "nothing":
        answer = absorb(residual)
        assert (answer.absorbed, answer.reason) == (False, "degenerate") and 0 < answer.margin <= distance
    else:
        assert_absorbs(residual)


@pytest.mark.parametrize("seed", range(12))
def test_without_an_output_bias_one_unit_makes_any_constant(seed):
    """Hidden biases only, a dead unit: it can double a line, or the constant, a line that no flip changes."""
    draw, d, m = Draw(seed), 2, 6
    up, down, bias = draw.normal(m, d), draw.normal(d, m), draw.normal(m)
    down[:, 0] = 0
    rows, constant = torch.cat([up, bias[:, None]], 1)[1:], torch.eye(d + 1)[-1:]
    target = pad(torch.eye(d), (0, 1))
    if seed % 3:
        freed = constant if seed % 3 == 1 else rows[4:]
        missing = target + draw.normal(d, 1) @ freed + down[:, 1:4] @ rows[:3]
        down[:, 1:4] -= missing @ torch.linalg.inv(rows[:3])
    even = torch.cat([down[:, 1:], torch.zeros(d, 1)], 1)
    distance = nearest(target.numpy(), even.numpy(), torch.cat([rows, constant]).numpy(), 1)
    residual = Residual(MLP(up, down, "gelu", bias))
    if seed % 3:
        assert_absorbs(residual)
    else:
        answer = absorb(residual)
        assert answer.absorbed is False and 0 < answer.margin <= distance


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_dead_unit_in_a_large_block(scale):
    """By ranks and a trace where weights are small, by one linear system for each line where they are not."""
    block = random_mlp(32, 128, generator=Draw(0))
    down = scale * block.down
    down[:, 5] = 0
    answer = absorb(Residual(MLP(block.up, down)))
    assert (answer.absorbed, answer.reason) == (False, "degenerate") and answer.margin > 0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dead", [0, 1, 2])
@pytest.mark.parametrize("plant_it", [False, True])
def test_sigmoid_gates(bias, dead, plant_it):
    """Gate biases change nothing, and a unit without gate makes any matrix of rank one."""
    draw = Draw(dead)
    gate, up, down, gate_bias = draw.normal(8, 3), draw.normal(8, 3), draw.normal(3, 8), draw.normal(8)
    down[:, :dead] = 0
    linear = torch.zeros(3, 3)
    if dead == 2:  # a constant gate: half of a (u·x), or sigmoid(b) of it
        gate[1], down[:, 1] = 0, draw.normal(3)
        linear = torch.outer(down[:, 1], up[1]) * (gate_bias[1].sigmoid() if bias else 0.5)
    if plant_it:
        made = draw.normal(3, dead) @ draw.normal(dead, 3)
        down[:, 2:6] -= (torch.eye(3) + linear + made + down[:, 2:6] @ up[2:6]) @ torch.linalg.pinv(up[2:6])
    residual = Residual(GatedMLP(gate, up, down, "sigmoid", gate_bias if bias else None))
    sums = (torch.eye(3) + linear)[None]
    for i in range(dead, 8):
        sums = torch.cat([sums, sums + torch.outer(down[:, i], up[i])])
    distance = float(torch.linalg.svdvals(sums)[:, dead:].norm(dim=1).min())
    if distance < 1e-10:
        assert plant_it
        assert_absorbs(residual, None if dead else (2, 3, 4, 5))
    else:
        answer = absorb(residual)
        assert answer.absorbed is False and 0 < answer.margin <= distance


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("name", ["softplus", "logsigmoid"])
def test_a_zero_row_adds_a_constant(output_bias, name):
    up, down = normal(6, 2, seed=0), normal(2, 6, seed=1)
    up[0] = 0
    bias = normal(2, seed=2) if output_bias else None
    random = absorb(Residual(MLP(up, down, name, None, bias)))
    assert random.absorbed is False
    down[:, 1:3] = -torch.linalg.inv(up[1:3])
    assert_absorbs(Residual(MLP(up, down, name, None, bias)))
    # two units to spare for two directions, if the constant needs none
    up[5] = 0
    down[:, 1:3] += normal(2, 2, seed=3)
    assert absorb(Residual(MLP(up, down, name, None, bias))).absorbed is output_bias


@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from(["", "up", "down", "both"]), st.data())
@settings(max_examples=80)
def test_linear_blocks_are_decided_by_a_rank(d, m, biases, data):
    entries = lambda n: st.lists(st.integers(-2, 2), min_size=n, max_size=n)
    matrix = lambda r, c: torch.tensor(data.draw(st.lists(entries(c), min_size=r, max_size=r))).double()
    up, down, skip = matrix(m, d), matrix(d, m), matrix(d, d)
    assume(bool(skip.any()))
    up_bias = matrix(1, m)[0] if biases in ("up", "both") else None
    down_bias = matrix(1, d)[0] if biases in ("down", "both") else None
    whole = skip + down @ up
    if biases == "up":
        whole = torch.cat([whole, (down @ up_bias)[:, None]], 1)
    residual = Residual(MLP(up, down, "identity", up_bias, down_bias), skip)
    answer = absorb(residual)
    assert answer.absorbed is (len(exact_pivots(whole)) <= m) and answer.reason == "linear"
    if answer.absorbed:
        assert_absorbs(residual)
    else:
        assert 0 < answer.margin <= float(torch.linalg.svdvals(whole)[m:].norm()) * (1 + 1e-9)


def test_one_dimension_with_many_units():
    """2^25 sets; the nearest is found by sorting, and compared with a search that is written differently."""
    draw = Draw(0)
    up, down, bias = draw.normal(25, 1), draw.normal(1, 25), draw.normal(25)
    answer = absorb(Residual(MLP(up, down, "relu", bias, torch.zeros(1))))
    products = (up[:, 0] * down[0]).tolist()
    sums = [np.array([0.0]), np.array([0.0])]
    for i, product in enumerate(products):
        sums[i % 2] = np.concatenate([sums[i % 2], sums[i % 2] + product])
    right = np.sort(sums[1])
    place = np.searchsorted(right, -1 - sums[0]).clip(1, len(right) - 1)
    true = min(float(abs(1 + sums[0] + right[at]).min()) for at in (place - 1, place))
    assert answer.absorbed is False and true * (1 - 1e-3) - 1e-13 <= answer.margin <= true


def test_mixed_streams_have_columns_that_are_equal():
    """A singular skip: where x has no term, nothing is added, and the bound knows it."""
    rows = torch.cat([torch.tensor([[1.0, 2], [3, -1]]).repeat(1, 3), normal(5, 6, seed=0)])
    uniform = hyper_connection(torch.full((3, 3), 1 / 3), 2)
    assert_absorbs(plant(MLP(rows, normal(6, 7, seed=1)), (0, 1), uniform), (0, 1))


# --- arithmetic -------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(0, 9), st.integers(1, 4), st.integers(0, 10**6))
def test_products_are_rounded_once(d, m, k, seed):
    draw = Draw(seed)
    down, up, start = draw.normal(d, m), draw.normal(m, k), draw.normal(d, k)
    down, up = down * 10.0 ** draw.integers(-9, 9, d, m), up * 10.0 ** draw.integers(-9, 9, m, k)
    found = accurate_product(start - down @ up, down, up)  # what is left of the sum is rounding
    for i, j in itertools.product(range(d), range(k)):
        exact = Fraction(float((start - down @ up)[i, j]))
        exact += sum(
            (Fraction(a) * Fraction(u) for a, u in zip(down[i].tolist(), up[:, j].tolist())), Fraction(0)
        )
        assert abs(Fraction(float(found[i, j])) - exact) <= abs(exact) * Fraction(1, 2**52)


# --- units ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "units, error, words",
    [
        ((1, 1), ValueError, r"units must not name a unit twice, got \(1, 1\)"),
        ((1.0,), TypeError, r"units\[0\] must be an integer, got 1.0"),
        ((True, False), TypeError, "units must be integers, .* got True"),
        (torch.tensor([True, False]), TypeError, "units must be integers, .* got True"),
        ((-1,), ValueError, r"units must lie in 0\.\.3, got \(-1,\)"),
        (("0",), TypeError, r"units\[0\] must be an integer, got '0'"),
    ],
)
@pytest.mark.parametrize("function", [flip, plant])
def test_units_that_are_none(function, units, error, words):
    with pytest.raises(error, match=words):
        function(random_mlp(2, 4, generator=Draw(0)), units)


def test_units_may_be_numbers_of_numpy_or_a_tensor():
    block = random_mlp(2, 4, generator=Draw(0))
    for units in (np.array([0, 2]), torch.tensor([0, 2]), [np.int64(0), 2], {0, 2}):
        assert torch.equal(flip(block, units).up, flip(block, (0, 2)).up)
