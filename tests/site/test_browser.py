"""Every page of the built site in a real browser, the network shut, under a path prefix as on GitHub."""

import functools
import http.server
import os
import re
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from chromium import NoBrowser, launch
from shared import pages, runnable

RAW = r"\\\(|\\\[|\$\$|\\begin\{|\{[a-z]+(?::[a-z]+)?\}`|:::"
UNRENDERED = ".katex-error, .math:not(:has(.katex))"
UNFOLD = """document.querySelectorAll('details').forEach((d) => { d.open = true; });
    document.querySelectorAll('button.toggle-button').forEach((b) => b.click())"""
# What is wider than what shows it, with no box on the way that lets a reader scroll; numbers over formulas;
# letters of pictures below 9 pixels.
CUT = Path(__file__).with_name("cut.js").read_text("utf8")


@pytest.fixture(scope="session")
def found():
    """The browser, or why there is none."""
    if os.environ.get("BROWSER") == "none":
        pytest.skip("BROWSER=none")
    with sync_playwright() as p:
        try:
            chromium = launch(p.chromium)
        except NoBrowser as none:
            yield none
            return
        yield chromium
        chromium.close()


@pytest.fixture
def browser(found):
    if isinstance(found, NoBrowser):
        pytest.fail("no browser; test_there_is_a_browser says what to do", pytrace=False)
    return found


def test_there_is_a_browser(found):
    if isinstance(found, NoBrowser):
        pytest.fail(str(found), pytrace=False)


