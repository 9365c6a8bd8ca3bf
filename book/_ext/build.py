"""Build the book with warnings as errors, look for failures in the pages, and print the result's address.

``build.py`` builds the book, ``build.py skip/relu`` that chapter alone: it runs it, unless its outputs are
current, and judges its warnings and outputs; the other pages are read for what it refers to, not executed.
"""

import argparse
import contextlib
import io
import re
import sys
import time
from pathlib import Path

from jupyter_book.sphinx import build_sphinx
from sphinx.util.console import nocolor, strip_escape_sequences
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
WARNING = re.compile(r"^(?=.*\b(?:WARNING|ERROR|CRITICAL): )", re.MULTILINE)
ERROR_OUTPUT = re.compile(r'<div class="(cell[^"]*)"|class="[^"]*\b(?:traceback|output stderr)\b')


def sphinx(root, site, **options):
    """What ``jupyter-book build`` calls, with its settings; true if it fails."""
    overrides = {"external_toc_path": (root / "_toc.yml").as_posix(), "latex_individualpages": False}
    overrides |= options.pop("overrides", {})
    config = root / "_config.yml"
    return build_sphinx(
        root, site, noconfig=True, path_config=config, confoverrides=overrides, keep_going=True, **options
    )


def errors_in(page):
    """Error output that stands on a page, except in cells that announce it by the tag raises-exception."""
    announced = False
    for match in ERROR_OUTPUT.finditer(page.read_text("utf8")):
        if match[1] is not None:
            announced = "tag_raises-exception" in match[1]
        elif not announced:
            yield match[0]


def report_errors(site, pages):
    """Print the error outputs on these pages; true if there are any."""
    found = [(page, error) for page in pages for error in errors_in(page)]
    for page, error in found:
        print(f"error output on {page.relative_to(site)}: {error}")
    return bool(found)


def build_book(root):
    site, memory = root / "_build" / "html", root / "_build" / ".doctrees" / "environment.pickle"
    start = time.time()
    with contextlib.redirect_stderr(sys.stdout):
        failed = sphinx(root, site, warningiserror=True)
    if failed:
        # Sphinx warns when it reads a page: forget what was read now, or the next build would be silent.
        if memory.exists() and memory.stat().st_mtime >= start - 1:
            memory.unlink()
        print("\nThe book was NOT built: see the first error above.")
        return 1
    if report_errors(site, sorted(site.rglob("*.html"))):
        return 1
    print(f"\nThe book is here:\n{(site / 'index.html').as_uri()}")
    return 0


def build_page(root, page):
    docname = f"book/{page.removeprefix('book/').removesuffix('.md')}"
    known = parse_toc_yaml(root / "_toc.yml")
    if docname not in known:
        print(f"no page {page!r}; there are {', '.join(name.removeprefix('book/') for name in known)}")
        return 2
    source = root / f"{docname}.md"
    site = root / "_build" / "page" / "html"
    with contextlib.redirect_stderr(io.StringIO()) as messages:
        failed = sphinx(root, site, overrides={"book_page": docname}, filenames=[str(source)])
    text = strip_escape_sequences(messages.getvalue())
    # Other pages were read without their outputs: what they lack is no fault of this one.
    warnings = [warning for warning in WARNING.split(text) if warning.startswith(str(source))]
    print(text if isinstance(failed, Exception) else "".join(warnings), end="")
    result = (site / docname).with_suffix(".html")
    if failed or warnings or report_errors(site, [result]):
        print("\nThe page is NOT right: see the first error above.")
        return 1
    print(f"\nThe page is here:\n{result.as_uri()}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", help="a page's path below book/; default: the whole book")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the book")
    arguments = parser.parse_args()
    if not sys.stdout.isatty():
        nocolor()
        sys.stdout.reconfigure(line_buffering=True)
    root = arguments.root.resolve()
    return build_page(root, arguments.page) if arguments.page else build_book(root)


if __name__ == "__main__":
    sys.exit(main())
