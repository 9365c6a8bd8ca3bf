"""``absorb`` against oracles: all 2^m subsets, exact arithmetic, planted solutions and near misses."""

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn import activations
from samefn.absorption import absorb, certified_bound, flip, minimal_width, plant, subset_distances, trace_test
from samefn.activations import CATALOGUE
from samefn.networks import MLP, GatedMLP, Residual, random_mlp

torch.set_default_dtype(torch.float64)
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("fixed")

ODD_LINEAR = ["relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "softplus", "logsigmoid", "hardswish"]
KINDS = [*ODD_LINEAR, "leaky_relu(-3)", "softplus(4)", "up bias", "both biases", "down bias", "sigmoid gate"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed))


def random_block(kind: str, d: int, m: int, seed: int) -> MLP | GatedMLP:
    up, down = normal(m, d, seed=seed), normal(d, m, seed=seed + 1000)
    up_bias, down_bias = normal(m, seed=seed + 2000), normal(d, seed=seed + 3000)
    match kind:
        case "up bias":
            return MLP(up, down, "gelu", up_bias)
        case "both biases":
            return MLP(up, down, "relu", up_bias, down_bias)
        case "down bias":
            return MLP(up, down, "silu", None, down_bias)
        case "sigmoid gate":
            return GatedMLP(normal(m, d, seed=seed + 4000), up, down, "sigmoid")
        case "leaky_relu(-3)":
            return MLP(up, down, activations.leaky_relu(-3))
        case "softplus(4)":
            return MLP(up, down, activations.softplus(4))
    return MLP(up, down, kind)


def planted(kind: str, d: int, m: int, chosen: tuple[int, ...], seed: int, skip=None) -> Residual:
    block = random_block(kind, d, m, seed)
    if isinstance(block, MLP):
        return plant(block, chosen, skip)
    down = plant(MLP(block.up, block.down, "relu"), chosen, skip).block.down  # the same criterion, 2c = 1
    return Residual(GatedMLP(block.gate, block.up, down, "sigmoid"), skip)


def with_weights(residual: Residual, **weights: torch.Tensor) -> Residual:
    """The same network with some weights replaced."""
    block = residual.block
    names = ("gate", "up", "down") if isinstance(block, GatedMLP) else ("up", "down", "up_bias", "down_bias")
    given = {n: weights.get(n, getattr(block, n)) for n in names}
    given = {n: t if t is None else t.detach() for n, t in given.items()}
    return Residual(type(block)(activation=block.activation, **given), residual.skip)


def rank_one_matrices(residual: Residual) -> tuple[np.ndarray, np.ndarray]:
    """2c a_i u_iᵀ as rows, and A: with the biases as a last column where they have no output bias to go to."""
    block = residual.block
    slope = 0.5 if isinstance(block, GatedMLP) else block.activation.odd_slope
    up, skip = block.up.detach().numpy(), residual.skip_matrix().detach().numpy()
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = np.c_[up, block.up_bias.detach().numpy()]
        skip = np.c_[skip, np.zeros(len(skip))]
    matrices = [2 * slope * np.outer(a, u) for a, u in zip(block.down.detach().numpy().T, up)]
    return np.array([matrix.ravel() for matrix in matrices]), skip.ravel()


def distances(residual: Residual) -> np.ndarray:
    """‖A + 2c P_S‖_F for all 2^m sets S."""
    matrices, skip = rank_one_matrices(residual)
    sets = (np.arange(2 ** len(matrices))[:, None] >> np.arange(len(matrices))) & 1
    return np.linalg.norm(skip + sets @ matrices, axis=1)


def exact_squared_distance(residual: Residual) -> Fraction:
    """min over S of ‖A + 2c P_S‖_F², without rounding; for 2c = 1."""
    block = residual.block
    up, down, skip = (
        [[Fraction(x) for x in row] for row in t.tolist()] for t in (block.up, block.down, residual.skip_matrix())
    )
    best = None
    for flips in itertools.product((0, 1), repeat=block.width):
        chosen = [i for i, flipped in enumerate(flips) if flipped]
        entries = itertools.product(range(len(skip)), repeat=2)
        total = sum((skip[r][c] + sum(down[r][i] * up[i][c] for i in chosen)) ** 2 for r, c in entries)
        best = total if best is None else min(best, total)
    return best


