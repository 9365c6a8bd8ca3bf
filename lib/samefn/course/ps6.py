"""Problem set 6, a small research project: how near can a block come to absorbing its skip?"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .answers import Answer
from .ps1 import total
from .questions import Item, question


@question("ps6", points=30)
def near(given: dict[str, Any], answer: Answer) -> Iterator[Item]:
    """``S``: a set of units for which no entry of I + P_S is large; a_i are given in hundredths."""
    up, down = given["up"], given["down"]
    S = answer.indices("S", below=len(up))
    P = [entry / 100 for entry in total(up, down, S)]
    d = len(up[0])
    miss = max(abs(Fraction(i == j) + P[i * d + j]) for i in range(d) for j in range(d))
    for points, goal in zip((6, 8, 8, 8), given["goals"]):
        yield Item(
            points, f"no entry of I + P_S beyond {goal}", miss <= Fraction(goal), f"one is {float(miss):.3g}"
        )
