"""HTML that pages show: tables, and graphs whose nodes are links."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import networkx as nx
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


BOX_WIDTH, GAP_X, GAP_Y, PER_ROW = 128, 10, 44, 5
LINE, LETTERS = 15, 17  # height of a line of a box; how many letters of the widest common font fit in it


def linked_graph(graph: nx.DiGraph, titles: dict[str, str], links: dict[str, str], *, alt: str) -> HTML:
    """A directed acyclic graph as a drawing of boxes that are links, prerequisites above what needs them.

    Nodes without any edge come first; nodes of one layer keep the graph's order.
    ``titles`` and ``links`` give each node's text and address.  Colours follow the page's theme.
    Raises ValueError if the graph has a cycle, or a node has no title or no link.
    """
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError(f"graph must have no cycle, got {nx.find_cycle(graph)}")
    for name, given in (("titles", titles), ("links", links)):
        if missing := [node for node in graph if node not in given]:
            raise ValueError(f"{name} must have one for each node of the graph, missing {missing}")
    alone = list(nx.isolates(graph))
    layers = [alone, *nx.topological_generations(graph.subgraph([n for n in graph if n not in alone]))]
    rows = [layer[i : i + PER_ROW] for layer in layers for i in range(0, len(layer), PER_ROW)]
    lines = {node: textwrap.wrap(titles[node], LETTERS) for node in graph}
    box_height = LINE * (2 + max(map(len, lines.values()), default=0))
    corner = {
        node: (column * (BOX_WIDTH + GAP_X) + 1, row * (box_height + GAP_Y) + 1)
        for row, nodes in enumerate(rows)
        for column, node in enumerate(nodes)
    }
    width = PER_ROW * (BOX_WIDTH + GAP_X) - GAP_X + 2
    height = len(rows) * (box_height + GAP_Y) - GAP_Y + 2
    arrows = "".join(_arrow(corner[a], corner[b], box_height) for a, b in graph.edges)
    boxes = "".join(_box(node, lines[node], links[node], *corner[node], box_height) for node in graph)
    return HTML(
        f'<div class="linked-graph"><svg role="img" aria-label="{escape(alt, quote=True)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg">'
        f"{arrows}{boxes}</svg></div>"
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], box_height: float) -> str:
    x0, y0 = start[0] + BOX_WIDTH / 2, start[1] + box_height
    x1, y1 = end[0] + BOX_WIDTH / 2, end[1]
    return (
        f'<path class="edge" d="M {x0} {y0} C {x0} {y0 + GAP_Y / 2}, {x1} {y1 - GAP_Y / 2}, {x1} {y1 - 7}"/>'
        f'<path class="head" d="M {x1} {y1} l -4 -8 h 8 z"/>'
    )


def _box(node: str, lines: list[str], link: str, x: float, y: float, height: float) -> str:
    text = "".join(f'<tspan x="{x + 10}" dy="{LINE}">{escape(line)}</tspan>' for line in lines)
    return (
        f'<a href="{escape(link, quote=True)}">'
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{height}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 18}"><tspan class="id">{escape(node)}</tspan>{text}</text></a>'
    )
