"""The book on paper: one PDF whose contents, page numbers and links are right."""

import os
import re

import pypdf
import pytest
from bs4 import BeautifulSoup

import pdf
from book_launch import PDF
from shared import pages


@pytest.fixture(scope="module")
def paper(site):
    if os.environ.get("BROWSER") == "none":
        pytest.skip("BROWSER=none")
    assert (site / PDF).exists(), "make pdf prints it"
    return pypdf.PdfReader(site / PDF)


@pytest.fixture(scope="module")
def texts(paper):
    return [page.extract_text() for page in paper.pages]


def outline(entries, level=1):
    for entry in entries:
        if isinstance(entry, list):
            yield from outline(entry, level + 1)
        else:
            yield level, entry


def squeezed(text):
    return re.sub(r"\W+", "", text).replace("ﬁ", "fi").replace("ﬀ", "ff").replace("ﬂ", "fl").lower()


def test_the_outline_is_the_contents_and_leads_to_their_pages(paper, texts, site):
    book = pdf.Book(site)
    book.document(dict.fromkeys(("title", "subtitle", "authors", "version", "date", "site"), ""), {})
    found = list(outline(paper.outline))
    assert [(level, entry.title) for level, entry in found] == [
        (1, "Contents"),
        *((level, text) for level, text, _ in book.entries),
    ]
    for _, entry in found:
        page = paper.get_destination_page_number(entry)
        assert squeezed(entry.title)[:25] in squeezed(texts[page]), entry.title


def test_page_numbers_in_the_contents_are_true(paper, texts):
    first = 1  # the contents begin behind the title page
    assert "Contents" in texts[first]
    chapters = [(e.title, paper.get_destination_page_number(e) + 1) for _, e in outline(paper.outline)][1:]
    last = chapters[0][1] - 1
    listed = "\n".join(texts[first:last])
    numbers = [int(n) for n in re.findall(r" (\d+)$", listed, re.M)]
    assert [page for _, page in chapters] == [n for n in numbers if n >= chapters[0][1]]


def test_links_within_resolve(paper):
    names = paper.named_destinations.keys()
    inner = outer = 0
    for page in paper.pages:
        for annotation in page.get("/Annots", ()):
            link = annotation.get_object()
            action = link.get("/A", {})
            target = link.get("/Dest") or action.get("/D")
            if isinstance(target, str):
                inner += 1
                assert target in names or target.removeprefix("/") in names, target
            elif "/URI" in action:
                outer += 1
                assert not str(action["/URI"]).startswith("file:"), action["/URI"]
    assert inner > 500 and outer > 20


def test_every_numbered_statement_is_there(texts, site):
    whole = squeezed("".join(texts))
    for name in pages():
        soup = BeautifulSoup((site / f"{name}.html").read_text("utf8"), "html.parser")
        for title in soup.select("div.proof > p.admonition-title, div.exercise > p.admonition-title"):
            label = re.match(r"\w+ [\d.]+", title.get_text(" ", strip=True))
            assert not label or squeezed(label[0]) in whole, label[0]


def test_no_loose_ends(texts):
    for number, text in enumerate(texts, 1):
        assert not re.search(r"\?\?|\$\$|\\\(|\{[a-z]+\}`", text), f"page {number}"
        assert not re.search(r"\[p\.\W?000\]", text), f"page {number} has a link to nowhere"
    assert 200 <= len(texts) <= 900


def test_it_is_light_enough(site, paper):
    assert (site / PDF).stat().st_size < 40_000_000
    assert paper.metadata.title == "Same Function, Different Weights"