def assert_same_function(residual: Residual, network: torch.nn.Module, tolerance: float = 1e-9) -> None:
    x = 3 * normal(200, residual.dim_in, seed=77)
    block = residual.block
    terms = float((block.down.norm(dim=0) * block.up.norm(dim=1)).sum() + residual.skip_matrix().norm())
    assert float((network(x) - residual(x)).abs().max()) <= tolerance * terms * float(x.norm(dim=1).max())


def assert_absorbs(residual: Residual, flipped: tuple[int, ...] | None = None) -> None:
    answer = absorb(residual)
    assert answer.absorbed is True, answer
    assert type(answer.network) is type(residual.block) and answer.network.width == residual.block.width
    assert answer.network.activation is residual.block.activation
    if isinstance(residual.block, MLP):
        for bias in ("up_bias", "down_bias"):
            assert (getattr(answer.network, bias) is None) is (getattr(residual.block, bias) is None)
    assert_same_function(residual, answer.network)
    if flipped is not None:
        assert answer.flipped == flipped


def assert_refuted(residual: Residual, reason: str = "submatrix") -> None:
    answer = absorb(residual)
    assert answer.absorbed is False and answer.reason == reason, answer
    assert answer.network is None and answer.flipped is None
    assert 0 < answer.margin <= distances(residual).min() * (1 + 1e-12)


# --- nondegenerate blocks: planted solutions, near misses, all subsets --------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d, m", [(1, 1), (2, 3), (2, 6), (3, 7), (4, 12)])
def test_planted_solutions_of_every_size_are_found(kind, d, m):
    least = d + (kind == "up bias")
    for size in range(least, m + 1):
        chosen = tuple(sorted(torch.randperm(m, generator=generator(size))[:size].tolist()))
        assert_absorbs(planted(kind, d, m, chosen, seed=10 * m + size), chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_near_misses(kind):
    residual = planted(kind, 3, 8, (0, 2, 3, 6, 7), seed=5)
    weights = ["up", "down"] + (["up_bias"] if kind == "up bias" else [])
    for name in weights:
        for move, expected in ((1e-6, False), (1e-15, True)):
            moved = getattr(residual.block, name).detach().clone()
            moved.view(-1)[2 if name == "down" else 0] += move  # belongs to a unit of the planted set
            answer = absorb(with_weights(residual, **{name: moved}))
            assert answer.absorbed is expected, (name, move, answer)
            if expected is False:
                assert 0 < answer.margin <= distances(with_weights(residual, **{name: moved})).min()


def test_the_skip_may_be_moved_too():
    skip = normal(3, 3, seed=1)
    block = planted("gelu", 3, 8, (0, 2, 3, 6, 7), seed=5, skip=skip).block
    moved = skip.clone()
    moved[1, 2] += 1e-6
    assert absorb(Residual(block, skip)).absorbed is True
    assert_refuted(Residual(block, moved))


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 900))
@settings(max_examples=8)
def test_random_blocks_are_refuted_with_a_margin_that_all_subsets_confirm(kind, d, m, seed):
    if kind in ("relu", "leaky_relu", "leaky_relu(-3)") and d == 1:
        m = 1  # in one dimension all rows are collinear
    assert_refuted(Residual(random_block(kind, d, m, seed), normal(d, d, seed=seed + 1)))


@given(st.integers(2, 3), st.integers(1, 10), st.data())
@settings(max_examples=150)
def test_blocks_of_small_integers_agree_with_all_subsets(d, m, data):
    """Many of these absorb, often in several ways, and many have dependent rank-one matrices."""
    entry = st.integers(-2, 2)
    row = st.tuples(*[entry] * d).filter(any)
    signed = lambda r: max(r, tuple(-x for x in r))  # noqa: E731
    up = data.draw(st.lists(row, min_size=m, max_size=m, unique_by=signed))
    down = data.draw(st.lists(row, min_size=m, max_size=m))
    skip = data.draw(st.lists(st.tuples(*[entry] * d), min_size=d, max_size=d))
    residual = Residual(
        MLP(torch.tensor(up).double(), torch.tensor(down).double().T.clone(), "gelu"), torch.tensor(skip).double()
    )
    answer, true = absorb(residual), float(distances(residual).min())
    assert answer.absorbed is bool(true < 1e-9)
    assert answer.margin <= true * (1 + 1e-12)
    if answer.absorbed:
        assert_absorbs(residual)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_singular_skips(rank):
    skip = normal(4, rank, seed=1) @ normal(rank, 4, seed=2)
    assert_refuted(Residual(random_block("gelu", 4, 9, 0), skip))
    assert_absorbs(planted("gelu", 4, 9, (1, 3, 4, 6, 8), seed=0, skip=skip), (1, 3, 4, 6, 8))


