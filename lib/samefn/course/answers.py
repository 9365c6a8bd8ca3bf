"""What a student hands in: plain JSON with limits, read as exact numbers.

Nothing here runs or unpickles what came in.  A number is an integer, a float, or a string such as "-3/7".
A float within 1e-9 of a fraction whose denominator is at most 10,000 is read as that fraction (there is at
most one); any other float as exactly what it is.  After that all is exact, so no check needs a tolerance.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

__all__ = ["Answer", "Malformed", "parse", "plain", "read_number"]

LONGEST = 200_000  # characters of one answer
DEEPEST = 6  # lists in lists
LARGEST = 10**9
DENOMINATOR, NEAR = 10_000, Fraction(1, 10**9)
FRACTION = re.compile(r"[+-]?\d{1,18}(/[1-9]\d{0,17})?")


class Malformed(ValueError):
    """An answer that is not of the form that the question asks for; the message says which and how.

    >>> from samefn.course.answers import Malformed, read_number
    >>> try:
    ...     read_number("pi")
    ... except Malformed as error:
    ...     print(error)
    a number must be a finite number, got 'pi'
    """


def plain(value: Any, name: str) -> Any:
    """Numbers, strings, and lists and dictionaries of them, as JSON has them.

    Tensors and arrays become nested lists, fractions strings.  Raises :class:`Malformed` for anything else.

    >>> from samefn.course.answers import plain
    >>> plain({"Y": torch.eye(2)}, "answer")
    {'Y': [[1.0, 0.0], [0.0, 1.0]]}
    """
    if type(value).__module__.partition(".")[0] in ("torch", "numpy") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Fraction) or getattr(value, "is_Rational", False) is True:
        value = str(value)
    if type(value) in (int, float, str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(entry, f"{name}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [
            plain(entry, name) for entry in (sorted(value) if isinstance(value, (set, frozenset)) else value)
        ]
    raise Malformed(f"{name} must be made of numbers and lists, got {type(value).__name__}")


def parse(text: str) -> Any:
    """The JSON value of ``text``.

    Raises :class:`Malformed` if it is no JSON, too long, nested too deeply, or has a number that is not
    finite.

    >>> from samefn.course.answers import parse
    >>> parse('{"S": [0, 2]}')
    {'S': [0, 2]}
    """
    if len(text) > LONGEST:
        raise Malformed(f"the answer must have at most {LONGEST:,} characters, got {len(text):,}")
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if deepest > DEEPEST + 2:
        raise Malformed(f"the answer must be nested at most {DEEPEST} deep, got {deepest - 2}")
    try:
        return json.loads(text, parse_constant=_not_finite, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise Malformed(f"the answer must be JSON, got what is none: {error.msg}") from None


def _not_finite(name: str) -> None:
    raise Malformed(f"numbers must be finite, got {name}")


def _integer(digits: str) -> int:
    if len(digits) > 18:
        raise Malformed(f"numbers must have at most 18 digits, got {len(digits)}")
    return int(digits)


def read_number(value: Any, name: str = "a number") -> Fraction:
    """One number, exactly.  Raises :class:`Malformed` if it is none, or beyond ±1e9.

    >>> from samefn.course.answers import read_number
    >>> read_number(0.3333333333333333), read_number("-2/7")
    (Fraction(1, 3), Fraction(-2, 7))
    """
    if type(value) is int:
        number = Fraction(value)
    elif type(value) is float and math.isfinite(value):
        number = Fraction(value)
        near = number.limit_denominator(DENOMINATOR)
        number = near if abs(near - number) <= NEAR else number
    elif type(value) is str and FRACTION.fullmatch(value):
        number = Fraction(value)
    else:
        raise Malformed(f"{name} must be a finite number, got {str(value)[:40]!r}")
    if abs(number) > LARGEST:
        raise Malformed(f"{name} must lie between -1e9 and 1e9, got one beyond")
    return number


class Answer:
    """The values of one answer by name, each read in the form that the question asks for.

    Every method raises :class:`Malformed` with the value's name, what came and what was needed.

    >>> from samefn.course.answers import Answer
    >>> Answer({"S": [2, 0]}).indices("S", below=3)
    [0, 2]
    """

    def __init__(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise Malformed(f"the answer must be values by name, got {type(values).__name__}")
        self.values = values

    def value(self, name: str) -> Any:
        if name not in self.values:
            raise Malformed(f"{name} is missing")
        return self.values[name]

    def items(self, name: str, length: int | None = None, at_most: int = 64) -> list[Any]:
        """A list, of one length or of at most so many entries."""
        value = self.value(name)
        if not isinstance(value, list):
            raise Malformed(f"{name} must be a list, got {type(value).__name__}")
        if length is not None and len(value) != length:
            raise Malformed(f"{name} must have {length} entries, got {len(value)}")
        if len(value) > at_most:
            raise Malformed(f"{name} must have at most {at_most} entries, got {len(value)}")
        return value

    def parts(self, name: str, length: int) -> list[Answer]:
        """A list of answers."""
        return [Answer(part) for part in self.items(name, length)]

    def vector(self, name: str, length: int | None = None) -> tuple[Fraction, ...]:
        return tuple(read_number(entry, f"an entry of {name}") for entry in self.items(name, length))

    def matrix(self, name: str, rows: int | None, columns: int) -> list[tuple[Fraction, ...]]:
        """A matrix with so many rows, or any number from 1 to 64 of them."""
        value = self.items(name, rows)
        if not value:
            raise Malformed(f"{name} must have at least one row, got none")
        return [Answer({f"a row of {name}": row}).vector(f"a row of {name}", columns) for row in value]

    def indices(self, name: str, below: int, length: int | None = None) -> list[int]:
        """Different integers from 0 to ``below - 1``, in order."""
        return sorted(different(self.items(name, length), below, name))

    def permutation(self, name: str, of: int) -> list[int]:
        """The integers from 0 to ``of - 1``, each once."""
        return different(self.items(name, of), of, name)

    def signs(self, name: str, length: int) -> list[int]:
        signs = [read_number(entry, f"an entry of {name}") for entry in self.items(name, length)]
        if not {*signs} <= {1, -1}:
            raise Malformed(f"{name} must have entries 1 and -1, got another")
        return [int(sign) for sign in signs]


def different(values: Iterable[Any], below: int, name: str) -> list[int]:
    """Integers from 0 to ``below - 1`` without repetition, in the order that they came in."""
    numbers = [read_number(value, f"an entry of {name}") for value in values]
    if any(number.denominator != 1 or not 0 <= number < below for number in numbers):
        raise Malformed(f"{name} must have integers from 0 to {below - 1}, got another")
    if len({*numbers}) < len(numbers):
        raise Malformed(f"{name} must have different entries, got one twice")
    return [int(number) for number in numbers]
