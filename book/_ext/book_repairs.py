"""Mend what the theme and other extensions write and that screen readers or search engines stumble over."""

import re
from pathlib import Path

REPAIRS = [
    # a name that hides the words that are there
    (re.compile(r' aria-label="Toggle hidden content"'), ""),
    (re.compile(r'(<button class="btn search-button[^>]*?) title="Search" aria-label="Search"'), r"\1"),
    # one id for all theorems, exercises and solutions of a page
    (re.compile(r' id="(?:proof|exercise|solution)-content"'), ""),
    # the theme and what it stands on say it once each
    (re.compile(r'<meta name="viewport"[^>]*>(?=.*<meta name="viewport")', re.DOTALL), ""),
    # children of role=list; the role that docutils gives is withdrawn
    (re.compile(r'role="doc-biblioentry"'), 'role="listitem"'),
]


def mend(html):
    for pattern, replacement in REPAIRS:
        html = pattern.sub(replacement, html)
    return html


def mend_pages(app, exception):
    if exception or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        before = page.read_text("utf8")
        after = mend(before)
        if after != before:
            page.write_text(after, "utf8")


def setup(app):
    app.connect("build-finished", mend_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
