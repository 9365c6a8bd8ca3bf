"""``absorb`` against oracles: all 2^m subsets, exact arithmetic, planted solutions and near misses."""

import itertools
import warnings

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn import activations
from samefn.activations import CATALOGUE
from samefn.claims import MODULES
from samefn.draw import Draw
from samefn.networks import MLP, GatedMLP, Residual, random_gated_mlp, random_mlp
from samefn.skip.absorption import RULES, Absorption, absorb, flip
from samefn.skip.criterion import certified_bound, trace_test
from samefn.skip.planted import plant
from samefn.skip.width import minimal_width

from .blocks import (
    KINDS,
    assert_absorbs,
    assert_refuted,
    distances,
    normal,
    planted,
    random_block,
    rank_one_matrices,
    unimodular,
    with_weights,
)

# --- nondegenerate blocks: planted solutions, near misses, all subsets --------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d, m", [(1, 1), (2, 3), (2, 6), (3, 7), (4, 12)])
def test_planted_solutions_of_every_size_are_found(kind, d, m):
    least = d + (kind == "up bias")
    for size in range(least, m + 1):
        chosen = tuple(sorted(torch.randperm(m, generator=Draw(size))[:size].tolist()))
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
    signed = lambda r: max(r, tuple(-x for x in r))
    up = data.draw(st.lists(row, min_size=m, max_size=m, unique_by=signed))
    down = data.draw(st.lists(row, min_size=m, max_size=m))
    skip = data.draw(st.lists(st.tuples(*[entry] * d), min_size=d, max_size=d))
    residual = Residual(
        MLP(torch.tensor(up).double(), torch.tensor(down).double().T.clone(), "gelu"),
        torch.tensor(skip).double(),
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
    down, up = (block.down * 8).round(), (block.up * 8).round()  # their products are exact
    assert_absorbs(Residual(MLP(up, down), -torch.outer(down[:, 1], up[1])), (1,))
    # rounded products: for x orthogonal to the row, the skip is all that there is, and not 0
    rounded = Residual(block, -torch.outer(block.down[:, 1], block.up[1]))
    assert (absorb(rounded).absorbed, absorb(rounded).reason) == (None, "precision")


def test_fewer_units_than_dimensions_never_absorb_the_identity():
    assert_refuted(Residual(random_block("relu", 5, 4, 0)))
    assert (
        absorb(Residual(random_block("relu", 5, 4, 0))).margin >= 1
    )  # -I is 1 away from every matrix of rank 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_skip_is_already_absorbed(kind):
    block = random_block(kind, 3, 4, 0)
    answer = absorb(Residual(block, torch.zeros(3, 3)))
    assert (
        answer.absorbed is True
        and answer.network is block
        and answer.flipped == ()
        and answer.reason == "zero skip"
    )
    assert absorb(Residual(random_block("relu", 3, 4, 0), torch.full((3, 3), 1e-200))).absorbed is not True


# --- invariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plant_it", [True, False])
def test_permuting_units_permutes_the_answer(kind, plant_it):
    chosen = (1, 2, 4, 5, 7)
    residual = planted(kind, 3, 8, chosen, seed=2) if plant_it else Residual(random_block(kind, 3, 8, seed=2))
    order = torch.randperm(8, generator=Draw(0))
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
    residual = (
        planted("relu", 3, 8, (1, 2, 4, 5, 7), seed=2)
        if plant_it
        else Residual(random_block("relu", 3, 8, 2))
    )
    scale = torch.tensor([1e8, 1e-8, 1.0, 3e5, 1e-8, 1e8, 0.1, 1e-3])
    block = residual.block
    rescaled = with_weights(
        residual, up=(block.up * scale[:, None]).detach(), down=(block.down / scale).detach()
    )
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
    to_tensor = lambda matrix: torch.tensor(np.array(matrix, dtype=float))
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
    to_tensor = lambda matrix: torch.tensor(np.array(matrix, dtype=float))
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
    biased = Residual(
        MLP(normal(4, 3, seed=0), normal(3, 4, seed=1), name, normal(4, seed=2), normal(3, seed=3)), skip
    )
    assert absorb(biased).absorbed is (None if reason == "degree" else False)


@pytest.mark.parametrize("degree", [0.5, 2, 3])
def test_homogeneous_mlps_of_another_degree_never_absorb(degree):
    answer = absorb(Residual(MLP(normal(4, 3, seed=0), normal(3, 4, seed=1), activations.relu_power(degree))))
    assert answer.absorbed is False and answer.reason == "degree"
    square = Residual(MLP(torch.ones(2, 1), torch.ones(1, 2), activations.monomial(2)))
    assert absorb(square).absorbed is False and absorb(square).reason == "degree"


@pytest.mark.parametrize(
    "name", ["silu", "gelu", "relu", "identity", "tanh", "relu_squared", "elu", "hardswish"]
)
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


@pytest.mark.parametrize("function", [absorb, trace_test])
def test_only_residual_blocks_are_taken(function):
    with pytest.raises(TypeError, match="residual must be a Residual, got MLP"):
        function(random_block("relu", 2, 3, 0))


# --- which theorem ------------------------------------------------------------------------------

PART_III = {"X-ODD", "X-GLU", "X-BIAS", "X-DEG"}  # their chapters are announced


def test_every_rule_names_a_claim_of_the_book():
    named = {rule.claim for rule in RULES if rule.claim}
    assert named <= {*MODULES} | PART_III
    assert named == {"A-L4", "A-P5", "A-P6", "A-T8", "A-T10", "X-ODD", "X-GLU", "X-BIAS"}
    for rule in RULES:
        assert bool(rule.claim) is (rule.verdict in ("never", "criterion"))
    assert not [rule for rule in RULES if rule.verdict == "criterion" and rule.reason != "submatrix"]


INVERTIBLE, SINGULAR = torch.tensor([[2.0, 1], [0, 1]]).double(), torch.tensor([[1.0, 0], [0, 0]]).double()


@pytest.mark.parametrize(
    "block, skip, claim",
    [
        (random_mlp(2, 3, "relu", generator=Draw(0)), None, "A-T8"),
        (random_mlp(2, 3, "relu", generator=Draw(0)), torch.eye(2, dtype=torch.float64), "A-T8"),
        (random_mlp(2, 3, "relu", generator=Draw(0)), INVERTIBLE, "A-L4"),
        (random_mlp(2, 3, "relu", generator=Draw(0)), SINGULAR, "X-ODD"),
        (random_mlp(1, 1, "relu", generator=Draw(0)), None, "X-ODD"),  # Theorem 8 wants d ≥ 2
        (random_mlp(2, 3, "relu", biases=True, generator=Draw(0)), None, "X-BIAS"),
        (random_mlp(2, 3, "gelu", generator=Draw(0)), None, "A-T10"),
        (random_mlp(1, 3, "gelu", generator=Draw(0)), None, "A-T10"),
        (random_mlp(2, 3, "gelu", generator=Draw(0)), INVERTIBLE, "A-L4"),
        (random_mlp(2, 3, "gelu", generator=Draw(0)), SINGULAR, "X-ODD"),
        (random_mlp(2, 3, "gelu_tanh", generator=Draw(0)), None, "X-ODD"),
        (random_mlp(2, 3, "silu", generator=Draw(0)), INVERTIBLE, "X-ODD"),
        (random_mlp(2, 3, "leaky_relu", biases=True, generator=Draw(0)), None, "X-BIAS"),
        (random_mlp(2, 3, activations.leaky_relu(-1), generator=Draw(0)), None, "X-ODD"),
        (random_mlp(2, 3, "relu_squared", generator=Draw(0)), SINGULAR, "A-P5"),
        (random_mlp(2, 3, "tanh", biases=True, generator=Draw(0)), None, "X-ODD"),
        (random_mlp(2, 3, "mish", biases=True, generator=Draw(0)), None, "X-ODD"),
        (random_gated_mlp(2, 3, "silu", generator=Draw(0)), SINGULAR, "A-P6"),
        (random_gated_mlp(2, 3, "identity", generator=Draw(0)), None, "A-P6"),
        (random_gated_mlp(2, 3, "sigmoid", generator=Draw(0)), None, "X-GLU"),
    ],
)
def test_a_refutation_rests_on_the_claim_that_covers_the_block(block, skip, claim):
    answer = absorb(Residual(block, skip))
    assert (answer.absorbed, answer.claim) == (False, claim)


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_block_rests_on_the_same_claim_as_a_refuted_one(kind):
    absorbed = absorb(planted(kind, 3, 8, (0, 2, 3, 6, 7), seed=5))
    refuted = absorb(Residual(random_block(kind, 3, 8, seed=1)))
    expected = {"relu": "A-T8", "gelu": "A-T10", "sigmoid gate": "X-GLU"}.get(
        kind, "X-BIAS" if "bias" in kind else "X-ODD"
    )
    assert absorbed.claim == refuted.claim == expected


def test_degenerate_blocks_rest_on_their_own_claim():
    up, down = normal(4, 2, seed=0), normal(2, 4, seed=1)
    up[1] = up[0]
    assert absorb(Residual(MLP(up, down, "relu"))).claim == "X-DEG"
    up[3] = up[2]
    assert (
        absorb(Residual(MLP(up, down, "relu"))).absorbed,
        absorb(Residual(MLP(up, down, "relu"))).claim,
    ) == (True, "X-DEG")


def test_what_is_undecided_or_trivial_rests_on_nothing():
    up, down, bias = normal(4, 3, seed=0), normal(3, 4, seed=1), normal(4, seed=2)
    for residual in (
        Residual(random_block("relu", 3, 4, 0), torch.zeros(3, 3)),
        Residual(GatedMLP(up, up, down, "silu", bias)),
        Residual(GatedMLP(up, up, down, "softplus")),
        Residual(MLP(up, down, "identity")),
        Residual(MLP(up, down, "relu_squared", bias)),
    ):
        assert absorb(residual).absorbed is not False and absorb(residual).claim == ""


def test_the_answer_shows_its_claim_but_neither_weights_nor_certificate():
    answer = absorb(planted("relu", 2, 5, (0, 1, 3), seed=0))
    assert repr(answer) == (
        "Absorption(absorbed=True, reason='submatrix', flipped=(0, 1, 3), margin=0.0, "
        f"error={answer.error}, claim='A-T8')"
    )
    assert repr(Absorption(None, "gate")) == (
        "Absorption(absorbed=None, reason='gate', flipped=None, margin=0.0, error=0.0, claim='')"
    )
