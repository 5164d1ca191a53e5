"""Checks pages in a real browser: what is wider than the screen, what is cut, and what
is a barrier to some readers (axe-core)."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path

import pytest

AXE = Path(find_spec("axe_core_python").origin).with_name("axe.min.js")
PHONE, TABLET, LAPTOP = 390, 768, 1280
SLOW = pytest.mark.slow
THERE = filter(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
BROWSER = next(THERE, None)
needed = pytest.mark.skipif(
    not BROWSER, reason="no browser on PATH: install chromium or google-chrome"
)
WIDTHS = PHONE, *(pytest.param(x, marks=SLOW) for x in (TABLET, LAPTOP))
# What a page says of itself once it is loaded, and again when every control was moved.
TOLD = """<script>addEventListener('load', () => setTimeout(() => {
  const every = (what) => [...document.querySelectorAll(what)];
  const look = () => {
    const out = every('main *, header *').filter((it) => !it.closest('.scroll, svg'))
      .filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5);
    const cut = every('svg text').filter((it) => {
      const [own, all] = [it, it.ownerSVGElement].map((x) => x.getBoundingClientRect());
      return own.left < all.left - 1 || own.right > all.right + 1;
    });
    const width = document.documentElement.scrollWidth;
    return [width, innerWidth, ...[...out, ...cut].map((it) => it.outerHTML)];
  };
  const bare = every('input, select, button').filter((it) =>
    !(it.labels?.length || it.ariaLabel || it.textContent.trim()));
  const said = every('[id]').filter((it) => !it.children.length && it.id !== 'data')
    .map((it) => [it.id, it.tagName === 'INPUT' ? it.value : it.textContent]);
  const before = look(), height = document.documentElement.scrollHeight;
  for (const it of every('select')) {
    it.value = it.options.length - 1;
    it.dispatchEvent(new Event('input'));
  }
  for (const it of every('input')) {
    it.value = it.max;
    it.dispatchEvent(new Event('input'));
  }
  for (const it of every('button')) it.click();
  const inner = every('.scroll').filter((it) => it.scrollWidth > it.clientWidth + 1);
  const scrolled = inner.map((it) => it.outerHTML.slice(0, 99));
  const nameless = bare.map((it) => it.outerHTML);
  const told = { name: NAME, said, before, after: look(), bare: nameless };
  axe.run({ resultTypes: ['violations'] }).then(({ violations }) => {
    const grave = violations.filter((it) => /serious|critical/.test(it.impact));
    const barriers = grave.map((it) => [it.id, ...it.nodes.map((at) => at.html)]);
    parent.postMessage({ ...told, height, scrolled, barriers }, '*');
  });
}, 100))</script><script src="axe.min.js"></script>"""
FRAMES = (
    "<!DOCTYPE html><style>body { white-space: nowrap } iframe { border: 0 }</style>"
    "<script>addEventListener('message', (e) => {"
    " const it = document.createElement('pre'); it.className = 'told';"
    " it.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(e.data))));"
    " document.body.append(it); })</script><body>"
)


def browse(texts: dict[str, str], folder, width: int = 390) -> tuple[dict, str]:
    """Returns what each page says about itself at a width in pixels, and what the
    console printed."""
    frames = FRAMES
    shutil.copy(AXE, folder)
    for name in (name for name in texts if name.endswith(".html")):
        told = TOLD.replace("NAME", json.dumps(name))
        (folder / name).write_text(texts[name] + told, "utf-8")
        frames += f'<iframe src="{name}" width={width} height=2000></iframe>'
    (folder / "frames.html").write_text(frames)
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking"
    flags += " --hide-scrollbars --no-first-run --enable-logging=stderr"
    wide = len(texts) * width  # a frame out of sight does not draw
    flags += f" --user-data-dir={folder}/own --window-size={wide},2200"
    flags += f" --virtual-time-budget=9000 --dump-dom file://{folder}/frames.html"
    command = [BROWSER, *flags.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lines = re.findall(r'class="told">([^<]+)<', done.stdout)
    told = [json.loads(b64decode(line)) for line in lines]
    return {it["name"]: it | {"said": dict(it["said"])} for it in told}, done.stderr


def check(told: dict, width: int) -> None:
    """Checks that no page is wider than the screen, and no table at the width of a
    tablet or more."""
    for name, it in told.items():
        for when in ("before", "after"):
            assert it[when] == [width, width], (name, when, it[when])
        assert it["bare"] == [], name
        assert it["barriers"] == [], (name, it["barriers"])
        assert width < TABLET or it["scrolled"] == [], (name, it["scrolled"])
