"""Print the built book to one PDF: `make pdf`, after `make book`.

The pages' articles are joined in the order of the contents, light, unfolded, with all solutions at the end,
and printed by Chromium.  It cannot count pages for cross-references, so the book is printed twice: the first
print says on which page each link's destination came to lie.
"""

import io
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pypdf
import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import sync_playwright

from book_launch import PDF
from chromium import NoBrowser, launch

ROOT = Path(__file__).resolve().parent.parent.parent
SITE, FOLDER = ROOT / "_build" / "html", ROOT / "_build" / "pdf"
# What a page needs on a screen only.
SCREEN = (
    "script, noscript, source, button, .headerlink, .katex-mathml, .frame-control, .live-controls, "
    "details.hide, .front-buttons, form, "
    ".toggle-details__summary, .no-print, .sd-summary-icon, .sd-summary-state-marker"
)
UNKNOWN = "000"  # stands for a page number in the first print, as wide as one


def contents():
    """(caption of a part or None, page names) in the order of _toc.yml."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    yield None, [toc["root"]]
    for part in toc["parts"]:
        yield part["caption"], [chapter["file"] for chapter in part["chapters"]]


def printed(parts):
    """The parts without the pages that only make sense on a screen."""
    for caption, names in parts:
        kept = [name for name in names if name != "book/map" and "/api/" not in name]
        if kept:
            yield caption, kept


def anchor(page, fragment=""):
    """The id in the printed book of a place on a page."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", page) + (f"--{fragment}" if fragment else "")


class Book:
    """The book as one HTML document."""

    def __init__(self, site=SITE):
        self.site, self.solutions, self.entries = site, [], []
        self.parts = list(printed(contents()))
        self.pages = [name for _, names in self.parts for name in names]

    def article(self, page):
        """The article of one page with its ids and links made fit for the book."""
        soup = BeautifulSoup((self.site / f"{page}.html").read_text("utf8"), "html.parser")
        article = soup.select_one("article.bd-article")
        for element in article.select(SCREEN):
            element.decompose()
        for element in article.select("details"):
            element["open"] = ""
        for link in article.select("a.term-link, a.code-link"):
            link.unwrap()  # else each would get a page number
        for element in article.select("[id]"):
            element["id"] = anchor(page, element["id"])
        article["id"] = anchor(page)
        for image in article.select("img"):
            image.attrs.pop("loading", None)
            image["src"] = "../html/" + self.resolve(page, image["src"])
        for link in article.select("a[href]"):
            link["href"] = self.address(page, link["href"])
        return article

    def resolve(self, page, href):
        return str((self.site / page).parent.joinpath(unquote(href)).resolve().relative_to(self.site))

    def address(self, page, href):
        """A link of a page as one of the book: to a place in it, to the site, or elsewhere."""
        if re.match(r"[a-z]+:", href):
            return href
        path, fragment = urldefrag(href)
        target = self.resolve(page, path).removesuffix(".html") if path else page
        if target in self.pages:
            return "#" + anchor(target, unquote(fragment))
        return f"{self.base}{target}.html" + (f"#{fragment}" if fragment else "")

    def document(self, front, numbers):
        """HTML of the whole book; ``numbers`` says the page of each id, where it is known."""
        self.base = front["site"]
        soup = BeautifulSoup(SHELL.format(**front, styles=self.styles()), "html.parser")
        for caption, names in self.parts:
            for place, page in enumerate(names):
                chapter = self.chapter(soup, page)
                if caption and not place:
                    chapter.insert(0, soup.new_tag("p", attrs={"class": "part-title"}, string=caption))
                    self.entries.append((1, caption, chapter["id"]))
                self.list_headings(chapter, 2 if caption else 1)
                soup.body.append(chapter)
        soup.body.append(self.appendix(soup))
        self.write_contents(soup)
        self.number_references(soup, numbers)
        return str(soup)

    def chapter(self, soup, page):
        article = self.article(page)
        chapter = soup.new_tag("section", attrs={"class": "chapter bd-article", "id": article["id"]})
        for child in list(article.children):
            chapter.append(child.extract())
        title = chapter.find("h1")
        running = re.sub(r'["\\]', "", title.get_text(" ", strip=True))
        name = anchor(page).lower()
        soup.head.style.append(f'@page {name} {{ @top-left {{ content: "{running}" }} }}\n')
        chapter["style"] = f"page: {name}"
        found = chapter.select("div.solution")
        if found:
            self.solutions.append((title.get_text(" ", strip=True), [s.extract() for s in found]))
        return chapter

    def list_headings(self, chapter, depth):
        for heading in chapter.select("h1, h2"):
            # not its section's place: that may begin at the foot of the page before
            heading["id"] = heading.find_parent("section")["id"] + "--title"
            level = depth + (heading.name == "h2")
            self.entries.append((level, heading.get_text(" ", strip=True), heading["id"]))

    def appendix(self, soup):
        part = soup.new_tag("section", attrs={"class": "chapter bd-article", "id": "solutions"})
        part["style"] = "page: solutions"
        soup.head.style.append('@page solutions { @top-left { content: "Solutions" } }\n')
        part.append(soup.new_tag("h1", string="Solutions"))
        self.entries.append((1, "Solutions", "solutions"))
        for title, found in self.solutions:
            part.append(soup.new_tag("h2", string=title))
            for solution in found:
                part.append(solution)
        return part

    def write_contents(self, soup):
        listing = soup.select_one("#contents")
        for level, text, place in self.entries:
            line = soup.new_tag("p", attrs={"class": f"entry level-{level}"})
            link = soup.new_tag("a", href=f"#{place}")
            link.append(soup.new_tag("span", string=text))
            line.append(link)
            listing.append(line)

    def number_references(self, soup, numbers):
        """Write page numbers behind the contents' entries, and behind links to other chapters."""
        for link in soup.select("a[href^='#']"):
            target = link["href"][1:]
            home = link.find_parent("section", class_="chapter")
            if link.find_parent(id="contents"):
                link.append(
                    soup.new_tag("span", attrs={"class": "page"}, string=numbers.get(target, UNKNOWN))
                )
            elif (
                home is not None
                and not target.startswith(home["id"] + "--")
                and "headerlink" not in link.get("class", ())
            ):
                text = f"\u202f[p.\u202f{numbers.get(target, UNKNOWN)}]"
                link.append(soup.new_tag("span", attrs={"class": "page"}, string=text))

    def styles(self):
        page = BeautifulSoup((self.site / f"{self.pages[0]}.html").read_text("utf8"), "html.parser")
        names = [self.resolve(self.pages[0], urldefrag(link["href"])[0].split("?")[0])
                 for link in page.select("link[rel=stylesheet]")]  # fmt: skip
        return "".join(f'<link rel="stylesheet" href="../html/{name}">' for name in names)


