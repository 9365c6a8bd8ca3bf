"""Problem set 4, symmetric functions and their weights: latent actions, spare units, heads, a
counterexample.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .answers import Answer
from .forms import Form, odd, outer, plus, up_to_sign
from .questions import Item, question

HEADS, KEYS, VALUES = 2, 3, 4  # least number of heads and sums of widths, by construction
Signed = tuple[list[int], list[int]]  # unit i goes where sign_i times unit order_i was


def after(first: Signed, second: Signed) -> Signed:
    """The product of two signed permutations of rows: ``first``, then ``second``."""
    order, sign = second
    return [first[0][i] for i in order], [s * first[1][i] for i, s in zip(order, sign)]


def moved_rows(W: Any, rho: Signed) -> list[tuple[Any, ...]]:
    """ρW: row i is sign_i times row order_i of W."""
    return [tuple(sign * x for x in W[i]) for i, sign in zip(*rho)]


def moved_columns(W: Any, rho: Signed) -> list[tuple[Any, ...]]:
    """ρW for each column: the columns of Wρ⁻¹ are moved as ρ moves rows."""
    return list(zip(*moved_rows(list(zip(*W)), rho)))


def inputs_moved(W: Any, g: list[int]) -> list[tuple[Any, ...]]:
    """W R(g)⁻¹ for the permutation (R(g)x)_i = x_{g_i} of the inputs."""
    return [tuple(row[i] for i in g) for row in W]


def near(A: Any, B: Any, noise: int) -> bool:
    return all(abs(x - y) <= noise for a, b in zip(A, B, strict=True) for x, y in zip(a, b, strict=True))


@question("ps4", points=20)
def latent_action(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``order_r``, ``signs_r``, ``order_s``, ``signs_s``: how the quarter turn r and the mirror s act on
    the units.

    ρ(g)W_1 = W_1R(g) and W_2ρ(g) = R(g)W_2 up to twice the noise, and ρ is an action of the square's group.
    """
    W1, W2, noise = given["W1"], given["W2"], 2 * given["noise"]
    m = len(W1)
    rho = {g: (answer.permutation(f"order_{g}", m), answer.signs(f"signs_{g}", m)) for g in "rs"}
    holds = {}
    for g, name in (("r", "quarter turn"), ("s", "mirror")):
        rows = near(moved_rows(W1, rho[g]), inputs_moved(W1, inverse(given[g])), noise)
        columns = near(moved_columns(W2, rho[g]), [W2[i] for i in inverse(given[g])], noise)
        yield Item(
            4, f"{name}: the first layer is equivariant up to the noise", rows, "a row is further away"
        )
        yield Item(3, f"{name}: so is the second", rows and columns, "a column is further away")
        holds[g] = rows and columns
    one = (list(range(m)), [1] * m)
    r, s = rho["r"], rho["s"]
    rs = after(r, s)
    action = after(after(r, r), after(r, r)) == after(s, s) == after(rs, rs) == one
    yield Item(6, "r⁴ = s² = (rs)² = 1", all(holds.values()) and action, "it is no action of the group")


def inverse(g: list[int]) -> list[int]:
    return sorted(range(len(g)), key=g.__getitem__)


@question("ps4", points=22)
def layerwise(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``W1``, ``b``, ``W2``, and ``order``, ``signs``: the same invariant function by as many tanh units,
    layer by layer.

    ρW_1 = W_1R and W_2ρ = W_2 for the cyclic shift R: the weakly identifiable case of B-T4.1.
    """
    m, d, k = len(given["W1"]), len(given["W1"][0]), len(given["W2"])
    W1, b, W2 = answer.matrix("W1", m, d), answer.vector("b", m), answer.matrix("W2", k, m)
    rho = answer.permutation("order", m), answer.signs("signs", m)
    same = odd(W1, b, zip(*W2)) == odd(given["W1"], given["b"], zip(*given["W2"]))
    alive = same and all(map(any, zip(*W2)))
    yield Item(0, "the same function", same, "another function")
    yield Item(0, "no unit dead", alive, "a column of W2 is zero")
    shifted = inputs_moved(W1, inverse(given["shift"]))
    rows = moved_rows(W1, rho) == shifted and moved_rows([(x,) for x in b], rho) == [(x,) for x in b]
    yield Item(10, "ρ W1 = W1 R and ρ b = b", alive and rows, "a row has another image")
    yield Item(
        12, "W2 ρ = W2", alive and rows and moved_columns(W2, rho) == [tuple(row) for row in W2], "it moves"
    )


@question("ps4", points=20)
def heads(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``heads``: the same attention layer by fewer and narrower heads, each with Q, K, V, O.

    A layer is the sum of attention with M_h = QᵀK, followed by R_h = OV, over heads with different M_h
    (B-ATT).
    """
    d = len(given["heads"][0]["Q"][0])
    mine = []
    for part in (Answer(head) for head in answer.items("heads", at_most=8)):
        Q, V = part.matrix("Q", None, d), part.matrix("V", None, d)
        mine.append({"Q": Q, "K": part.matrix("K", len(Q), d), "V": V, "O": part.matrix("O", d, len(V))})
    same = attention(mine) == attention(given["heads"])
    keys, values = (sum(len(head[name]) for head in mine) for name in "QV")
    fewest = len(mine) <= HEADS
    yield Item(0, "the same function", same, "another function")
    yield Item(6, "as few heads as there can be", same and fewest, "two heads attend alike")
    yield Item(7, "key widths add up to the least", same and keys <= KEYS, "they can be narrower")
    yield Item(7, "value widths too", same and values <= VALUES, "they can be narrower")


def attention(layer: list[dict[str, Any]]) -> Form:
    """M_h ↦ the sum of the R_h with that M_h."""
    forms = []
    for head in layer:
        M = tuple(map(sum, zip(*(outer(q, k) for q, k in zip(head["Q"], head["K"])))))
        R = tuple(map(sum, zip(*(outer(o, v) for o, v in zip(zip(*head["O"]), head["V"])))))
        forms.append({("head", M): R})
    return plus(*forms)


@question("ps4", points=10)
def not_layerwise(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``W1``, ``W2``: tanh units, the first with row w, whose function is invariant under exchanging the
    inputs though
    no signed permutation of the units says so: what B-T4.1 loses without identifiability.
    """
    w = tuple(given["w"])
    W1 = answer.matrix("W1", None, 2)
    W2 = answer.vector("W2", len(W1))
    own = W1[0] == w and all(map(any, W1)) and all(W2) and len(W1) <= 4
    yield Item(
        0, "first row w, at most 4 units, none dead", own, "a zero row or weight, or another first row"
    )
    zero, columns = [Fraction(0)] * len(W1), [(a,) for a in W2]
    exchanged = [(v, u) for u, v in W1]
    function = odd(W1, zero, columns)
    invariant = own and bool(function) and function == odd(exchanged, zero, columns)
    yield Item(4, "a function other than zero, invariant", invariant, "it changes, or it is zero")
    named = lambda rows: Counter(
        (key, sign * a) for row, a in zip(rows, W2) for key, sign in [up_to_sign(row)]
    )
    yield Item(
        6,
        "no action on the units",
        invariant and named(W1) != named(exchanged),
        "the units are exchanged, too",
    )
