"""Cards: what stands at the places that links lead to, one small script for each page (_static/cards.js)."""

import json
from pathlib import Path

from lxml import html

# Elements that links lead to, and what is no part of their card.
TARGETS = (
    "//div[contains(@class, 'admonition')][contains(@class, 'proof') or contains(@class, 'exercise')][@id]"
    " | //div[contains(@class, 'math')][@id] | //div[contains(@class, 'citation')][@id] | //dt[@id]"
)
LEFT_OUT = (
    ".//a[contains(@class, 'headerlink')] | .//script | .//button | .//span[@class='katex-mathml']"
    " | .//details | .//div[contains(@class, 'cell')]"
)


def content(target):
    """The parts of a card: a box or a formula; a term with its definition; a signature and what it is."""
    if target.tag != "dt":
        return [target]
    meaning = next(target.itersiblings("dd"), None)
    if "sig" not in (target.get("class") or "").split():
        return [target] if meaning is None else [target, meaning]
    return [target, *([] if meaning is None else meaning.xpath("./p[1]"))]


def card(target):
    """The card as HTML that can stand anywhere: no ids, no links."""
    parts = [
        html.fromstring(html.tostring(part, encoding="unicode", with_tail=False)) for part in content(target)
    ]
    for part in parts:
        for other in part.xpath(LEFT_OUT):
            if other.getparent() is not None:
                other.drop_tree()
        for element in part.iter():
            if element.tag in ("a", "dt", "dd"):
                element.tag = "span" if element.tag == "a" else "div"
            for name in ("id", "href", "title", "tabindex", "role"):
                element.attrib.pop(name, None)
    if target.tag == "dt" and "sig" not in target.get("class", ""):
        parts[0].tag = "strong"
    return "".join(html.tostring(part, encoding="unicode") for part in parts)


def cards(body):
    """The cards of a page by the ids of their places."""
    page = html.fromstring(f"<div>{body}</div>")
    return {target.get("id"): card(target) for target in page.xpath(TARGETS)}


def write_cards(app, pagename, templatename, context, doctree):
    if doctree is None or app.builder.format != "html":
        return
    path = Path(app.outdir, "_static", "cards", f"{pagename}.js")
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(cards(context["body"]), ensure_ascii=False, separators=(",", ":"))
    path.write_text(f'bookCards["{pagename}"]={data};\n', "utf8")


def setup(app):
    app.add_js_file("cards.js", loading_method="defer")
    app.connect("html-page-context", write_cards, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
