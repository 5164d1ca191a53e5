"""The results page: whole, honest about what is absent, and complete in itself.

Its structure is read with html.parser; a browser reads it in `test_page_browser`.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments import catalogue, fingerprint, hypertext, markup, page, tables
from tests.test_claims import KEYS, everything

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
    """What a page is made of; a tag that is not closed in its place is an error."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.rows = [], [], {}
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
        if {"td", "th"} & {name for name, _ in self.open}:
            if any(name == "tbody" for name, _ in self.open):
                self.rows[self.table()][-1][-1] += data

    def table(self) -> str:
        return next(attrs["id"] for tag, attrs in self.open if tag == "table")

    def values(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def write(folder: Path, found: dict) -> None:
    for name, rows in found.items():
        lines = [json.dumps(record) + "\n" for record in rows.values()]
        (folder / f"{name}.jsonl").write_text("".join(lines))


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Path:
    """A folder with records, two drawings that share their ids, and a certificate."""
    folder = tmp_path_factory.mktemp("full")
    found = everything()
    cases = [{"verifier": "token", "tv": 2.5e-08}, {"verifier": "pick", "tv": None}]
    measured = {"cases": cases, "total": 2, "exact": 2}
    one = {**next(iter(found["figure1"].values())), "measured": measured}
    found["certificate"] = {"verifiers": {**one, "row": "verifiers"}}
    write(folder, found)
    (folder / "figure2.svg").write_text(DRAWING.format(100))
    (folder / "figure4.svg").write_text(DRAWING.format(900))
    return folder


@pytest.fixture(scope="module")
def text(full) -> str:
    return page.page(full)


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> str:
    return page.page(tmp_path_factory.mktemp("empty"))


@pytest.fixture(params=["text", "bare"])
def either(request) -> str:
    return request.getfixturevalue(request.param)


def lines_of(reader: Reader, name: str) -> list[list[str]]:
    rows = reader.rows
    return rows.get(f"rows-{name}", []) + rows.get(f"rows-{name}-elsewhere", [])


def test_every_line_of_every_table_is_there(either):
    reader = Reader(either)
    for table in catalogue.tables():
        lines = lines_of(reader, table.name)
        assert sorted(line[0] for line in lines) == sorted(x.what for x in table.lines)
        assert all(len(line) == len(tables.HEAD) for line in lines)
    assert len(reader.rows["claims-table"]) == len(KEYS)


def test_without_records_ours_is_not_run(bare):
    reader = Reader(bare)
    for table in catalogue.tables():
        for line in lines_of(reader, table.name):
            assert line[page.OURS] == "not run" and line[-1].startswith("not run")
    for row in reader.rows.get("summary-table", []):
        assert row[page.EMP] == row[-1] == "not run"
    assert "Not run: there is no record of the certificate." in bare
    assert "Not run: there is no record in this folder." in bare
    assert "Figure 2: expected tokens per call against alpha: not drawn." in bare


def test_no_cell_is_blank(either):
    for rows in Reader(either).rows.values():
        assert all(cell.strip() for row in rows for cell in row)


def test_ours_is_measured_and_published_is_not(full, tmp_path):
    found = everything()
    for one in found["table1"].values():
        one["measured"] = {key: value + 100 for key, value in one["measured"].items()}
    write(tmp_path, {"table1": found["table1"]})
    lines = lines_of(Reader(page.page(tmp_path)), "table1")
    assert all(float(line[page.OURS]) > 100 > float(line[1]) for line in lines)


def test_the_page_needs_nothing_else(either):
    reader = Reader(either)
    for tag, attrs in reader.tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "base")
        assert not any(name.startswith("on") or name == "src" for name in attrs)
        for name, value in attrs.items():
            if name.endswith("href"):
                assert value.startswith("#") or tag == "a"
    assert not re.search(r"url\((?!#)|@import", either)


def test_ids_are_unique_and_lead_somewhere(either):
    reader = Reader(either)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    wanted = [v[1:] for k in ("href", "xlink:href") for v in reader.values(k)]
    wanted = [name for name in wanted if not name.startswith("ttp")]
    wanted += re.findall(r"url\(#([^)]+)\)", either) + reader.values("aria-labelledby")
    assert set(wanted) <= set(ids)


