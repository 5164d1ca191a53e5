"""The pages of results are complete, need no other files and say what is absent; so
does the folder to publish."""

import json
import re
import shutil
from base64 import b64decode
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from experiments import catalogue
from experiments.report import laws, names, page, recording, site, table_page, tables
from experiments.report.claims import claims
from specjax import zoo
from specjax.measure import jsonl, provenance
from tests.experiments.report.test_claims import STATED, all_records, record
from tests.support import browser

RESULTS = catalogue.ROOT / "results"
CPU = "a CPU of 2 cores whose model was not recorded"
VOID = {"meta", "br", "link", "img", "hr", "input"}
DRAWING = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"'
    ' xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {} 100">'
    "<metadata>m</metadata><defs><style>*{{stroke: red}} .a, .b{{fill: blue}}</style>"
    '<clipPath id="clip"><rect width="9" height="9"/></clipPath></defs>'
    '<g id="mark" clip-path="url(#clip)"><use xlink:href="#mark"/>'
    '<path d="M 0 0" style="clip-path: url(#clip); fill: #ffffff"/></g></svg>'
)


class Reader(HTMLParser):
    """The elements of a page; a tag that is not closed where it should be is an
    error."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.rows, self.text = [], [], {}, text
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        inside = [name for name, _ in self.open]
        if tag == "tr" and "tbody" in inside:
            self.rows[self.table()].append([])
        if tag in ("td", "th") and "tbody" in inside:
            self.rows[self.table()][-1].append("")
        if tag == "table":
            self.rows[dict(attrs)["id"]] = []

    def handle_endtag(self, tag):
        assert self.open and self.open.pop()[0] == tag, (tag, self.getpos())

    def handle_data(self, data):
        inside = {name for name, _ in self.open}
        if "tbody" in inside and inside & {"td", "th"}:
            self.rows[self.table()][-1][-1] += data

    def table(self) -> str:
        return next(attrs["id"] for tag, attrs in self.open if tag == "table")

    def values(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def write(folder: Path, records: dict) -> None:
    for name, rows in records.items():
        lines = [json.dumps(record) + "\n" for record in rows.values()]
        (folder / f"{name}.jsonl").write_text("".join(lines))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict:
    """With records, a row of one's own, and drawings that share their ids."""
    folder = tmp_path_factory.mktemp("full")
    for name, width in (("figure1", 100), ("figure4", 900), ("speeds", 100)):
        (folder / f"{name}.svg").write_text(DRAWING.format(width))
    return read(folder, {**all_records(), **user_record()})


def user_record() -> dict:
    """Returns a record of `specjax measure` in a folder that the project does not
    know."""
    measured = {"alpha": 0.25, "alpha_se": 0.125, "calls": 7, "name": "x", "on": True}
    measured |= {"x@y": 3.5, "curve": [1, 2], "alone_se": 0.5}
    mine = record("my pair", "first", measured) | {"scale": "measured"}
    kept = {it: mine["provenance"][it] for it in ("date", "versions", "device")}
    mine["provenance"] = kept | {"dtype": "float32", "commit": None}
    return {"my pair": {"first": mine}}


def read(folder: Path, records: dict | None = None) -> dict[str, Reader]:
    write(folder, records or {})
    results = tables.collect(folder)
    return {name: Reader(text) for name, text in page.texts(folder, results).items()}


def front(folder: Path, records: dict) -> Reader:
    write(folder, records)
    return Reader(page.page(folder, tables.collect(folder)))


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> dict[str, Reader]:
    return read(tmp_path_factory.mktemp("empty"))


@pytest.fixture(params=["pages", "bare"])
def either(request) -> dict[str, Reader]:
    return request.getfixturevalue(request.param)


def test_every_row_that_was_run_is_on_its_page(either, pages):
    """Every row that was not run is counted."""
    there = {(name, row) for name, rows in all_records().items() for row in rows}
    for table in catalogue.tables():
        text = re.sub(r"<[^>]+>", " ", either[f"{table.name}.html"].text)
        text = " ".join(unescape(text).split())
        assert table.about.replace("`", "") in text
        for line in table.lines:
            named, parts = names.split_parts(line.label)
            words = [*named.split(", "), *parts.values(), line.column]
            run = either is pages and (line.folder, line.row) in there
            assert not run or all(word.replace("`", "") in text for word in words), line


def test_the_first_page_has_the_answer_and_leads_to_the_rest(pages):
    first = pages["index.html"]
    named = [row[0] for row in first.rows["claims-table"]]
    assert named == [claim["name"] for claim in STATED.values()]
    linked = {unquote(value) for value in first.values("href")}
    assert pages.keys() - {"index.html"} <= linked
    sections = ("run", "speeds", "text", "recording", "claims", "tables")
    at = [first.text.index(f'<section id="{name}"') for name in sections]
    assert at == sorted(at) and 'id="speeds-drawing"' in first.text


