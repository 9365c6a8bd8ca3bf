"""Three pictures that answer a reader: their first state as HTML, which a small script then takes over.

Each function returns HTML with an inline SVG, native controls and the numbers that the script needs.  Without
the script the first state stands there, with its controls disabled.  Scripts: ``book/_static/live/``.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape

import torch
from IPython.display import HTML
from PIL import Image
from torch import Tensor

from ..arguments import Count, Positive
from ..networks import MLP, Residual
from .figures import BLUE, GREEN, GREY, VERMILION

WHITE_TO_BLUE = (235, 243, 250), (0, 82, 155)


def turn(residual: Residual, *, scripts: str, size: Count = 41, reach: Positive = 2.0) -> HTML:
    """A ReLU block in the plane with its skip, beside the block alone, whose units a reader turns round.

    ``residual`` is a ReLU block with d = 2 without biases; ``scripts`` the path of the folder ``_static`` as
    seen from the page.  The number below the picture is the largest length of x + B(x) − B'(x) on a grid of
    ``size`` × ``size`` points of the square from −``reach`` to ``reach``.
    Raises ValueError for another block.
    """
    block = residual.block
    if tuple(block.up.shape[1:]) != (2,) or getattr(block, "up_bias", None) is not None:
        raise ValueError(f"residual must be a ReLU block with d = 2 and no biases, got {residual}")
    up, down = block.up.detach(), block.down.detach()
    axis = torch.linspace(-reach, reach, size, dtype=up.dtype)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    kept, free = residual(grid).detach(), block(grid).detach()
    bound = float(kept[..., 0].abs().max())
    panels = [
        _panel("x + B(x): with its skip", "kept", kept[..., 0], up, bound, clickable=False),
        _panel("B′(x): without", "free", free[..., 0], up, bound, clickable=True),
    ]
    data = {"up": up.tolist(), "down": down.tolist(), "size": size, "reach": reach}
    data |= {"range": bound, "colours": WHITE_TO_BLUE}
    buttons = "".join(
        f'<button type="button" disabled aria-pressed="false">Turn unit {i + 1}</button>'
        for i in range(len(up))
    )
    gap = float((kept - free).norm(dim=-1).max())
    return _live(
        "turn",
        data,
        f'<div class="live-panels">{"".join(panels)}</div><div class="live-controls">{buttons}</div>'
        '<p><output aria-live="polite">No unit is turned. '
        f"Largest difference on the grid: {gap:.2f}.</output></p>",
        scripts,
    )


def _panel(title: str, name: str, values: Tensor, up: Tensor, bound: float, *, clickable: bool) -> str:
    arrows = []
    for i, u in enumerate(up):
        n = u / u.norm()
        line = 150 * torch.stack([-n[1], n[0]])
        p, tip = 85 * torch.stack([-n[1], n[0]]), 34 * n
        marks = (
            f'<path class="crease" d="M {line[0]:.1f} {-line[1]:.1f} L {-line[0]:.1f} {line[1]:.1f}"/>'
            f'<g transform="translate({p[0]:.1f} {-p[1]:.1f})"><circle class="hit" r="24"/>'
            f'<g class="shaft"><line x2="{tip[0]:.1f}" y2="{-tip[1]:.1f}"/>'
            f'<path d="M {tip[0]:.1f} {-tip[1]:.1f} '
            f"l {-12 * n[0] - 6 * n[1]:.1f} {12 * n[1] - 6 * n[0]:.1f} "
            f'l {12 * n[1]:.1f} {12 * n[0]:.1f} z"/></g>'
            f'<text x="{-14 * n[0]:.1f}" y="{14 * n[1] + 5:.1f}" text-anchor="middle">{i + 1}</text></g>'
        )
        arrows.append(f'<g class="{"arrow" if clickable else "fixed"}">{marks}</g>')
    picture = (
        f'<image class="{name}" href="{_heat(values, bound)}" x="-130" y="-130" width="260" height="260"/>'
    )
    return (
        f'<svg viewBox="-130 -154 260 284" role="img" aria-label="{title}: a map of the first output over '
        f'the plane, with a line and an arrow for each of {len(up)} units">'
        f'<text y="-138" text-anchor="middle" class="title">{title}</text>'
        '<svg x="-130" y="-130" width="260" height="260" viewBox="-130 -130 260 260">'
        f"{picture}{''.join(arrows)}</svg></svg>"
    )


def _heat(values: Tensor, bound: float) -> str:
    """A small PNG, white to blue from −bound to bound, the first row below."""
    share = ((values + bound) / (2 * bound)).clamp(0, 1)[..., None]
    low, high = (torch.tensor(colour, dtype=values.dtype) for colour in WHITE_TO_BLUE)
    pixels = (low + share * (high - low)).round().to(torch.uint8).flip(0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def line(slopes: Sequence[float], weights: Sequence[float], *, scripts: str) -> HTML:
    """A ReLU block on the line, Σ a_i ReLU(u_i x), with its skip, and the two units that compute the same.

    ``slopes`` are the u_i, ``weights`` the a_i, which a reader moves between −2 and 2.  Raises ValueError
    unless they are equally many.
    """
    if len(slopes) != len(weights):
        raise ValueError(f"weights must be one for each of the {len(slopes)} slopes, got {len(weights)}")
    block = MLP(torch.tensor(slopes)[:, None], torch.tensor([*weights])[None])
    right, left = (float(x * (x + block(torch.tensor([x])))) for x in (1.0, -1.0))
    reach, height, scale = 2.0, 8.0, 100.0

    def curve(name: str, colour: str, at_left: float, at_right: float, style: str) -> str:
        ends = [(-reach, at_left), (0.0, 0.0), (reach, at_right)]
        points = " ".join(f"{scale * x},{-scale * reach * y / height}" for x, y in ends)
        return f'<polyline class="{name}" points="{points}" fill="none" stroke="{colour}" {style}/>'

    at = [float(block(torch.tensor([x]))) for x in (-reach, reach)]
    curves = [
        curve("block", GREY, at[0], at[1], 'stroke-width="2"'),
        curve("skip", BLUE, at[0] - reach, at[1] + reach, 'stroke-width="6" stroke-opacity="0.5"'),
        curve("right", VERMILION, 0.0, right * reach, 'stroke-width="2.5" stroke-dasharray="7 5"'),
        curve("left", GREEN, -left * reach, 0.0, 'stroke-width="2.5" stroke-dasharray="7 5"'),
    ]
    inputs = "".join(
        f"<label>weight of unit {i + 1} (slope {_minus(u)})"
        f'<input type="range" min="-2" max="2" step="0.05" value="{a}" disabled autocomplete="off" '
        f'aria-valuetext="{_minus(a)}"><output>{_minus(a)}</output></label>'
        for i, (u, a) in enumerate(zip(slopes, weights))
    )
    data = {"slopes": [*slopes], "reach": reach, "height": height, "scale": scale}
    lines = ("B(x)", GREY), ("x + B(x)", BLUE), ("unit facing right", VERMILION)
    lines += (("unit facing left", GREEN),)
    key = "".join(
        f'<li style="--line: {colour}"{" class=dashed" * ("unit" in name)}>{name}</li>'
        for name, colour in lines
    )
    return _live(
        "line",
        data,
        '<svg viewBox="-210 -205 420 410" role="img" aria-label="A bent line (the block), the same with '
        'its skip, and two units, one facing each way, that lie on the latter">'
        f'<path class="axes" d="M -200 0 H 200 M 0 -200 V 200"/>{"".join(curves)}</svg>'
        f'<ul class="live-key">{key}</ul><div class="live-controls">{inputs}</div>'
        '<p><output aria-live="polite">With the skip, the slope is '
        f"{_minus(left)} on the left and {_minus(right)} on the right. "
        "Two units with these slopes compute the same function.</output></p>",
        scripts,
    )


def filter(image: Tensor, kernel: Tensor, *, names: Sequence[str], scripts: str) -> HTML:
    """A picture moved by an element of D₄ and filtered, beside the filtered picture moved.

    ``image`` is n × n, ``kernel`` 3 × 3 of whole numbers, ``names`` of the eight elements: quarter turns
    counter-clockwise, then those after a mirror left-right.  Raises ValueError for other shapes or a wrong
    number of names.
    """
    if image.dim() != 2 or image.shape[0] != image.shape[1]:
        raise ValueError(f"image must be n × n, got {tuple(image.shape)}")
    if tuple(kernel.shape) != (3, 3):
        raise ValueError(f"kernel must be 3 × 3, got {tuple(kernel.shape)}")
    if len(names) != 8:
        raise ValueError(f"names must be eight, one for each element of D4, got {len(names)}")
    padded = torch.nn.functional.pad(image[None, None], (1, 1, 1, 1), mode="circular")
    filtered = torch.nn.functional.conv2d(padded, kernel[None, None])[0, 0]
    panels = [("input", "gx", image), ("moved-first", "f(gx)", filtered), ("moved-last", "g f(x)", filtered)]
    drawn = "".join(_squares(name, title, values, 170 * k) for k, (name, title, values) in enumerate(panels))
    weights = "".join(
        f'<button type="button" class="weight" disabled aria-label="weight in row {r + 1}, column {c + 1}: '
        f'{int(kernel[r, c])}">{_minus(int(kernel[r, c]))}</button>'
        for r in range(3)
        for c in range(3)
    )
    options = "".join(f'<option value="{i}">{escape(name)}</option>' for i, name in enumerate(names))
    kept = sum(
        torch.equal(torch.rot90(moved, turns), kernel)
        for moved in (kernel, kernel.flip(1))
        for turns in range(4)
    )
    return _live(
        "filter",
        {"image": image.tolist(), "kernel": kernel.tolist()},
        '<svg viewBox="0 0 500 185" role="img" aria-label="The moved picture, the filtered moved picture '
        f'and the moved filtered picture">{drawn}</svg><div class="live-controls">'
        f'<div class="weights" role="group" aria-label="the nine weights of the filter">{weights}</div>'
        f'<label>g: <select disabled autocomplete="off">{options}</select></label></div>'
        '<p><output aria-live="polite">f(gx) = g f(x) for this picture and this g. '
        f"They agree for {kept} of the 8 elements of D₄.</output></p>",
        scripts,
    )


def _squares(name: str, title: str, values: Tensor, left: int) -> str:
    n, most = len(values), max(float(values.abs().max()), 1e-9)
    size = 150 / n
    cells = "".join(
        f'<rect x="{size * c:.1f}" y="{size * r:.1f}" width="{size:.1f}" height="{size:.1f}" '
        f'style="fill: {VERMILION if v < 0 else BLUE}; fill-opacity: {abs(float(v)) / most:.3f}"/>'
        for r, row in enumerate(values)
        for c, v in enumerate(row)
    )
    frame = '<path class="axes" d="M 0 0 H 150 V 150 H 0 Z"/>'
    return (
        f'<g class="{name}" transform="translate({left + 5} 30)">'
        f'<text x="75" y="-9" text-anchor="middle" class="title">{title}</text>{cells}{frame}</g>'
    )


def _minus(number: float) -> str:
    text = f"{number:.2f}" if isinstance(number, float) else str(number)
    return text.replace("-", "−")


def _live(name: str, data: object, body: str, scripts: str) -> HTML:
    return HTML(
        f'<div class="live live-{name}" data-live="{escape(json.dumps(data), quote=True)}">{body}</div>'
        f'<script defer src="{scripts}/live/{name}.js"></script>'
    )
