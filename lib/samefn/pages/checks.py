"""Checks of a step that a page shows in one line: what was checked, and what came out."""

from __future__ import annotations

from IPython.display import Markdown, display
from torch import Tensor

from ..arguments import NonNegative


def agree(what: str, left: Tensor, right: Tensor, *, atol: NonNegative) -> None:
    """Assert that two tensors of one shape differ by at most ``atol`` everywhere; show by how much they do.

    ``what`` is Markdown and says what is compared.  Raises AssertionError if they differ more or hold a NaN,
    ValueError if the shapes differ.
    """
    if left.shape != right.shape:
        raise ValueError(f"right must have the shape of left, {tuple(left.shape)}, got {tuple(right.shape)}")
    largest = (left - right).abs().max().item() if left.numel() else 0.0
    assert largest <= atol, f"{what}: the largest difference is {largest:.3g}, allowed {atol:.3g}"
    found = "exactly equal" if largest == 0 else f"largest difference {scientific(largest)}"
    display(Markdown(f"✓ {what}: {found}"))


def holds(what: str, condition: object) -> None:
    """Assert a condition and show the sentence, in Markdown, that it checks.

    Raises AssertionError with the sentence if the condition is false.
    """
    assert condition, what
    display(Markdown(f"✓ {what}"))


def checked(what: str) -> None:
    """Show, in Markdown, what the assertions before this line check; if one fails, it is not reached."""
    display(Markdown(f"✓ {what}"))


def scientific(number: float) -> str:
    """A number to two digits in Markdown: 2.2e-16 as $2.2 \\times 10^{-16}$."""
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"${mantissa} \\times 10^{{{int(exponent)}}}$"
