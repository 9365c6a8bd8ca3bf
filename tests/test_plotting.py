"""Sliders carry their pictures and alt text; the linked graph draws every node and edge once."""

import re

import networkx as nx
import pytest

from samefn.plotting import figure, frame_slider, linked_graph


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


def test_linked_graph_draws_each_node_and_edge_once_with_prerequisites_above():
    graph = nx.DiGraph([("A", "B"), ("A", "C"), ("B", "C")])
    html = linked_graph(graph, dict.fromkeys("ABC", "1 < 2"), {n: f"{n}.html" for n in "ABC"}, alt="three").data
    assert html.count('class="edge"') == 3
    assert html.count("1 &lt; 2") == 3
    heights = [float(y) for y in re.findall(r'<rect x="[^"]*" y="([^"]*)"', html)]
    assert heights == sorted(set(heights))


def test_linked_graph_refuses_a_cycle():
    graph = nx.DiGraph([("A", "B"), ("B", "A")])
    with pytest.raises(nx.NetworkXUnfeasible):
        linked_graph(graph, {"A": "", "B": ""}, {"A": "", "B": ""}, alt="")
