"""Every claim that the catalogue makes about an activation, against its SymPy expression."""

import math

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn import activations
from samefn.activations import CATALOGUE, Activation, elu, leaky_relu

FAMILIES = [
    activations.leaky_relu(-1),
    activations.leaky_relu(-3),
    activations.leaky_relu(0.25),
    activations.softplus(0.5),
    activations.softplus(20),
    activations.elu(0.3),
    activations.celu(3),
    activations.relu_power(0.5),
    activations.relu_power(3),
    activations.monomial(2),
    activations.monomial(5),
]
EVERY = pytest.mark.parametrize("activation", [*CATALOGUE.values(), *FAMILIES], ids=lambda a: a.name)
POINTS = [-7.5, -3.0, -1.25, -0.1, 0.0, 0.1, 0.75, 2.0, 3.0, 6.0, 8.5]
Z = sympy.Symbol("z", real=True)
POSITIVE = sympy.Symbol("t", positive=True)


def exact(activation: Activation, z: float) -> float:
    return float(activation.expression(sympy.Rational(z)).evalf(30))


def values(activation: Activation, points) -> torch.Tensor:
    return activation(torch.as_tensor(points, dtype=torch.float64))


@EVERY
def test_the_function_is_the_expression(activation):
    expected = torch.tensor([exact(activation, z) for z in POINTS], dtype=torch.float64)
    torch.testing.assert_close(values(activation, POINTS), expected, rtol=1e-13, atol=1e-15)


@EVERY
def test_the_odd_slope_is_what_sympy_finds(activation):
    for z in POINTS:
        point = sympy.Rational(z)
        odd = sympy.N(activation.expression(point) - activation.expression(-point), 40)
        if activation.odd_slope is not None:
            assert abs(odd - 2 * sympy.nsimplify(activation.odd_slope) * point) < 1e-35


@EVERY
def test_without_an_odd_slope_no_slope_fits_or_there_is_no_bend(activation):
    if activation.odd_slope is not None:
        assert (
            abs(sympy.N(activation.even_part(sympy.Integer(2)) - activation.even_part(sympy.Integer(0))))
            > 0.1
        )
        return
    slopes = {
        round(float((values(activation, z) - values(activation, -z)) / (2 * z)), 9)
        for z in (0.3, 1.0, 4.0, 9.0)
    }
    even = {round(float(values(activation, z) + values(activation, -z)), 9) for z in (0.3, 1.0, 4.0, 9.0)}
    never_odd = slopes == {0.0}  # even monomials: c = 0 says nothing
    assert len(slopes) > 1 or never_odd or even == {0.0}


def test_the_odd_parts_symbolically():
    for name in ("relu", "gelu", "silu", "softplus", "logsigmoid"):
        expression = CATALOGUE[name].expression
        odd = expression(POSITIVE) - expression(-POSITIVE)
        simplified = sympy.simplify(sympy.expand_log(sympy.simplify(odd), force=True))
        assert sympy.simplify(simplified - POSITIVE).equals(0), name


def test_the_even_parts_are_those_of_the_text():
    expected = {
        "relu": sympy.Abs(Z) / 2,
        "gelu": Z * sympy.erf(Z / sympy.sqrt(2)) / 2,
        "silu": Z * sympy.tanh(Z / 2) / 2,
        "softplus": sympy.log(2 * sympy.cosh(Z / 2)),
        "leaky_relu": sympy.Rational(99, 200) * sympy.Abs(Z),
        "hardswish": sympy.Piecewise((Z**2 / 6, sympy.Abs(Z) < 3), (sympy.Abs(Z) / 2, True)),
    }
    for name, formula in expected.items():
        for z in POINTS:
            point = sympy.Rational(z)
            assert abs(sympy.N(CATALOGUE[name].even_part(point) - formula.subs(Z, point), 30)) < 1e-25, name


@EVERY
def test_the_degree_of_homogeneity(activation):
    points = torch.tensor(POINTS, dtype=torch.float64)
    # without a declared degree, the only candidate is the one that two values suggest
    degree = activation.degree or math.log2(float(values(activation, 4.0) / values(activation, 2.0)))
    gap = torch.cat([activation(s * points) - s**degree * activation(points) for s in (0.125, 3.0)])
    homogeneous = float(gap.abs().max()) < 1e-10 * float(1 + activation(3 * points).abs().max())
    assert homogeneous is (activation.degree is not None)


@EVERY
def test_boundedness(activation):
    far = values(activation, [-1e6, -1e4, 1e4, 1e6]).abs()
    assert (float(far.max()) <= 6) is activation.bounded


@EVERY
def test_the_symmetry_of_a_unit(activation):
    points = torch.tensor(POINTS, dtype=torch.float64)
    scale = {"permutation": None, "positive scaling": 2.5, "nonzero scaling": -2.5}.get(
        activation.symmetry, -1.0
    )
    p, q = activation.centre
    assert (p, q) == (0, 0) or activation.symmetry == "reflection"
    if scale is not None:
        ratio = (activation(p + scale * points) - q) / (activation(p + points) - q)
        known = ratio[torch.isfinite(ratio)]
        torch.testing.assert_close(known, known[:1].expand_as(known))


@EVERY
def test_dtype_and_shape_are_kept(activation):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        result = activation(torch.ones(2, 3, dtype=dtype))
        assert result.dtype == dtype and result.shape == (2, 3)


