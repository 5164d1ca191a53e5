"""Tables show what the records hold, and say what is absent, stale or different."""

import copy
import re

import pytest

from experiments import catalogue, reproduce, run
from experiments.leviathan import closed_forms_table
from experiments.leviathan.alpha_table import table3
from experiments.records import markup
from experiments.report import page, tables
from specjax.bench import jsonl

CLOSED_FORM = ("table1", "figure2", "figure3", "figure4")
OURS, STATE = tables.HEAD.index("ours"), tables.HEAD.index("state")
RESULTS = run.ROOT / "results"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with every closed form in it."""
    folder = tmp_path_factory.mktemp("results")
    files = [path for name in CLOSED_FORM for path in rows_of(name)]
    run.run(files, folder)
    return folder


def rows_of(folder):
    return sorted((catalogue.CONFIGS / folder).glob("*.gin"))


def lines(found):
    return [line for table in catalogue.tables() for line in tables.rows(table, found)]


def test_with_no_records_no_number_is_ours():
    for line in lines({}):
        assert line[OURS] == "" and line[STATE].startswith("not run")


def test_what_cannot_run_here_says_what_it_needs():
    states = [line[STATE] for line in tables.rows(table3(), {})]
    assert states[:28] == ["not run"] * 28  # 6 of code, 20 of T5, 2 decoder-only
    assert len(states) == 60
    assert all(re.match("not run here: needs ", state) for state in states[28:])


def test_our_column_is_the_record_and_nothing_else(measured):
    found = tables.collect(measured)
    for folder in found:
        for record in found[folder].values():
            for quantity, value in record["measured"].items():
                if quantity in ("operations", "speed") and folder == "table1":
                    record["measured"][quantity] = value + 100
    for line in tables.rows(closed_forms_table.table1(), found):
        assert float(line[OURS]) > 100 > float(line[1])
        assert line[STATE].startswith("DIFFERS")


def test_closed_forms_agree_with_the_paper(measured):
    table1 = tables.rows(closed_forms_table.table1(), tables.collect(measured))
    assert [line[STATE] for line in table1] == ["ok"] * 12
    figure3 = tables.rows(closed_forms_table.figure3(), tables.collect(measured))
    # The figure's points at alpha 0.5 and 0.8, c = 0.02, 0.05 and 0.1.
    assert [line[OURS] for line in figure3[2:]] == ["4", "11", "3", "8", "2", "6"]


def test_a_stale_record_says_so(measured):
    found = copy.deepcopy(tables.collect(measured))
    found["table1"]["alpha_0.6_gamma_2"]["provenance"]["fingerprint"] = "old"
    states = [line[STATE] for line in tables.rows(closed_forms_table.table1(), found)]
    assert [state.startswith("STALE") for state in states] == [True] * 2 + [False] * 10
    assert "2 STALE" in tables.index(found)


def test_rendering_twice_gives_the_same_bytes(measured, tmp_path):
    def content():
        tables.render(measured)
        kinds = (".md", ".csv", ".tex", ".svg")
        files = [path for path in measured.iterdir() if path.suffix in kinds]
        return {path.name: path.read_bytes() for path in files}

    first = content()
    assert first == content()
    assert {"README.md", "figure2.svg", "table3.tex", "table1.csv"} <= set(first)
    assert not re.search(rb"\d\d:\d\d:\d\d", first["figure4.svg"])


def test_all_points_are_in_the_csv(measured):
    text = tables.texts(measured)["figure2.csv"]
    assert len(text.splitlines()) == 1 + 6 * 101
    assert "gamma_7,0.8,4.16114" in text
    assert "gamma_inf,1,\n" in text


def test_the_index_leads_to_every_file(measured):
    text = tables.index(tables.collect(measured))
    made = tables.texts(measured)
    for link in re.findall(r"\]\((.+?)\)", text):
        assert link in made or link.endswith((".svg", ".html"))
    assert "12 ok" in text and "28 not run, 32 not run here" in text


def test_the_four_estimators_stand_side_by_side():
    one = {"value": 0.5, "se": 0.01}
    names = ("rao_blackwell", "counts", "chen_r", "implied_alpha")
    found = {"estimates": {name: one for name in names}, "tokens_per_call": 2.0}
    found |= {"exactness": "exact law", "draft_regime": "table law", "alpha": 0.5}
    found |= {"protocol": {"gamma": 3}}
    (wide,) = catalogue.wider(
        "table3", {"table3": {"gpt_bigram_t1": {"measured": found}}}
    )
    title, head, rows = wide
    assert len(rows[0]) == len(head) and "±" in title
    assert len(rows) == 1 and rows[0][1] == "0.5000 ± 0.0100"
    assert rows[0][-3:] == ["3", "2.000", "exact law, table law"]


def test_every_row_has_a_line_and_every_line_its_row():
    known = {(line.folder, line.row): line for line in all_lines()}
    for folder in {folder for folder, _ in known}:
        for path in rows_of(folder):
            assert (folder, path.stem) in known
    for (folder, row), line in known.items():
        if folder == "bench":
            continue  # rows of experiments/engines, which gin does not configure
        path = catalogue.CONFIGS / folder / f"{row}.gin"
        assert path.exists() or line.needs


def all_lines():
    return [line for table in catalogue.tables() for line in table.lines]


def test_published_numbers_by_row():
    assert catalogue.published("table3", "gpt_small_t0") == {"alpha": 0.88}
    assert catalogue.published("table3_paper", "ende_t5_small_t1") == {"alpha": 0.62}
    both = {"operations": 1.6, "speed": 6.86}
    assert catalogue.published("table1", "alpha_0.9_gamma_10") == both
    assert catalogue.published("figure2", "gamma_3") is None


def test_markup_escapes():
    assert markup.markdown(["a|b"], [["c"]]) == "| a\\|b |\n| --- |\n| c |\n"
    assert r"50\% \& c\_hat" in markup.latex(["x"], [["50% & c_hat"]])
    assert markup.comma_separated(["a"], [["x, y"]]) == 'a\n"x, y"\n'
    assert markup.plain(["a", "b"], [["ccc", ""]]) == "a    b\nccc\n"


def test_numbers_keep_four_digits():
    shown = [markup.number(x) for x in (0.03456, 1.5306122, 12, None, 0.0)]
    assert shown == ["0.0346", "1.531", "12", "infinite", "0"]


def test_no_number_that_is_not_0_is_printed_as_0():
    """The errors of a certificate are 1e-8 and 1e-16."""
    assert [markup.number(x) for x in (9.8e-8, -2.2e-16)] == ["9.8e-08", "-2.2e-16"]
    found = tables.collect(RESULTS)
    lines = tables.rows(catalogue.TABLES["certificate"].lines(), found)
    errors = [line[OURS] for line in lines if "largest error" in line[0]]
    assert len(errors) == 10 and all(0 < float(error) < 1e-6 for error in errors)


def test_earlier_records_fill_what_a_run_left_out(measured, tmp_path):
    run.run(rows_of("table1")[:2], tmp_path)
    table, (first, second) = (
        closed_forms_table.table1(),
        jsonl.read(tmp_path / "table1.jsonl"),
    )
    rows = tables.rows(table, tables.collect(tmp_path, earlier=measured))
    mine = {first["row"], second["row"]}
    for line, row in zip(table.lines, rows, strict=True):
        assert row[OURS]
        assert row[STATE] == ("ok" if line.row in mine else "ok, recorded earlier")
    alone = tables.rows(table, tables.collect(tmp_path))
    assert [row[STATE] for row in alone].count("not run") == 8
    found = tables.collect(tmp_path, earlier=measured)
    found["table1"]["alpha_0.9_gamma_10"]["provenance"]["fingerprint"] = "old"
    states = [row[STATE] for row in tables.rows(table, found)]
    assert states.count("STALE: made by other sources") == 2


def test_the_quick_set_names_rows_that_are_there():
    there = [f"{f}/{p.stem}" for f in reproduce.FOLDERS for p in rows_of(f)]
    assert set(reproduce.CHOSEN) <= set(there)
    kept = [row for row in there if reproduce.chosen(row)]
    assert len(reproduce.CHOSEN) < len(kept) < len(there)


def test_a_paper_row_says_which_checkpoints_it_used():
    line = next(x for x in table3().lines if x.row == "ende_t5_small_t0")
    it = {"alpha": 0.5, "alpha_se": 0.1, "target": "flan-xxl", "draft": "flan-small"}
    made = {"device": {"platform": "gpu", "kind": "H", "count": 1}, "date": "2026"}
    record = {"measured": it, "scale": "paper"}
    record["provenance"] = made | {
        "fingerprint": "",
        "module": "specjax.commands.pairs",
    }
    record["provenance"]["inputs"] = {}
    shown = tables.cells(line, {"table3_paper": {line.row: record}})
    assert shown[0] == f"{line.what} [flan-xxl with flan-small]"


def test_a_driver_measures_renders_and_tells(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "FOLDERS", ("table1",))
    reproduce.reproduce(tmp_path)
    said = capsys.readouterr().out
    assert re.search(
        r"^\[1/6\] table1/\S+ \.\.\. measured in \d+ s$", said, re.MULTILINE
    )
    assert "6.862" in said and said.count("table1/") == 6
    (other,) = [line for line in said.splitlines() if line.startswith("Table 3")]
    assert other.endswith(": 28 lines not run, 32 lines not run here")
    assert str(tmp_path / "index.html") in said
    assert "6.862" in (tmp_path / "table1.html").read_text("utf-8")
    assert (tmp_path / "table1.md").exists()
    assert len(said.splitlines()) < 60


def test_what_was_recorded_earlier_is_counted_and_not_printed(measured, tmp_path):
    run.run(rows_of("table1")[:1], tmp_path)
    found = tables.collect(tmp_path, earlier=measured)
    found["table1"]["alpha_0.9_gamma_10"]["provenance"]["fingerprint"] = "old"
    text = reproduce.short(closed_forms_table.table1(), found)
    assert text.count("alpha = ") == 2
    assert text.endswith("8 lines recorded earlier, 2 lines STALE\n")
    text = reproduce.short(closed_forms_table.figure3(), found)
    assert text.count("\n") == 1 and text.endswith(": 8 lines recorded earlier\n")


def test_committed_tables_are_what_their_records_say():
    made = {**tables.texts(RESULTS), **page.texts(RESULTS)}
    for name, text in made.items():
        path = RESULTS / name
        assert path.read_text("utf-8") == text, (
            f"run python -m experiments.report.page: {name}"
        )


def test_committed_records_name_no_path_of_one_machine():
    """A default that names this machine would also make every other's records new."""
    for path in sorted(RESULTS.glob("*.jsonl")):
        for record in jsonl.read(path):
            made = record["provenance"]
            named = re.findall(r"= '(/[^']*)'", made["config"])
            named += [name for name in made["inputs"] if name.startswith("/")]
            assert not named, (path.name, record["row"], named)


