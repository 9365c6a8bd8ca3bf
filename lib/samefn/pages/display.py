"""HTML that pages show: tables, and the map of the chapters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from IPython.display import HTML


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str, raw: Sequence[int] = ()
) -> str:
    """An HTML table with a caption; cells are escaped and typeset, except in the columns of ``raw``."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in headings)
    body = "".join(f"<tr>{''.join(_cells(row, raw))}</tr>" for row in rows)
    return (
        f'<div class="claim-table"><table class="table"><caption>{typeset(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], raw: Sequence[int]) -> Iterator[str]:
    for column, cell in enumerate(row):
        yield f"<td>{cell if column in raw else typeset(cell)}</td>"


SCRIPT = r"(\([^()\s]*\)|\{[^{}]*\}|[−-]?\w+(?:\.\d+)?|[∅−-])"
RULES = [
    # a number of a machine: 1.4e-16
    (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)(?!\w)"), lambda m: _number(m[1], int(m[2]))),
    # an index or exponent of a letter, of a number or of a bracket: P_S, 2^m, (a + b)^2
    (re.compile(rf"(?<![A-Za-z_])([^\W_]\*?)_{SCRIPT}"), lambda m: f"{m[1]}<sub>{_bare(m[2])}</sub>"),
    (re.compile(rf"(?<=[\w)⟩>‖|])\^{SCRIPT}"), lambda m: f"<sup>{_bare(m[1])}</sup>"),
]


def typeset(text: str) -> str:
    """Plain text as HTML, with indices, exponents and powers of ten as they are printed: P_S, 2^m, 1.4e-16.

    Names such as ``leaky_relu`` stay what they are.
    """
    text = escape(text)
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text


def _bare(script: str) -> str:
    return script[1:-1] if script[0] in "({" else script


def _number(digits: str, exponent: int) -> str:
    if -3 <= exponent <= 3:
        return f"{float(digits) * 10**exponent:.4g}"
    return f"{digits} · 10<sup>{exponent}</sup>".replace("<sup>-", "<sup>−")


@dataclass(frozen=True)
class Stop:
    """A chapter on the map: its page relative to the map, what it says, and the titles of what it needs.

    ``minutes`` are those it takes, ``claim`` is the id of its entry in the ledger, ``entry`` its address.
    """

    page: str
    title: str
    says: str
    needs: tuple[str, ...] = ()
    minutes: int = 0
    claim: str = ""
    entry: str = "ledger.html"


def reading_map(parts: dict[str, Sequence[Stop]]) -> HTML:
    """The chapters in order, in a band for each part, with links to what each needs and a box to tick.

    ``book/_static/reading.js`` keeps the ticks in the reader's browser.  Raises ValueError if a chapter needs
    one that is not on the map.
    """
    pages = {stop.title: stop.page for stops in parts.values() for stop in stops}
    bands, number = [], 0
    for caption, stops in parts.items():
        rows = []
        for stop in stops:
            number += 1
            if missing := [title for title in stop.needs if title not in pages]:
                raise ValueError(f"parts must have all that {stop.title!r} needs, missing {missing}")
            needs = ", ".join(_link(pages[title], title) for title in stop.needs)
            notes = [f"{stop.minutes} minutes"] * bool(stop.minutes) + [f"needs: {needs}"] * bool(needs)
            if stop.claim:
                notes.append(f"in the ledger: {_link(stop.entry, stop.claim)}")
            rows.append(
                f'<li value="{number}"><label><input type="checkbox" data-page="{escape(stop.page)}" hidden>'
                f'<span class="visually-hidden">I have read </span></label>{_link(stop.page, stop.title)}'
                f"<p>{typeset(stop.says)}</p>"
                + (f'<p class="needs">{"; ".join(notes)}</p>' if notes else "")
                + "</li>"
            )
        bands.append(f"<section><h2>{escape(caption)}</h2><ol>{''.join(rows)}</ol></section>")
    return HTML(
        f'<div class="reading-map"><p role="status" class="reading-count"></p>{"".join(bands)}</div>'
        '<script defer src="../_static/reading.js"></script>'
    )


def _link(page: str, title: str) -> str:
    return f'<a href="{escape(page, quote=True)}">{escape(title)}</a>'
