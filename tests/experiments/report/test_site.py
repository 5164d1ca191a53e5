"""The folder to publish: it says what the records say, and every link leads on."""

import re
import shutil
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest

from experiments import catalogue
from experiments.report import laws, page, site, table_page, tables
from experiments.report.claims import claims
from specjax.measure import jsonl
from tests.support import browser

RESULTS = catalogue.ROOT / "results"


@pytest.fixture(autouse=True)
def as_they_were_set(monkeypatch):
    """What rows set otherwise today takes seconds, and is asked in `test_tables`."""
    monkeypatch.setattr("experiments.records.records.changed", lambda record: [])


def test_the_front_page_has_the_records_and_leads_to_what_was_made(tmp_path):
    folder, docs, made = tmp_path / "results", tmp_path / "docs", tmp_path / "site"
    for at in (folder / "lesson", docs / ".doctrees"):
        at.mkdir(parents=True)
    for name in ("chip.jsonl", "table2.jsonl", "figure1.svg"):
        shutil.copy(RESULTS / name, folder)
    for place in (folder, folder / "lesson", docs, docs / ".doctrees"):
        (place / "index.html").write_text("here")
    (folder / "claims.html").write_text("here")
    results = tables.collect(folder)
    site.write(folder, made, results, docs)
    text = (made / "index.html").read_text("utf-8")
    rows = {record["row"]: record for record in jsonl.read(folder / "table2.jsonl")}
    rows |= {record["row"]: record for record in jsonl.read(folder / "chip.jsonl")}
    for row, name in (("small_t0_b1", "best_speedup"), ("ende_small_t0", "speedup")):
        assert f">{rows[row]['measured'][name]:.2f} [" in text
    assert text.count(">3.4<") == 2  # published, beside both of ours
    assert len(links(text)) == 4 and not broken(made)
    assert not (made / "docs/.doctrees").exists() and len(text) < 300_000
    # Without a lesson or documents nothing leads there; an earlier site is replaced.
    shutil.rmtree(folder / "lesson")
    site.write(folder, made, results, tmp_path / "none")
    assert "results/lesson" not in (made / "index.html").read_text("utf-8")
    assert not (made / "docs").exists()


def links(text: str) -> list[str]:
    """Those to files beside the page."""
    found = re.findall(r'(?:href|src)="([^"#?]+)', text)
    return [unquote(x) for x in found if not re.match(r"\w+:", x)]


def broken(made: Path) -> list[str]:
    return [
        f"{page.name}: {link}"
        for page in made.rglob("*.html")
        for link in links(page.read_text("utf-8"))
        if not (page.parent / link).is_file()
    ]


def test_the_command_renders_and_counts_the_claims_once(tmp_path, monkeypatch):
    """With the laws, on the front page as on both others; every link leads on."""
    folder, made = tmp_path / "results", tmp_path / "site"
    (folder / "lesson").mkdir(parents=True)
    shutil.copy(RESULTS / "table2.jsonl", folder)
    (tmp_path / "docs").mkdir()
    for name in ("index.html", "glossary.html"):
        (tmp_path / "docs" / name).write_text("here")
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    way = site.to_docs(folder)
    (folder / "lesson/index.html").write_text(f'<a href="{way}/glossary.html">')
    closed = laws.computed(laws.CLOSED_FORMS)
    monkeypatch.setattr(laws, "computed", lambda: closed)
    site.main([str(folder), str(made)])
    assert not broken(made) and (made / "results/table2.tex").is_file()
    front, first, own = (
        (made / name).read_text("utf-8")
        for name in ("index.html", "results/index.html", "results/claims.html")
    )
    told = table_page.tally(claims.claims(tables.collect(folder, computed=closed)))
    assert f"measured again: {told} (" in front and f">{told}</span>" in first
    verdicts = Counter(re.findall(r'<td class="verdict ([\w-]+)', own))
    assert sorted(map(int, re.findall(r"\d+", told))) == sorted(verdicts.values())
    assert told != table_page.tally(claims.claims(tables.collect(folder)))


@browser.needed
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_a_browser_shows_the_first_pages_whole(width, tmp_path):
    """Of this checkout's records; the front page on three screens of a laptop."""
    results = tables.collect(RESULTS)
    parts = dict.fromkeys(("lesson", "results", "docs"), True)
    front = site.front(RESULTS, results, parts)
    texts = {"front.html": front, "index.html": page.page(RESULTS, results)}
    told, console = browser.browsed(texts, tmp_path, width)
    assert told.keys() == texts.keys() and ":CONSOLE" not in console
    browser.check(told, width)
    assert width < 1280 or told["front.html"]["height"] <= 3 * 800
    assert len(front.encode()) < 300_000


@browser.needed
def test_a_browser_notices_what_is_wide_cut_nameless_an_error_or_a_barrier(tmp_path):
    page = "<!DOCTYPE html><main><p style='width: 999px'>wide</p><button></button>"
    page += "<img src='x'><p style='color: #ccc'>pale</p></main>"
    page += "<svg width=9><text x=-5>cut</text></svg>"
    page += "<script>console.error('noticed')</script>"
    told, console = browser.browsed({"a.html": page}, tmp_path)
    it = told["a.html"]
    assert it["before"][0] > 390 and len(it["before"]) == 4 and len(it["bare"]) == 1
    broken = {name for name, *_ in it["barriers"]}
    assert broken >= {"image-alt", "color-contrast", "html-has-lang"}
    assert ":CONSOLE" in console


def test_a_folder_that_is_no_site_is_left_alone(tmp_path, capsys):
    (tmp_path / "own").mkdir()
    for command, asked, said in (
        (site, [str(tmp_path), str(tmp_path / "own")], "name another folder"),
        (site, [str(tmp_path / "none")], "measure something first"),
        (page, [str(tmp_path / "none")], "measure something first"),
    ):
        with pytest.raises(SystemExit):
            command.main(asked)
        assert said in capsys.readouterr().err
    assert (tmp_path / "own").is_dir()
