"""Draw: a seeded generator that makes the random objects of the book, in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .arguments import Natural, Seed

T = TypeVar("T")


def normal(*shape: Natural, generator: torch.Generator | None = None) -> Float[Tensor, "..."]:
    """Independent standard normal numbers in float64; without a generator, from the global one.

    >>> from samefn.draw import Draw, normal
    >>> normal(2, 3, generator=Draw(0)).shape
    torch.Size([2, 3])
    """
    return torch.randn(shape, generator=generator, dtype=torch.float64)


class Draw(torch.Generator):
    """A CPU generator seeded with ``seed``; every method draws from it, in the order of the calls.

    It goes wherever a ``generator`` is asked for.  ``Draw(s).normal(3)`` are the numbers of
    ``torch.randn(3, generator=torch.Generator().manual_seed(s), dtype=torch.float64)``.

    >>> from samefn.draw import Draw
    >>> torch.equal(Draw(0).normal(3), Draw(0).normal(3))  # the seed decides
    True
    >>> draw = Draw.of("a name", 7)  # so does a name
    >>> sorted(draw.permutation(4).tolist())
    [0, 1, 2, 3]
    """

    def __new__(cls, seed: Seed = 0) -> Draw:
        return super().__new__(cls, device="cpu")  # pyright: ignore[reportCallIssue]

    def __init__(self, seed: Seed = 0) -> None:
        self.manual_seed(seed)

    @classmethod
    def of(cls, *names: object) -> Draw:
        """The generator whose seed is a hash of these names and numbers, so the same on every machine."""
        digest = hashlib.sha256("\0".join(map(str, names)).encode()).digest()
        return cls(int.from_bytes(digest[:7], "big"))

    def normal(self, *shape: Natural) -> Float[Tensor, "..."]:
        """Independent standard normal numbers."""
        return normal(*shape, generator=self)

    def uniform(self, *shape: Natural) -> Float[Tensor, "..."]:
        """Independent numbers, uniform in [0, 1)."""
        return torch.rand(shape, generator=self, dtype=torch.float64)

    def integers(self, low: int, high: int, *shape: Natural) -> Int[Tensor, "..."]:
        """Independent integers, uniform in ``low``, …, ``high`` - 1.  Raises ValueError if there are none."""
        if not low < high:
            raise ValueError(f"high must be above low = {low}, got {high}")
        return torch.randint(low, high, shape, generator=self)

    def integer(self, low: int, high: int) -> int:
        """One integer, uniform in ``low``, …, ``high`` - 1."""
        return int(self.integers(low, high))

    def signs(self, n: Natural) -> Float[Tensor, "n"]:
        """n fair signs, 1.0 or -1.0."""
        return 2.0 * self.integers(0, 2, n).to(torch.float64) - 1

    def permutation(self, n: Natural) -> Int[Tensor, "n"]:
        """A uniform permutation of 0, …, n - 1."""
        return torch.randperm(n, generator=self)

    def subset(self, n: Natural, size: Natural) -> tuple[int, ...]:
        """A uniform subset of 0, …, n - 1 with ``size`` elements, sorted."""
        if size > n:
            raise ValueError(f"size must be at most n = {n}, got {size}")
        return tuple(sorted(self.permutation(n)[:size].tolist()))

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely.  Raises ValueError if there are none."""
        if len(options) == 0:
            raise ValueError("options must not be empty")
        return options[self.integer(0, len(options))]

    def rng(self) -> np.random.Generator:
        """A NumPy generator seeded from this one."""
        return np.random.default_rng(self.integer(0, 2**62))
