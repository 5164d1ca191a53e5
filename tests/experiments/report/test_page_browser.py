"""The results page in a browser: all of it shown, nothing loaded, no line too wide.

Needs Chromium on PATH. The page is served to it from this process, at an address
without a name, and no name is resolved.
"""

import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments import page
from tests.test_claims import everything
from tests.test_page import DRAWING, Reader, write

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--enable-logging=stderr", "--log-level=0"),
    *("--window-size=390,2000", "--virtual-time-budget=2000", "--dump-dom"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
MEASURE = (
    "<script>addEventListener('load', () => parent.postMessage(['{}',"
    " document.documentElement.scrollWidth, innerWidth,"
    " performance.getEntriesByType('resource').length], '*'));</script>"
)
SPOILED = (
    '<img src="dot.svg"><p style="width: 999px">wide'
    "<script>console.error('noticed')</script>"
)
FRAMES = (
    "<!DOCTYPE html><script>addEventListener('message', e =>"
    " document.body.append(' seen=' + JSON.stringify(e.data)))</script><body>"
    '<iframe src="page.html" width=390 height=2000></iframe>'
    '<iframe src="spoiled.html" width=390 height=2000></iframe>'
)


class Site(NamedTuple):
    """`folder` as served at `address`; `asked`: every path that was asked for."""

    folder: Path
    address: str
    asked: list[str]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("records")
    write(folder, everything())
    (folder / "figure2.svg").write_text(DRAWING.format(100))
    (folder / "figure4.svg").write_text(DRAWING.format(900))
    return page.page(folder)


@pytest.fixture
def site(tmp_path):
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    handler = partial(Handler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Site(tmp_path, f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()


def browse(site: Site, name: str, profile: Path) -> subprocess.CompletedProcess:
    """The page as a browser holds it after its scripts, and what it logged."""
    found = [browser for browser in BROWSERS if shutil.which(browser)]
    if not found:
        pytest.skip(f"no browser on PATH: install one of {', '.join(BROWSERS)}")
    command = [found[0], *FLAGS, f"--user-data-dir={profile}"]
    command.append(f"{site.address}/{name}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def logged(done: subprocess.CompletedProcess) -> list[str]:
    """Lines of the page's console; a favicon is the browser's own idea."""
    lines = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return [line for line in lines if "favicon.ico" not in line]


def test_every_table_is_shown_and_nothing_is_logged(text, site, tmp_path_factory):
    (site.folder / "index.html").write_text(text, "utf-8")
    done = browse(site, "index.html", tmp_path_factory.mktemp("profile"))
    assert Reader(done.stdout).rows == Reader(text).rows
    assert logged(done) == []
    assert set(site.asked) <= {"/index.html", "/favicon.ico"}


def test_it_fits_390_pixels_and_loads_nothing(text, site, tmp_path_factory):
    """Each in a frame; the spoiled twin shows that the checks would notice."""
    twin = text + SPOILED + MEASURE.format("spoiled")
    (site.folder / "page.html").write_text(text + MEASURE.format("page"), "utf-8")
    (site.folder / "spoiled.html").write_text(twin, "utf-8")
    (site.folder / "frames.html").write_text(FRAMES)
    (site.folder / "dot.svg").write_text(DRAWING.format(1))
    done = browse(site, "frames.html", tmp_path_factory.mktemp("profile"))
    seen = map(json.loads, re.findall(r"seen=(\[.*?\])", done.stdout))
    seen = {name: numbers for name, *numbers in seen}
    width, inner, loaded = seen["page"]
    assert width <= inner == 390 and loaded == 0
    width, inner, loaded = seen["spoiled"]
    assert width > inner == 390 and loaded == 1 and "/dot.svg" in site.asked
    assert any("noticed" in line for line in logged(done))
