"""Weight and speed of pages as a reader gets them: gzip, an empty cache, a browser that runs already.

    .venv/bin/python tests/benchmarks/pages.py [--site FOLDER] [--slow] [PAGE ...]

Prints, for each page: KB sent, requests, seconds until the first paint and until everything is ready, nodes
of the page.  ``--slow``: 1.6 Mbit/s, 150 ms of latency, a processor slowed four times.
"""

import argparse
import functools
import gzip
import http.server
import statistics
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path += [str(Path(__file__).parents[2] / "book" / "_ext"), str(Path(__file__).parents[1] / "site")]
from chromium import launch
from shared import SITE, pages

SLOW = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 94_000}
TEXT = (".html", ".css", ".js", ".svg", ".json", ".mjs")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"
READY = """Promise.all([document.fonts.ready, new Promise(done =>
    document.readyState === 'complete' ? done() : addEventListener('load', done))])
    .then(() => performance.now() / 1000)"""


class Compressed(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, text by gzip; counts what it sends."""

    sent, requests = 0, 0

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if path.suffix in TEXT:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        Compressed.sent += len(body)
        Compressed.requests += 1

    def log_message(self, *arguments):
        """Say nothing of requests."""


def measure(browser, url, slow):
    context = browser.new_context(viewport={"width": 390 if slow else 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    if slow:
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", SLOW)
        session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    Compressed.sent = Compressed.requests = 0
    page.goto(url, timeout=300_000)
    ready = page.evaluate(READY)
    row = [Compressed.sent / 1000, Compressed.requests, page.evaluate(PAINT) or float("nan"), ready]
    row.append(page.evaluate("document.querySelectorAll('*').length"))
    context.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--slow", action="store_true")
    arguments = parser.parse_args()
    handler = functools.partial(Compressed, directory=arguments.site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = []
    print("| page | KB sent | requests | first paint s | ready s | nodes |\n|---|---|---|---|---|---|")
    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        for name in arguments.pages or pages():
            url = f"http://127.0.0.1:{server.server_port}/{name}.html"
            rows.append(measure(browser, url, arguments.slow))
            sent, requests, paint, ready, nodes = rows[-1]
            print(f"| {name} | {sent:.0f} | {requests} | {paint:.1f} | {ready:.1f} | {nodes} |", flush=True)
    medians = [statistics.median(column) for column in zip(*rows)]
    print("| median | {:.0f} | {:.0f} | {:.1f} | {:.1f} | {:.0f} |".format(*medians))


if __name__ == "__main__":
    main()