def test_without_records_all_is_not_run(bare):
    for table in catalogue.tables():
        page = bare[f"{table.name}.html"]
        rows = len({(line.folder, line.row) for line in table.lines})
        counts = map(int, re.findall(r"<li>Not run: (\d+) row", page.text))
        assert sum(counts) == rows
        shown = [
            row for name in page.rows for row in page.rows[name] if "rows-" in name
        ]
        told = [x for x in table.lines if x.published is not None and x.needs]
        assert bool(shown) == bool(told)  # by others, and none of ours
    for name in ("index.html", "provenance.html"):
        assert "Not run: there is no record in this folder." in bare[name].text
    caption = "Figure 2: expected tokens per call against alpha: not drawn."
    caption = f"Leviathan et al. (2023), {caption}"
    assert caption in bare["figure2.html"].text


def speech_record(digest: str) -> dict:
    """Returns a record of the bundled recording, with this digest."""
    measured = {"target": "p", "draft": "q", "gamma": 5, "prompt": "speech.flac"}
    measured |= {"spoken": "a < b", "text": "a & b", "same_text": True, "tokens": 46}
    measured |= {"alone_calls": 46, "target_calls": 9, "calls_saved": 37}
    heard = record("speech", "recording", measured)
    heard["provenance"]["inputs"] = {"specjax/zoo/speech/speech.flac": digest}
    return {"speech": {"recording": heard}}


def test_the_recording_that_was_measured_can_be_heard(tmp_path):
    """The page alone plays it, byte for byte; another recording is not played in its
    place."""
    file = zoo.FOLDER / "speech" / "speech.flac"
    first = front(tmp_path, speech_record(provenance.digest(file)))
    (sound,) = (attrs["src"] for tag, attrs in first.tags if tag == "audio")
    kind, _, held = sound.partition(",")
    assert kind == "data:audio/flac;base64" and b64decode(held) == file.read_bytes()
    assert "a &lt; b" in first.text and "a &amp; b" in first.text
    assert "in 46 calls, one letter in each, and the same text in 9 calls" in first.text
    first = front(tmp_path, speech_record("other"))
    assert recording.ABSENT in first.text and "<audio" not in first.text


def test_a_row_of_ones_own_has_a_table(pages):
    """It shows every number of the row with its error, and no list, text or flag."""
    lines = dict(pages["own_my pair.html"].rows["rows-own_my pair-0"])
    shown = {"alpha": "0.25 ± 0.12", "calls": "7", "x@y": "3.5"}
    assert lines == shown | {"alone_se": "0.5000"}
    text = pages["own_my pair.html"].text
    assert f"Measured on {CPU}, 2026-01-02." in text and "first" in text
    assert 'href="own_my%20pair.html"' in pages["index.html"].text


def test_a_page_needs_nothing_else_and_has_no_blank_cell(either):
    """Nothing is loaded, and links lead to files beside the page or to the web."""
    for reader in either.values():
        for tag, attrs in reader.tags:
            assert tag not in ("script", "link", "iframe", "img", "object", "base")
            assert not any(name.startswith("on") for name in attrs)
            held = tag == "audio" and attrs.get("src", "").startswith("data:audio/")
            assert "src" not in attrs or held
        for value in reader.values("href"):
            name = unquote(value.partition("#")[0])
            files = name.endswith((".md", ".csv", ".tex", ".svg"))
            files = files and "/" not in name.removeprefix("tables/")
            assert not name or name.startswith("https://") or files or name in either
        assert not re.search(r"url\((?!#)|@import", reader.text)
        for rows in reader.rows.values():
            assert all(cell.strip() for row in rows for cell in row)


def test_ids_are_ones_own_and_lead_somewhere(either):
    for reader in either.values():
        ids = reader.values("id")
        links = reader.values("href") + reader.values("xlink:href")
        wanted = {link[1:] for link in links if link[0] == "#"}
        wanted |= {*re.findall(r"url\(#([^)]+)\)", reader.text)}
        assert len(ids) == len(set(ids))
        assert wanted | {*reader.values("aria-labelledby")} <= set(ids)


def test_drawings_keep_to_themselves(pages):
    text = pages["index.html"].text
    assert "clip-path: url(#speeds-drawing-clip)" in text and "<metadata>" not in text
    assert "#figure1-drawing .a, #figure1-drawing .b {fill: blue}" in text
    assert 'class="wide"' in pages["figure4.html"].text and 'class="wide"' not in text


