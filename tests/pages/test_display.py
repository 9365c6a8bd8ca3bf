"""Tables escape what they hold; the linked graph draws every node and edge once."""

import re

import networkx as nx
import pytest

from samefn.pages.display import linked_graph, table, typeset


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


@pytest.mark.parametrize(
    "text, html",
    [
        ("P_S = −I", "P<sub>S</sub> = −I"),
        ("2^m sets, K_{i−1}", "2<sup>m</sup> sets, K<sub>i−1</sub>"),
        ("slope of 2^(−m/d²)", "slope of 2<sup>−m/d²</sup>"),
        ("leaky_relu, p_max < 1", "leaky_relu, p<sub>max</sub> &lt; 1"),
        ("2.2e-16 of 1.4e+00", "2.2 · 10<sup>−16</sup> of 1.4"),
        ("1e-3 and 5e+06", "0.001 and 5 · 10<sup>6</sup>"),
        ("A-T8, W^T, x^2y", "A-T8, W<sup>T</sup>, x<sup>2y</sup>"),
    ],
)
def test_plain_text_is_typeset(text, html):
    assert typeset(text) == html
