"""What the live pictures' scripts compute is what torch computes; their first states say so in HTML."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest
import torch

from book_browser import program
from samefn.networks import MLP
from samefn.pages import live
from samefn.skip.absorption import flip
from samefn.skip.planted import running_example

SCRIPTS = Path(__file__).resolve().parents[2] / "book" / "_static" / "live"


def run(script, expression, value):
    """An expression in JavaScript with the script's functions in ``it`` and a value in ``data``."""
    code = f"const it = require({json.dumps(str(SCRIPTS / script))}); const data = {json.dumps(value)};"
    command = [program("node"), "--eval", f"{code} process.stdout.write(JSON.stringify({expression}))"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_one_choice_of_units_of_sixteen_makes_up_for_the_skip():
    residual = running_example()
    block = residual.block
    choices = list(itertools.product((False, True), repeat=4))
    data = {"up": block.up.tolist(), "down": block.down.tolist(), "size": 11, "reach": 2, "choices": choices}
    found = run("turn.js", "data.choices.map((turned) => it.difference(data, turned))", data)
    axis = torch.linspace(-2, 2, 11, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)
    for turned, largest in zip(choices, found):
        free = flip(block, tuple(i for i in range(4) if turned[i]))
        assert largest == pytest.approx(float((residual(x) - free(x)).norm(dim=1).max()), abs=1e-12)
    assert [turned for turned, gap in zip(choices, found) if gap < 1e-9] == [(True, True, True, False)]


def test_two_units_on_the_line_are_the_block_with_its_skip():
    slopes, weights, points = [1.0, -1.0, 0.5], [0.7, -1.3, 0.4], [-2, -0.3, 0, 0.4, 1.7]
    data = {"slopes": slopes, "weights": weights, "points": points}
    sides = "it.sides(data.slopes, data.weights)"
    pairs = run(
        "line.js",
        f"data.points.map((x) => [x + it.block(data.slopes, data.weights, x), it.two({sides}, x)])",
        data,
    )
    up, down = (torch.tensor(numbers, dtype=torch.float64) for numbers in (slopes, weights))
    block = MLP(up[:, None], down[None])
    for x, (skip, two) in zip(points, pairs):
        expected = float(x + block(torch.tensor([x], dtype=torch.float64)))
        assert skip == pytest.approx(expected, abs=1e-12) and two == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "kernel, kept", [([[1, 2, 1], [2, 4, 2], [1, 2, 1]], 8), ([[1, 0, 0], [0, 1, 0], [0, 0, 0]], 2)]
)
def test_a_filter_commutes_with_the_moves_that_keep_it(kernel, kept):
    image = torch.arange(64.0).view(8, 8).sin()
    data = {"image": image.tolist(), "kernel": kernel}
    moved, filtered, misses = run(
        "filter.js",
        "[it.ELEMENTS.map((g) => it.move(data.image, g)), it.convolve(data.image, data.kernel), "
        "it.misses(data.image, data.kernel)]",
        data,
    )
    for k, picture in enumerate(moved):
        mirrored = image.flip(1) if k >= 4 else image
        assert torch.equal(torch.tensor(picture), torch.rot90(mirrored, k % 4))
    padded = torch.nn.functional.pad(image[None, None], (1, 1, 1, 1), mode="circular")
    expected = torch.nn.functional.conv2d(padded, torch.tensor(kernel).to(image)[None, None])[0, 0]
    assert torch.allclose(torch.tensor(filtered), expected, rtol=0, atol=1e-4)
    assert sum(miss < 1e-9 for miss in misses) == kept
    names = [str(k) for k in range(8)]
    html = live.filter(image, torch.tensor(kernel).to(image), names=names, scripts="s").data
    assert f"They agree for {kept} of the 8" in html


def test_first_states_stand_without_a_script():
    for html in (
        live.turn(running_example(), scripts="../_static").data,
        live.line([1.0, -1.0], [0.5, 1.0], scripts="../_static").data,
    ):
        assert "<svg" in html and "disabled" in html and "<output" in html and "../_static/live/" in html
    assert live.line([1.0], [1.0], scripts="s").data.count("<li") == 4
    assert "Largest difference on the grid: 2.83" in live.turn(running_example(), scripts="s").data


def test_scripts_are_small():
    assert all(script.stat().st_size <= 10_000 for script in SCRIPTS.glob("*.js"))
    assert len(list(SCRIPTS.glob("*.js"))) == 3
