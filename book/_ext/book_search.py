"""Search by section, statement, exercise, figure and term, instead of the theme's search by page.

What is found is read off the pages, numbers included; MiniSearch ranks it in the browser (_static/search.js).
"""

import json
import re
from pathlib import Path

from lxml import html

# Boxes that are found by themselves; a section's text is without them.
BOXES = {"proof": "statement", "exercise": "exercise", "solution": None}
NO_TEXT = {"script", "style", "button", "svg", "details"}
SPACE = re.compile(r"\s+")
COMMANDS = [
    (re.compile(r"\\(?:mathbb|mathrm|mathsf|mathbf|mathcal|operatorname|text|tilde|bar|hat)\s*"), ""),
    (re.compile(r"\^\{?\\?T\b\}?|\\T\b"), "ᵀ"),
    (re.compile(r"\\(?:norm|abs|lVert|rVert|lvert|rvert)\b"), "|"),
    (
        re.compile(r"\\(?:left|right|bigl?|bigr|Bigl|Bigr|quad|qquad|displaystyle|tfrac|frac|dfrac|[,;:! ])"),
        " ",
    ),
    (re.compile(r"\\(?:ne|neq)\b"), "≠"),
    (re.compile(r"\\(?:le|leq)\b"), "≤"),
    (re.compile(r"\\(?:ge|geq)\b"), "≥"),
    (re.compile(r"\\in\b"), "∈"),
    (re.compile(r"\\sum\b"), "Σ"),
    (re.compile(r"\\sigma\b"), "σ"),
    (re.compile(r"\\cdot\b"), "·"),
    (re.compile(r"\\to\b"), "→"),
    (re.compile(r"[\\{}&$]"), ""),
]


def plain(tex):
    """A formula as a line of text, to be searched and shown: W_\\up x as W_up x."""
    for pattern, replacement in COMMANDS:
        tex = pattern.sub(replacement, tex)
    return SPACE.sub(" ", tex).strip()


def kind_of(element):
    classes = set((element.get("class") or "").split())
    return next((kind for kind in BOXES if kind in classes and "admonition" in classes), None)


def words(element, skip_boxes=True):
    """The text of an element, formulas as plain lines, without what is found by itself or is no text."""
    parts = [element.text or ""]
    for child in element:
        classes = (child.get("class") or "").split() if isinstance(child.tag, str) else ()
        is_text = isinstance(child.tag, str) and child.tag not in NO_TEXT
        apart = skip_boxes and is_text and (child.tag == "section" or kind_of(child))
        if "katex" in classes:
            parts.append(plain("".join(child.xpath(".//annotation/text()"))))
        elif is_text and not apart and "headerlink" not in classes:
            parts.append(words(child, skip_boxes))
        parts.append(child.tail or "")
    return SPACE.sub(" ", "".join(parts)).strip()


def split_title(title):
    """ "6.3.2. Step 2" as its number and its words; "Theorem 6.1 (Title)" likewise."""
    match = re.match(r"((?:[A-Z][a-z]+ )?\d+(?:\.\d+)*)\.?\s*(.*)", title)
    return (match[1], re.sub(r"^\((.*)\)$", r"\1", match[2])) if match else ("", title)


def address(element):
    """The id by which links reach an element: its own, or that of an anchor just before it."""
    return element.get("id") or next(iter(element.xpath("ancestor::*[@id][1]/@id")), "")


def records(path, name):
    """What can be found on one page."""
    article = next(
        iter(html.fromstring(path.read_text("utf8")).xpath('//article[contains(@class, "bd-article")]')), None
    )
    if article is None:
        return
    titles = article.xpath(".//h1")
    chapter = ". ".join(filter(None, split_title(words(titles[0])))) if titles else name
    for section in article.iter("section"):
        heading = next((child for child in section if child.tag in ("h1", "h2", "h3", "h4")), None)
        if heading is None or not section.get("id"):
            continue
        label, title = split_title(words(heading))
        kind = "chapter" if heading.tag == "h1" else "section"
        place = "" if kind == "chapter" else f"#{section.get('id')}"
        yield record(name, place, kind, label, title, chapter, words(section)[len(words(heading)) :])
    for box in article.xpath('.//div[contains(concat(" ", @class, " "), " admonition ")]'):
        kind = BOXES.get(kind_of(box))
        heading = next(iter(box.xpath("./p[contains(@class, 'admonition-title')]")), None)
        if kind and heading is not None:
            label, title = split_title(words(heading))
            text = words(box, skip_boxes=False)[len(words(heading)) :]
            yield record(name, f"#{address(box)}", kind, label, title, chapter, text)
    for figure in article.xpath(".//figure[@id][figcaption]"):
        label, title = split_title(words(figure.find("figcaption")))
        yield record(
            name, f"#{figure.get('id')}", "figure", label.replace("Fig ", "Fig. "), "", chapter, title
        )
    for term in article.xpath(".//dl[contains(@class, 'glossary')]/dt[@id]"):
        text = words(term.getnext()) if term.getnext() is not None else ""
        yield record(name, f"#{term.get('id')}", "term", "", words(term), chapter, text)
    for signature in article.xpath(".//dt[contains(@class, 'sig')][@id]"):
        short = signature.get("id").rpartition(".")[2]
        text = words(signature.getnext()) if signature.getnext() is not None else ""
        yield record(
            name, f"#{signature.get('id')}", "code", "", short, chapter, f"{signature.get('id')} {text}"
        )
    for entry in article.xpath(".//div[contains(@class, 'citation')][@id]"):
        yield record(name, f"#{entry.get('id')}", "entry", "", "", chapter, words(entry))


def record(page, place, kind, label, title, chapter, text):
    url = f"{page}.html{place}"
    return {
        "url": url,
        "kind": kind,
        "label": label,
        "title": title,
        "chapter": chapter,
        "text": text.strip(),
    }


def write_records(app, exception):
    if exception or app.builder.format != "html":
        return
    site, found = Path(app.outdir), {}
    for name in sorted(app.env.all_docs):
        path = site / f"{name}.html"
        if path.exists():
            found |= {one["url"]: one for one in records(path, name)}
    data = json.dumps(list(found.values()), ensure_ascii=False, separators=(",", ":"))
    (site / "_static" / "search-records.js").write_text(f"window.bookRecords={data};\n", "utf8")


def setup(app):
    app.connect("build-finished", write_records, priority=600)  # pages are as they will be
    return {"parallel_read_safe": True, "parallel_write_safe": True}