def test_a_skip_of_rank_one_needs_one_unit():
    block = random_block("relu", 3, 2, 0)
    assert_absorbs(Residual(block, -torch.outer(block.down[:, 1], block.up[1])), (1,))


def test_fewer_units_than_dimensions_never_absorb_the_identity():
    assert_refuted(Residual(random_block("relu", 5, 4, 0)))
    assert absorb(Residual(random_block("relu", 5, 4, 0))).margin >= 1  # -I is 1 away from every matrix of rank 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_skip_is_already_absorbed(kind):
    block = random_block(kind, 3, 4, 0)
    answer = absorb(Residual(block, torch.zeros(3, 3)))
    assert answer.absorbed is True and answer.network is block and answer.flipped == () and answer.reason == "zero skip"
    assert absorb(Residual(random_block("relu", 3, 4, 0), torch.full((3, 3), 1e-200))).absorbed is None


@pytest.mark.parametrize("m", [4, 5, 9, 16, 30])
def test_more_units_than_entries_go_to_integer_programming(m):
    assert_absorbs(planted("gelu", 2, m, tuple(range(0, m, 2)) if m > 4 else (0, 1, 3), seed=3))
    small = Residual(MLP(*(0.4 / m * t for t in (normal(m, 2, seed=1), normal(2, m, seed=2))), "gelu"))
    answer = absorb(small)
    assert answer.absorbed is False and answer.margin > 1  # the trace test is enough


def test_an_integer_program_refutes_what_certificates_cannot():
    """P_S is a matrix of even integers, the skip is I: the real relaxation has solutions."""
    up = torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1], [2, 1], [1, 2]])
    down = torch.tensor([[-2.0, 0, 2, -2, 0, 4], [0, -2, 2, 2, 2, -2]])
    residual = Residual(MLP(up, down, "gelu"))
    assert trace_test(residual) < 0
    assert_refuted(residual)
    assert absorb(residual).certificate is None


def test_an_ill_conditioned_planted_block():
    """Rows that differ by 1e-4: the Gram matrix has condition number near 1e8 or more."""
    d, m, chosen = 3, 8, (0, 1, 2, 4, 5)
    block = random_block("gelu", d, m, 0)
    up, down = block.up.detach().clone(), block.down.detach().clone()
    up[1] = up[0] + 1e-4 * up[1]
    down[:, 1] = down[:, 0] + 1e-4 * down[:, 1]
    assert_absorbs(plant(MLP(up, down, "gelu"), chosen), chosen)


# --- invariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plant_it", [True, False])
def test_permuting_units_permutes_the_answer(kind, plant_it):
    chosen = (1, 2, 4, 5, 7)
    residual = planted(kind, 3, 8, chosen, seed=2) if plant_it else Residual(random_block(kind, 3, 8, seed=2))
    order = torch.randperm(8, generator=generator(0))
    block = residual.block
    moved = {"up": block.up[order].detach(), "down": block.down[:, order].detach()}
    for name in ("gate", "up_bias"):
        if getattr(block, name, None) is not None:
            moved[name] = getattr(block, name)[order].detach()
    before, after = absorb(residual), absorb(with_weights(residual, **moved))
    assert after.absorbed is before.absorbed is plant_it
    assert after.margin == pytest.approx(before.margin, rel=1e-9)
    if plant_it:
        assert {int(order[i]) for i in after.flipped} == set(chosen)


@pytest.mark.parametrize("plant_it", [True, False])
def test_rescaling_relu_units_changes_nothing(plant_it):
    residual = planted("relu", 3, 8, (1, 2, 4, 5, 7), seed=2) if plant_it else Residual(random_block("relu", 3, 8, 2))
    scale = torch.tensor([1e8, 1e-8, 1.0, 3e5, 1e-8, 1e8, 0.1, 1e-3])
    block = residual.block
    rescaled = with_weights(residual, up=(block.up * scale[:, None]).detach(), down=(block.down / scale).detach())
    if plant_it:
        assert_absorbs(rescaled, (1, 2, 4, 5, 7))
    else:
        assert_refuted(rescaled)
        assert absorb(rescaled).margin == pytest.approx(absorb(residual).margin, rel=1e-9)


