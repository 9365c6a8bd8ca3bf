"""The registry's own machinery, on small made-up claims, and that claims, chapters and table of contents
agree.
"""

import re
from pathlib import Path

import networkx as nx
import pytest
import torch
import yaml

from samefn import claims
from samefn.claims import Claim, ClaimFailed, ledger

ROOT = Path(__file__).parents[2]
CLAIMLESS = {"skip/summary", "equivariance/groups", "equivariance/summary"}


def pages():
    """Every page of the table of contents but the landing page, relative to book/."""
    return [page for _, page in entries()]


def entries():
    """Caption of the part, and page."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [(p["caption"], e["file"].removeprefix("book/")) for p in toc["parts"] for e in p["chapters"]]


def each_claim():
    return pytest.mark.parametrize("claim", claims.registry().values(), ids=lambda claim: claim.id)


def test_each_chapter_has_one_claim_and_each_claim_one_chapter():
    chapters = [page for part, page in entries() if part.startswith("Part ") and page not in CLAIMLESS]
    assert sorted(claim.chapter for claim in claims.registry().values()) == sorted(chapters)


def test_lab_notes_and_their_chapter_link_to_each_other():
    parts = {page: part for part, page in entries()}
    notes = [page for page, part in parts.items() if part == "Lab notes"]
    assert notes == [page for page in parts if page.endswith("-lab")]
    for page in notes:
        chapter = page.removesuffix("-lab")
        assert parts[chapter].startswith("Part ")
        text, whole = ((ROOT / f"book/{name}.md").read_text("utf8") for name in (page, chapter))
        first_paragraph = re.search(r"^# .*\n\n(.*)", text, re.M)[1]
        assert f"{{doc}}`{Path(chapter).name}`" in first_paragraph
        assert re.search(rf"\{{doc\}}`[^`]*\b{Path(page).name}>`", whole)


def test_every_page_of_the_book_is_in_the_table_of_contents():
    written = {str(path.relative_to(ROOT / "book").with_suffix("")) for path in (ROOT / "book").rglob("*.md")}
    assert {page for page in written if "/_" not in f"/{page}"} == {*pages(), "intro"}


@each_claim()
def test_a_claim_has_the_id_the_module_and_the_chapter_of_one_name(claim):
    assert claims.get(claim.id) is claim
    assert claims.MODULES[claim.id].replace(".", "/") == claim.chapter
    assert {check.function.__module__ for check in claim.checks} == {
        f"samefn.claims.{claims.MODULES[claim.id]}"
    }
    assert claim.hypotheses and claim.source and claim.title


@each_claim()
def test_the_last_code_cell_of_a_chapter_checks_its_claim(claim):
    text = (ROOT / "book" / f"{claim.chapter}.md").read_text()
    last = re.findall(r"^```\{code-cell\}.*?\n(.*?)^```", text, re.S | re.M)[-1]
    assert re.search(rf'check\("{re.escape(claim.id)}"(, seed=\d+)?\)', last)


def test_no_page_imports_from_the_module_of_a_claim():
    for path in (ROOT / "book").rglob("*.md"):
        assert not re.search(
            r"(from|import) samefn\.claims\.(?!ledger\b)|from samefn\.claims import (?!check\b)",
            path.read_text(),
        ), path


def test_uses_name_claims_and_make_no_cycle():
    graph = ledger.dependency_graph()
    assert set(graph) == set(claims.registry())
    assert nx.is_directed_acyclic_graph(graph)


def test_claims_stand_after_what_they_use():
    order = list(claims.MODULES)
    for claim in claims.registry().values():
        assert all(order.index(used) < order.index(claim.id) for used in claim.uses)


def made_up(*kinds):
    claim = Claim("T-1", "title", "nowhere", ("none",), (), "chapter")
    for kind in kinds:
        decorate = claim.control("order", "fails") if kind == "control" else getattr(claim, kind)("1 < 2")

        def check(draw):
            return f"{float(draw.normal()):.15g}"

        check.__name__ = kind
        decorate(check)
    return claim


def test_a_claim_without_evidence_or_without_control_fails():
    with pytest.raises(ClaimFailed, match="no control"):
        made_up("exact").check()
    with pytest.raises(ClaimFailed, match="no evidence"):
        made_up("control").check()
    assert made_up("numeric", "control", "exact").strengths == ("exact", "numeric")


def test_a_check_that_raises_fails_the_claim_and_one_that_measures_nothing_too():
    claim = made_up("exact", "control")

    @claim.numeric("two is one")
    def wrong():
        claims.require(2 == 1, "2 against 1")

    with pytest.raises(ClaimFailed, match="2 against 1"):
        claim.check()

    empty = made_up("exact", "control")
    empty.numeric("nothing")(lambda: "")
    with pytest.raises(ClaimFailed, match="nothing of what it measured"):
        empty.check()


def test_two_checks_of_one_name_are_refused():
    claim = made_up("exact")
    with pytest.raises(ValueError, match="T-1 has two checks of the name exact"):
        claim.exact("again")(claim.checks[0].function)


def test_another_check_moves_no_figures():
    few, many = made_up("exact", "control"), made_up("numeric", "exact", "certificate", "control")
    figures = {r.check.name: r.measured for r in many.check(seed=3).results}
    assert {r.check.name: r.measured for r in few.check(seed=3).results}.items() <= figures.items()
    assert len(set(figures.values())) == 4
    assert few.check(seed=4).results[0].measured != figures["exact"]


def test_checks_run_in_float64_without_gradients_and_leave_no_trace():
    claim = made_up("exact", "control")

    @claim.numeric("state")
    def state():
        return f"{torch.get_default_dtype()}, {torch.is_grad_enabled()}"

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        assert claim.check("state").results[0].measured == "torch.float64, False"
        assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(before)


def test_one_check_alone():
    claim = made_up("exact", "numeric", "control")
    assert [r.check.name for r in claim.check("numeric").results] == ["numeric"]
    with pytest.raises(
        ValueError, match="'other' is no check of T-1; its checks are exact, numeric, control"
    ):
        claim.check("other")


def test_a_report_shows_every_check_and_escapes_html():
    report = made_up("exact", "control").check()
    assert "1 &lt; 2" in report._repr_html_() and "control: order" in report._repr_html_()
    assert "1 < 2: " in repr(report)


def test_an_unknown_claim_names_the_known_ones():
    with pytest.raises(ValueError, match="A-T8"):
        claims.check("A-T9")


def test_the_ledger_has_a_row_for_every_check_and_a_link_for_every_claim(monkeypatch):
    """On made-up claims; the page itself is built with the book."""
    made = {"T-1": made_up("exact", "control"), "A-T8": claims.get("A-T8")}
    monkeypatch.setattr(ledger, "registry", lambda: made)
    html = ledger.ledger().data
    for claim in made.values():
        assert f'href="{claim.chapter}.html"' in html and f'id="{claim.id}"' in html
        for check in claim.checks:
            assert html.count(f"<code>{check.name}</code>") == 1
