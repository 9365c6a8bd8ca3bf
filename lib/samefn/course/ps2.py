"""Problem set 2, gates, GELU, and telling networks apart."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .answers import Answer
from .forms import gated, linear, plus, shifted
from .questions import Item, question


@question("ps2", points=16)
def gate(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``gate``, ``up``, ``down``: a sigmoid-gated block without biases, of width at most 6, that computes Mx.

    A-P6 excludes this for gates with g(0) = 0; X-GLU is about the sigmoid.
    """
    d = len(given["M"])
    rows = answer.matrix("gate", None, d)
    up = answer.matrix("up", len(rows), d)
    down = list(zip(*answer.matrix("down", d, len(rows)), strict=True))
    got = gated(rows, up, down)
    yield Item(0, f"width at most {2 * d}", len(rows) <= 2 * d, f"it is {len(rows)}")
    yield Item(0, "no row of gate is zero", all(map(any, rows)), "one is")
    yield Item(0, "a linear function", not {*got} - {"linear"}, "gates remain; is something rounded?")
    yield Item(
        16, "it is x ↦ Mx", got == linear(given["M"]), "another linear function; is something rounded?"
    )


@question("ps2", points=20)
def leaky_gelu(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``up``, ``bias``, ``down``, ``out``: Mx + v + B(x) without a skip, of the same width, for τ(z) = z
    + GELU(z).

    τ(z) - τ(-z) = 3z; X-BIAS, with A-T10's independence.
    """
    slope, d, m = Fraction(3, 2), len(given["skip"]), len(given["up"])
    up, bias = answer.matrix("up", None, d), answer.vector("bias")
    down = list(zip(*answer.matrix("down", d, len(up)), strict=True))
    out = answer.vector("out", d)
    block = shifted(given["up"], given["bias"], given["down"], slope)
    wanted = plus(linear(given["skip"], given["v"]), block)
    if len(bias) != len(up):
        yield Item(20, "one bias for each row", False, f"{len(up)} rows, {len(bias)} biases")
        return
    got = plus(shifted(up, bias, down, slope), {"constant": out})
    part = lambda form, name: {
        k: v for k, v in form.items() if (k == name) or (name == "units" and k[0] == "even")
    }
    units = len(up) <= m and part(got, "units") == part(wanted, "units")
    slopes = units and part(got, "linear") == part(wanted, "linear")
    yield Item(0, f"width at most {m}, the same even part", units, "too wide, or another even part")
    yield Item(16, "the same linear part", slopes, "the linear parts differ")
    yield Item(4, "the same function, constants included", slopes and got == wanted, "the constants differ")


@question("ps2", points=16)
def difference(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``x``: a point at which two ReLU networks, equal nearly everywhere on random points, differ."""
    x = answer.vector("x", 3)
    first, second = (relu_network(given[name], x) for name in ("first", "second"))
    yield Item(16, "the networks differ at x", first != second, f"both give {float(first):.6g} there")


def relu_network(layers: list[list[list[int]]], x: tuple[Fraction, ...]) -> Fraction:
    """W_3 relu(W_2 relu(W_1 x)), one output."""
    state = list(x)
    for depth, weights in enumerate(layers):
        state = [sum((w * s for w, s in zip(row, state)), Fraction(0)) for row in weights]
        state = state if depth + 1 == len(layers) else [max(Fraction(0), s) for s in state]
    return state[0]
