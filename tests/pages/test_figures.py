"""Sliders carry their pictures and alt text."""

import re

import pytest

from samefn.pages.figures import figure, frame_slider


def frames(count):
    return [figure()[0] for _ in range(count)]


def test_slider_holds_one_described_picture_for_each_value():
    box = frame_slider(frames(3), [0.1, 0.2, 0.3], "t", alt='A "flat" line.', start=1)
    slider, stack = box.children
    assert stack.selected_index == slider.index == 1
    alts = [re.search(r'alt="([^"]*)"', child.value).group(1) for child in stack.children]
    assert alts == [f"A &quot;flat&quot; line. At t = {value}." for value in (0.1, 0.2, 0.3)]


@pytest.mark.parametrize("count, values", [(1, [1]), (2, [1]), (0, [])])
def test_slider_refuses_counts_that_do_not_match(count, values):
    with pytest.raises(ValueError, match="frames and values"):
        frame_slider(frames(count), values, "t", alt="A line.")