def test_an_invertible_skip_is_reduced_to_the_identity():
    """[A], Lemma 4."""
    skip = normal(3, 3, seed=8)
    residual = planted("gelu", 3, 8, (1, 2, 4), seed=2, skip=skip)
    reduced = MLP(residual.block.up.detach(), torch.linalg.solve(skip, residual.block.down.detach()), "gelu")
    assert absorb(Residual(reduced)).flipped == absorb(residual).flipped == (1, 2, 4)


def test_large_entries_make_no_false_claims():
    for scale in (1e20, 1e60, 1e100, 1e150, 1e160, 1e300):
        block = random_block("gelu", 3, 4, 1)
        answer = absorb(Residual(MLP(block.up.detach() * scale, block.down.detach() * scale, "gelu")))
        assert answer.absorbed is not True
        relu = Residual(MLP(block.up.detach() * scale, block.down.detach() / scale, "relu"))
        assert absorb(relu).absorbed in (False, None)
    down = plant(block, (0, 1, 3)).block.down.detach()
    assert_absorbs(Residual(MLP(block.up.detach() * 1e100, down / 1e100, "relu")), (0, 1, 3))


# --- certificates -------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 900))
def test_every_matrix_certifies_at_most_the_true_distance(d, m, seed):
    for residual in (Residual(random_block("gelu", d, m, seed)), Residual(random_block("sigmoid gate", d, m, seed))):
        true = distances(residual).min()
        best = residual.skip_matrix() + 0.1 * normal(d, d, seed=seed + 7)
        for y in (normal(d, d, seed=seed + 5), best, 1e9 * best, 1e-9 * best):
            assert 0 <= certified_bound(residual, y) <= true * (1 + 1e-12)
        assert certified_bound(residual, 1e9 * best) == pytest.approx(certified_bound(residual, best), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_certifies_the_margin(kind):
    residual = Residual(random_block(kind, 3, 8, seed=1))
    answer = absorb(residual)
    assert answer.certificate is not None and certified_bound(residual, answer.certificate) == answer.margin > 0


def test_the_margin_of_a_sparse_block_is_nearly_sharp():
    """One unit in many dimensions: the best set is empty or everything."""
    residual = Residual(random_block("gelu", 4, 1, 0))
    assert absorb(residual).margin == pytest.approx(distances(residual).min(), rel=0.2)


def unimodular(d: int, m: int, seed: int) -> Residual:
    """Integer weights that satisfy P_S = -I exactly for S = {0, .., d - 1}."""
    draw = generator(seed)
    lower = torch.randint(-2, 3, (d, d), generator=draw).double().tril(-1) + torch.eye(d)
    upper = torch.randint(-2, 3, (d, d), generator=draw).double().triu(1) + torch.eye(d)
    rows = lower @ upper
    extra = torch.randint(3, 9, (m - d, d), generator=draw).double() + 10 * torch.arange(m - d)[:, None]
    up = torch.cat([rows, extra])
    down = torch.cat([-torch.linalg.inv(rows).round(), torch.randint(1, 5, (d, m - d), generator=draw).double()], 1)
    return Residual(MLP(up, down, "gelu"))


@pytest.mark.parametrize("seed", range(12))
def test_no_matrix_refutes_an_exact_solution(seed):
    """Matrices for which the solution is the worst set: only the allowance for rounding keeps the bound at 0."""
    residual = unimodular(3, 7, seed)
    assert exact_squared_distance(residual) == 0
    assert_absorbs(residual)
    matrices, _ = rank_one_matrices(residual)
    sign = np.where(np.arange(7) < 3, -1.0, 1.0)
    for draw in range(20):
        weights = sign * np.random.default_rng(draw).uniform(0.1, 1, 7)
        y = np.linalg.lstsq(matrices, weights, rcond=None)[0].reshape(3, 3)
        assert certified_bound(residual, torch.from_numpy(y)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_margins_hold_in_exact_arithmetic(seed):
    residual = Residual(random_block("gelu", 2, 4, seed))
    margin = absorb(residual).margin
    assert margin > 0 and Fraction(margin) ** 2 <= exact_squared_distance(residual)


def test_the_trace_test_is_its_formula():
    block = random_block("gelu", 4, 9, 0)
    overlaps = [float(block.down[:, i] @ block.up[i]) for i in range(9)]
    assert trace_test(Residual(block)) == pytest.approx(4 + sum(min(0.0, x) for x in overlaps))
    skip, steep = normal(4, 4, seed=3), Residual(random_block("leaky_relu(-3)", 4, 9, 0), normal(4, 4, seed=3))
    overlaps = [float(steep.block.down[:, i] @ skip @ steep.block.up[i]) for i in range(9)]  # 2c = -2
    assert trace_test(steep) == pytest.approx(float((skip**2).sum()) + sum(min(0.0, -2 * x) for x in overlaps))


def test_a_positive_trace_test_refutes():
    block = random_block("gelu", 4, 9, 0)
    weak = Residual(MLP(block.up.detach() / 10, block.down.detach() / 10, "gelu"))
    assert trace_test(weak) > 0
    assert absorb(weak).margin >= trace_test(weak) / 2 * (1 - 1e-12)  # ‖I‖_F = 2


# --- exact rational cases with SymPy ------------------------------------------------------------

HALF, THIRD = sympy.Rational(1, 2), sympy.Rational(1, 3)
RATIONAL_UP = sympy.Matrix([[1, HALF], [THIRD, -1], [2, 1 + THIRD]])
RATIONAL_DOWN = (-RATIONAL_UP[:2, :].inv()).row_join(sympy.Matrix([HALF, -3]))


def symbolic(down: sympy.Matrix, up: sympy.Matrix, activation, x: sympy.Matrix) -> sympy.Matrix:
    return down * (up * x).applyfunc(activation.expression)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_an_exact_rational_block_absorbs_symbolically(name):
    activation, x = CATALOGUE[name], sympy.Matrix(sympy.symbols("x y", real=True))
    flipped = sympy.diag(-1, -1, 1) * RATIONAL_UP
    block, absorbed = (symbolic(RATIONAL_DOWN, up, activation, x) for up in (RATIONAL_UP, flipped))
    assert sympy.simplify(x + block - absorbed) == sympy.zeros(2, 1)
    to_tensor = lambda matrix: torch.tensor(np.array(matrix, dtype=float))  # noqa: E731
    assert_absorbs(Residual(MLP(to_tensor(RATIONAL_UP), to_tensor(RATIONAL_DOWN), name)), (0, 1))


def test_an_exact_rational_block_is_refuted_symbolically():
    """The last column moved by 1/1000: no subset solves the criterion, in exact arithmetic."""
    down = RATIONAL_DOWN.copy()
    down[0, 0] += sympy.Rational(1, 1000)
    squared = [
        sum(entry**2 for entry in sympy.eye(2) + down * sympy.diag(*flips) * RATIONAL_UP)
        for flips in itertools.product((0, 1), repeat=3)
    ]
    assert min(squared) > 0
    to_tensor = lambda matrix: torch.tensor(np.array(matrix, dtype=float))  # noqa: E731
    answer = absorb(Residual(MLP(to_tensor(RATIONAL_UP), to_tensor(down), "gelu")))
    assert answer.absorbed is False and 0 < answer.margin**2 <= float(min(squared))


# --- flipping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_flipping_changes_the_block_by_the_linear_map_of_the_criterion(kind):
    block, units, x = random_block(kind, 3, 6, 0), (0, 2, 5), normal(50, 3, seed=1)
    matrices, _ = rank_one_matrices(Residual(block))
    change = torch.from_numpy(-matrices[list(units)].sum(0).reshape(3, -1))
    if kind == "up bias":
        x_one = torch.cat([x, torch.ones(50, 1)], 1)
        expected = x_one @ change.T
    else:
        expected = x @ change.T
    torch.testing.assert_close(flip(block, units)(x) - block(x), expected, rtol=0, atol=1e-12)


def test_flip_refuses_what_it_cannot():
    with pytest.raises(ValueError, match=r"units must lie in 0\.\.3"):
        flip(random_block("relu", 2, 4, 0), (4,))
    with pytest.raises(ValueError, match="block must have an activation with an odd slope, got tanh"):
        flip(MLP(normal(4, 2, seed=0), normal(2, 4, seed=1), "tanh"), (0,))


def test_plant_refuses_what_it_cannot():
    with pytest.raises(ValueError, match="units must have rows that span"):
        plant(random_block("relu", 3, 5, 0), (0, 1))
    with pytest.raises(ValueError, match="no submatrix criterion"):
        plant(MLP(normal(4, 2, seed=0), normal(2, 4, seed=1), "tanh"), (0, 1))
    with pytest.raises(TypeError, match="block must be an MLP"):
        plant(random_block("sigmoid gate", 3, 5, 0), (0, 1, 2))


def test_planting_moves_only_the_chosen_columns():
    block = random_block("gelu", 3, 6, 0)
    change = plant(block, (0, 2, 5)).block.down - block.down
    assert [i for i in range(6) if float(change[:, i].abs().max()) > 0] == [0, 2, 5]


# --- answers that need no search ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name, reason",
    [(n, "bounded") for n, a in CATALOGUE.items() if a.bounded]
    + [(n, "independence") for n, a in CATALOGUE.items() if not a.spans_linear]
    + [("relu_squared", "degree")],
)
def test_mlps_that_never_absorb(name, reason):
    skip = normal(3, 3, seed=5)
    for m in (2, 5):
        answer = absorb(Residual(MLP(normal(m, 3, seed=0), normal(3, m, seed=1), name), skip))
        assert answer.absorbed is False and answer.reason == reason
        assert answer.margin == pytest.approx(float(skip.norm()))
    biased = Residual(MLP(normal(4, 3, seed=0), normal(3, 4, seed=1), name, normal(4, seed=2), normal(3, seed=3)), skip)
    assert absorb(biased).absorbed is (None if reason == "degree" else False)


@pytest.mark.parametrize("degree", [0.5, 2, 3])
def test_homogeneous_mlps_of_another_degree_never_absorb(degree):
    answer = absorb(Residual(MLP(normal(4, 3, seed=0), normal(3, 4, seed=1), activations.relu_power(degree))))
    assert answer.absorbed is False and answer.reason == "degree"
    square = Residual(MLP(torch.ones(2, 1), torch.ones(1, 2), activations.monomial(2)))
    assert absorb(square).absorbed is False and absorb(square).reason == "degree"


@pytest.mark.parametrize("name", ["silu", "gelu", "relu", "identity", "tanh", "relu_squared", "elu", "hardswish"])
def test_gates_that_vanish_at_zero_never_absorb(name):
    gate, up, down = normal(4, 3, seed=0), normal(4, 3, seed=1), normal(3, 4, seed=2)
    answer = absorb(Residual(GatedMLP(gate, up, down, name)))
    assert answer.absorbed is False and answer.reason == "linearisation"
    assert answer.margin == pytest.approx(3**0.5)


def test_what_is_left_undecided_says_why():
    up, down, bias = normal(4, 3, seed=0), normal(3, 4, seed=1), normal(4, seed=2)
    own = activations.Activation("own", lambda z: z + torch.sin(z), lambda z: z + sympy.sin(z))
    for block, reason in (
        (GatedMLP(up, up, down, "softplus"), "gate"),
        (MLP(up, down, "identity"), "linear"),
        (MLP(up, down, "relu_squared", bias), "biases"),
        (MLP(up, down, own), "activation"),
    ):
        answer = absorb(Residual(block))
        assert (answer.absorbed, answer.reason, answer.margin) == (None, reason, 0.0)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("duplicate", [False, True])
def test_absolute_values_never_absorb(biases, duplicate):
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    if duplicate:
        up[1] = -up[0]
    given = (normal(4, seed=2), normal(2, seed=3)) if biases else ()
    answer = absorb(Residual(MLP(up, down, activations.leaky_relu(-1), *given)))
    assert answer.absorbed is False and answer.margin == pytest.approx(2**0.5)


# --- biases -------------------------------------------------------------------------------------


def test_without_an_output_bias_the_constant_has_to_vanish():
    """The same weights absorb with an output bias, and do not without one."""
    with_output_bias = planted("both biases", 2, 5, (0, 1, 3), seed=0)
    assert_absorbs(with_output_bias, (0, 1, 3))
    block = with_output_bias.block
    without = Residual(MLP(block.up.detach(), block.down.detach(), "relu", block.up_bias.detach()))
    assert_refuted(without)


def test_an_output_bias_alone_changes_nothing():
    for residual in (planted("silu", 2, 5, (0, 1, 3), seed=0), Residual(random_block("silu", 2, 5, 0))):
        biased = with_weights(residual, down_bias=normal(2, seed=9))
        assert absorb(biased).absorbed is absorb(residual).absorbed
        assert absorb(biased).margin == absorb(residual).margin


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
    """The least width of a residual-free block, from X-DEG in exact arithmetic, for 2c = 1; ``down`` lists the a_i."""
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
    block = MLP(torch.tensor(up).double(), torch.tensor(down).double().T.clone(), "relu" if homogeneous else "gelu")
    residual, width = Residual(block, torch.tensor(skip).double()), least_width(up, down, skip, homogeneous)
    answer = absorb(residual)
    assert answer.absorbed is (width <= m)
    assert minimal_width(residual) == width
    if answer.absorbed:
        assert_absorbs(residual)
    else:
        assert answer.margin > 0


DUPLICATED = torch.tensor([[1.0, 2], [1, 2], [3, -1], [-3, 1], [0, 1]])
COLUMNS = torch.tensor([[1.0, 2, 3, 4, 1], [1, 0, 2, -1, -2]])


@pytest.mark.parametrize("name", ODD_LINEAR)
def test_spare_units_absorb_any_skip(name):
    """Two spare units with spanning lines, d = 2."""
    bias = (torch.tensor([1.0, 1, -2, 2, 0.5]), torch.tensor([0.3, -1]))
    for given in ((), (None, bias[1]), bias):
        residual = Residual(MLP(DUPLICATED, COLUMNS, name, *given), normal(2, 2, seed=4))
        if name == "hardswish" and given == bias:
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


def test_nearly_equal_rows():
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    for distance, reason in ((1e-6, "submatrix"), (1e-15, "degenerate")):
        up[3] = up[2] + distance
        answer = absorb(Residual(MLP(up, down, "relu")))
        assert (answer.absorbed, answer.reason) == (False, reason)
        parallel = up.clone()
        parallel[3] = -3 * up[2] + torch.tensor([3 * distance, 0])
        assert absorb(Residual(MLP(parallel, down, "relu"))).reason == reason
        assert absorb(Residual(MLP(parallel, down, "gelu"))).reason == "submatrix"


@pytest.mark.parametrize("distance", [1e-9, 1e-10, 1e-11, 1e-12])
def test_nearly_collinear_spare_lines_are_not_refuted_by_rounding(distance):
    """Two doubled lines span the plane, however close they are: True or undecided, never False."""
    line, close = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + distance])
    up, down = torch.stack([line, line, close, close]), torch.tensor([[1.0, 2, 3, 4], [1, 0, 2, -1]])
    assert absorb(Residual(MLP(up, down, "relu"))).absorbed is not False


