"""Every page of the built site in a real browser, the network shut, under a path prefix as on GitHub."""

import functools
import http.server
import os
import re
import threading

import pytest
from playwright.sync_api import sync_playwright

from chromium import NoBrowser, launch
from shared import pages, runnable

RAW = r"\\\(|\\\[|\$\$|\\begin\{|\{[a-z]+(?::[a-z]+)?\}`|:::"
UNRENDERED = "mjx-merror, [data-mjx-error], mjx-mtext[style*='red'], .math:not(:has(mjx-container))"


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
    (folder / "prefix").symlink_to(site)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            """Keep the requests out of pytest's report."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/prefix/"
    server.shutdown()


@pytest.fixture
def visit(browser, address):
    """Open a page; at the end of the test nothing may have gone wrong on it."""
    troubles, contexts = [], []

    def go(page_name, width=1280):
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        context.set_default_timeout(120_000)  # against hanging, not against a busy machine
        contexts.append(context)
        page = context.new_page()
        own = (address, "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(own) or troubles.append(f"other host: {r.url}"))
        page.on("requestfailed", lambda r: troubles.append(f"failed: {r.url}"))
        page.on("response", lambda r: r.status >= 400 and troubles.append(f"status {r.status}: {r.url}"))
        page.on("console", lambda m: m.type == "error" and troubles.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: troubles.append(f"page error: {e}"))
        page.goto(f"{address}{page_name}.html")
        page.wait_for_load_state("networkidle")
        if page.evaluate("!!window.MathJax?.startup"):
            page.evaluate("MathJax.startup.promise")
        return page

    yield go
    for context in contexts:
        context.close()
    assert not troubles


@pytest.mark.parametrize("name", [*pages(), "index", "search", "genindex"])
def test_page(visit, name):
    page = visit(name)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true);"
                  "document.querySelectorAll('button.toggle-button').forEach(b => b.click())")  # fmt: skip
    if name in pages():
        assert page.locator("article h1").count() == 1
        assert len(page.locator("meta[name=description]").first.get_attribute("content") or "") > 40
        footer = page.locator("footer.bd-footer-content, .bd-footer-content").first.inner_text()
        assert "CC BY 4.0" in footer and "MIT" in footer and "Last updated" in footer
    text = page.evaluate("""() => {
        const main = (document.querySelector('article') ?? document.body).cloneNode(true);
        main.querySelectorAll('pre, code, script, style, mjx-container').forEach(e => e.remove());
        return main.textContent;
    }""")
    assert not re.findall(RAW, text)
    assert page.locator(UNRENDERED).count() == 0
    for picture in page.locator("article img").all():
        alt = picture.get_attribute("alt") or ""
        source = picture.get_attribute("src")[:80]
        assert len(alt) > 15 and not re.search(r"_images/|\.(png|svg)$", alt), source
    for drawing in page.locator("article .output svg").all():
        named = drawing.get_attribute("aria-label") or drawing.locator("> title").count()
        assert named, drawing.inner_html()[:80]


@pytest.mark.parametrize("name", pages())
def test_no_horizontal_scroll_on_a_phone(visit, name):
    page = visit(name, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = """[...document.querySelectorAll('article *')]
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
        .map(e => e.tagName + '.' + e.className).slice(0, 5)"""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.evaluate(wide)


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
    assert not page.locator(".article-header-buttons a[href$='.md']").count()


@pytest.mark.parametrize("name", pages())
def test_sliders_move_by_keyboard(visit, site, name):
    """Without a kernel: the picture that the widgets show must change with every step of the handle."""
    if not has_widgets(site, name):
        return
    page = visit(name)
    sliders = page.locator(".widget-slider [role=slider]")
    sliders.first.wait_for()
    for slider in sliders.all():
        output = page.locator(".cell_output", has=slider)
        picture = output.locator(".jupyter-widgets img, .jupyter-widgets svg").first
        slider.scroll_into_view_if_needed()
        before, value = picture.screenshot(), slider.get_attribute("aria-valuetext")
        slider.focus()
        at_end = slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
        page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
        page.wait_for_timeout(300)
        assert slider.get_attribute("aria-valuetext") != value
        assert picture.screenshot() != before, f"{name}: the picture stayed"


def test_the_book_has_sliders(site):
    assert any(has_widgets(site, name) for name in pages())


def has_widgets(site, name):
    return "application/vnd.jupyter.widget-view+json" in (site / f"{name}.html").read_text("utf8")


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
    """Without a server a page still has its formulas and widgets (Chromium only refuses to preload fonts)."""
    page = browser.new_page()
    name = next(n for n in pages() if "widget-view+json" in (site / f"{n}.html").read_text("utf8"))
    page.goto((site / f"{name}.html").as_uri())
    page.locator("mjx-container").first.wait_for()
    page.locator(".widget-slider [role=slider]").first.wait_for()
    assert page.locator(UNRENDERED).count() == 0
    page.close()
