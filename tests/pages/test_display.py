"""Tables escape and typeset what they hold; the map of the chapters links each and what it needs."""

import pytest

from samefn.pages.display import Stop, reading_map, table, typeset


def test_a_table_escapes_all_but_the_raw_columns():
    html = table(("a", "b < c"), [("<i>", "<b>x</b>")], "5 > 4", raw=(1,))
    assert "&lt;i&gt;" in html and "<td><b>x</b></td>" in html
    assert "5 &gt; 4" in html and '<th scope="col">b &lt; c</th>' in html
    assert html.count("<tr>") == 2


def test_the_map_links_each_chapter_and_what_it_needs():
    first = Stop("a/one.html", "One", "P_S < 1")
    second = Stop("b/two.html", "Two", "so", ("One",), 25, "X-1.2", "ledger.html#X-1-2")
    html = reading_map({"Part I": [first], "Part II": [second]}).data
    assert html.count('href="a/one.html"') == 2 and html.count('href="b/two.html"') == 1
    assert "P<sub>S</sub> &lt; 1" in html and html.count('type="checkbox"') == 2
    assert '<li value="2">' in html and html.count("needs:") == 1
    assert (
        '25 minutes; needs: <a href="a/one.html">One</a>; in the ledger: <a href="ledger.html#X-1-2">' in html
    )


def test_the_map_refuses_a_need_that_is_not_on_it():
    with pytest.raises(ValueError, match="parts must have all that 'Two' needs"):
        reading_map({"Part": [Stop("b.html", "Two", "so", needs=("One",))]})


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
