"""The results pages in a browser: shown whole, nothing loaded, no line and no word cut.

Needs Chromium on PATH. The pages are served to it from this process, at an address
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

from experiments import catalogue
from experiments.report import html, page, tables
from tests.experiments.report.test_page import DRAWING, Reader, write
from tests.support.claim_records import everything

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
# Each word of a drawing that is outside of it, or of the box of its legend.
CUT = """<script>addEventListener('load', () => {
  const told = [];
  for (const svg of document.querySelectorAll('svg')) {
    const edge = svg.getBoundingClientRect(), slack = 1;
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      const legend = text.closest('[id*="legend"]');
      const frame = legend?.querySelector('path').getBoundingClientRect();
      const framed = frame && frame.width > legend.getBoundingClientRect().width / 2;
      for (const rim of framed ? [edge, frame] : [edge])
        if (box.left < rim.left - slack || box.right > rim.right + slack
            || box.top < rim.top - slack || box.bottom > rim.bottom + slack)
          told.push(svg.id + ': ' + text.textContent.trim());
    }
  }
  document.body.append('cut=' + JSON.stringify(told) + 'ends');
});</script>"""


class Site(NamedTuple):
    """`folder` as served at `address`; `asked`: every path that was asked for."""

    folder: Path
    address: str
    asked: list[str]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("records")
    write(folder, everything())
    (folder / "figure1.svg").write_text(DRAWING.format(100))
    (folder / "speeds.svg").write_text(DRAWING.format(900))
    return page.page(folder, tables.collect(folder))


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
    there = [browser for browser in BROWSERS if shutil.which(browser)]
    if not there:
        pytest.skip(f"no browser on PATH: install one of {', '.join(BROWSERS)}")
    command = [there[0], *FLAGS, f"--user-data-dir={profile}"]
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
    """Each in a frame; the spoiled page shows that the checks would notice."""
    other = text + SPOILED + MEASURE.format("spoiled")
    (site.folder / "page.html").write_text(text + MEASURE.format("page"), "utf-8")
    (site.folder / "spoiled.html").write_text(other, "utf-8")
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


def test_no_word_of_a_drawing_is_cut(site, tmp_path_factory):
    """Of the committed ones; one whose edge runs through its legend is noticed."""
    results = catalogue.ROOT / "results"
    drawings = {path.stem: path.read_text("utf-8") for path in results.glob("*.svg")}
    assert {"figure2", "figure3", "speeds"} <= drawings.keys()
    size = re.search(r'viewBox="0 0 (\S+) ', drawings["figure3"])[1]
    drawings["narrow"] = drawings["figure3"].replace(
        f'viewBox="0 0 {size} ', f'viewBox="0 0 {float(size) / 1.3:.0f} '
    )
    for name, text in drawings.items():
        (site.folder / f"{name}.svg").write_text(text, "utf-8")
    figure = html.environment().get_template("macros.html").module.figure
    whole = "".join(figure(site.folder, name, name) for name in drawings)
    (site.folder / "all.html").write_text(whole + CUT, "utf-8")
    done = browse(site, "all.html", tmp_path_factory.mktemp("profile"))
    told = json.loads(re.search(r"cut=(\[.*?\])ends", done.stdout)[1])
    assert told and all(word.startswith("narrow-drawing: ") for word in told)
