"""Images as flat vectors and as tokens, and what a mirror does to them.

Everywhere channels come first, as in torch; no shape tells that the channels of an image came last.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from ..arguments import Count

Axis = Literal["left-right", "up-down"]
AXES: dict[Axis, int] = {"left-right": -1, "up-down": -2}


def mirrored(
    x: Float[Tensor, "... d"], shape: tuple[Count, Count, Count], axis: Axis = "left-right"
) -> Float[Tensor, "... d"]:
    """The mirror images of flattened images of ``shape`` (channels, height, width).

    Raises ValueError for rows of another length.

    >>> from samefn.equivariance.images import mirrored
    >>> mirrored(torch.tensor([1.0, 2.0, 3.0, 4.0]), (1, 2, 2)).tolist()  # rows (1, 2), (3, 4)
    [2.0, 1.0, 4.0, 3.0]
    """
    d = math.prod(shape)
    if x.shape[-1] != d:
        raise ValueError(f"x must have rows of length {d} for images of shape {shape}, got {x.shape[-1]}")
    return x.unflatten(-1, shape).flip(AXES[axis]).flatten(-3)


def to_patches(images: Float[Tensor, "... height width"], size: Count) -> Float[Tensor, "... tokens n"]:
    """Square patches of ``size`` pixels as tokens, row by row, each flattened: n = size².

    Raises ValueError if the patches do not fill the image.

    >>> from samefn.equivariance.images import to_patches
    >>> to_patches(torch.arange(16.0).view(4, 4), size=2)[0].tolist()
    [0.0, 1.0, 4.0, 5.0]
    """
    height, width = images.shape[-2:]
    if height % size or width % size:
        raise ValueError(
            f"size must divide the height and width of the images, {height} and {width}, got {size}"
        )
    return rearrange(images, "... (row y) (column x) -> ... (row column) (y x)", y=size, x=size)


def from_patches(tokens: Float[Tensor, "... tokens n"], columns: Count) -> Float[Tensor, "... height width"]:
    """The images whose patches are ``tokens``, ``columns`` of them in each row.

    The inverse of :func:`to_patches`.  Raises ValueError if the tokens are no squares or do not fill
    their rows.

    >>> from samefn.equivariance.images import from_patches, to_patches
    >>> image = torch.arange(16.0).view(4, 4)
    >>> torch.equal(from_patches(to_patches(image, 2), columns=2), image)
    True
    """
    count, n = tokens.shape[-2:]
    size = math.isqrt(n)
    if size**2 != n:
        raise ValueError(f"tokens must be squares, got {n} pixels in each")
    if count % columns:
        raise ValueError(f"columns must divide the number of tokens, {count}, got {columns}")
    return rearrange(tokens, "... (row column) (y x) -> ... (row y) (column x)", column=columns, y=size)


def mirror_on_tokens(
    tokens: Count, n: Count, axis: Axis = "left-right"
) -> tuple[Int[Tensor, "{tokens}"], Int[Tensor, "{n}"]]:
    """Where the mirror takes square grids of tokens and of pixels: τ and σ, their own inverses.

    (gX)_τ(t) is x_t read in the order σ.  Raises ValueError for numbers that are no squares.

    >>> from samefn.equivariance.images import mirror_on_tokens
    >>> tau, sigma = mirror_on_tokens(tokens=4, n=4)
    >>> tau.tolist()  # a grid of 2 by 2: left and right change places
    [1, 0, 3, 2]
    """
    sides = math.isqrt(tokens), math.isqrt(n)
    if (sides[0] ** 2, sides[1] ** 2) != (tokens, n):
        raise ValueError(f"tokens and n must be squares, got {tokens} and {n}")
    tau, sigma = (torch.arange(k * k).view(k, k).flip(AXES[axis]).flatten() for k in sides)
    return tau, sigma


def mirrored_tokens(
    x: Float[Tensor, "... tokens n"], axis: Axis = "left-right"
) -> Float[Tensor, "... tokens n"]:
    """The tokens of the mirror image: gX.

    >>> from samefn.equivariance.images import mirrored_tokens, to_patches
    >>> image = torch.arange(16.0).view(4, 4)
    >>> tokens = to_patches(image, 2)
    >>> torch.equal(mirrored_tokens(tokens), to_patches(image.fliplr(), 2))
    True
    """
    tau, sigma = mirror_on_tokens(x.shape[-2], x.shape[-1], axis)
    return x[..., tau, :][..., sigma]