def test_notes_are_counted_and_what_records_say_is_text(pages, tmp_path):
    assert "with a note" not in pages["index.html"].text
    records = all_records()
    spoiled = records["table2"]["small_t0_b1"]
    spoiled["provenance"]["note"] = "written by <b>&`x`"
    assert "; 1 of them with a note" in front(tmp_path, records).text
    table, results = catalogue.find_table("table2"), tables.collect(tmp_path)
    text = table_page.make_table_page(table, results, tmp_path)
    noted = "written by &lt;b&gt;&amp;<code>x</code>"
    assert f"<li>{noted}</li>" in text and "<b>" not in text


def test_provenance_names_each_value_once(pages):
    rows = {row[0]: row for row in pages["provenance.html"].rows["provenance-table"]}
    where = ["table2", "7", "0", "0123456789", "2026-01-02", CPU]
    assert rows["table2"] == [*where, "float32", "jax 0.1"]
    assert set(rows) == {*all_records(), *user_record()} - set(laws.FOLDERS)


# The folder to publish.


@pytest.fixture
def as_they_were_set(monkeypatch):
    """What rows set otherwise today takes seconds, and is asked in `test_tables`."""
    monkeypatch.setattr(
        "experiments.records.records.changed_settings", lambda record: []
    )


@pytest.mark.usefixtures("as_they_were_set")
def test_a_site_shows_records_counts_claims_once_and_every_link_leads_on(
    tmp_path, monkeypatch
):
    """With the laws, on the front page as on both others; without a lesson or documents
    nothing leads there, and an earlier site is replaced."""
    folder, docs, made = (tmp_path / name for name in ("results", "docs", "site"))
    for at in (folder / "lesson", docs / ".doctrees"):
        at.mkdir(parents=True)
    rows = {}
    for name in ("table2.jsonl", "chip.jsonl"):
        shutil.copy(RESULTS / name, folder)
        rows |= {record["row"]: record for record in jsonl.read(RESULTS / name)}
    for name in ("index.html", "glossary.html", ".doctrees/index.html"):
        (docs / name).write_text("here")
    monkeypatch.setattr(site, "DOCS", docs)
    way = site.to_docs(folder)
    (folder / "lesson/index.html").write_text(f'<a href="{way}/glossary.html">')
    closed = laws.compute(laws.CLOSED_FORMS)
    monkeypatch.setattr(laws, "compute", lambda: closed)
    site.main([str(folder), str(made)])
    assert not broken_links(made) and (made / "results/tables/table2.tex").is_file()
    assert not (made / "docs/.doctrees").exists()
    front, first, own = (
        (made / name).read_text("utf-8")
        for name in ("index.html", "results/index.html", "results/claims.html")
    )
    for row, name in (("small_t0_b1", "best_speedup"), ("ende_small_t0", "speedup")):
        assert f">{rows[row]['measured'][name]:.2f} [" in front
    assert front.count(">3.4<") == 2  # published, beside both of ours
    kind = rows["ende_small_t0"]["provenance"]["device"]["kind"]
    assert f"random weights, acceptance simulated; one {kind}<" in front
    assert ">runs</th>" in front and front.count(">1 run<") == 3
    assert "1.99 to 2.03 in 2 runs<" in front  # on two cards
    assert len(links(front)) == 4 and len(front) < 300_000
    told = table_page.tally(claims.claims(tables.collect(folder, laws=closed)))
    assert f"measured again: {told} (" in front and f">{told}</span>" in first
    verdicts = Counter(re.findall(r'<td class="verdict ([\w-]+)', own))
    assert sorted(map(int, re.findall(r"\d+", told))) == sorted(verdicts.values())
    alone = tables.collect(folder)
    assert told != table_page.tally(claims.claims(alone))
    shutil.rmtree(folder / "lesson")
    site.write(folder, made, results=alone, docs=tmp_path / "none")
    assert "results/lesson" not in (made / "index.html").read_text("utf-8")
    assert not (made / "docs").exists()


def links(text: str) -> list[str]:
    """Returns the links to files beside the page."""
    found = re.findall(r'(?:href|src)="([^"#?]+)', text)
    return [unquote(x) for x in found if not re.match(r"\w+:", x)]


def broken_links(made: Path) -> list[str]:
    return [
        f"{page.name}: {link}"
        for page in made.rglob("*.html")
        for link in links(page.read_text("utf-8"))
        if not (page.parent / link).is_file()
    ]


@browser.needed
@pytest.mark.usefixtures("as_they_were_set")
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_a_browser_shows_the_first_pages_whole(width, tmp_path):
    """Of this checkout's records; the front page on three screens of a laptop."""
    results = tables.collect(RESULTS)
    parts = dict.fromkeys(("lesson", "results", "docs"), True)
    front = site.first_page(RESULTS, results, parts)
    texts = {"front.html": front, "index.html": page.page(RESULTS, results)}
    told, console = browser.browse(texts, tmp_path, width)
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
    told, console = browser.browse({"a.html": page}, tmp_path)
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
