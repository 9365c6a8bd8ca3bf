"""Registry, chapters and table of contents agree, and every claim holds on many seeds."""

import re
from pathlib import Path

import networkx as nx
import pytest
import yaml

from samefn import claims
from samefn.claims import ClaimFailed, Control, Evidence

ROOT = Path(__file__).parents[1]
SEEDS = {"X-REAL": 2}  # its weights are given; a seed only changes what they are compared with
CLAIMLESS = {"skip/summary", "equivariance/groups", "equivariance/summary", "notation", "ledger", "references"}


def pages():
    """Every page of the table of contents but the landing page, relative to book/."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [entry["file"].removeprefix("book/") for part in toc["parts"] for entry in part["chapters"]]


def test_each_chapter_has_one_claim_and_each_claim_one_chapter():
    chapters = [page for page in pages() if page not in CLAIMLESS]
    assert sorted(claim.chapter for claim in claims.registry().values()) == sorted(chapters)


def test_every_page_of_the_book_is_in_the_table_of_contents():
    written = {str(path.relative_to(ROOT / "book").with_suffix("")) for path in (ROOT / "book").rglob("*.md")}
    assert written == {*pages(), "intro"}


@pytest.mark.parametrize("claim", claims.registry().values(), ids=lambda claim: claim.id)
def test_the_last_code_cell_of_a_chapter_checks_its_claim(claim):
    text = (ROOT / "book" / f"{claim.chapter}.md").read_text()
    last = re.findall(r"^```\{code-cell\}.*?\n(.*?)^```", text, re.S | re.M)[-1]
    assert f'check("{claim.id}"' in last


def test_uses_name_claims_and_make_no_cycle():
    graph = claims.dependency_graph()
    assert set(graph) == set(claims.registry())
    assert nx.is_directed_acyclic_graph(graph)


def test_claims_stand_after_what_they_use():
    order = list(claims.registry())
    for claim in claims.registry().values():
        assert all(order.index(used) < order.index(claim.id) for used in claim.uses)


@pytest.mark.parametrize("claim", claims.registry().values(), ids=lambda claim: claim.id)
def test_claim_holds_on_many_seeds(claim):
    for seed in range(1, 1 + SEEDS.get(claim.id, 200)):
        report = claim.check(seed)
    assert report.strengths
    assert claim.hypotheses and claim.source


def fake(evidence, controls):
    return claims.Claim("T-1", "title", "nowhere", ("none",), (), "chapter", lambda seed: evidence, lambda seed: controls)


def test_a_claim_without_evidence_or_without_control_fails():
    evidence, control = Evidence("exact", "a", "b"), Control("a", "b", "c")
    with pytest.raises(ClaimFailed, match="no control"):
        fake([evidence], []).check()
    with pytest.raises(ClaimFailed, match="no evidence"):
        fake([], [control]).check()
    assert fake([evidence], [control]).check().strengths == ("exact",)


def test_report_shows_every_check_and_escapes_html():
    report = fake([Evidence("exact", "1 < 2", "yes")], [Control("order", "fails", "no")]).check()
    assert "1 &lt; 2" in report._repr_html_() and "control: order" in report._repr_html_()
    assert "1 < 2: yes" in repr(report)


def test_unknown_claim_names_the_known_ones():
    with pytest.raises(ValueError, match="A-T8"):
        claims.check("A-T9")


def test_ledger_lists_every_claim_with_a_link():
    html = claims.ledger().data
    for claim in claims.registry().values():
        assert f'href="{claim.chapter}.html"' in html
    assert claims.chapter_map().data.count("<a href") == len(claims.registry())
