"""Where the tests look for a browser, and what they say when there is none."""

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Error

import chromium
from shared import ROOT


class Chromium:
    """Stands for Playwright's browser type; only the executable of this name starts."""

    def __init__(self, starts):
        self.starts = starts

    def launch(self, executable_path, args):
        if executable_path != self.starts:
            raise Error(f"{executable_path} does not start\nCall log: ...")
        return f"running {executable_path}"


def gives(path):
    return lambda: path


def refuses(words):
    def source():
        raise OSError(words)

    return source


@pytest.fixture(autouse=True)
def build_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(chromium, "BUILD", tmp_path)
    monkeypatch.setattr(chromium, "UNPACKED", tmp_path / "chromium")


def test_the_first_that_starts_is_taken_and_no_later_source_is_asked():
    sources = {"a": refuses("none"), "b": gives("broken"), "c": gives("good"), "d": refuses("never asked")}
    assert chromium.launch(Chromium("good"), sources) == "running good"


def test_without_any_the_error_is_one_line_that_says_what_to_do():
    with pytest.raises(chromium.NoBrowser) as raised:
        chromium.launch(Chromium("good"), {"a": refuses("none"), "b": gives("broken")})
    assert "\n" not in str(raised.value)
    assert "playwright install chromium" in str(raised.value) and "BROWSER=none" in str(raised.value)
    assert "(tried a: none; b: broken does not start)" in str(raised.value)


def test_downloads_come_after_all_that_is_here():
    assert list(chromium.SOURCES) == [
        "on the PATH", "Playwright's", "unpacked before", "playwright install", "npm", "apt-get"
    ]  # fmt: skip


def test_the_path_is_searched(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="none"):
        chromium.on_the_path()
    program = tmp_path / "google-chrome"
    program.touch(mode=0o755)
    assert chromium.on_the_path() == str(program)


def test_a_download_that_fails_says_its_last_line(monkeypatch):
    with pytest.raises(OSError, match=r"^no such package$"):
        chromium.run(sys.executable, "-c", "print('much', flush=True); raise SystemExit('no such package')")
    with pytest.raises(OSError):
        chromium.run("no-such-program-anywhere")


def test_an_unfinished_download_is_no_browser(tmp_path):
    (tmp_path / "chromium").mkdir()
    (tmp_path / "chromium" / "chromium").touch()
    with pytest.raises(OSError, match="none"):
        chromium.unpacked()


def test_apt_get_is_for_root_only(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OSError, match="not root on Debian"):
        chromium.from_debian()


def test_a_run_without_a_browser_ends_with_what_it_left_out():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-k",
        "test_there_is_a_browser or dark_mode",
    ]
    options = {"cwd": ROOT, "env": os.environ | {"BROWSER": "none"}, "capture_output": True, "text": True}
    run = subprocess.run([*command, "-n1", "tests/site/test_browser.py"], **options)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "BROWSER=none: 2 tests of the pages in a browser were left out"
