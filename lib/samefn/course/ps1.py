"""Problem set 1, absorb or prove that nobody can: blocks of σ(z) = 3z + |z| with the skip x ↦ Mx.

By A-T8's argument a nondegenerate block absorbs M exactly if M + 6P_S = 0 for some S.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

from .answers import Answer, Malformed
from .forms import linear, outer, plus, positively_homogeneous
from .questions import Item, question

SLOPE, KINK = Fraction(3), Fraction(1)
WEIGHT = 12  # of the skip x ↦ 12x
Matrix = list[tuple[Fraction, ...]]


def total(up: Any, down: Any, units: Any) -> tuple[Fraction, ...]:
    """P_S, row by row; ``down`` lists the columns a_i."""
    products = [outer(down[i], up[i]) for i in units]
    zero = (Fraction(0),) * (len(up[0]) * len(down[0]))
    return tuple(sum(entries, Fraction(0)) for entries in zip(zero, *products))


def multiple_of_identity(factor: int, d: int) -> Matrix:
    return [tuple(Fraction(factor * (i == j)) for j in range(d)) for i in range(d)]


def flat(matrix: Any) -> tuple[Fraction, ...]:
    return tuple(entry for row in matrix for entry in row)


def left_over(skip: Any, up: Any, down: Any, units: Any) -> tuple[Fraction, ...]:
    """M + 6P_S."""
    return tuple(m + 2 * SLOPE * p for m, p in zip(flat(skip), total(up, down, units)))


def bound(Y: Any, skip: Any, up: Any, down: Any) -> Fraction:
    """⟨Y, M⟩ + Σ min(0, 6 a_iᵀYu_i), a lower bound of ⟨Y, M + 6P_S⟩ over all S (X-CERT)."""
    inner = lambda a, b: sum((x * y for x, y in zip(a, b)), Fraction(0))
    overlaps = [inner(flat(Y), outer(a, u)) for u, a in zip(up, down)]
    return inner(flat(Y), flat(skip)) + sum(min(Fraction(0), 2 * SLOPE * overlap) for overlap in overlaps)


@question("ps1", points=10)
def sets(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``sets``: the two sets S with 12I + 6P_S = 0."""
    up, down = given["up"], given["down"]
    found = [Answer({"a set": S}).indices("a set", below=len(up)) for S in answer.items("sets", 2)]
    skip = multiple_of_identity(WEIGHT, len(up[0]))
    works = [not any(left_over(skip, up, down, S)) for S in found]
    hint = "its linear parts do not cancel"
    yield Item(5, "the first set lets the block absorb its skip", works[0], hint)
    second = works[1] and found[0] != found[1]
    yield Item(
        5, "so does the second, another one", second, hint if not works[1] else "it is the first again"
    )


@question("ps1", points=12)
def rewrite(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``up``, ``down``: a residual-free block of the same width that computes 12x + B(x)."""
    d = len(given["up"][0])
    up = answer.matrix("up", None, d)
    down = list(zip(*answer.matrix("down", d, len(up)), strict=True))
    wanted = plus(
        linear(multiple_of_identity(WEIGHT, d)),
        positively_homogeneous(given["up"], given["down"], SLOPE, KINK),
    )
    got = positively_homogeneous(up, down, SLOPE, KINK)
    kinks = {k: v for k, v in got.items() if k != "linear"} == {
        k: v for k, v in wanted.items() if k != "linear"
    }
    slim = len(up) <= len(given["up"])
    yield Item(
        0, "width at most 12, the same kinks", slim and kinks, "Σ a_i|u_i·x| differs" if slim else "too wide"
    )
    yield Item(12, "the same function", slim and got == wanted, "the linear parts differ" if kinks else "")


@question("ps1", points=14)
def certificate(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``Y`` with entries in [-1, 1] and 2 tr Y + Σ min(0, 6 a_iᵀYu_i) ≥ beta: the skip is x ↦ 2x."""
    d, beta = len(given["up"][0]), given["beta"]
    Y = answer.matrix("Y", d, d)
    if max(map(abs, flat(Y))) > 1:
        raise Malformed("Y must have entries between -1 and 1, got a larger one")
    margin = bound(Y, multiple_of_identity(2, d), given["up"], given["down"])
    yield Item(0, "Y proves that no set works", margin > 0, "its bound is not positive")
    yield Item(14, f"with a bound of at least {beta}", margin >= beta, "another Y proves more")


@question("ps1", points=24)
def decide(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``verdicts``: for each of six blocks with skip M a set ``S``, or a matrix ``Y`` that refutes all sets.

    Nothing for fewer than three: now and then a certificate of somebody else's block fits by luck.
    """
    blocks = given["blocks"]
    found = [evidence(*pair) for pair in zip(blocks, answer.parts("verdicts", len(blocks)))]
    enough = sum(not wrong for wrong in found) >= 3
    for number, wrong in enumerate(found, 1):
        hint = wrong or "right, but it counts only if three are"
        yield Item(4, f"block {number} is decided, with evidence", enough and not wrong, hint)


def evidence(block: dict[str, Any], verdict: Answer) -> str:
    """What is wrong with a verdict, or nothing."""
    skip, up, down = block["skip"], block["up"], block["down"]
    if {*verdict.values} == {"S"}:
        return "this S does not" * any(left_over(skip, up, down, verdict.indices("S", below=len(up))))
    if {*verdict.values} == {"Y"}:
        Y = verdict.matrix("Y", len(skip), len(skip))
        return "the bound of this Y is not positive" * (bound(Y, skip, up, down) <= 0)
    return "give S or Y, and not both"


@question("ps1", points=12)
def spare(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """A block of width 4 with the first row w, for which no S works and which absorbs 12x all the same.

    ``up``, ``down``: the block; ``new_up``, ``new_down``: the residual-free one of width at most 4.
    """
    w = given["w"]
    up, new_up = answer.matrix("up", 4, 2), answer.matrix("new_up", None, 2)
    down = list(zip(*answer.matrix("down", 2, 4), strict=True))
    new_down = list(zip(*answer.matrix("new_down", 2, len(new_up)), strict=True))
    live = all(map(any, up)) and all(map(any, down))
    skip = multiple_of_identity(WEIGHT, 2)
    subsets = [S for size in range(5) for S in combinations(range(4), size)]
    none = not any(not any(left_over(skip, up, down, S)) for S in subsets)
    old = positively_homogeneous(up, down, SLOPE, KINK)
    new = positively_homogeneous(new_up, new_down, SLOPE, KINK)
    yield Item(0, "first row w", list(up[0]) == list(w), "the block must be made with your w")
    yield Item(0, "no row and no a_i zero", live, "all units must be alive")
    yield Item(2, "no S works", none, "one of the 16 sets does")
    slim, same = len(new_up) <= 4, plus(linear(skip), old) == new
    what = "12x + B(x) without a skip, width at most 4"
    yield Item(10, what, none and slim and same, "another function" if slim else "too wide")
