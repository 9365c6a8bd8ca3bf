"""The claim ledger: every check of every claim run once, and which claim rests on which."""

from __future__ import annotations

from html import escape

import networkx as nx
from IPython.display import HTML

from ..pages.display import table, typeset
from . import Claim, Report, registry


def dependency_graph() -> nx.DiGraph:
    """An edge from each claim to every claim that uses it."""
    graph = nx.DiGraph()
    graph.add_nodes_from(registry())
    graph.add_edges_from((used, claim.id) for claim in registry().values() for used in claim.uses)
    return graph


def results() -> dict[str, Claim]:
    """The claim of each chapter that has one, by the chapter's page."""
    return {claim.chapter: claim for claim in registry().values()}


def place(claim: Claim) -> str:
    """The id of a claim's details on the page of the ledger: no dots, which would end a CSS selector."""
    return escape(claim.id.replace(".", "-"))


def ledger(seed: int = 0) -> HTML:
    """Every claim checked once: a table of strengths, then a row for each check, folded by
    claim.
    """
    reports = [claim.check(seed=seed) for claim in registry().values()]
    headings = ("claim", "title", "source", "rests on", "strength", "checks", "controls")
    caption = f"{len(reports)} claims, checked with seed {seed}"
    summary = table(headings, [_summary(report) for report in reports], caption, raw=(0,))
    return HTML(summary + "".join(_details(report) for report in reports))


def _summary(report: Report) -> tuple[str, ...]:
    claim = report.claim
    uses = ", ".join(claim.uses).replace("-", "\u2011") or "–"  # ids do not break at their hyphen
    counts = str(len(claim.evidence)), str(len(claim.controls))
    return _link(claim), claim.title, claim.origin, uses, ", ".join(claim.strengths), *counts


def _link(claim: Claim) -> str:
    return f'<a href="{claim.chapter}.html">{escape(claim.id)}</a>'


def _details(report: Report) -> str:
    claim = report.claim
    rows = [
        (f"<code>{r.check.name}</code>", r.check.kind, r.check.statement, r.measured) for r in report.results
    ]
    checks = table(("check", "kind", "what it shows", "measured"), rows, claim.origin, raw=(0,))
    return (
        f'<details id="{place(claim)}"><summary>{escape(claim.id)}: {typeset(claim.title)}</summary>'
        f"<p>Hypotheses: {typeset('; '.join(claim.hypotheses))}.</p>{checks}</details>"
    )
