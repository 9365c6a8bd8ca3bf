"""Stacks of flat or slow blocks: constants done by hand, remainders and skips against the stacks."""

import numpy as np
import pytest
import sympy
import torch

from samefn.activations import leaky_relu, relu_power
from samefn.draw import Draw
from samefn.networks import MLP, GatedMLP, Residual, Stack, random_gated_mlp, random_mlp
from samefn.skip.depth import (
    FLAT_KINDS,
    INVERSE_ROOT,
    RECIPROCAL,
    SLOW_KINDS,
    absorbing_stack,
    growth_constant,
    linear_part,
    products_of_skips,
    random_block,
    random_stacks,
    remainders_at_infinity,
    remainders_at_zero,
    stack_of_inverse_roots,
    without_flat_blocks,
)

GATED = ("silu", "gelu", "relu", "identity", "signed root")
DEGREES = {**dict.fromkeys(GATED[:4], 2), "signed root": 1.5, "relu_squared": 2, "monomial(3)": 3}
DEGREES |= {"relu_power(1.5)": 1.5, "relu_power(0.5)": 0.5, "relu_power(0.75)": 0.75, "tanh": 0, "sigmoid": 0}


def at_radius(d: int, radius: float, draw: Draw) -> torch.Tensor:
    return radius * torch.nn.functional.normalize(draw.normal(40, d), dim=1)


def prefixes(stack: Stack) -> list[Stack]:
    return [Stack(stack.blocks[:depth]) for depth in range(1, len(stack.blocks) + 1)]


def test_the_kinds_are_flat_or_slow():
    assert {*FLAT_KINDS} == {kind for kind, k in DEGREES.items() if k > 1}
    assert {*SLOW_KINDS} == {kind for kind, k in DEGREES.items() if k < 1}


@pytest.mark.parametrize("kind", DEGREES)
def test_a_block_is_at_most_its_constant_times_a_power(kind):
    for seed in range(10):
        draw = Draw(seed)
        block = random_block(kind, 3, 5, generator=draw)
        assert (isinstance(block, GatedMLP), block.dim_in, block.width) == (kind in GATED, 3, 5)
        beta, k = growth_constant(block)
        assert k == DEGREES[kind]
        for radius in (1e-4, 0.3, 1.0, 7.0, 1e4):
            assert block(at_radius(3, radius, draw)).norm(dim=1).max() <= beta * radius**k * (1 + 1e-12)


@pytest.mark.parametrize("kind", DEGREES)
def test_a_kind_is_as_flat_or_as_slow_as_its_degree(kind):
    # one unit with its rows along one axis: from 1e-6 on, or to 1e6, its size goes like a power
    up = torch.tensor([[2.0]])
    drawn = random_block(kind, 1, 1, generator=Draw(0))
    block = GatedMLP(up, up, up, drawn.activation) if kind in GATED else MLP(up, up, drawn.activation)
    start = 1e-6 if kind in FLAT_KINDS else 1e6
    near, far = (float(block(torch.tensor([start * t])).norm()) for t in (1.0, 10.0))
    assert np.log10(far / near) == pytest.approx(DEGREES[kind], abs=1e-4)


def test_units_along_their_rows_attain_the_constant():
    up, down = torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0], [4.0]])
    x = torch.tensor([0.0, 1.0])
    for activation, k, size in (("relu_squared", 2, 20), (relu_power(0.5), 0.5, 5 * 2**0.5)):
        block = MLP(up, down, activation)
        assert growth_constant(block) == (pytest.approx(size), k)
        assert float(block(x).norm()) == pytest.approx(size)
    gated = GatedMLP(torch.tensor([[0.0, 7.0]]), up, down, "identity")
    assert growth_constant(gated) == (pytest.approx(70), 2) and float(gated(x).norm()) == pytest.approx(70)


def test_blocks_without_such_a_bound_are_refused():
    draw = Draw(0)
    eye = torch.eye(2)
    for block in (
        random_mlp(2, 3, "gelu", generator=draw),
        random_gated_mlp(2, 3, "sigmoid", generator=draw),
        MLP(eye, eye, "relu6"),  # bounded by 6, not by 1
        MLP(eye, eye, leaky_relu(-3)),  # homogeneous, and 3 at -1
    ):
        with pytest.raises(ValueError, match="must have one of the activations"):
            growth_constant(block)
    for block in (
        random_mlp(2, 3, "tanh", biases=True, generator=draw),
        random_gated_mlp(2, 3, "silu", gate_bias=True, generator=draw),
    ):
        with pytest.raises(ValueError, match="block must have no biases"):
            growth_constant(block)


