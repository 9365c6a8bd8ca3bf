"""Random blocks and how often they absorb: laws of initialisation, the negative overlap, exact counts on
grids.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import Count, Finite
from ..networks import MLP, random_mlp


def uniform_mlp(d: Count, m: Count, *, generator: torch.Generator, scale: Finite) -> MLP:
    """A ReLU block d → m → d in float64 with entries uniform in ±scale/√d (up) and ±scale/√m (down).

    >>> from samefn.draw import Draw
    >>> from samefn.skip.generic import uniform_mlp
    >>> block = uniform_mlp(4, 9, generator=Draw(0), scale=1.0)
    >>> bool((block.up.abs() <= 1 / 2).all() and (block.down.abs() <= 1 / 3).all())
    True
    """

    def draw(rows: int, columns: int) -> Tensor:
        number = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
        return (2 * number - 1) * scale / columns**0.5

    return MLP(draw(m, d), draw(d, m))


def orthonormal_mlp(d: Count, m: Count, *, generator: torch.Generator) -> MLP:
    """A ReLU block d → m → d, m ≥ d, with orthonormal columns of W_up and rows of W_down, in float64.

    Raises ValueError for m < d, where there is no such block.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.generic import orthonormal_mlp
    >>> block = orthonormal_mlp(3, 5, generator=Draw(0))
    >>> torch.allclose(block.up.T @ block.up, torch.eye(3))
    True
    """
    if m < d:
        raise ValueError(f"m must be at least d for orthonormal columns, got d = {d} and m = {m}")
    first, second = torch.randn(2, m, d, generator=generator, dtype=torch.float64)
    return MLP(torch.linalg.qr(first)[0], torch.linalg.qr(second)[0].T)


# name -> ReLU block of shape d, m (m ≥ d) from a generator;
# the last law has no density on the space of all weights
LAWS: dict[str, Callable[[int, int, torch.Generator], MLP]] = {
    "normal, variances 1/d and 1/m": lambda d, m, g: random_mlp(d, m, generator=g),
    "uniform, variances 1/d and 1/m": lambda d, m, g: uniform_mlp(d, m, generator=g, scale=3**0.5),
    "default of nn.Linear, variances 1/3d and 1/3m": lambda d, m, g: uniform_mlp(
        d, m, generator=g, scale=1.0
    ),
    "orthonormal columns and rows": lambda d, m, g: orthonormal_mlp(d, m, generator=g),
}


def negative_overlap(up: Float[Tensor, "... m d"], down: Float[Tensor, "... d m"]) -> Float[Tensor, "..."]:
    """ν_- = Σ max(0, −a_i·u_i), for one block or a batch of them.

    >>> from samefn.skip.generic import negative_overlap
    >>> from samefn.skip.planted import running_example
    >>> block = running_example().block
    >>> negative_overlap(block.up, block.down).item()  # at least d = 2: the trace test is silent
    2.0
    """
    return (-(up * down.transpose(-1, -2)).sum(-1)).clamp(min=0).sum(-1)


def mean_length(d: Count) -> float:
    """E‖u‖ for a normal u in R^d with independent entries of variance 1/d; below 1.

    >>> from samefn.skip.generic import mean_length
    >>> f"{mean_length(1):.4f} {mean_length(100):.4f}"  # √(2/π), and nearly 1
    '0.7979 0.9975'
    """
    return math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2)) * (2 / d) ** 0.5


def absorbing_on_grid(l: Count) -> int:
    """How many W_up, W_down, all 2×2 with multiples of 1/l in [−1, 1], satisfy W_down W_up = −I; exact.

    W_up determines W_down = −W_up⁻¹, so it is enough to go through all W_up.

    >>> from samefn.skip.generic import absorbing_on_grid
    >>> absorbing_on_grid(1)  # of 3⁸ = 6561
    40
    """
    p, q, r, s = np.meshgrid(*[np.arange(-l, l + 1)] * 4)
    det = p * s - q * r
    entries = -(l**2) * np.stack([s, -q, -r, p])  # of l W_down, times det
    possible = det != 0
    whole = entries % np.where(possible, det, 1) == 0
    small = abs(entries) <= l * abs(det)
    return int((possible & whole.all(0) & small.all(0)).sum())