@pytest.fixture(scope="session")
def address(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "book").symlink_to(site)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            """Keep the requests out of pytest's report."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/book/"
    server.shutdown()


@pytest.fixture
def visit(browser, address):
    """Open a page; at the end of the test nothing may have gone wrong on it."""
    troubles, contexts = [], []

    def go(page_name, width=1280, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, reduced_motion="reduce", **options
        )
        context.set_default_timeout(120_000)  # against hanging, not against a busy machine
        contexts.append(context)
        page = context.new_page()
        own = (address, "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(own) or troubles.append(f"other host: {r.url}"))
        if options.get("java_script_enabled", True):  # else scripts are asked for and given up
            page.on("requestfailed", lambda r: troubles.append(f"failed: {r.url}"))
        page.on("response", lambda r: r.status >= 400 and troubles.append(f"status {r.status}: {r.url}"))
        page.on("console", lambda m: m.type == "error" and troubles.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: troubles.append(f"page error: {e}"))
        page.goto(f"{address}{page_name}.html")
        if page_name == "index":
            page.wait_for_url("**/book/intro.html")
        page.evaluate("document.fonts.ready")
        return page

    yield go
    for context in contexts:
        context.close()
    assert not troubles


@pytest.mark.parametrize("name", [*pages(), "index", "search", "genindex"])
def test_page(visit, name):
    page = visit(name)
    page.evaluate(UNFOLD)
    page.wait_for_load_state("networkidle")  # whatever it asks for must be there
    if name in pages():
        assert page.locator("article h1").count() == 1
        assert len(page.locator("meta[name=description]").first.get_attribute("content") or "") > 40
        footer = page.locator("footer.bd-footer-content, .bd-footer-content").first.inner_text()
        assert "CC BY 4.0" in footer and "MIT" in footer and "Last updated" in footer
    text = page.evaluate("""() => {
        const main = (document.querySelector('article') ?? document.body).cloneNode(true);
        main.querySelectorAll('pre, code, script, style, .katex').forEach(e => e.remove());
        return main.textContent;
    }""")
    assert not re.findall(RAW, text)
    assert page.locator(UNRENDERED).count() == 0
    for picture in page.locator("article img").all():
        alt = picture.get_attribute("alt") or ""
        source = picture.get_attribute("src")[:80]
        assert len(alt) > 15 and not re.search(r"_images/|\.(png|svg)$", alt), source
    for drawing in page.locator("article .output svg:not(.katex svg, svg svg)").all():
        named = drawing.get_attribute("aria-label") or drawing.locator("> title").count()
        assert named, drawing.inner_html()[:80]


@pytest.mark.parametrize("name", pages())
def test_nothing_is_cut(visit, name):
    """At four widths: what is wider than its place can be scrolled, and nothing lies over anything else."""
    page = visit(name)
    page.evaluate(UNFOLD)
    for width in (1280, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        assert page.evaluate(CUT) == [], f"at {width}"


@pytest.mark.parametrize("name", [*pages(), "search", "genindex", "404"])
def test_accessible(visit, npm, name):
    """No serious or critical finding of axe, in both themes."""
    for theme in ("light", "dark"):
        page = visit(name, color_scheme=theme)
        page.evaluate(UNFOLD)
        page.wait_for_timeout(300)  # what unfolds fades in
        page.evaluate((npm / "node_modules/axe-core/axe.min.js").read_text("utf8"))
        # formulas are MathML with a picture of it beside; of the dark theme only the colours are other
        what = "{exclude: [['.katex']]}, {resultTypes: ['violations']"
        rules = ", runOnly: ['color-contrast']" * (theme == "dark")
        found = page.evaluate(f"axe.run({what}{rules}}})")["violations"]
        grave = [
            (theme, one["id"], [node["html"][:100] for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not grave


@pytest.mark.parametrize("name", pages())
def test_a_page_is_light(visit, name):
    """The promise of the site: at most 30,000 nodes, no widget manager, no script that sets formulas."""
    page = visit(name)
    assert page.evaluate("document.querySelectorAll('*').length") <= 30_000
    scripts = page.evaluate("[...document.scripts].map((script) => script.src).join(' ')")
    assert not re.search("mathjax|widgets|require|fontawesome", scripts, re.IGNORECASE)
    tab_stops = ".katex[tabindex='0'], span.math[tabindex='0']"
    assert page.locator(tab_stops).count() == 0


@pytest.mark.parametrize("name", pages())
def test_without_scripts_the_first_picture_stands(visit, name):
    page = visit(name, java_script_enabled=False)
    for picture in page.locator("article picture img").all():
        assert picture.get_attribute("src") and picture.get_attribute("width")
    assert page.locator(".frame-control:not([hidden])").count() == 0
    assert page.locator("article .math:not(:has(.katex))").count() == 0


@pytest.mark.parametrize("name", pages())
def test_launch_buttons(visit, site, name):
    page = visit(name)
    links = [a.get_attribute("href") for a in page.locator(".dropdown-launch-buttons a").all()]
    if name not in runnable():
        assert not links
        return
    notebook = f"{name}.ipynb"
    assert (site / "_notebooks" / notebook).exists()
    binder, colab, download = links
    assert binder.startswith("https://mybinder.org/v2/gh/")
    assert binder.endswith(f"/notebooks?urlpath=lab/tree/{notebook}")
    assert colab.startswith("https://colab.research.google.com/github/")
    assert colab.endswith(f"/blob/notebooks/{notebook}")
    assert page.request.get(page.evaluate("href => new URL(href, location).href", download)).ok
    assert not page.locator(".article-header-buttons a[href$='.md']:not([href*='/edit/'])").count()


@pytest.mark.parametrize("name", pages())
def test_sliders_move_by_keyboard(visit, site, name):
    """Each step shows another picture, with another alt text and value, and all files are there."""
    if not has_sliders(site, name):
        return
    page = visit(name)
    for slider in page.locator(".frame-slider").all():
        handle, picture = slider.locator("input"), slider.locator("img")
        last = int(handle.get_attribute("max"))
        seen = set()
        handle.focus()
        page.keyboard.press("Home")
        for _ in range(last + 1):
            alt, value = picture.get_attribute("alt"), handle.get_attribute("aria-valuetext")
            assert alt.endswith(f"= {value}.") and slider.locator("output").inner_text() == value
            picture.evaluate("image => image.decode()")
            seen.add((picture.get_attribute("src"), alt))
            page.keyboard.press("ArrowRight")
        assert len({alt for _, alt in seen}) == last + 1
        assert len({source for source, _ in seen}) > 1


def test_the_book_has_sliders(site):
    assert any(has_sliders(site, name) for name in pages())


def has_sliders(site, name):
    return 'class="frame-slider"' in (site / f"{name}.html").read_text("utf8")


def test_turning_the_right_units_makes_the_functions_equal(visit):
    page = visit("book/intro")
    result = page.locator(".live-turn output")
    for unit in (1, 2, 3):
        assert float(re.search(r"on the grid: ([\d.]+)\.$", result.inner_text())[1]) > 0
        page.get_by_role("button", name=f"Turn unit {unit}").focus()
        page.keyboard.press("Enter")
    assert result.inner_text() == (
        "Turned: units 1, 2, 3. Largest difference on the grid: 0. The two functions are equal."
    )
    assert page.url.endswith("#turned=1-2-3")


def test_the_map_remembers_what_was_read(visit):
    page = visit("book/map")
    page.get_by_role("checkbox").nth(2).check()
    page.reload()
    assert page.get_by_role("checkbox").nth(2).is_checked()
    assert page.locator(".reading-count").inner_text().startswith("You have read 1 of ")
    box = page.get_by_role("checkbox").nth(2).locator("xpath=..").bounding_box()
    assert min(box["width"], box["height"]) >= 44


def test_an_architecture_is_looked_up(visit):
    page = visit("book/lookup")
    page.get_by_role("searchbox").last.fill("llama")
    shown = [row.inner_text() for row in page.locator(".lookup-table tbody tr:visible").all()]
    assert len(shown) == 1 and "SwiGLU" in shown[0] and "never" in shown[0]
    page.get_by_role("searchbox").last.fill("a model of next year")
    assert page.locator(".lookup-table tbody tr:visible").count() == 0
    assert page.locator(".lookup output").inner_text().startswith("Not in the table.")


def test_each_kind_of_block_has_a_place_that_can_be_linked(visit):
    """Its row has an id, also without scripts, and the place of its proof exists."""
    page = visit("book/lookup", java_script_enabled=False)
    rows = page.locator(".lookup-table tbody tr")
    ids = rows.locator("td:first-child span").evaluate_all("spans => spans.map((span) => span.id)")
    assert rows.count() == len(ids) == len({*ids}) and "swiglu" in ids and "gelu-tanh-form" in ids
    for address in {link.get_attribute("href") for link in rows.locator("td:last-child a").all()}:
        proof, _, place = address.partition("#")
        found = visit(f"book/{proof.removesuffix('.html')}", java_script_enabled=False)
        assert not place or found.locator(f"[id='{place}']").count() == 1, address


def test_dark_mode_toggles(visit):
    page = visit(pages()[0])
    background = "getComputedStyle(document.body).backgroundColor"
    seen = set()
    for _ in range(3):
        page.locator("button.theme-switch-button:visible").first.click()
        seen.add((page.evaluate("document.documentElement.dataset.theme"), page.evaluate(background)))
    assert {theme for theme, _ in seen} == {"light", "dark"} and len({colour for _, colour in seen}) == 2


def test_search_finds_a_page(visit):
    page = visit("search")
    page.goto(page.url + "?q=skip")
    page.locator("#book-search-results li a").first.wait_for()


def test_pages_work_from_the_file_system(browser, site):
    """Without a server a page still has its formulas and sliders."""
    page = browser.new_page()
    name = next(n for n in pages() if has_sliders(site, n))
    page.goto((site / f"{name}.html").as_uri())
    page.locator(".frame-control input").first.wait_for()
    assert page.locator(UNRENDERED).count() == 0
    page.close()


def test_a_link_shows_what_it_leads_to(visit):
    """By mouse and by keyboard, with no shift of the page; Escape takes the card away."""
    cases = {
        "book/statements": ("relu-theorem", "Theorem 6.1"),
        "book/skip/relu": ("term-nondegenerate", "no two"),
    }
    for name, (place, words) in cases.items():
        page = visit(name)
        card, link = (
            page.locator(".book-card:popover-open"),
            page.locator(f"article a[href$='#{place}']").first,
        )
        link.scroll_into_view_if_needed()
        before = link.bounding_box()
        link.hover()
        card.wait_for()
        assert words in card.inner_text() and not card.locator("a, [id]").count()
        assert link.bounding_box() == before
        page.keyboard.press("Escape")
        assert not card.count()
        page.mouse.move(1, 1)
        page.keyboard.press("Shift+Tab")  # the keyboard is in use
        link.focus()
        card.wait_for()
        page.keyboard.press("Escape")
        assert not card.count()