def test_many_lines_in_a_degenerate_block():
    """Beyond enumeration: dead units do not hide a planted set, and what cannot be settled is left open."""
    residual = planted("gelu", 3, 14, (0, 2, 3, 6, 7), seed=5)
    up, down = residual.block.up.detach().clone(), residual.block.down.detach().clone()
    up[13] = 0
    residual = Residual(MLP(up, down, "gelu"))
    assert_absorbs(residual)
    down[0, 0] += 1e-3
    answer = absorb(Residual(MLP(up, down, "gelu")))
    assert (answer.absorbed, answer.reason) == (None, "degenerate")


def test_few_lines_in_many_dimensions_are_refuted_at_once():
    up, down = normal(11, 300, seed=0), normal(300, 11, seed=1)
    up[1] = up[0]
    answer = absorb(Residual(MLP(up, down, "relu")))
    assert (answer.absorbed, answer.reason) == (False, "degenerate") and answer.margin > 0
    up, down = normal(40, 300, seed=0), normal(300, 40, seed=1)
    up[1] = up[0]
    assert absorb(Residual(MLP(up, down, "relu"))).absorbed is False


def test_degenerate_blocks_that_are_left_undecided():
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    up[3] = up[2]
    bias = torch.tensor([1.0, 2, 3, 3])
    assert absorb(Residual(MLP(up, down, "relu", bias))).absorbed is None  # the constants have no place
    up[3] = 0
    assert absorb(Residual(MLP(up, down, "softplus"))).absorbed is None
    for row in ("gate", "up"):
        weights = {"gate": normal(4, 2, seed=5), "up": normal(4, 2, seed=6), "down": down}
        weights[row][3] = 0
        assert absorb(Residual(GatedMLP(**weights, activation="sigmoid"))).absorbed is None
    gate = normal(4, 2, seed=5)
    gate[3] = -gate[1]
    assert absorb(Residual(GatedMLP(gate, normal(4, 2, seed=6), down, "sigmoid"))).reason == "degenerate"


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


