"""Tables escape what they hold; the linked graph draws every node and edge once."""

import re

import networkx as nx
import pytest

from samefn.pages.display import linked_graph, table


def test_a_table_escapes_all_but_the_raw_columns():
    html = table(("a", "b < c"), [("<i>", "<b>x</b>")], "5 > 4", raw=(1,))
    assert "&lt;i&gt;" in html and "<td><b>x</b></td>" in html
    assert "5 &gt; 4" in html and '<th scope="col">b &lt; c</th>' in html
    assert html.count("<tr>") == 2


def test_linked_graph_draws_each_node_and_edge_once_with_prerequisites_above():
    graph = nx.DiGraph([("A", "B"), ("A", "C"), ("B", "C")])
    html = linked_graph(
        graph, dict.fromkeys("ABC", "1 < 2"), {n: f"{n}.html" for n in "ABC"}, alt="three"
    ).data
    assert html.count('class="edge"') == 3
    assert html.count("1 &lt; 2") == 3
    heights = [float(y) for y in re.findall(r'<rect x="[^"]*" y="([^"]*)"', html)]
    assert heights == sorted(set(heights))


def test_linked_graph_refuses_a_cycle():
    graph = nx.DiGraph([("A", "B"), ("B", "A")])
    with pytest.raises(ValueError, match="graph must have no cycle"):
        linked_graph(graph, {"A": "", "B": ""}, {"A": "", "B": ""}, alt="")
