"""Activation functions with the facts that decide whether a skip can be absorbed.

A block's fate depends on a handful of properties of its activation σ:

* the *odd slope* c, where σ(z) - σ(-z) = 2cz for every z (ReLU, GELU, SiLU, ...);
* the *degree* k, where σ(λz) = λᵏσ(z) for every λ > 0 (ReLU, ReLU², monomials);
* whether σ is *bounded* (tanh, sigmoid, ...);
* whether units σ(u·x + b) can ever combine to a nonzero linear map (ELU and Mish: never);
* the symmetries of a single unit, K in the book's Part II.

``CATALOGUE`` holds the named ones; ``leaky_relu``, ``softplus``, ``elu``, ``celu``,
``relu_power`` and ``monomial`` build families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import sympy
import torch
import torch.nn.functional as F
from torch import Tensor

from .arguments import Finite, Positive

UnitSymmetry = Literal["permutation", "sign", "reflection", "positive scaling", "nonzero scaling"]


@dataclass(frozen=True)
class Activation:
    """One activation function and what is proved about it.

    ``function`` maps a tensor to a tensor of the same shape and dtype; ``expression`` maps a
    real SymPy symbol to the same function, exactly.  Calling the object applies ``function``.

    ``odd_slope`` is c in σ(z) - σ(-z) = 2cz, or None if no such c exists or it decides nothing
    (the identity, even monomials).  ``degree`` is the degree of positive homogeneity, or None.
    ``spans_linear`` is False only where it is proved that no combination of units with any
    weights and biases is a nonzero linear map.
    ``symmetry`` is what a single unit admits besides exchanging units.  Where it is "reflection", the
    graph is symmetric about the point ``centre`` = (p, q): σ(2p - z) = 2q - σ(z); "sign" is the same
    about the origin.

    >>> from samefn.activations import Activation
    >>> abs_value = Activation("abs", torch.abs, abs, odd_slope=0.0, degree=1)
    >>> abs_value(torch.tensor([-2.0, 3.0])).tolist()
    [2.0, 3.0]
    >>> abs_value.degree
    1
    """

    name: str
    function: Callable[[Tensor], Tensor] = field(repr=False)
    expression: Callable[[sympy.Expr], sympy.Expr] = field(repr=False)
    odd_slope: Finite | None = None
    degree: Finite | None = None
    bounded: bool = False
    continuous: bool = True
    spans_linear: bool = True
    symmetry: UnitSymmetry = "permutation"
    centre: tuple[float, float] = (0.0, 0.0)

    def __call__(self, z: Tensor) -> Tensor:
        return self.function(z)

    def even_part(self, z: sympy.Expr) -> sympy.Expr:
        """(σ(z) + σ(-z)) / 2 as a SymPy expression."""
        return (self.expression(z) + self.expression(-z)) / 2


def _relu(z: sympy.Expr) -> sympy.Expr:
    return (z + sympy.Abs(z)) / 2


def _exact(value: float) -> sympy.Expr:
    """The simple number (1/3, √2) whose float this is, and otherwise the decimal that the float prints as."""
    simple = sympy.nsimplify(value)
    return simple if float(simple) == value else sympy.Rational(str(value))


def leaky_relu(slope: Finite) -> Activation:
    """max(z, 0) + slope·min(z, 0), with odd slope (1 + slope)/2; slope -1 is |z|.

    Raises ValueError for slope 1, where the function is linear and has no even part.

    >>> from samefn.activations import leaky_relu
    >>> leaky = leaky_relu(0.1)
    >>> leaky.odd_slope  # σ(z) - σ(-z) = 1.1 z
    0.55
    """
    if slope == 1:
        raise ValueError("slope must differ from 1: with slope 1 the activation is linear")
    exact = _exact(slope)
    return Activation(
        f"leaky_relu({slope:g})",
        lambda z: F.leaky_relu(z, slope),
        lambda z: _relu(z) - exact * _relu(-z),
        odd_slope=(1 + slope) / 2,
        degree=1,
        symmetry="positive scaling",
    )


def softplus(beta: Positive) -> Activation:
    """log(1 + exp(βz))/β for β > 0.

    ``torch.nn.functional.softplus`` turns linear past a threshold, which breaks
    σ(z) - σ(-z) = z by about 1e-9; ``logaddexp`` keeps it to rounding.

    >>> from samefn.activations import softplus
    >>> z, sigma = torch.tensor([5.0]), softplus(2.0)
    >>> bool((sigma(z) - sigma(-z) - z).abs() < 1e-14)
    True
    """
    exact = _exact(beta)
    return Activation(
        f"softplus({beta:g})",
        lambda z: torch.logaddexp(beta * z, torch.zeros_like(z)) / beta,
        lambda z: sympy.log(1 + sympy.exp(exact * z)) / exact,
        odd_slope=0.5,
    )


def elu(alpha: Positive) -> Activation:
    """z for z > 0 and α(exp(z) - 1) otherwise, α > 0.

    >>> from samefn.activations import elu
    >>> elu(1.0).spans_linear  # units of it never add up to a linear map
    False
    """
    exact = _exact(alpha)
    return Activation(
        f"elu({alpha:g})",
        lambda z: F.elu(z, alpha),
        lambda z: sympy.Piecewise((z, z > 0), (exact * (sympy.exp(z) - 1), True)),
        spans_linear=False,
    )


def celu(alpha: Positive) -> Activation:
    """z for z > 0 and α(exp(z/α) - 1) otherwise, α > 0.

    >>> from samefn.activations import celu
    >>> f"{celu(2.0)(torch.tensor(-2.0)).item():.4f}"  # 2(1/e - 1)
    '-1.2642'
    """
    exact = _exact(alpha)
    return Activation(
        f"celu({alpha:g})",
        lambda z: F.celu(z, alpha),
        lambda z: sympy.Piecewise((z, z > 0), (exact * (sympy.exp(z / exact) - 1), True)),
        spans_linear=False,
    )


def relu_power(degree: Positive) -> Activation:
    """max(z, 0) to the power ``degree`` > 0; degree 1 is ReLU itself.

    >>> from samefn.activations import relu_power
    >>> relu_power(3)(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 8.0]
    >>> relu_power(3).degree
    3
    """
    if degree == 1:
        return get("relu")
    exact = _exact(degree)
    return Activation(
        f"relu_power({degree:g})",
        lambda z: torch.relu(z) ** degree,
        lambda z: _relu(z) ** exact,
        degree=degree,
        symmetry="positive scaling",
    )


def monomial(degree: int) -> Activation:
    """z to an integer power of at least 2.

    >>> from samefn.activations import monomial
    >>> monomial(2)(torch.tensor([-3.0])).item()
    9.0
    """
    if degree < 2:
        raise ValueError(f"degree must be at least 2, got {degree}")
    return Activation(
        f"monomial({degree})",
        lambda z: z**degree,
        lambda z: z**degree,
        degree=degree,
        symmetry="nonzero scaling",
    )


def _hard_swish(z: sympy.Expr) -> sympy.Expr:
    return sympy.Piecewise((0, z <= -3), (z, z >= 3), (z * (z + 3) / 6, True))


def _gelu_tanh(z: sympy.Expr) -> sympy.Expr:
    inner = sympy.sqrt(2 / sympy.pi) * (z + sympy.Rational(44715, 1000000) * z**3)
    return z * (1 + sympy.tanh(inner)) / 2


_SELU_SCALE, _SELU_ALPHA = (
    sympy.Float("1.0507009873554804934193349852946"),
    sympy.Float("1.6732632423543772848170429916717"),
)


def _clamp(z: sympy.Expr, low: int, high: int) -> sympy.Expr:
    return sympy.Piecewise((low, z <= low), (high, z >= high), (z, True))


def _renamed(name: str, activation: Activation) -> Activation:
    return Activation(**{**activation.__dict__, "name": name})


CATALOGUE: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("relu", torch.relu, _relu, odd_slope=0.5, degree=1, symmetry="positive scaling"),
        _renamed("leaky_relu", leaky_relu(0.01)),
        Activation("gelu", F.gelu, lambda z: z * (1 + sympy.erf(z / sympy.sqrt(2))) / 2, odd_slope=0.5),
        Activation("gelu_tanh", lambda z: F.gelu(z, approximate="tanh"), _gelu_tanh, odd_slope=0.5),
        Activation("silu", F.silu, lambda z: z / (1 + sympy.exp(-z)), odd_slope=0.5),
        _renamed("softplus", softplus(1)),
        Activation("logsigmoid", F.logsigmoid, lambda z: -sympy.log(1 + sympy.exp(-z)), odd_slope=0.5),
        Activation("hardswish", F.hardswish, _hard_swish, odd_slope=0.5),
        _renamed("elu", elu(1)),
        _renamed("celu", celu(2)),
        Activation(
            "selu",
            F.selu,
            lambda z: _SELU_SCALE * sympy.Piecewise((z, z > 0), (_SELU_ALPHA * (sympy.exp(z) - 1), True)),
            spans_linear=False,
        ),
        Activation("mish", F.mish, lambda z: z * sympy.tanh(sympy.log(1 + sympy.exp(z))), spans_linear=False),
        _renamed("relu_squared", relu_power(2)),
        Activation("identity", lambda z: z, lambda z: z, degree=1, symmetry="nonzero scaling"),
        Activation("tanh", torch.tanh, sympy.tanh, bounded=True, symmetry="sign"),
        Activation(
            "sigmoid",
            torch.sigmoid,
            lambda z: 1 / (1 + sympy.exp(-z)),
            bounded=True,
            symmetry="reflection",
            centre=(0.0, 0.5),
        ),
        Activation("softsign", F.softsign, lambda z: z / (1 + sympy.Abs(z)), bounded=True, symmetry="sign"),
        Activation("hardtanh", F.hardtanh, lambda z: _clamp(z, -1, 1), bounded=True, symmetry="sign"),
        Activation(
            "relu6",
            F.relu6,
            lambda z: _clamp(z, 0, 6),
            bounded=True,
            symmetry="reflection",
            centre=(3.0, 3.0),
        ),
    )
}


# names that these have elsewhere; gelu_fast rounds √(2/π) to ten digits, which in float32 is the same number
ALIASES = {
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "linear": "identity",
    "relu2": "relu_squared",
    "swish": "silu",
}
_QUICK = "; it is x·sigmoid(1.702 x) = silu(1.702 x)/1.702, so silu between weights scaled by that"


def get(activation: str | Activation) -> Activation:
    """The activation itself, or the catalogue's entry of that name, which may be one of ``ALIASES``.

    Raises ValueError for an unknown name.

    >>> from samefn.activations import get
    >>> get("gelu").odd_slope
    0.5
    >>> get("swish").name  # as others call it
    'silu'
    """
    if isinstance(activation, Activation):
        return activation
    name = ALIASES.get(activation, activation)
    if name not in CATALOGUE:
        known = ", ".join(sorted(CATALOGUE.keys() | ALIASES.keys()))
        hint = _QUICK if name == "quick_gelu" else ""
        raise ValueError(f"activation {name!r} is unknown{hint}; known names: {known}")
    return CATALOGUE[name]
