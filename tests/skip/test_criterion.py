"""The subset problem: certificates, trace test and search, against all 2^m sets and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.networks import MLP, Residual, random_mlp
from samefn.skip.absorption import absorb
from samefn.skip.criterion import (
    Found,
    Refuted,
    Undecided,
    certified_bound,
    criterion_of,
    ldexp,
    solve,
    subset_distances,
    trace_test,
)
from samefn.skip.planted import plant

from .blocks import (
    KINDS,
    assert_absorbs,
    assert_refuted,
    distances,
    exact_squared_distance,
    normal,
    planted,
    random_block,
    rank_one_matrices,
    raw_criterion,
    unimodular,
)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 900))
def test_every_matrix_certifies_at_most_the_true_distance(d, m, seed):
    for residual in (
        Residual(random_block("gelu", d, m, seed)),
        Residual(random_block("sigmoid gate", d, m, seed)),
    ):
        true = distances(residual).min()
        best = residual.skip_matrix() + 0.1 * normal(d, d, seed=seed + 7)
        for y in (normal(d, d, seed=seed + 5), best, 1e9 * best, 1e-9 * best):
            assert 0 <= certified_bound(residual, y) <= true * (1 + 1e-12)
        assert certified_bound(residual, 1e9 * best) == pytest.approx(
            certified_bound(residual, best), rel=1e-9
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_certifies_the_margin(kind):
    residual = Residual(random_block(kind, 3, 8, seed=1))
    answer = absorb(residual)
    assert (
        answer.certificate is not None and certified_bound(residual, answer.certificate) == answer.margin > 0
    )


def test_the_margin_of_a_sparse_block_is_nearly_sharp():
    """One unit in many dimensions: the best set is empty or everything."""
    residual = Residual(random_block("gelu", 4, 1, 0))
    assert absorb(residual).margin == pytest.approx(distances(residual).min(), rel=0.2)


@pytest.mark.parametrize("seed", range(12))
def test_no_matrix_refutes_an_exact_solution(seed):
    """The solution is the worst set for these Y: only the allowance for rounding keeps the bound at 0."""
    residual = unimodular(3, 7, seed)
    assert exact_squared_distance(residual) == 0
    assert_absorbs(residual)
    matrices, _ = rank_one_matrices(residual)
    sign = np.where(np.arange(7) < 3, -1.0, 1.0)
    for draw in range(20):
        weights = sign * np.random.default_rng(draw).uniform(0.1, 1, 7)
        y = np.linalg.lstsq(matrices, weights, rcond=None)[0].reshape(3, 3)
        for scale in (1.0, 1e9, 1e-9):
            assert certified_bound(residual, torch.from_numpy(scale * y)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_margins_hold_in_exact_arithmetic(seed):
    residual = Residual(random_block("gelu", 2, 4, seed))
    margin = absorb(residual).margin
    assert margin > 0 and Fraction(margin) ** 2 <= exact_squared_distance(residual)


def test_the_trace_test_is_its_formula():
    block = random_block("gelu", 4, 9, 0)
    overlaps = [float(block.down[:, i] @ block.up[i]) for i in range(9)]
    assert trace_test(Residual(block)) == pytest.approx(4 + sum(min(0.0, x) for x in overlaps))
    skip, steep = (
        normal(4, 4, seed=3),
        Residual(random_block("leaky_relu(-3)", 4, 9, 0), normal(4, 4, seed=3)),
    )
    overlaps = [float(steep.block.down[:, i] @ skip @ steep.block.up[i]) for i in range(9)]  # 2c = -2
    assert trace_test(steep) == pytest.approx(
        float((skip**2).sum()) + sum(min(0.0, -2 * x) for x in overlaps)
    )


def test_a_positive_trace_test_refutes():
    block = random_block("gelu", 4, 9, 0)
    weak = Residual(MLP(block.up.detach() / 10, block.down.detach() / 10, "gelu"))
    assert trace_test(weak) > 0
    assert absorb(weak).margin >= trace_test(weak) / 2 * (1 - 1e-12)  # ‖I‖_F = 2


def test_a_zero_matrix_certifies_nothing():
    assert certified_bound(GELU, torch.zeros(2, 2)) == 0


@settings(max_examples=20)
@given(d=st.integers(1, 3), m=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_subset_distances_lists_the_sets_by_their_bits(d, m, seed):
    residual = Residual(random_mlp(d, m, "leaky_relu", generator=Draw(seed)))
    found = subset_distances(residual)
    for k in range(2**m):
        S = [i for i in range(m) if k >> i & 1]
        expected = torch.eye(d) + 1.01 * residual.block.down[:, S] @ residual.block.up[S]
        assert torch.allclose(found[k], expected.norm(), rtol=1e-12, atol=1e-12)


def test_subset_distances_refuses_more_sets_than_it_can_try():
    with pytest.raises(ValueError, match="at most 20"):
        subset_distances(Residual(random_mlp(2, 21, generator=Draw(0))))


@pytest.mark.parametrize("m", [4, 5, 9, 16, 30])
def test_more_units_than_entries_are_searched(m):
    assert_absorbs(planted("gelu", 2, m, tuple(range(0, m, 2)) if m > 4 else (0, 1, 3), seed=3))
    small = Residual(MLP(*(0.4 / m * t for t in (normal(m, 2, seed=1), normal(2, m, seed=2))), "gelu"))
    answer = absorb(small)
    assert answer.absorbed is False and answer.margin > 1  # the trace test is enough


def test_a_search_refutes_what_certificates_cannot():
    """P_S is a matrix of even integers, the skip is I: the real relaxation has solutions."""
    up = torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1], [2, 1], [1, 2]])
    down = torch.tensor([[-2.0, 0, 2, -2, 0, 4], [0, -2, 2, 2, 2, -2]])
    residual = Residual(MLP(up, down, "gelu"))
    assert trace_test(residual) < 0
    assert_refuted(residual)
    assert absorb(residual).certificate is None


@pytest.mark.parametrize("off", [1e-3, 8e-5, 5e-5, 1e-6])
def test_the_margin_of_a_search_is_the_distance_of_the_nearest_set(off):
    """In R the products a_i u_i are -1 - off, -3 and 5: the nearest sum misses -1 by ``off``."""
    up, down = torch.tensor([[1.0], [2], [3]]), torch.tensor([[-1 - off, -3 / 2, 5 / 3]])
    answer = absorb(Residual(MLP(up, down, "gelu")))
    assert answer.absorbed is False and answer.certificate is None
    assert off * (1 - 1e-6) <= answer.margin <= off * (1 + 1e-9)


def test_an_ill_conditioned_planted_block():
    """Rows that differ by 1e-4: the Gram matrix has condition number near 1e8 or more."""
    d, m, chosen = 3, 8, (0, 1, 2, 4, 5)
    block = random_block("gelu", d, m, 0)
    up, down = block.up.detach().clone(), block.down.detach().clone()
    up[1] = up[0] + 1e-4 * up[1]
    down[:, 1] = down[:, 0] + 1e-4 * down[:, 1]
    assert_absorbs(plant(MLP(up, down, "gelu"), chosen), chosen)


TANH = Residual(MLP(normal(3, 2, seed=0), normal(2, 3, seed=1), "tanh"))
GELU = Residual(random_block("gelu", 2, 3, 0))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: trace_test(TANH), ValueError, "residual.block has no submatrix criterion: tanh"),
        (
            lambda: certified_bound(TANH, torch.eye(2)),
            ValueError,
            "residual.block has no submatrix criterion",
        ),
        (
            lambda: certified_bound(GELU, torch.eye(3)),
            ValueError,
            r"y must have shape \(2, 2\), got \(3, 3\)",
        ),
        (
            lambda: certified_bound(GELU, np.eye(2)),
            TypeError,
            "y must be a floating torch.Tensor .*, got a float64 ndarray",
        ),
        (lambda: certified_bound(GELU, torch.eye(2) / 0), ValueError, "y must be finite"),
        (
            lambda: certified_bound(random_mlp(2, 3, generator=Draw(0)), torch.eye(2)),
            TypeError,
            "residual must",
        ),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- solve --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_solve_finds_the_planted_set(kind):
    match solve(criterion_of(planted(kind, 3, 8, (0, 2, 3, 6, 7), seed=5))):
        case Found(flips):
            assert flips.nonzero().flatten().tolist() == [0, 2, 3, 6, 7]
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize("kind", KINDS)
def test_solve_refutes_with_a_margin_below_every_set(kind):
    residual = Residual(random_block(kind, 3, 8, seed=1))
    match solve(criterion_of(residual)):
        case Refuted(margin, certificate):
            margin = criterion_of(residual).unscaled(margin)
            assert 0 < margin <= distances(residual).min() * (1 + 1e-12)
            assert certificate is not None and certified_bound(residual, certificate) == margin
        case other:
            pytest.fail(repr(other))


def test_no_residual_is_too_small_to_refute():
    """In R, a u = -1 - 1e-11 beside a large unit: the one set that could solve it is computed exactly."""
    up, down = torch.tensor([[1.0], [2.0]]), torch.tensor([[-1.0 - 1e-11, 1e6]])
    residual = Residual(MLP(up, down, "gelu"))
    assert_refuted(residual)
    assert absorb(residual).margin == pytest.approx(1e-11, rel=1e-5)


def test_solve_gives_up_where_the_search_would_be_too_large():
    """d = 20 and m = 600 > d² dependent rank-one matrices, weights too large for the trace test."""
    residual = Residual(MLP(normal(600, 20, seed=0), normal(20, 600, seed=1), "gelu"))
    assert solve(criterion_of(residual)) == Undecided("search")


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 900))
def test_a_batch_of_coefficients_is_combined_one_by_one(d, m, seed):
    criterion = criterion_of(residual := Residual(random_block("leaky_relu", d, m, seed)))
    batch = normal(3, m, seed=seed + 1)
    for one, all_of_them in zip(batch, criterion.combine(batch)):
        expected = torch.eye(d) + 1.01 * sum(
            c * torch.outer(a, u) for c, a, u in zip(one, residual.block.down.T, residual.block.up)
        )
        torch.testing.assert_close(ldexp(criterion.combine(one), criterion.exponent), expected)
        torch.testing.assert_close(ldexp(all_of_them, criterion.exponent), expected)


def test_a_fractional_solution_is_refuted_by_its_most_fractional_unit():
    """The only real solution is half a unit: no set comes nearer than 1/2 over the norm of its dual."""
    down, up = normal(4, 5, seed=1), normal(5, 4, seed=2)
    products = torch.einsum("di,ik->idk", down, up)
    coefficients = torch.tensor([0.0, 1, 0.5, 1, 0])
    target = -torch.einsum("i,idk->dk", coefficients, products)
    dual = np.linalg.pinv(products.flatten(1).numpy().T)[2]
    criterion = raw_criterion(0.5, down, up, target)
    match solve(criterion):
        case Refuted(margin, certificate):
            assert certificate is not None and criterion.unscaled(margin) >= 0.5 / np.linalg.norm(dual) * (
                1 - 1e-9
            )
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize("seed", range(5))
def test_what_no_unit_can_reach_is_the_margin_of_independent_products(seed):
    """A is orthogonal to every a_i u_iᵀ: S = {} is best, and the target itself certifies ‖A‖."""
    down, up, target = normal(4, 6, seed=seed), normal(6, 4, seed=seed + 50), normal(4, 4, seed=seed + 90)
    columns = torch.einsum("di,ik->dki", down, up).flatten(0, 1).numpy()
    reachable = columns @ normal(6, seed=seed + 70).clamp(0, 1).numpy()
    outside = target.flatten().numpy() - columns @ np.linalg.lstsq(columns, target.flatten().numpy())[0]
    criterion = raw_criterion(0.5, down, up, torch.from_numpy(outside + reachable).reshape(4, 4))
    match solve(criterion):
        case Refuted(margin, _):
            assert criterion.unscaled(margin) >= np.linalg.norm(outside) * (1 - 1e-9)
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize("seed", range(5))
def test_a_near_miss_does_not_hide_its_neighbour(seed):
    """Three units are so small that sets differ by little."""
    block, tiny = planted("gelu", 2, 9, (0, 2, 3, 5, 8), seed=seed).block, 1e-9 * normal(2, 3, seed=seed + 20)
    down, up = torch.cat([block.down, tiny], 1), torch.cat([block.up, normal(3, 2, seed=seed + 30)])
    target = torch.eye(2) - tiny @ up[-3:]
    match solve(raw_criterion(0.5, down, up, target)):
        case Found(flips):
            assert flips.nonzero().flatten().tolist() == [0, 2, 3, 5, 8, 9, 10, 11]
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize("m", [3, 9])
def test_nothing_to_absorb_needs_no_flip(m):
    match solve(raw_criterion(0.5, normal(2, m, seed=1), normal(m, 2, seed=2), torch.zeros(2, 2))):
        case Found(flips):
            assert not flips.any()
        case other:
            pytest.fail(repr(other))
