"""Problem set 5, what a skip costs: certificates at scale, and the exact price in width (Part III)."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .answers import Answer, Malformed
from .forms import linear, outer, plus, shifted
from .questions import Item, question


@question("ps5", points=36)
def width(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``blocks``: for each of three SiLU blocks the weights ``up``, ``down`` of Mx + B(x) without a skip.

    X-WIDTH: of width d + max(m, d), and m + 2d - rank W_up where the rows of W_up span too little.
    """
    blocks = given["blocks"]
    for number, (block, part) in enumerate(zip(blocks, answer.parts("blocks", len(blocks))), 1):
        d = len(block["up"][0])
        up = part.matrix("up", None, d)
        down = list(zip(*part.matrix("down", d, len(up)), strict=True))
        got = silu(up, down)
        wanted = plus(linear(block["skip"]), silu(block["up"], block["down"]))
        slim = len(up) <= block["width"]
        yield Item(4, f"block {number}: without a skip", got == wanted, "another function")
        yield Item(
            8,
            f"of width {block['width']}",
            slim and got == wanted,
            "another function" if slim else "too wide",
        )


def silu(up: Any, down: Any) -> Any:
    return shifted(up, (Fraction(0),) * len(up), down, Fraction(1, 2))


@question("ps5", points=18)
def stack(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``Y``: for each of three ReLU blocks a matrix with entries in [-1, 1] and tr Y + Σ min(0, a_iᵀYu_i)
    ≥ beta.
    """
    blocks = given["blocks"]
    for number, (block, entry) in enumerate(zip(blocks, answer.items("Y", len(blocks))), 1):
        d = len(block["up"][0])
        Y = Answer({"Y": entry}).matrix("Y", d, d)
        flat = [x for row in Y for x in row]
        if max(map(abs, flat)) > 1:
            raise Malformed("Y must have entries between -1 and 1, got a larger one")
        overlaps = [sum(x * y for x, y in zip(flat, outer(a, u))) for u, a in zip(block["up"], block["down"])]
        margin = sum(Y[i][i] for i in range(d)) + sum(min(Fraction(0), overlap) for overlap in overlaps)
        yield Item(0, f"block {number}: no set works", margin > 0, "the bound is not positive")
        yield Item(
            6, f"with a bound of at least {given['beta']}", margin >= given["beta"], "another Y proves more"
        )
