"""Build the book with warnings as errors, look for failures in the pages, and print the address of the result."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ANSI = re.compile(r"\x1b\[[0-9;]*m")
ERROR_OUTPUT = re.compile(r'<div class="(cell[^"]*)"|class="[^"]*\b(?:traceback|output stderr)\b')


def sphinx(root):
    """Run Jupyter Book and pass on its lines, without the traceback by which it repeats that Sphinx failed."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", root, "-W", "--keep-going"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    traceback = []
    for line in process.stdout:
        line = line if sys.stdout.isatty() else ANSI.sub("", line)
        if traceback or line.startswith("Traceback (most recent call last)"):
            traceback.append(line)
        else:
            print(line, end="", flush=True)
    if not any("There was an error in building your book" in line for line in traceback):
        print("".join(traceback), end="")
    return process.wait()


def errors_in(page):
    """Error output that stands on a page, except in cells that announce it by the tag raises-exception."""
    announced = False
    for match in ERROR_OUTPUT.finditer(page.read_text("utf8")):
        if match[1] is not None:
            announced = "tag_raises-exception" in match[1]
        elif not announced:
            yield match[0]


def main(root=ROOT):
    site = root / "_build" / "html"
    if sphinx(root):
        print("\nThe book was NOT built: see the first error above.")
        return 1
    failures = [(page, found) for page in sorted(site.rglob("*.html")) for found in errors_in(page)]
    for page, found in failures:
        print(f"error output on {page.relative_to(site)}: {found}")
    if failures:
        return 1
    print(f"\nThe book is here:\n{(site / 'index.html').as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
