"""The list of statements, the index, the glossary, the reference of the library, and what leads to them."""

import json
import re

import pytest
from lxml import html

from book_cards import cards
from library_text import escape, example, summary
from shared import pages

CHAPTERS = [name for name in pages() if re.match("book/(skip|equivariance|beyond)/", name)]


@pytest.fixture(scope="module")
def page(site):
    read = {}

    def get(name):
        if name not in read:
            read[name] = (
                html.parse(site / f"{name}.html")
                .getroot()
                .xpath("//article[contains(@class, 'bd-article')]")[0]
            )
        return read[name]

    return get


def text(element):
    return " ".join(element.text_content().split())


def test_every_statement_is_listed_once_in_the_order_of_the_book(page):
    listed = [text(link) for link in page("book/statements").xpath(".//li/p/a[1]")]
    there = []
    for name in CHAPTERS:
        boxes = page(name).xpath(".//div[contains(@class, 'proof ')]/p[@class='admonition-title']/span[1]")
        there += [text(title) for title in boxes]
    assert len(listed) > 40 and listed == there
    assert all(re.fullmatch(r"[A-Z][a-z]+ \d+\.\d+", number) for number in listed)


def test_the_index_has_terms_statements_names_and_no_labels(site, page):
    index = html.parse(site / "genindex.html").getroot()
    entries = {text(link) for link in index.xpath("//table[contains(@class, 'genindextable')]//li")}
    for entry in (
        "certificate",
        "Two radii (proposition)",
        "Sussmann, Héctor",
        "LLaMA",
        "absorb()",
        "MLP (class)",
    ):
        assert any(e.startswith(entry) for e in entries), entry
    assert not [e for e in entries if "samefn" in e]
    terms = [text(term).rstrip("#") for term in page("book/glossary").xpath(".//dt[@id]")]
    assert len(terms) > 40
    assert not [term for term in terms if not any(e.startswith(term) for e in entries)]
    assert not [e for e in entries if re.match(r"[a-z]+-[a-z]+(-[a-z]+)*$", e) and e not in terms]


def test_chapters_lead_to_the_glossary_and_to_the_reference(page):
    for name in CHAPTERS:
        links = [link.get("href") for link in page(name).xpath(".//a[@href]")]
        terms = [link for link in links if "glossary.html#term-" in link]
        assert terms and len(terms) == len(set(terms)), name
        assert any("/api/" in link for link in links) or name.endswith(("summary", "-lab")), name


def test_links_to_statements_formulas_terms_and_names_have_cards(site, page):
    def of(name):
        script = (site / "_static/cards" / f"{name}.js").read_text("utf8")
        return json.loads(script.partition("=")[2].rstrip(";\n"))

    known = {name: of(name) for name in pages()}
    for name in pages():
        for link in page(name).xpath(
            ".//a[contains(@class, 'internal') or contains(@class, '-link')][contains(@href, '#')]/@href"
        ):
            target, _, place = link.partition("#")
            other = (
                (site / name).parent.joinpath(target).resolve().relative_to(site).with_suffix("")
                if target
                else name
            )
            if re.match("term-|equation-|samefn[.]", place):
                assert place in known[str(other)], (name, link)
    assert (site / "_static/cards.js").stat().st_size <= 3072


def test_a_card_has_no_ids_and_no_links():
    body = """<dl class="glossary"><dt id="term-x">x<a class="headerlink" href="#term-x">#</a></dt>
        <dd><p>An <a href="y.html" id="z">y</a>.</p></dd></dl>
        <div class="math notranslate" id="equation-e"><span class="katex-mathml">no</span>E</div>"""
    assert cards(body) == {
        "term-x": "<strong>x</strong><div><p>An <span>y</span>.</p></div>",
        "equation-e": '<div class="math notranslate">E</div>',
    }


def test_docstrings_are_read_as_plain_text():
    docstring = """What a is: |x| and α*.  More.

    >>> 1 + 1
    2
    """
    prose, code = example(docstring)
    assert prose == "What a is: |x| and α*.  More." and code == ">>> 1 + 1\n2"
    assert escape("|x|, α* α, ``a * b``, *so* and x_ y_i") == r"\|x\|, α\* α, ``a * b``, *so* and x\_ y_i"
    assert summary(type("Thing", (), {"__doc__": docstring})) == "What a is: |x| and α*."
