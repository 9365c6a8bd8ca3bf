"""The registry of claims: what the book asserts, and the checks that show it everywhere by the same code.

Each claim has a module of its own, named after its chapter, which defines ``claim`` and its checks.
A check is a function.  The claim's chapter, the tests and the ledger page all call :func:`check`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import torch

from ..draw import Draw
from ..pages.display import table

__all__ = ["Check", "Claim", "ClaimFailed", "Report", "Result", "check", "get", "registry", "require"]

# The claims in the order of the book, each with its module here, whose path is that of its chapter.
# What [A] and [B] stand for in the sources of claims.
PAPERS = {"[A]": "Mijoski and Karbevski 2026", "[B]": "Shahverdi et al. 2026"}
MODULES = {
    "A-D1": "skip.question",
    "A-L4": "skip.reduction",
    "A-P5": "skip.homogeneous",
    "A-P6": "skip.gated",
    "A-C7": "skip.depth",
    "A-T8": "skip.relu",
    "A-T10": "skip.gelu",
    "A-C11": "skip.generic",
    "B-D1": "equivariance.model",
    "B-D2": "equivariance.identifiable",
    "B-D3": "equivariance.submodels",
    "B-D4": "equivariance.adjunction",
    "B-T4.1": "equivariance.theorem",
    "B-MLP": "equivariance.mlp",
    "B-ATT": "equivariance.attention",
    "B-EXP": "equivariance.mirror",
    "B-HEADS": "equivariance.heads",
    "X-REAL": "beyond.transformer",
}

Strength = Literal["exact", "certificate", "numeric"]


class ClaimFailed(AssertionError):
    """A check did not come out as the book says.

    >>> from samefn.claims import ClaimFailed, require
    >>> try:
    ...     require(1 + 1 == 3, "1 + 1 is 2")
    ... except ClaimFailed as error:
    ...     print(error)
    1 + 1 is 2
    """


def require(condition: object, message: str) -> None:
    """Raise ClaimFailed with ``message`` unless ``condition`` is true.

    >>> from samefn.claims import require
    >>> require(1 + 1 == 2, "1 + 1 is not 2")
    """
    if not condition:
        raise ClaimFailed(message)


@contextmanager
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class Check:
    """One thing that is checked: evidence of some ``strength``, or a control, which has none and a
    hypothesis ``dropped``.

    ``exact`` is SymPy or rational arithmetic, ``certificate`` a witness that can be checked without
    trusting the search that found it, ``numeric`` float64 with a stated tolerance.  ``function`` takes
    a :class:`samefn.draw.Draw`, or nothing where there is nothing to draw; it returns what it measured
    and raises :class:`ClaimFailed`.

    >>> from samefn.claims import get
    >>> get("A-D1").evidence[0].strength
    'exact'
    """

    claim: str
    statement: str
    function: Callable[..., str]
    strength: Strength | None = None
    dropped: str = ""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def kind(self) -> str:
        return self.strength or f"control: {self.dropped}"

    @cached_property
    def seeded(self) -> bool:
        """Whether the check draws anything; one that does not comes out the same for every seed."""
        return bool(inspect.signature(self.function).parameters)

    def run(self, seed: int = 0) -> Result:
        """Call the function in float64 without gradients.  Its draw belongs to it alone: no other check
        moves its figures.
        """
        with torch.no_grad(), _float64():
            draw = (Draw.of(self.claim, self.name, seed),) if self.seeded else ()
            measured = self.function(*draw)
        require(
            isinstance(measured, str) and measured,
            f"{self.claim}, {self.name}: says nothing of what it measured",
        )
        return Result(self, measured)


@dataclass(frozen=True)
class Result:
    """A check that passed, and what it measured.

    >>> from samefn.claims import check
    >>> check("A-D1").results[0].check.claim
    'A-D1'
    """

    check: Check
    measured: str


@dataclass(frozen=True)
class Report:
    """The results of one run; shown as a table in a notebook.

    >>> from samefn.claims import check
    >>> report = check("A-D1", seed=3)
    >>> len(report.rows) == len(report.claim.checks)
    True
    """

    claim: Claim
    results: tuple[Result, ...]

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Kind, statement and figures of each check."""
        return [(r.check.kind, r.check.statement, r.measured) for r in self.results]

    def __repr__(self) -> str:
        lines = [f"{self.claim.id}  {self.claim.title}"]
        lines += [f"  {kind:<12} {what}: {measured}" for kind, what, measured in self.rows]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        caption = f"{self.claim.id}: {self.claim.title} ({self.claim.origin})"
        return table(("check", "what it shows", "measured"), self.rows, caption)