def test_the_markup_is_accessible(either):
    tags = Reader(either).tags
    assert ("html", {"lang": "en"}) in tags
    assert any(attrs.get("name") == "viewport" for _, attrs in tags)
    columns = [a for tag, a in tags if tag == "th" and a.get("scope") != "row"]
    assert columns and all(attrs["scope"] == "col" for attrs in columns)
    names = [tag for tag, _ in tags]
    assert names.count("table") == names.count("caption") > 0
    frames = [attrs for _, attrs in tags if attrs.get("class") == "scroll"]
    assert len(frames) == names.count("table") + names.count("svg")
    assert all(attrs["tabindex"] == "0" for attrs in frames)
    assert names.index("h1") < names.index("nav") < names.index("main")


def test_drawings_keep_to_themselves(text):
    assert 'id="figure2-drawing-mark"' in text and 'id="figure4-drawing-mark"' in text
    assert 'href="#figure2-drawing-mark"' in text
    assert "clip-path: url(#figure4-drawing-clip); fill: #ffffff" in text
    assert "#figure2-drawing * {stroke: red}" in text
    assert "#figure2-drawing .a, #figure2-drawing .b {fill: blue}" in text
    assert "<metadata>" not in text and "<?xml" not in text
    assert text.count("<figure") - text.count("<figcaption") == 0
    assert text.count('<figure class="wide">') == 1


def test_the_summary_is_of_the_best_gamma(text):
    rows = {row[0]: row for row in Reader(text).rows["summary-table"]}
    measured = everything()["table2"]["small_t0_b1"]["measured"]
    row = rows["small, T = 0, batch 1"]
    speed = markup.number(measured["best_speedup"])
    assert row[2:9] == ["8", "0.7000", "0.0100", "1", "0.0000", speed, speed]
    assert row[page.EMP].startswith(f"{speed} [") and row[page.EMP + 1] == "+0.0 %"
    known = {line.row for line in catalogue.walltime.table2().lines}
    known = {row for row in known if not row.startswith(("gpt", "cnndm", "ende_t5"))}
    assert len(rows) == len(known)
    assert rows["ende_small_t0"][page.EMP] == rows["ende_small_t0"][-1] == "not run"


def test_what_is_stale_says_so(text, tmp_path):
    assert "STALE" in text and "Stale, made by other sources" in text
    found = everything()
    for rows in found.values():
        for one in rows.values():
            made = one["provenance"]
            made["fingerprint"] = fingerprint.today(made)
    write(tmp_path, found)
    fresh = page.page(tmp_path)
    assert "STALE" not in fresh and "Stale, made" not in fresh


def test_provenance_names_each_value_once(text):
    rows = {row[0]: row for row in Reader(text).rows["provenance-table"]}
    assert rows["table2"] == [
        *("table2", "6", "6", "0123456789", "2026-01-02", "1 x cpu, 2 cores"),
        *("float32", "jax 0.1"),
    ]
    assert set(rows) == {*everything(), "certificate"}


def test_certificates(text, bare):
    cases = Reader(text).rows["certificate-table"]
    assert cases == [["token", "2.5e-08"], ["pick", hypertext.NONE]]
    assert "certificate-table" not in Reader(bare).rows


def test_what_records_say_is_text(tmp_path):
    found = everything()
    found["table2"]["small_t0_b1"]["measured"]["target"] = "<b>&`x`"
    write(tmp_path, {"table2": found["table2"]})
    made = page.page(tmp_path)
    assert "&lt;b&gt;&amp;<code>x</code>" in made and "<b>" not in made


def test_rendering_twice_gives_the_same_bytes(tmp_path, capsys):
    found = everything()
    del found["figure1"]  # its drawing asks for more than the page does
    write(tmp_path, found)
    texts = []
    for _ in range(2):
        page.main([str(tmp_path)])
        texts.append((tmp_path / "index.html").read_text("utf-8"))
    assert "index.html" in capsys.readouterr().out
    assert texts[0] == texts[1] == page.page(tmp_path)
    assert (tmp_path / "table4.md").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        page.main([str(tmp_path / "none")])
    assert "measure something first" in capsys.readouterr().err