def test_committed_records_say_what_they_measured():
    """A label may not name a pair that the record was not made with."""
    found = tables.collect(RESULTS)
    assert len(found["table3"]) == 28
    for line in table3().lines:
        record = found.get(line.folder, {}).get(line.row)
        if record and line.folder == "table3":
            it = record["measured"]
            assert f"{it['target']} with {it['draft']}" in line.what
            assert f"T = {it['protocol']['temperature']:g}" in line.what
            place = {"ende": "(EnDe)", "docs": "(docs)"}
            assert place.get(it["protocol"]["task"], "") in line.what
            published = line.published and {"alpha": line.published}
            assert record["published"] == published
    assert len(found["table2"]) == 20
    for line in [
        *catalogue.TABLES["table2"].lines().lines,
        *catalogue.TABLES["table4"].lines().lines,
    ]:
        record = found.get(line.folder, {}).get(line.row)
        if record:
            it = record["measured"]
            pair = f"{it['target']} with {it['draft']}"
            place = {"ende": " (EnDe)", "docs": " (docs)", "code": ""}[it["task"]]
            heat, batch = it["temperature"], it["batch"]
            wanted = f"{pair}{place}, T = {heat:g}, batch {batch}: "
            assert line.what.startswith(wanted)
    assert jsonl.read(RESULTS / "nothing.jsonl") == []