SHELL = """<!doctype html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{title}</title>{styles}<style>
@page {{ size: A4; margin: 22mm 20mm 20mm; @bottom-center {{ content: counter(page); font: 9pt sans-serif }}
  @top-left {{ font: 9pt sans-serif; color: #555 }} }}
@page front {{ @bottom-center {{ content: none }} }}
html {{ font-size: 11.5pt; overflow: visible }} body {{ background: #fff; padding: 0; margin: 0 }}
.front {{ page: front; break-after: page; text-align: left; padding-top: 55mm }}
.front h1 {{ font-size: 30pt; margin: 0 0 6mm }}
#contents {{ break-after: page }}
.chapter {{ break-before: page; max-width: none; padding: 0 }}
.part-title {{ color: #555; font-size: 1.1em; letter-spacing: .05em; margin-bottom: 2em }}
.entry {{ margin: 0.1em 0 }} .entry a {{ color: inherit; display: flex; text-decoration: none }}
.entry a > span:first-child {{ flex: 1 }}
.level-1 {{ font-weight: bold; margin-top: 1em }} .level-2 {{ margin: .4em 0 0 1em }}
.level-3 {{ font-size: .9em; margin-left: 2.4em }}
a .page {{ color: #555; font-size: .85em; text-decoration: none; font-variant-numeric: tabular-nums }}
.entry .page {{ color: inherit; font-size: 1em }}
pre {{ font-size: 8.5pt }}
img, svg {{ max-width: 100%; height: auto }}
.chapter figure img {{ max-height: 150mm; object-fit: contain }}
</style></head><body>
<section class="front"><h1>{title}</h1><p>{subtitle}</p><p>{authors}</p>
<p>Version {version}, {date}.
<a href="{site}">{site}</a></p><p>Text: CC BY 4.0. Code: MIT.</p></section>
<section id="contents" class="chapter" style="page: contents">
<h1>Contents</h1><a href="#contents"></a></section>
</body></html>"""


def front_matter():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    organisation, repository = config["repository"]["url"].rstrip("/").split("/")[-2:]
    authors = ", ".join(
        a.get("name") or f"{a.get('given-names', '')} {a.get('family-names', '')}".strip()
        for a in citation["authors"]
    )
    return {
        "title": config["title"],
        "subtitle": "An executable textbook about what a network's function says about its weights",
        "authors": authors,
        "version": f"{citation['version']} ({commit.stdout.strip() or 'no commit'})",
        "date": time.strftime("%Y-%m-%d"),
        "site": f"https://{organisation}.github.io/{repository}/",
    }


def print_once(browser, html, path):
    source = FOLDER / "book.html"
    source.write_text(html, "utf8")
    page = browser.new_page()
    page.goto(source.as_uri(), timeout=0)
    page.evaluate("document.fonts.ready")
    page.pdf(path=path, prefer_css_page_size=True, print_background=True, tagged=True)
    page.close()


def page_numbers(path):
    """On which page each link's destination lies, counted from 1."""
    reader = pypdf.PdfReader(path)
    return {
        name.removeprefix("/"): str(reader.get_destination_page_number(destination) + 1)
        for name, destination in reader.named_destinations.items()
    }


def finish(path, book, numbers, front):
    """Write the outline, which is the contents, and the facts about the book; return the bytes."""
    writer, parents = pypdf.PdfWriter(clone_from=path), {}
    for level, text, place in [(1, "Contents", "contents"), *book.entries]:
        page = int(numbers[place]) - 1
        parents[level] = writer.add_outline_item(text, page, parent=parents.get(level - 1))
        parents = {depth: item for depth, item in parents.items() if depth <= level}
    writer.add_metadata({"/Title": front["title"], "/Author": front["authors"], "/Subject": front["version"]})
    writer.compress_identical_objects()
    data = io.BytesIO()
    writer.write(data)
    return data.getvalue()


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    front, path, numbers = front_matter(), FOLDER / "book.pdf", {}
    with sync_playwright() as playwright:
        try:
            browser = launch(playwright.chromium)
        except NoBrowser as none:
            print(none)
            return 1
        for _ in range(3):
            book = Book()
            print_once(browser, book.document(front, numbers), path)
            before, numbers = numbers, page_numbers(path)
            if numbers == before:
                break
        else:
            print("the page numbers did not settle in three prints")
            return 1
        browser.close()
    target = SITE / PDF
    target.write_bytes(finish(path, book, numbers, front))
    print(f"The book on paper is here:\n{target.as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
