"""Distances of functions of degree k from a skip, against brute force and integrals done by hand."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch

from samefn.activations import relu_power
from samefn.draw import Draw
from samefn.networks import MLP
from samefn.skip.homogeneous import best_on_ray, biased_pair, disc_fit, identity_with_biases, two_radii_bound

DEGREES = [0.25, 0.5, 0.9, 1.5, 2, 3, 4]


@pytest.mark.parametrize(
    ("degree", "r", "R"), [(2, 1, 2), (0.5, 0.1, 3), (3, 0.4, 0.5), (1.5, 1, 10), (1, 1, 2)]
)
def test_no_multiple_of_a_power_is_nearer_at_both_radii(degree, r, R):
    miss = lambda w: max(abs(r - r**degree * w), abs(R - R**degree * w))
    ends = sorted((r ** (1 - degree), R ** (1 - degree)))  # between the w that are exact at one radius
    least = scipy.optimize.minimize_scalar(miss, bounds=ends, method="bounded", options={"xatol": 1e-13}).fun
    assert two_radii_bound(degree, r, R) == pytest.approx(least, abs=1e-7)  # the minimiser stops at 1e-8


def test_the_bound_at_the_radii_of_the_exercise():
    assert two_radii_bound(2, 1, 2) == pytest.approx(2 / 5, rel=1e-15)


@pytest.mark.parametrize("degree", [-2, 0, 0.5, 3, 200])
def test_the_bound_grows_with_the_radii(degree):
    scaled = two_radii_bound(degree, 2.0**100, 2.0**101)
    assert scaled == pytest.approx(2.0**100 * two_radii_bound(degree, 1, 2), rel=1e-14)


@pytest.mark.parametrize(("r", "R"), [(0, 1), (-1, 1), (1, 1), (2, 1), (math.nan, 1), (1, math.inf)])
def test_radii_that_are_not_two_are_refused(r, R):
    with pytest.raises(ValueError, match=r"[rR] must be (a positive number|less than R), got"):
        two_radii_bound(2, r, R)


@pytest.mark.parametrize("degree", [math.inf, math.nan])
def test_a_bound_needs_a_degree(degree):
    with pytest.raises(ValueError, match="degree must be a finite number, got"):
        two_radii_bound(degree, 1, 2)


@pytest.mark.parametrize("degree", DEGREES)
def test_the_best_multiple_on_a_ray_is_that_of_a_linear_program(degree):
    scale = np.linspace(0, 1, 5001)  # min e subject to |λ - μλᵏ| ≤ e for every λ
    power, one = scale**degree, np.ones_like(scale)
    rows = np.concatenate([np.c_[-power, -one], np.c_[power, -one]])
    program = scipy.optimize.linprog([0, 1], rows, np.r_[-scale, scale], bounds=[(None, None)] * 2)
    mu, error = best_on_ray(degree)
    assert error == pytest.approx(program.fun, abs=1e-6) and mu == pytest.approx(program.x[0], abs=1e-5)


def test_degree_one_has_no_gap():
    assert best_on_ray(1) == (1.0, 0.0)


@pytest.mark.parametrize("degree", [0, -1, math.inf, math.nan])
def test_degrees_without_a_best_multiple_are_refused(degree):
    with pytest.raises(ValueError, match="degree must be a positive number, got"):
        best_on_ray(degree)


def test_the_fit_of_four_squared_units_is_that_of_the_integrals():
    # the best is μ x|x| in each coordinate; E|x|³ = 8/15π, E x² = 1/4, E x⁴ = 1/8 on the disc
    exact = (1 - 32 * (8 / (15 * math.pi)) ** 2) ** 0.5
    error, floor = disc_fit("relu_squared", 4)
    assert error == pytest.approx(exact, abs=1e-4)
    assert floor == pytest.approx(1 / 5, abs=1e-6)


@pytest.mark.parametrize("degree", DEGREES)
def test_the_floor_on_the_disc(degree):
    error, floor = disc_fit(relu_power(degree), 3, turn=0.3, radii=40, directions=40)
    assert floor == pytest.approx(abs(degree - 1) / (degree + 3), abs=1e-4)
    assert error > floor


def test_four_relu_units_make_the_identity_however_they_are_turned():
    for turn in (0.0, 0.4, 1.0):
        assert disc_fit("relu", 4, turn)[0] < 1e-12
        assert disc_fit("relu", 2, turn)[0] > 0.1


def test_turning_the_polygon_by_a_step_of_the_grid_changes_nothing():
    turned = disc_fit("relu_squared", 5, turn=2 * math.pi / 360)[0]
    assert turned == pytest.approx(disc_fit("relu_squared", 5)[0], rel=1e-9)


def test_fits_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="activation must be positively homogeneous, got gelu"):
        disc_fit("gelu", 4)
    for name, arguments in (("m", (0,)), ("radii", (4, 0.0, 0)), ("directions", (4, 0.0, 3, 0))):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got 0"):
            disc_fit("relu", *arguments)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_biased_units_make_the_identity(d):
    block, x = identity_with_biases(d), 3 * Draw(d).normal(100, d)
    assert isinstance(block, MLP) and block.width == 4 * d and block.down_bias is None
    assert torch.allclose(block(x), x, rtol=0, atol=1e-12)


def test_the_identity_needs_a_dimension():
    with pytest.raises(ValueError, match="d must be an integer of at least 1, got 0"):
        identity_with_biases(0)


@pytest.mark.parametrize("seed", range(5))
def test_the_biased_pair_is_one_function_with_and_without_a_skip(seed):
    draw = Draw(seed)
    residual, turned = biased_pair(draw.normal(3, 3))
    x = draw.normal(200, 3)
    assert residual.block.width == turned.width == 6 and residual.skip is None
    up, bias, down = (t.numpy(force=True) for t in (turned.up, turned.up_bias, turned.down))
    value = np.maximum(x.numpy() @ up.T + bias, 0) ** 2 @ down.T
    scale = float(residual(x).abs().max() + turned.down.abs().max())
    assert np.abs(residual(x).numpy(force=True) - value).max() < 1e-10 * scale


def test_a_basis_that_is_none_is_refused():
    for basis, message in (
        (torch.ones(2, 2), "basis must be invertible, got rank 1"),
        (torch.ones(2, 3), r"basis must be .* of shape \(d, d\)"),
        (torch.full((1, 1), math.nan), "basis must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            biased_pair(basis)
    with pytest.raises(TypeError, match=r"basis must be a floating torch\.Tensor"):
        biased_pair([[1.0]])
