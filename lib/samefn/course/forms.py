"""Networks with one hidden layer as exact functions: two of them are equal exactly if their forms are.

A form is a dictionary from a name of a function of x (a unit up to what its activation's symmetries change,
or "linear", "constant") to its coefficient, without zeros.  The named functions are linearly independent:
that is the independence that the chapters prove for each activation.  Rational numbers throughout.
A unit with u = 0 that is not dropped by a = 0 is a constant and is refused: it belongs into an output bias.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction

from .answers import Malformed

Number = int | Fraction
Vector = Sequence[Number]
Form = dict[Hashable, tuple[Number, ...]]

__all__ = ["Form", "gated", "linear", "odd", "outer", "plus", "positively_homogeneous", "shifted"]


def outer(a: Vector, u: Vector) -> tuple[Number, ...]:
    """The entries of a uᵀ, row by row.

    >>> from samefn.course.forms import outer
    >>> outer((1, 2), (3, 4))
    (3, 4, 6, 8)
    """
    return tuple(x * y for x in a for y in u)


def plus(*forms: Form) -> Form:
    """The sum of forms, zeros dropped.

    >>> from samefn.course.forms import plus
    >>> plus({"linear": (1, 2)}, {"linear": (-1, -2)})
    {}
    """
    total: Form = {}
    for form in forms:
        for name, value in form.items():
            old = total.get(name, (0,) * len(value))
            total[name] = tuple(x + y for x, y in zip(old, value, strict=True))
    return {name: value for name, value in total.items() if any(value)}


def linear(matrix: Iterable[Vector], constant: Vector = ()) -> Form:
    """The form of x ↦ Mx + v.

    >>> from samefn.course.forms import linear
    >>> linear([(1, 0), (0, 1)])
    {'linear': (1, 0, 0, 1)}
    """
    return plus({"linear": tuple(entry for row in matrix for entry in row)}, {"constant": tuple(constant)})


def positively_homogeneous(up: Iterable[Vector], down: Iterable[Vector], slope: Number, kink: Number) -> Form:
    """Of Σ a_i σ(u_i·x) with σ(z) = slope z + kink |z|; ``down`` lists the columns a_i.

    The units' names are their lines: the |u·x| of different lines are independent of each other and of linear
    functions (A-T8).

    >>> from fractions import Fraction
    >>> from samefn.course.forms import positively_homogeneous
    >>> half = Fraction(1, 2)
    >>> a, b = [((1, 0),), ((2, 0),)]
    >>> positively_homogeneous(b, [(1,)], half, half) == positively_homogeneous(a, [(2,)], half, half)
    True
    """
    forms = []
    for u, a in zip(up, down, strict=True):
        first = next((abs(entry) for entry in u if entry), None)
        if first is not None:
            line = tuple(entry / Fraction(first) for entry in u)
            forms.append({("|.|", up_to_sign(line)[0]): scaled(a, kink * first)})
            forms.append({"linear": scaled(outer(a, u), slope)})
    return plus(*forms)


def shifted(up: Iterable[Vector], bias: Vector, down: Iterable[Vector], slope: Number) -> Form:
    """Of Σ a_i σ(u_i·x + b_i) with σ(z) = slope z + an even function that has no other symmetry (GELU, SiLU,
    softplus): the units' names are ±(u, b) (A-T10).

    >>> from fractions import Fraction
    >>> from samefn.course.forms import shifted
    >>> shifted([(1,)], (0,), [(1,)], Fraction(1, 2))
    {('even', (1, 0)): (1,), 'linear': (Fraction(1, 2),)}
    """
    forms = []
    for u, b, a in zip(up, bias, down, strict=True):
        _require_no_constant(u, a)
        forms.append({("even", up_to_sign((*u, b))[0]): tuple(a)})
        forms.append({"linear": scaled(outer(a, u), slope), "constant": scaled(a, slope * b)})
    return plus(*forms)


def odd(up: Iterable[Vector], bias: Vector, down: Iterable[Vector]) -> Form:
    """Of Σ a_i tanh(u_i·x + b_i): the units' names are ±(u, b), their signs go to a (B-D2).

    >>> from samefn.course.forms import odd
    >>> odd([(1,), (-1,)], (0, 0), [(2,), (2,)])
    {}
    """
    forms = []
    for u, b, a in zip(up, bias, down, strict=True):
        _require_no_constant(u, a)
        name, sign = up_to_sign((*u, b))
        forms.append({("odd", name): scaled(a, Fraction(sign))})
    return plus(*forms)


def gated(gate: Iterable[Vector], up: Iterable[Vector], down: Iterable[Vector]) -> Form:
    """Of Σ a_i sigmoid(w_i·x)(u_i·x): sigmoid(-z) = 1 - sigmoid(z), so the names are ±w, and each sign
    leaves a
    linear part.

    >>> from samefn.course.forms import gated
    >>> gated([(1,), (-1,)], [(1,), (1,)], [(3,), (3,)])
    {'linear': (Fraction(3, 1),)}
    """
    forms = []
    for w, u, a in zip(gate, up, down, strict=True):
        name, sign = up_to_sign(w)
        matrix = outer(a, u)
        if sign:
            forms.append({("gate", name): scaled(matrix, Fraction(sign))})
        forms.append({"linear": scaled(matrix, Fraction(1 - sign, 2))})
    return plus(*forms)


def up_to_sign(vector: Vector) -> tuple[tuple[Number, ...], int]:
    """The vector with its first nonzero entry positive, and the sign that does it; 0 for the zero vector."""
    sign = next((1 if entry > 0 else -1 for entry in vector if entry), 0)
    return tuple(sign * entry for entry in vector), sign


def scaled(vector: Vector, factor: Number) -> tuple[Number, ...]:
    return tuple(factor * entry for entry in vector)


def _require_no_constant(u: Vector, a: Vector) -> None:
    if any(a) and not any(u):
        raise Malformed("rows of weights must not be zero, got one: its unit is a constant")
