"""Figures in the book's style, and a slider over pictures that works without a kernel.

A figure has two faces.  A notebook shows it as any matplotlib figure, a slider as live widgets.  While the
site is built (`SAMEFN_SITE` in the environment), each picture is drawn twice, wide and narrow with its panels
stacked, sharp and small, and a slider hands its pictures to the page: `book/_ext/book_figures.py` makes
light HTML of them.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text
from PIL import Image

from ..arguments import Count, Natural, Positive

# Okabe and Ito's palette, told apart with every common colour-vision deficiency
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY = "#777777"

STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",  # opaque: the site's dark mode turns the colours itself
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
SITE = "SAMEFN_SITE"  # set in the environment of the kernels that the site's build runs
PIXELS = 200  # per inch: two for each of the page's, of which a column 684 wide shows 7 inches
NARROW = 3.5  # inches, for telephones
PICTURES = "application/vnd.samefn.pictures+json"  # what book_figures.py reads


class PageFigure(Figure):
    """A matplotlib figure that the site can show in two widths; made by :func:`figure`."""

    stack: bool = True  # panels below each other in the narrow version

    def wide(self) -> dict[str, Any]:
        """The picture as PNG in base64, its width in inches, the size in points of its smallest letters."""
        return {"png": _png(self), "inches": self.get_size_inches()[0], "points": _smallest(self)}

    def narrow(self) -> dict[str, Any]:
        """The same for a column of 3.5 inches: panels side by side come to stand below each other."""
        (width, height), specs = self.get_size_inches(), [axes.get_subplotspec() for axes in self.axes]
        labels = [axes.yaxis.get_tick_params().get("labelleft") for axes in self.axes]
        columns = list(dict.fromkeys(spec for spec in specs if spec is not None))
        stacked = self.stack and len(columns) > 1 and len({spec.rowspan.start for spec in columns}) == 1
        ratio = height / width * (len(columns) if stacked else 1)
        panel = min(max(NARROW * ratio, 2.3 if self.stack else 0), 3.6)
        if stacked:
            grid = GridSpec(len(columns), 1, figure=self)
            for axes, spec in zip(self.axes, specs):
                if spec is not None:  # a colour bar has none
                    axes.set_subplotspec(grid[columns.index(spec)])
                    axes.yaxis.set_tick_params(labelleft=True)
        try:
            self.set_size_inches(NARROW, panel * (len(columns) if stacked else 1))
            return {"png": _png(self), "inches": NARROW, "points": _smallest(self)}
        finally:
            self.set_size_inches(width, height)
            for axes, spec, label in zip(self.axes, specs, labels):
                if stacked and spec is not None:
                    axes.set_subplotspec(spec)
                    axes.yaxis.set_tick_params(labelleft=label)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        if SITE not in os.environ:
            return {}
        wide = self.wide()
        return {"image/png": wide["png"], PICTURES: {"frames": [{"wide": wide, "narrow": self.narrow()}]}}


def figure(
    columns: Count = 1,
    *,
    rows: Count = 1,
    width: Positive = 7.0,
    height: Positive = 3.2,
    stack: bool = True,
    **options: Any,
):
    """A matplotlib figure in the book's style with a grid of axes: (figure, axes) as of ``plt.subplots``.

    Sizes are in inches; ``options`` go to ``plt.subplots``.  On a telephone the panels of one row stand below
    each other and a figure is at least 2.3 inches high, unless ``stack`` is false: then it only shrinks.
    Letters keep their size, so that they stay legible.
    """
    # loads a notebook's backend now: inside the context its interactive mode would be lost
    plt.draw_if_interactive()
    with plt.rc_context(STYLE):
        picture, axes = plt.subplots(
            rows, columns, figsize=(width, height), FigureClass=PageFigure, **options
        )
    assert isinstance(picture, PageFigure)
    picture.stack = stack
    return picture, axes


class FrameSlider(ipywidgets.VBox):
    """A slider over a stack of pictures; made by :func:`frame_slider`."""

    def __init__(self, slider: ipywidgets.SelectionSlider, stack: ipywidgets.Stack, site: dict[str, Any]):
        super().__init__([slider, stack])
        self._site = site

    def _repr_mimebundle_(self, **options: object) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        return bundle | self._site if bundle else self._site


def frame_slider(
    frames: Sequence[PageFigure], values: Sequence[object], label: str, *, alt: str, start: Natural = 0
) -> FrameSlider:
    """A slider over pictures drawn beforehand, which moves on a static page, without a kernel.

    ``frames`` are figures made by :func:`figure` (closed here), ``values`` what the slider says at each of
    them, ``label`` the parameter's name and ``start`` the first frame shown.  ``alt`` describes the pictures;
    the value is added to it.  Raises ValueError unless there are at least two frames and as many values, and
    ``start`` is one of them.
    """
    if len(frames) < 2 or len(frames) != len(values):
        raise ValueError(
            f"frames and values must be equally many, at least 2; got {len(frames)} and {len(values)}"
        )
    if start >= len(frames):
        raise ValueError(f"start must be below the number of frames, {len(frames)}, got {start}")
    pictures, drawn = [], []
    for frame, value in zip(frames, values):
        wide, text = frame.wide(), f"{alt} At {label} = {value}."
        picture = (
            f'<img class="frame" alt="{escape(text, quote=True)}" src="data:image/png;base64,{wide["png"]}">'
        )
        pictures.append(ipywidgets.HTML(picture))
        if SITE in os.environ:
            drawn.append({"value": str(value), "alt": text, "wide": wide, "narrow": frame.narrow()})
        plt.close(frame)
    stack = ipywidgets.Stack(pictures, selected_index=start)
    slider = ipywidgets.SelectionSlider(
        options=[(str(value), i) for i, value in enumerate(values)],
        index=start,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "100%", "max_width": "32rem"},
    )
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    site = {PICTURES: {"label": label, "start": start, "frames": drawn}} if drawn else {}
    if drawn:
        site["image/png"] = drawn[start]["wide"]["png"]
    return FrameSlider(slider, stack, site)


def _png(picture: Figure) -> str:
    """In base64; with at most 256 colours, which a drawing has, a third of the bytes."""
    raw, small = io.BytesIO(), io.BytesIO()
    with plt.rc_context(STYLE):
        picture.savefig(raw, format="png", dpi=PIXELS)
    image = Image.open(raw).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def _smallest(picture: Figure) -> float | None:
    texts = (t for t in picture.findobj(Text) if isinstance(t, Text) and t.get_visible())
    sizes = [float(t.get_fontsize()) for t in texts if t.get_text().strip()]
    return min(sizes, default=None)
