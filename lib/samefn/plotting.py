"""Figure style, and the few kinds of figure that more than one chapter draws."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from html import escape

import ipywidgets
import matplotlib.pyplot as plt
import networkx as nx
from cycler import cycler
from IPython.display import HTML
from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with every common colour-vision deficiency
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY = "#777777"

STYLE = {
    "figure.facecolor": "white",  # opaque, so that dark mode shows black on white
    "savefig.facecolor": "white",
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "axes.prop_cycle": cycler(color=[BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY]),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 2,
}


def figure(columns: int = 1, *, width: float = 7.0, height: float = 3.2, **options: object):
    """A matplotlib figure in the book's style, with ``columns`` axes side by side: (figure, axes).

    Sizes are in inches; ``options`` go to ``plt.subplots``.
    """
    plt.draw_if_interactive()  # loads a notebook's backend now: inside the context its interactive mode would be lost
    with plt.rc_context(STYLE):
        return plt.subplots(1, columns, figsize=(width, height), **options)


def frame_slider(
    frames: Sequence[Figure], values: Sequence[object], label: str, *, alt: str, start: int = 0
) -> ipywidgets.VBox:
    """A slider over pictures drawn beforehand, which moves on a static page, without a kernel.

    ``frames`` are matplotlib figures (closed here), ``values`` what the slider says at each of
    them, ``label`` the parameter's name and ``start`` the first frame shown.  ``alt`` describes
    the pictures; the value is added to it.  Raises ValueError unless there are at least two
    frames and as many values.
    """
    if len(frames) < 2 or len(frames) != len(values):
        raise ValueError(f"frames and values must be equally many, at least 2; got {len(frames)} and {len(values)}")
    pictures = []
    for frame, value in zip(frames, values):
        text = escape(f"{alt} At {label} = {value}.", quote=True)
        pictures.append(ipywidgets.HTML(f'<img class="frame" alt="{text}" src="{_data_uri(frame)}">'))
    stack = ipywidgets.Stack(pictures, selected_index=start)
    slider = ipywidgets.SelectionSlider(
        options=[(str(value), i) for i, value in enumerate(values)],
        index=start,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "100%", "max_width": "32rem"},
    )
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([slider, stack])


def _data_uri(frame: Figure) -> str:
    buffer = io.BytesIO()
    with plt.rc_context(STYLE):
        frame.savefig(buffer, format="png", dpi=110)
    plt.close(frame)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, PER_ROW = 128, 112, 12, 44, 5


def linked_graph(graph: nx.DiGraph, titles: dict[str, str], links: dict[str, str], *, alt: str) -> HTML:
    """A directed acyclic graph as a drawing of boxes that are links, prerequisites above what needs them.

    Nodes without any edge come first; nodes of one layer keep the graph's order.
    ``titles`` and ``links`` give each node's text and address.  Colours follow the page's theme.
    Raises networkx.NetworkXUnfeasible if the graph has a cycle.
    """
    alone = list(nx.isolates(graph))
    layers = [alone, *nx.topological_generations(graph.subgraph([n for n in graph if n not in alone]))]
    rows = [layer[i : i + PER_ROW] for layer in layers for i in range(0, len(layer), PER_ROW)]
    corner = {
        node: (column * (BOX_WIDTH + GAP_X) + 1, row * (BOX_HEIGHT + GAP_Y) + 1)
        for row, nodes in enumerate(rows)
        for column, node in enumerate(nodes)
    }
    width = PER_ROW * (BOX_WIDTH + GAP_X) - GAP_X + 2
    height = len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2
    arrows = "".join(_arrow(corner[a], corner[b]) for a, b in graph.edges)
    boxes = "".join(_box(node, titles[node], links[node], *corner[node]) for node in graph)
    return HTML(
        f'<div class="linked-graph"><svg role="img" aria-label="{escape(alt, quote=True)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg">{arrows}{boxes}</svg></div>'
    )


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    x0, y0 = start[0] + BOX_WIDTH / 2, start[1] + BOX_HEIGHT
    x1, y1 = end[0] + BOX_WIDTH / 2, end[1]
    return (
        f'<path class="edge" d="M {x0} {y0} C {x0} {y0 + GAP_Y / 2}, {x1} {y1 - GAP_Y / 2}, {x1} {y1 - 7}"/>'
        f'<path class="head" d="M {x1} {y1} l -4 -8 h 8 z"/>'
    )


def _box(node: str, title: str, link: str, x: float, y: float) -> str:
    lines = textwrap.wrap(title, 19)
    text = "".join(f'<tspan x="{x + 10}" dy="15">{escape(line)}</tspan>' for line in lines)
    return (
        f'<a href="{escape(link, quote=True)}"><rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 18}"><tspan class="id">{escape(node)}</tspan>{text}</text></a>'
    )
