"""How far apart two functions are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


@torch.no_grad()
def gap(f: Callable[[Tensor], Tensor], g: Callable[[Tensor], Tensor], x: Float[Tensor, "... d"]) -> float:
    """The largest |f(x) - g(x)| over all entries of all values, relative to the largest |f(x)|.

    Infinite where f is 0 on all of x and g is not; 0 where both are.  Raises ValueError if f(x) and
    g(x) differ in shape (nothing is broadcast) or x is empty, TypeError if a value is no tensor.

    >>> from samefn.functions import gap
    >>> x = torch.linspace(-1, 1, 101)[:, None]
    >>> f"{gap(torch.sin, lambda x: x - x**3 / 6, x):.4f}"
    '0.0097'
    """
    a, b = f(x), g(x)
    for name, value in (("f", a), ("g", b)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must return a Tensor, got {type(value).__name__}")
    if x.numel() == 0:
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    if a.shape != b.shape:
        raise ValueError(f"f(x) and g(x) must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    difference, size = float((a - b).abs().max()), float(a.abs().max())
    return difference / size if size else (0.0 if difference == 0 else float("inf"))