def test_too_many_lines_are_warned_about():
    with pytest.warns(RuntimeWarning, match="11 lines"):
        assert minimal_width(Residual(random_block("gelu", 2, 11, 0))) == 13
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert minimal_width(planted("gelu", 2, 5, (0, 1, 2), seed=0)) == 5


# --- dtypes, gradients, bad input ---------------------------------------------------------------


def test_low_precision_is_decided_exactly_as_stored():
    exact = unimodular(2, 4, 0)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        residual = Residual(MLP(exact.block.up.to(dtype), exact.block.down.to(dtype), "relu"))
        answer = absorb(residual)
        assert answer.absorbed is True and answer.network.up.dtype == dtype
    rounded = planted("gelu", 3, 6, (0, 1, 2), seed=0)
    rounded = Residual(MLP(rounded.block.up.detach().float(), rounded.block.down.detach().float(), "gelu"))
    assert absorb(rounded).absorbed is False and absorb(rounded).margin < 1e-6


def test_weights_that_require_gradients_are_left_alone():
    residual = planted("both biases", 2, 5, (0, 1, 3), seed=0, skip=normal(2, 2, seed=3))
    for parameter in residual.parameters():
        parameter.requires_grad_()
    before = [parameter.detach().clone() for parameter in residual.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = absorb(residual)
        certified_bound(residual, residual.skip)
        trace_test(residual)
        minimal_width(residual)
    assert answer.absorbed is True and not any(p.requires_grad for p in answer.network.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, residual.parameters()))
    assert answer.network.up.data_ptr() != residual.block.up.data_ptr()