@dataclass(frozen=True)
class Claim:
    """A numbered result of the book.

    ``uses`` lists the ids of the claims that its statement or proof needs; ``chapter`` is the page that
    proves it, relative to ``book/`` and without suffix.  Functions become its checks by the decorators
    :meth:`exact`, :meth:`certificate`, :meth:`numeric` and :meth:`control`, evidence before controls.

    >>> from samefn.claims import get
    >>> claim = get("A-T8")
    >>> claim.chapter, claim.strengths, len(claim.controls) > 0
    ('skip/relu', ('exact', 'certificate', 'numeric'), True)
    """

    id: str
    title: str
    source: str
    hypotheses: tuple[str, ...]
    uses: tuple[str, ...]
    chapter: str
    checks: list[Check] = field(default_factory=list, repr=False)

    def _add(self, statement: str, **kind: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def add(function: Callable[..., str]) -> Callable[..., str]:
            check = Check(self.id, statement, function, **kind)  # pyright: ignore[reportArgumentType]
            if any(other.name == check.name for other in self.checks):
                raise ValueError(f"{self.id} has two checks of the name {check.name}")
            self.checks.append(check)
            return function

        return add

    def exact(self, statement: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """Evidence in SymPy or rational arithmetic."""
        return self._add(statement, strength="exact")

    def certificate(self, statement: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """Evidence by a witness that can be checked without trusting how it was found."""
        return self._add(statement, strength="certificate")

    def numeric(self, statement: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """Evidence in float64, to a tolerance that the check states."""
        return self._add(statement, strength="numeric")

    def control(self, dropped: str, statement: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """The hypothesis ``dropped`` is violated, and what the claim says then fails as ``statement``
        says.
        """
        return self._add(statement, dropped=dropped)

    @property
    def origin(self) -> str:
        """The source with the two papers' names instead of [A] and [B]."""
        return re.sub(r"\[[AB]\]", lambda letter: PAPERS[letter[0]], self.source)

    @property
    def evidence(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.strength)

    @property
    def controls(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.strength)

    @property
    def strengths(self) -> tuple[Strength, ...]:
        """The strengths of its evidence, strongest first."""
        return tuple(s for s in get_args(Strength) if any(check.strength == s for check in self.checks))

    def check(self, *names: str, seed: int = 0) -> Report:
        """Run the checks of those names, all if none is given; raises ClaimFailed if one fails.

        A claim without evidence or without a control fails.  ValueError names the checks there are.
        """
        require(self.evidence, f"{self.id} has no evidence")
        require(self.controls, f"{self.id} has no control")
        known = [check.name for check in self.checks]
        for name in names:
            if name not in known:
                raise ValueError(f"name {name!r} is no check of {self.id}; its checks are {', '.join(known)}")
        return Report(
            self, tuple(check.run(seed) for check in self.checks if not names or check.name in names)
        )


def get(claim_id: str) -> Claim:
    """The claim of that id, from its module, the only one that is imported; ValueError names the known
    ids.

    >>> from samefn.claims import get
    >>> get("A-T8").chapter
    'skip/relu'
    """
    if claim_id not in MODULES:
        raise ValueError(
            f"claim_id {claim_id!r} is not a claim of this book; known ids: {', '.join(MODULES)}"
        )
    return importlib.import_module(f".{MODULES[claim_id]}", __name__).claim


def registry() -> dict[str, Claim]:
    """All claims by id, in the order of the book.

    >>> from samefn.claims import registry
    >>> len(registry()), next(iter(registry()))
    (18, 'A-D1')
    """
    return {claim_id: get(claim_id) for claim_id in MODULES}


def check(claim_id: str, *names: str, seed: int = 0) -> Report:
    """Run the checks of one claim, or those of the given names, on instances drawn from ``seed``.

    >>> from samefn.claims import check
    >>> check("A-D1", seed=0).claim.title
    'On the line, every ReLU block of two or more units absorbs its skip'
    """
    return get(claim_id).check(*names, seed=seed)
