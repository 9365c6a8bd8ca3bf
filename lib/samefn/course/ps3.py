"""Problem set 3, the same network in other words: aligning, shrinking, equivariant maps."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from .answers import Answer
from .forms import plus, shifted
from .questions import Item, question

FEWEST = 4  # units of ``fewer``, by construction


@question("ps3", points=20)
def align(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``order1``, ``signs1``, ``order2``, ``signs2``: unit i of B's layer is sign_i times unit order_i of
    A's.

    A tanh network B is A scrambled (B-D2), each weight then moved by at most ``noise``.
    """
    A, B, noise = given["A"], given["B"], given["noise"]
    widths = [len(layer[0]) - 1 for layer in A] + [len(A[-1])]  # the last column is the bias
    orders = [list(range(width)) for width in widths]
    signs = [[1] * width for width in widths]
    for layer in (1, 2):
        orders[layer] = answer.permutation(f"order{layer}", widths[layer])
        signs[layer] = answer.signs(f"signs{layer}", widths[layer])
    right = True
    for layer, points in enumerate((8, 8, 4)):
        columns, factors = [*orders[layer], widths[layer]], [*signs[layer], 1]
        moved = [
            [sign * factor * A[layer][unit][column] for column, factor in zip(columns, factors)]
            for unit, sign in zip(orders[layer + 1], signs[layer + 1])
        ]
        near = all(abs(x - y) <= noise for m, b in zip(moved, B[layer]) for x, y in zip(m, b))
        right = right and near
        yield Item(
            points, f"layer {layer + 1} of B is that of A up to the noise", right, "a weight is further away"
        )


@question("ps3", points=24)
def fewer(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``up``, ``bias``, ``down``, ``out``: the same function by softplus units, fewer of them.

    softplus(z) - softplus(-z) = z, so units can be turned, and a pair of opposite ones is linear.
    """
    slope, d, k = Fraction(1, 2), len(given["up"][0]), len(given["out"])
    up, bias = answer.matrix("up", None, d), answer.vector("bias")
    down = list(zip(*answer.matrix("down", k, len(up)), strict=True))
    out = answer.vector("out", k)
    if len(bias) != len(up):
        yield Item(24, "one bias for each row", False, f"{len(up)} rows, {len(bias)} biases")
        return
    wanted = plus(
        shifted(given["up"], given["bias"], given["down"], slope), {"constant": tuple(given["out"])}
    )
    got = plus(shifted(up, bias, down, slope), {"constant": out})
    yield Item(0, "the same function", got == wanted, "another function")
    yield Item(8, "fewer units", len(up) < len(given["up"]), "not fewer")
    yield Item(16, "as few as there can be", len(up) <= FEWEST, "fewer are possible")


@question("ps3", points=16)
def equivariant_maps(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``basis``: matrices that are a basis of {A : A ρ = ρ' A}, for the signed permutations ρ and ρ'."""
    rho, rho_out = given["rho"], given["rho_out"]
    rows, columns = len(rho_out), len(rho)
    count = len(answer.items("basis", at_most=rows * columns))
    basis = [Answer({"a matrix": A}).matrix("a matrix", rows, columns) for A in answer.items("basis")]
    commute = count > 0 and all(times(A, rho) == times(rho_out, A) for A in basis)
    yield Item(0, "each matrix is equivariant", commute, "one is not" if basis else "there is none")
    flat = [[QQ(x.numerator, x.denominator) for row in A for x in row] for A in basis]
    rank = DomainMatrix(flat, (count, rows * columns), QQ).rank()
    yield Item(4, "they are independent", rank == count, "they are not")
    yield Item(12, "they span", rank == commuting(rho, rho_out), "there are more equivariant maps")


def times(A: Any, B: Any) -> list[tuple[Any, ...]]:
    """The product of two matrices, as rows."""
    return [tuple(sum(x * y for x, y in zip(row, column)) for column in zip(*B)) for row in A]


def commuting(rho: Any, rho_out: Any) -> int:
    """The dimension of {A : A ρ = ρ' A}, from the rank of that linear system."""
    rows, columns = len(rho_out), len(rho)
    equations = []
    for i in range(rows):
        for j in range(columns):
            equation = [0] * (rows * columns)
            for k in range(columns):
                equation[i * columns + k] += rho[k][j]
            for k in range(rows):
                equation[k * columns + j] -= rho_out[i][k]
            equations.append([QQ(entry) for entry in equation])
    return rows * columns - DomainMatrix(equations, (rows * columns,) * 2, QQ).rank()