@pytest.mark.parametrize("function", [absorb, trace_test, minimal_width])
def test_only_residual_blocks_are_taken(function):
    with pytest.raises(TypeError, match="residual must be a Residual, got MLP"):
        function(random_block("relu", 2, 3, 0))


TANH = Residual(MLP(normal(3, 2, seed=0), normal(2, 3, seed=1), "tanh"))
GELU = Residual(random_block("gelu", 2, 3, 0))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: trace_test(TANH), ValueError, "residual.block has no submatrix criterion: tanh"),
        (lambda: certified_bound(TANH, torch.eye(2)), ValueError, "residual.block has no submatrix criterion"),
        (lambda: certified_bound(GELU, torch.eye(3)), ValueError, r"y must have shape \(2, 2\), got \(3, 3\)"),
        (lambda: certified_bound(GELU, np.eye(2)), TypeError, "y must be a torch.Tensor, got ndarray"),
        (lambda: certified_bound(GELU, torch.eye(2) / 0), ValueError, "y must be finite"),
        (lambda: certified_bound(random_mlp(2, 3, generator=generator(0)), torch.eye(2)), TypeError, "residual must"),
        (lambda: minimal_width(TANH), ValueError, "residual.block must be an MLP whose activation.*tanh"),
        (lambda: minimal_width(Residual(random_block("sigmoid gate", 2, 3, 0))), ValueError, "GatedMLP"),
        (lambda: minimal_width(Residual(random_block("up bias", 2, 3, 0))), ValueError, "must have down_bias"),
        (
            lambda: minimal_width(Residual(MLP(torch.zeros(1, 2), torch.ones(2, 1), "softplus"))),
            ValueError,
            "must have down_bias",
        ),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_zero_matrix_certifies_nothing():
    assert certified_bound(GELU, torch.zeros(2, 2)) == 0


@settings(max_examples=20)
@given(d=st.integers(1, 3), m=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_subset_distances_lists_the_sets_by_their_bits(d, m, seed):
    residual = Residual(random_mlp(d, m, "leaky_relu", generator=torch.Generator().manual_seed(seed)))
    found = subset_distances(residual)
    for k in range(2**m):
        S = [i for i in range(m) if k >> i & 1]
        expected = torch.eye(d) + 1.01 * residual.block.down[:, S] @ residual.block.up[S]
        assert torch.allclose(found[k], expected.norm(), rtol=1e-12, atol=1e-12)


def test_subset_distances_refuses_more_sets_than_it_can_try():
    with pytest.raises(ValueError, match="at most 20"):
        subset_distances(Residual(random_mlp(2, 21, generator=torch.Generator().manual_seed(0))))
