"""Figure style, and a slider over pictures that works without a kernel."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure

from ..arguments import Count, Natural, Positive

# Okabe and Ito's palette, told apart with every common colour-vision deficiency
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY = "#777777"

STYLE: dict[Any, Any] = {
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


def figure(columns: Count = 1, *, width: Positive = 7.0, height: Positive = 3.2, **options: Any):
    """A matplotlib figure in the book's style, with ``columns`` axes side by side: (figure, axes).

    Sizes are in inches; ``options`` go to ``plt.subplots``.
    """
    # loads a notebook's backend now: inside the context its interactive mode would be lost
    plt.draw_if_interactive()
    with plt.rc_context(STYLE):
        return plt.subplots(1, columns, figsize=(width, height), **options)


def frame_slider(
    frames: Sequence[Figure], values: Sequence[object], label: str, *, alt: str, start: Natural = 0
) -> ipywidgets.VBox:
    """A slider over pictures drawn beforehand, which moves on a static page, without a kernel.

    ``frames`` are matplotlib figures (closed here), ``values`` what the slider says at each of
    them, ``label`` the parameter's name and ``start`` the first frame shown.  ``alt`` describes
    the pictures; the value is added to it.  Raises ValueError unless there are at least two
    frames and as many values, and ``start`` is one of them.
    """
    if len(frames) < 2 or len(frames) != len(values):
        raise ValueError(
            f"frames and values must be equally many, at least 2; got {len(frames)} and {len(values)}"
        )
    if start >= len(frames):
        raise ValueError(f"start must be below the number of frames, {len(frames)}, got {start}")
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