@pytest.mark.parametrize("name", ["elu", "celu", "selu", "mish"])
def test_units_of_spanning_no_linear_map_are_independent_of_it(name):
    """Twelve different units, the identity and the constant: full numerical rank on sample points."""
    activation = CATALOGUE[name]
    assert not activation.spans_linear
    t = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    slopes, shifts = (1.0, -1.0, 2.0, -2.0), (0.0, 1.5, -2.5)
    units = [activation(slope * t + shift) for slope in slopes for shift in shifts]
    columns = torch.stack([t, torch.ones_like(t), *units], 1)
    columns /= columns.norm(dim=0)
    assert float(torch.linalg.svdvals(columns)[-1]) > 1e-6


def test_odd_linear_units_do_span_a_linear_map():
    """Control of the test above: a pair ± of ReLU units is the identity."""
    t = torch.linspace(-12, 12, 401, dtype=torch.float64)
    columns = torch.stack([t, torch.relu(t), torch.relu(-t)], 1)
    assert float(torch.linalg.svdvals(columns)[-1]) < 1e-12


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.floats(-5, 5).filter(lambda a: abs(a - 1) > 1e-6), st.floats(-20, 20))
def test_leaky_relu_of_any_slope(slope, z):
    activation = activations.leaky_relu(slope)
    point = torch.tensor(z, dtype=torch.float64)
    assert float(activation(point)) == (z if z > 0 else slope * z)
    odd = float(activation(point) - activation(-point))
    assert odd == pytest.approx(2 * activation.odd_slope * z, abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.floats(0.01, 50), st.floats(-60, 60))
def test_softplus_keeps_its_odd_part_to_rounding(beta, z):
    """torch's own softplus is linear past a threshold, and fails this by about 1e-9."""
    activation = activations.softplus(beta)
    point = torch.tensor(z, dtype=torch.float64)
    assert float(activation(point) - activation(-point)) == pytest.approx(z, rel=1e-14, abs=1e-13)


def test_relu_to_the_first_power_is_relu():
    assert activations.relu_power(1) is CATALOGUE["relu"]


def test_names():
    assert all(
        activations.get(name) is CATALOGUE[name] and CATALOGUE[name].name == name for name in CATALOGUE
    )
    own = activations.leaky_relu(0.5)
    assert activations.get(own) is own
    assert all(activations.get(alias) is CATALOGUE[name] for alias, name in activations.ALIASES.items())


# what these names mean to those who use them
FORMULAS = {
    "gelu_accurate": lambda z: 0.5 * z * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "gelu_fast": lambda z: 0.5 * z * (1 + torch.tanh(z * 0.7978845608 * (1 + 0.044715 * z * z))),
    "gelu_new": lambda z: 0.5 * z * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "gelu_python": lambda z: 0.5 * z * (1 + torch.erf(z / 2**0.5)),
    "gelu_python_tanh": lambda z: 0.5 * z * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))),
    "gelu_pytorch_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "linear": lambda z: z,
    "relu2": lambda z: z.clamp_min(0) ** 2,
    "swish": lambda z: z * torch.sigmoid(z),
}


@pytest.mark.parametrize("alias", activations.ALIASES)
def test_an_alias_is_the_function_that_others_call_so(alias):
    z = torch.linspace(-12, 12, 10001, dtype=torch.float64)
    assert (activations.get(alias)(z) - FORMULAS[alias](z)).abs().max() < 1e-12  # gelu_fast: 9.2e-13


def test_quick_gelu_is_none_of_ours_and_the_error_says_how_to_get_it():
    with pytest.raises(ValueError, match=r"'quick_gelu' is unknown; it is x·sigmoid\(1.702 x\) = silu"):
        activations.get("quick_gelu")
    z = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    assert torch.allclose(z * torch.sigmoid(1.702 * z), CATALOGUE["silu"](1.702 * z) / 1.702, atol=1e-15)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: activations.get("ReLU6000"), ValueError, r"activation 'ReLU6000'.*known names: .*gelu"),
        (lambda: activations.get(torch.relu), TypeError, "activation must be a string or an Activation"),
        (lambda: activations.leaky_relu(1), ValueError, "slope"),
        (lambda: activations.leaky_relu(math.nan), ValueError, "slope"),
        (lambda: activations.leaky_relu("0.1"), TypeError, "slope"),
        (lambda: activations.leaky_relu(True), TypeError, "slope"),
        (lambda: activations.softplus(0), ValueError, "beta"),
        (lambda: activations.softplus(math.inf), ValueError, "beta"),
        (lambda: activations.elu(-1), ValueError, "alpha"),
        (lambda: activations.celu(0), ValueError, "alpha"),
        (lambda: activations.relu_power(0), ValueError, "degree"),
        (lambda: activations.monomial(1), ValueError, "degree"),
        (lambda: activations.monomial(2.0), TypeError, "degree"),
        (lambda: activations.monomial(True), TypeError, "degree"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("value", [0.01, 1 / 3, 2**0.5, 0.0100000001, 0.1 + 0.2, 1e-300])
def test_numbers_in_expressions_are_the_floats(value):
    """A parameter that is near a simple number, but another float, is not taken for it."""
    assert float(leaky_relu(value).expression(sympy.Integer(-1))) == -value
    assert float(elu(value).expression(-sympy.oo)) == -value
