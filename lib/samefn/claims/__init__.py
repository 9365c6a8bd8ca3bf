"""The registry of claims: what the book asserts, and the code that checks it everywhere.

Each claim lives in a module of its own in this package, which defines ``CLAIM``.  The claim's
chapter, the tests and the ledger page all call :func:`check`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Literal

import networkx as nx
from IPython.display import HTML

from ..plotting import linked_graph

MODULES = (  # in the order of the book
    "line",
    "reduction",
    "homogeneous",
    "gated",
    "depth",
    "relu",
    "gelu",
    "generic",
    "model",
    "identifiable",
    "submodels",
    "adjunction",
    "theorem",
    "mlp",
    "attention",
    "mirror",
    "heads",
    "transformer",
)

Strength = Literal["exact", "certificate", "numeric"]


class ClaimFailed(AssertionError):
    """A claim's evidence or one of its controls did not come out as the book says."""


def require(condition: object, message: str) -> None:
    """Raise ClaimFailed with ``message`` unless ``condition`` is true."""
    if not condition:
        raise ClaimFailed(message)


@dataclass(frozen=True)
class Evidence:
    """One check that the claim holds: what was shown, how strongly, and what was measured.

    ``exact`` is SymPy or rational arithmetic, ``certificate`` a witness that can be checked
    without trusting the search that found it, ``numeric`` float64 with a stated tolerance.
    """

    strength: Strength
    statement: str
    measured: str


@dataclass(frozen=True)
class Control:
    """One hypothesis dropped, and the failure of the conclusion that this brought about."""

    dropped: str
    statement: str
    measured: str


@dataclass(frozen=True)
class Report:
    """Evidence and controls of one run; shown as a table in a notebook."""

    claim: Claim
    evidence: tuple[Evidence, ...]
    controls: tuple[Control, ...]
    seconds: float

    @property
    def strengths(self) -> tuple[Strength, ...]:
        """The strengths that occur, strongest first."""
        order: tuple[Strength, ...] = ("exact", "certificate", "numeric")
        return tuple(s for s in order if any(e.strength == s for e in self.evidence))

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(e.strength, e.statement, e.measured) for e in self.evidence] + [
            (f"control: {c.dropped}", c.statement, c.measured) for c in self.controls
        ]

    def __repr__(self) -> str:
        lines = [f"{self.claim.id}  {self.claim.title}"]
        lines += [f"  {kind:<12} {what}: {measured}" for kind, what, measured in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        caption = f"{self.claim.id}: {self.claim.title} ({self.claim.source})"
        return table(("check", "what it shows", "measured"), self._rows(), caption)


@dataclass(frozen=True)
class Claim:
    """A numbered result of the book.

    ``uses`` lists the ids of the claims that its statement or proof needs; ``chapter`` is the
    page that proves it, relative to ``book/`` and without suffix.  ``evidence`` and ``controls``
    take a seed, build fresh random instances from it, and raise :class:`ClaimFailed`.
    """

    id: str
    title: str
    source: str
    hypotheses: tuple[str, ...]
    uses: tuple[str, ...]
    chapter: str
    evidence: Callable[[int], Iterable[Evidence]]
    controls: Callable[[int], Iterable[Control]]

    def check(self, seed: int = 0) -> Report:
        """Run evidence and controls; raises ClaimFailed if either fails or is empty."""
        start = time.perf_counter()
        evidence, controls = tuple(self.evidence(seed)), tuple(self.controls(seed))
        require(evidence, f"{self.id} has no evidence")
        require(controls, f"{self.id} has no control")
        return Report(self, evidence, controls, time.perf_counter() - start)


@cache
def registry() -> dict[str, Claim]:
    """All claims by id, in the order of the book."""
    found = [importlib.import_module(f".{name}", __name__).CLAIM for name in MODULES]
    return {claim.id: claim for claim in found}


def get(id: str) -> Claim:
    """The claim of that id; ValueError names the known ids."""
    if id not in registry():
        raise ValueError(f"id {id!r} is not a claim of this book; known ids: {', '.join(registry())}")
    return registry()[id]


def check(id: str, seed: int = 0) -> Report:
    """Run the evidence and controls of one claim on instances drawn from ``seed``."""
    return get(id).check(seed)


def dependency_graph() -> nx.DiGraph:
    """An edge from each claim to every claim that uses it."""
    graph = nx.DiGraph()
    graph.add_nodes_from(registry())
    graph.add_edges_from((used, claim.id) for claim in registry().values() for used in claim.uses)
    return graph


def chapter_map() -> HTML:
    """The dependency graph drawn with every claim a link to its chapter, for pages that lie in ``book/``."""
    return linked_graph(
        dependency_graph(),
        {claim.id: claim.title for claim in registry().values()},
        {claim.id: f"{claim.chapter}.html" for claim in registry().values()},
        alt="Map of the claims; an arrow leads from each claim to those that use it. Every box links to a chapter.",
    )


def ledger(seed: int = 0) -> HTML:
    """Every claim checked once: a table of strengths and times, then each claim's figures and controls, folded."""
    rows, details = [], []
    for claim in registry().values():
        report = claim.check(seed)
        link = f'<a href="{claim.chapter}.html">{escape(claim.id)}</a>'
        uses = ", ".join(claim.uses).replace("-", "\u2011") or "–"  # ids do not break at their hyphen
        counts = (str(len(report.evidence)), str(len(report.controls)), f"{report.seconds:.1f}")
        rows.append((link, claim.title, claim.source, uses, ", ".join(report.strengths), *counts))
        given = escape("; ".join(claim.hypotheses))
        details.append(
            f"<details><summary>{escape(claim.id)}: {escape(claim.title)}</summary>"
            f"<p>Hypotheses: {given}.</p>{report._repr_html_()}</details>"
        )
    headings = ("claim", "title", "source", "rests on", "strength", "checks", "controls", "seconds")
    return HTML(table(headings, rows, f"{len(rows)} claims, checked with seed {seed}", raw=(0,)) + "".join(details))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str, raw: Sequence[int] = ()) -> str:
    """An HTML table with a caption; cells are escaped, except in the columns listed in ``raw``."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{c if i in raw else escape(c)}</td>" for i, c in enumerate(row)) + "</tr>" for row in rows
    )
    return (
        f'<div class="claim-table"><table class="table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