def test_a_kind_that_is_not_known_is_refused():
    for make in (random_block, lambda kind, *_, generator: absorbing_stack([kind], 3, generator=generator)):
        with pytest.raises(ValueError, match=r"kind must be one of 'silu', .*, got 'swish'"):
            make("swish", 3, 4, generator=Draw(0))


def test_products_of_skips():
    draw = Draw(0)
    a, b = draw.normal(2, 2), draw.normal(2, 2)
    block = random_block("silu", 2, 3, generator=draw)
    assert torch.equal(linear_part(Residual(block)), torch.eye(2)) and not linear_part(block).any()
    products = products_of_skips(Stack([Residual(block, a), Residual(block, b), block]))
    for found, expected in zip(products, (torch.eye(2), a, b @ a, torch.zeros(2, 2)), strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_slow_stacks_stay_near_the_product_of_their_skips(seed):
    draw = Draw(seed)
    stacks = random_stacks([draw.choice(SLOW_KINDS) for _ in range(4)], 3, generator=draw)
    for stack in stacks[:3]:
        rhos, k = remainders_at_infinity(stack)
        parts = zip(prefixes(stack), products_of_skips(stack)[1:], rhos, strict=True)
        for prefix, product, rho in parts:
            for radius in (1e-3, 1.0, 1e5):
                x = at_radius(3, radius, draw)
                assert (prefix(x) - x @ product.T).norm(dim=1).max() <= rho * (1 + radius**k)


@pytest.mark.parametrize("seed", range(20))
def test_flat_stacks_stay_near_the_product_of_their_skips(seed):
    draw = Draw(seed)
    stacks = random_stacks([draw.choice(FLAT_KINDS) for _ in range(4)], 3, generator=draw)
    for stack in stacks[:3]:
        rhos, k, largest = remainders_at_zero(stack)
        for prefix, product, rho in zip(prefixes(stack), products_of_skips(stack)[1:], rhos, strict=True):
            for radius in (largest, largest / 100):
                x = at_radius(3, radius, draw)
                off = (prefix(x) - x @ product.T).norm(dim=1).max()
                assert off <= rho * radius**k + 1e-14 * radius  # rounding of Nx


def test_remainders_of_one_layer_by_hand():
    block = MLP(torch.tensor([[4.0]]), torch.tensor([[3.0]]), relu_power(0.5))  # at most 6 √|x|
    # ρ_2 = 2 ρ_1 + 6 (√2 + √ρ_1) with ρ_1 = 6
    twice = Stack([Residual(block, torch.tensor([[2.0]]))] * 2)
    assert remainders_at_infinity(twice) == (pytest.approx([6, 12 + 6 * (2**0.5 + 6**0.5)]), 0.5)
    # a skip smaller than 1 leaves the 1 of the bound: ρ_2 = ρ_1/4 + 6 (1 + √ρ_1)
    twice = Stack([Residual(block, torch.tensor([[0.25]]))] * 2)
    assert remainders_at_infinity(twice) == (pytest.approx([6, 1.5 + 6 * (1 + 6**0.5)]), 0.5)
    square = MLP(torch.tensor([[4.0]]), torch.tensor([[3.0]]), "relu_squared")  # at most 48 x²
    # the second block reads at most (2 + 48)|x|, so |x| ≤ 1/50 and ρ_2 = 2·48 + 48·50²
    twice = Stack([Residual(square, torch.tensor([[2.0]]))] * 2)
    assert remainders_at_zero(twice) == (pytest.approx([48, 96 + 48 * 2500]), 2, pytest.approx(1 / 50))


def test_stacks_of_the_other_family_are_refused():
    draw = Draw(0)
    flat, slow = (Stack([random_block(kind, 2, 3, generator=draw)]) for kind in ("silu", "tanh"))
    with pytest.raises(ValueError, match="stack must have blocks of degree below 1 only, got degree 2"):
        remainders_at_infinity(flat)
    with pytest.raises(ValueError, match="stack must have blocks of degree above 1 only, got degree 0"):
        remainders_at_zero(slow)


@pytest.mark.parametrize(
    ("activation", "formula"), [(INVERSE_ROOT, lambda z: abs(z) ** -0.5), (RECIPROCAL, lambda z: 1 / z)]
)
def test_activations_of_negative_degree(activation, formula):
    z, points = sympy.Symbol("z", real=True), [-4.0, -0.25, 1e-9, 2.0]
    expected = [0.0, *(formula(point) for point in points)]
    assert activation(torch.tensor([0.0, *points])).tolist() == pytest.approx(expected)
    values = [float(activation.expression(z).subs(z, point)) for point in (0, *points)]
    assert values == pytest.approx(expected)
    assert float(activation(torch.tensor(9.0))) == pytest.approx(9**activation.degree)


def test_eight_gated_units_of_degree_one_half_give_the_first_coordinate():
    stack = stack_of_inverse_roots()
    x = Draw(0).normal(200, 2) * torch.logspace(-6, 6, 200)[:, None]
    x[0, 0] = 0
    y, first = stack(x).numpy(force=True), x[:, 0].numpy()
    assert y[:, 0] == pytest.approx(first, rel=1e-13, abs=0) and not y[:, 1].any()
    a = np.sign(first) * np.abs(first) ** 0.5
    for j, prefix in enumerate(prefixes(stack)[1:-1]):  # the second coordinate is a|a|^(-(j + 1)/2)
        second = prefix(x)[1:, 1].numpy(force=True)
        assert second == pytest.approx(a[1:] * np.abs(a[1:]) ** (-(j + 1) / 2), rel=1e-12)
    missing = [not isinstance(layer, Residual) for layer in stack.blocks]
    assert missing == [True, *[False] * 6, True]


def test_without_its_flat_blocks_a_stack_has_skips_and_relu_layers():
    draw = Draw(0)
    flat, plain = random_block("silu", 2, 3, generator=draw), random_mlp(2, 3, generator=draw)
    a, b, x = draw.normal(2, 2), draw.normal(2, 2), draw.normal(50, 2)
    stack = Stack([Residual(flat, a), plain, Residual(plain, b), random_block("relu", 2, 3, generator=draw)])
    first = plain(x @ a.T)
    assert torch.allclose(without_flat_blocks(Stack(stack.blocks[:3]))(x), first @ b.T + plain(first))
    assert not without_flat_blocks(stack)(x).any()  # the last layer is gated, and has no skip


@pytest.mark.parametrize("seed", range(5))
def test_random_stacks_differ_in_their_skips_only_where_they_say(seed):
    residual, one_gone, free, gone = random_stacks(FLAT_KINDS, 3, generator=Draw(seed))
    for i, (full, some, none) in enumerate(zip(residual.blocks, one_gone.blocks, free.blocks, strict=True)):
        assert isinstance(full, Residual) and not isinstance(none, Residual)
        assert some is (none if i == gone else full)
        values = torch.linalg.svdvals(full.skip_matrix())
        assert values.min() >= 0.5 - 1e-12 and values.max() <= 1.5 + 1e-12
        assert torch.linalg.matrix_norm(full.skip_matrix() - torch.eye(3), 2) == pytest.approx(0.5)
        assert full.block.activation is none.activation and 3 <= full.block.width <= 6


def test_random_stacks_need_a_kind():
    with pytest.raises(ValueError, match="kinds must name at least one block, got none"):
        random_stacks([], 3, generator=Draw(0))


@pytest.mark.parametrize("seed", range(10))
def test_relu_blocks_lose_their_skip_and_the_others_keep_it(seed):
    draw = Draw(seed)
    kinds = ["silu", "relu block", "relu_squared", "relu block"]
    residual, shorter = absorbing_stack(kinds, 3, generator=draw)
    for kind, full, short in zip(kinds, residual.blocks, shorter.blocks, strict=True):
        if kind != "relu block":
            assert short is full
            continue
        assert isinstance(full, Residual) and isinstance(short, MLP) and short.width == full.block.width == 6
        y = draw.normal(100, 3)
        up, down = short.up.numpy(force=True), short.down.numpy(force=True)
        value = np.maximum(y.numpy() @ up.T, 0) @ down.T
        assert np.abs(full(y).numpy(force=True) - value).max() < 1e-12
