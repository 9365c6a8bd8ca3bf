"""Gated blocks near 0, against formulas, NumPy and functions whose derivative and slope are known."""

import math

import numpy as np
import pytest
import sympy
import torch

from samefn.draw import Draw
from samefn.networks import GatedMLP, Residual, Stack, random_gated_mlp, random_mlp
from samefn.skip.gated import (
    SIGNED_SQRT,
    STEP,
    biased_pair,
    jacobian_at_zero,
    nearest_to_the_skip,
    quadratic_constant,
    slope_at_zero,
)


@pytest.mark.parametrize(
    ("gate", "formula"), [(SIGNED_SQRT, lambda z: math.copysign(abs(z) ** 0.5, z)), (STEP, lambda z: z > 0)]
)
def test_gates_of_the_chapter(gate, formula):
    z, points = sympy.Symbol("z", real=True), [-4.0, -0.25, 0.0, 1e-9, 2.0]
    expected = [float(formula(point)) for point in points]
    assert gate(torch.tensor(points)).tolist() == pytest.approx(expected)
    assert [float(gate.expression(z).subs(z, point)) for point in points] == pytest.approx(expected)
    assert gate.continuous is (gate is SIGNED_SQRT)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "identity"])
def test_the_quadratic_constant(activation, seed):
    draw = Draw(seed)
    block, x = random_gated_mlp(3, 6, activation, generator=draw), draw.normal(500, 3) * 10
    down, up, gate = (w.numpy(force=True) for w in (block.down, block.up, block.gate))
    kappa = np.linalg.svd(down)[1][0] * np.linalg.svd(up)[1][0] * np.sqrt((gate**2).sum(1).max())
    assert quadratic_constant(block) == pytest.approx(kappa, rel=1e-12)
    assert (block(x).norm(dim=1) <= kappa * x.norm(dim=1) ** 2).all()


def test_one_bilinear_unit_attains_its_constant():
    block = GatedMLP(torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]]), "identity")
    assert quadratic_constant(block) == pytest.approx(30) and float(block(torch.ones(1))) == pytest.approx(30)


def test_a_block_without_a_quadratic_constant_is_refused():
    with pytest.raises(TypeError, match="block must be a GatedMLP, got MLP"):
        quadratic_constant(random_mlp(2, 3, generator=Draw(0)))
    with pytest.raises(ValueError, match="block must have no gate bias"):
        quadratic_constant(random_gated_mlp(2, 3, gate_bias=True, generator=Draw(0)))


def test_the_jacobian_at_zero_is_that_of_the_formula():
    draw = Draw(0)
    block, skip = random_gated_mlp(4, 6, "sigmoid", generator=draw), draw.normal(4, 4)
    half = block.down @ block.up / 2  # the gates are 1/2 at 0
    assert torch.allclose(jacobian_at_zero(block), half, rtol=0, atol=1e-14)
    assert torch.allclose(jacobian_at_zero(Residual(block, skip)), skip + half, rtol=0, atol=1e-14)
    stack = Stack([block, Residual(block, skip)])
    assert torch.allclose(jacobian_at_zero(stack), (skip + half) @ half, rtol=0, atol=1e-13)


def test_the_jacobian_carries_no_gradient_of_a_block_in_training():
    block = random_gated_mlp(3, 4, "sigmoid", generator=Draw(1)).requires_grad_(True)
    assert not jacobian_at_zero(block).requires_grad


@pytest.mark.parametrize("power", [0.5, 1, 1.5, 3])
def test_the_slope_of_a_power_is_the_power(power):
    f = lambda x: 7 * x * x.norm(dim=1, keepdim=True) ** (power - 1)
    assert slope_at_zero(f, torch.tensor([0.6, -0.8]), torch.logspace(-6, -2, 9)) == pytest.approx(power)


def test_slopes_that_do_not_exist_are_refused():
    direction, radii = torch.ones(2), torch.tensor([1e-3, 1e-2])
    for wrong in (radii[:1], torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 1.0])):
        with pytest.raises(ValueError, match="radii must be at least two positive numbers"):
            slope_at_zero(lambda x: x, direction, wrong)
    with pytest.raises(ValueError, match="direction must be one along which f does not vanish"):
        slope_at_zero(torch.zeros_like, direction, radii)


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_the_block_nearest_to_the_skip_solves_its_normal_equations(activation):
    block, x = nearest_to_the_skip(activation, 6), np.linspace(-1, 1, 2001)
    assert block.gate[:, 0].tolist() == pytest.approx([1, 60**0.5, 60, -1, -(60**0.5), -60])
    gates = {
        "silu": lambda z: z / (1 + np.exp(-z)),
        "gelu": lambda z: z * (1 + np.vectorize(math.erf)(z / 2**0.5)) / 2,
        "relu": lambda z: np.maximum(z, 0),
    }
    hidden = gates[activation](np.outer(x, block.gate[:, 0].numpy(force=True))) * x[:, None]
    left = x - hidden @ block.down[0].numpy(force=True)
    assert np.abs(hidden.T @ left).max() < 1e-8 * len(x)


def test_a_width_that_is_odd_or_zero_is_refused():
    for m in (0, 3, -2):
        with pytest.raises(ValueError, match=f"m must be (even|an integer of at least 1), got {m}"):
            nearest_to_the_skip("silu", m)


@pytest.mark.parametrize("seed", range(5))
def test_the_biased_pair_is_one_function_with_and_without_a_skip(seed):
    draw = Draw(seed)
    gate, bias, x = draw.normal(3, 3), draw.signs(3) * (0.5 + draw.uniform(3)), draw.normal(200, 3)
    residual, turned = biased_pair(gate, bias)
    assert residual.block.width == turned.width == 6 and residual.skip is None
    silu = lambda z: z / (1 + np.exp(-z))
    w, b, y = gate.numpy(), bias.numpy(), x.numpy()
    block = (silu(y @ w.T - b) - silu(y @ w.T + b)) * y / (2 * b)
    assert np.abs(residual(x).numpy(force=True) - (y + block)).max() < 1e-12
    assert np.abs(turned(x).numpy(force=True) - (y + block)).max() < 1e-12


def test_a_biased_pair_that_cannot_be_is_refused():
    for gate, bias, message in (
        (torch.ones(2, 2), torch.tensor([1.0, 0.0]), "bias must have no zero entry"),
        (torch.ones(2, 2), torch.ones(3), "bias must be .* with d = 2"),
        (torch.ones(2, 3), torch.ones(2), r"gate must be .* of shape \(d, d\)"),
        (torch.full((1, 1), math.inf), torch.ones(1), "gate must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            biased_pair(gate, bias)
    with pytest.raises(TypeError, match=r"gate must be a floating torch\.Tensor"):
        biased_pair([[1.0]], torch.ones(1))
