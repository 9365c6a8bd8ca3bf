"""Layers whose inputs can be moved by moving their weights, and one whose cannot: convolution, and Deep
Sets.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ..arguments import Count


def convolve(
    images: Float[Tensor, "batch c n n"], kernel: Float[Tensor, "c_out c 3 3"]
) -> Float[Tensor, "batch c_out n n"]:
    """Circular convolution: images wrap around at the border.

    >>> from samefn.equivariance.adjunction import convolve
    >>> image = torch.arange(16.0).view(1, 1, 4, 4)
    >>> shift = torch.zeros(1, 1, 3, 3)
    >>> shift[0, 0, 1, 0] = 1  # what stands to the left
    >>> torch.equal(convolve(image, shift), image.roll(1, dims=3))
    True
    """
    return F.conv2d(F.pad(images, (1, 1, 1, 1), mode="circular"), kernel)


def moved_encodings(
    encodings: Float[Tensor, "n d"], places: Float[Tensor, "n n"], features: Float[Tensor, "d d"]
) -> Float[Tensor, "n d"]:
    """g·E = P E ρᵀ, where g permutes the tokens by P = ``places`` and moves their features by ρ.

    >>> from samefn.equivariance.adjunction import moved_encodings
    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> moved_encodings(torch.tensor([[1.0], [2.0]]), swap, -torch.eye(1)).tolist()
    [[-2.0], [-1.0]]
    """
    return places @ encodings @ features.T


def deep_sets(own: int, mean: int, n: Count) -> Int[np.ndarray, "n n"]:
    """nλI + μJ: n times the linear part of a Deep Sets layer on n numbers; λ is ``own``, μ is ``mean``.

    >>> from samefn.equivariance.adjunction import deep_sets
    >>> deep_sets(own=1, mean=-1, n=3).tolist()
    [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    """
    return n * own * np.eye(n, dtype=int) + mean * np.ones((n, n), dtype=int)


def householder() -> list[list[Fraction]]:
    """The reflection I − 2uuᵀ/u·u with u = (1, 1, 0, −2): it fixes (1, 1, 1, 1) and permutes nothing.

    >>> from samefn.equivariance.adjunction import householder
    >>> [str(sum(row)) for row in householder()]  # (1, 1, 1, 1) stays
    ['1', '1', '1', '1']
    """
    u = (1, 1, 0, -2)
    return [
        [Fraction(int(i == j)) - Fraction(2 * a * b, 6) for j, b in enumerate(u)] for i, a in enumerate(u)
    ]


def squared_deviations(x: np.ndarray) -> np.ndarray:
    """The layer (x − mean)², a Deep Sets layer with λ = 1, μ = −1 and the square as activation.

    >>> import numpy as np
    >>> from samefn.equivariance.adjunction import squared_deviations
    >>> squared_deviations(np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.0, 1.0]
    """
    return (x - x.sum() / len(x)) ** 2


@cache
def variance_weights() -> tuple[set, set]:
    """All μ_1/λ_1, and all λ_2, for which two Deep Sets layers with the square between compute the
    variance of four numbers.

    A layer is λx + μ·mean(x), and λ_1 ≠ 0: otherwise the function depends on the mean alone.  Solved by
    SymPy for the weights as unknowns.

    >>> from samefn.equivariance.adjunction import variance_weights
    >>> variance_weights()
    ({-1}, {0})
    """
    x = sympy.symbols("x1:5")
    own, ratio, last_own, last_mean = sympy.symbols("own ratio last_own last_mean")
    mean = sum(x) / 4
    hidden = [(own * (a + ratio * mean)) ** 2 for a in x]
    output = last_own * hidden[0] + last_mean * sum(hidden) / 4
    variance = sum((a - mean) ** 2 for a in x) / 4
    equations = sympy.Poly(sympy.expand(output - variance), *x).coeffs()
    solutions = sympy.solve(equations, [ratio, last_own, last_mean], dict=True)
    return {s[ratio] for s in solutions}, {s[last_own] for s in solutions}
