"""Tables show what the records hold, and say what is absent, noted or different."""

import re

import pytest

from experiments import catalogue, reproduce, run
from experiments.records import markup, records
from experiments.records.table import published
from experiments.report import details, laws, tables
from experiments.report.walltime import XLA
from specjax.measure import jsonl, provenance
from specjax.theory import closed_forms
from tests.support.claim_records import record as record_of

ALPHA = "alpha/t5_small"
CLOSED_FORM = ("table1", "figure2", "figure3", "figure4")
OURS, STATE = tables.HEAD.index("ours"), tables.HEAD.index("state")
RESULTS = run.ROOT / "results"
CERTIFIED = record_of("certificate", "token", {"rule": "token", "cases": []})
CERTIFIED["measured"] |= {"total": 4, "exact": 4, "worst_TV": 0.0}
CERTIFIED["measured"] |= {"worst_float32": 9.8e-8, "worst_float64": 2.2e-16}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with every closed form in it."""
    folder = tmp_path_factory.mktemp("results")
    run.measure([file for name in CLOSED_FORM for file in rows_of(name)], folder)
    return folder


def rows_of(folder):
    return list(records.rows(folder).values())


def test_with_no_records_no_number_is_ours():
    for table in catalogue.tables():
        for line in tables.rows(table, {}):
            assert line[OURS] == "" and line[STATE].startswith("not run")


def test_what_cannot_run_here_says_what_it_needs():
    states = [line[STATE] for line in tables.rows(catalogue.named("table3"), {})]
    assert states[:28] == ["not run"] * 28  # 6 of code, 20 of T5, 2 decoder-only
    assert len(states) == 65  # 5 on the user's dialogues, and the paper's own
    assert all(re.match("not run here: needs ", state) for state in states[28:])


def test_our_column_is_the_record_and_nothing_else(measured):
    records = tables.collect(measured)
    for record in records["table1"].values():
        numbers = record["measured"]
        record["measured"] = {name: value + 100 for name, value in numbers.items()}
    for line in tables.rows(catalogue.named("table1"), records):
        assert float(line[OURS]) > 100 > float(line[1])
        assert line[STATE].startswith("DIFFERS")


def test_closed_forms_agree_with_the_paper(measured):
    table1 = tables.rows(catalogue.named("table1"), tables.collect(measured))
    assert [line[STATE] for line in table1] == ["ok"] * 12
    figure3 = tables.rows(catalogue.named("figure3"), tables.collect(measured))
    # The figure's points at alpha 0.5 and 0.8, c = 0.02, 0.05 and 0.1.
    assert [line[OURS] for line in figure3[2:]] == ["4", "11", "3", "8", "2", "6"]


def test_what_a_reader_must_know_stands_beside_the_number(measured):
    """A note, a golden that moved, a row or an input that is another today."""
    records = tables.collect(measured)
    row = records["table1"]["alpha_0.6_gamma_2"]
    origin, table = row["provenance"], catalogue.named("table1")

    def states():
        return [line[STATE] for line in tables.rows(table, records)]

    assert states() == ["ok"] * 12
    config = origin["config"]
    origin["config"] = config.replace("ALPHA = 0.6", "ALPHA = 0.7")
    told = "ok, with a note: its row sets another ALPHA today"
    assert config != origin["config"] and states() == [told] * 2 + ["ok"] * 10
    origin["typed"] = ["ALPHA = 0.7"]  # as it was asked for
    assert states() == ["ok"] * 12
    assert provenance.GOLDENS == origin["goldens"]
    origin |= {"goldens": 0, "note": "by hand", "inputs": {"README.md": "0"}}
    told = f"by hand; from before goldens {provenance.GOLDENS}; README.md changed since"
    assert states()[:2] == [f"ok, with a note: {told}"] * 2
    assert "2 ok, with a note, 10 ok" in tables.index(records)


def test_all_points_are_in_the_csv(measured):
    text = tables.texts(tables.collect(measured))["figure2.csv"]
    assert len(text.splitlines()) == 1 + 6 * 101
    assert "gamma_7,0.8,4.16114" in text
    assert "gamma_inf,1,\n" in text


def test_the_index_leads_to_every_file(measured):
    text = tables.index(tables.collect(measured))
    files = tables.texts(tables.collect(measured))
    for link in re.findall(r"\]\((.+?)\)", text):
        assert link in files or link.endswith(".svg")
    assert "12 ok" in text and "28 not run, 37 not run here" in text


def test_the_four_estimators_stand_side_by_side():
    names = ("rao_blackwell", "counts", "chen_r", "implied_alpha")
    measured = {"estimates": {key: {"value": 0.5, "se": 0.01} for key in names}}
    measured |= {"alpha": 0.5, "tokens_per_call": 2.0, "protocol": {"gamma": 3}}
    measured |= {"exactness": "exact law", "draft_regime": "table law"}
    records = {"table3": {"gpt_bigram_t1": {"measured": measured}}}
    ((title, head, (row,)),) = details.of("table3", records)
    assert len(row) == len(head) and "±" in title
    assert row[1] == "0.5000 ± 0.0100"
    assert row[-3:] == ["3", "2.000", "exact law, table law"]


def test_every_row_has_a_line_and_every_line_its_row():
    lines = [line for table in catalogue.tables() for line in table.lines]
    known = {(line.folder, line.row): line for line in lines}
    for folder in {folder for folder, _ in known}:
        for row in records.rows(folder):
            assert (folder, row) in known
    for (folder, row), line in known.items():
        # Rows of experiments/rivals are configured without gin.
        there = row in records.rows(folder)
        assert there or line.needs or folder == "bench"


def test_notes_say_what_the_papers_numbers_give():
    """A.5 prints a speed for each l at T = 1 that its alpha and c do not give."""
    lenient = "leviathan2023/table5_lenience"
    c, alpha = (published(f"{lenient}/{x}") for x in ("temperature_0/c", ALPHA))
    gamma = closed_forms.optimal_gamma(alpha, c)
    follows = closed_forms.walltime_factor(alpha, gamma, c)
    printed = published(f"{lenient}/improvement_t5_small_c_0.015")
    note = catalogue.named("table5").note
    for speeds, form in ((follows, ".2f"), (printed, "g")):
        assert ", ".join(f"{speed:{form}}" for speed in speeds) in note
    assert f"c = {c} with v = 1" in note
    note, told = catalogue.named("wagner_text").note, "wagner2024/told_in_prose"
    for task in ("asr", "summarization"):
        low, high = published(f"{told}/table1_{task}_time_reduction_percent/exact")
        assert f"{low} to {high} %" in note
    low, high = published(f"{told}/table1_sigmoid_rouge1_lost")
    assert f"lose {low} to {high} of ROUGE-1" in note


@pytest.mark.parametrize("path", ["a", "table3_alpha/lamda_2b/alpha", "figure1/gamma"])
def test_a_published_number_is_named_by_one_path(path):
    with pytest.raises(KeyError):
        published(f"leviathan2023/{path}")
    assert published("leviathan2023/table3_alpha/lamda_2b 0/alpha") == 0.71
    assert published("wagner2024/table7_sigmoid_scale/qwen_7b null/metric") == 0.18


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
    numbers = (0.03456, 1.5306122, 12, None, 0.0)
    shown = [markup.number(x) for x in numbers]
    assert shown == ["0.0346", "1.531", "12", "infinite", "0"]


def test_no_number_that_is_not_0_is_printed_as_0():
    """The errors of a certificate are 1e-8 and 1e-16."""
    assert [markup.number(x) for x in (9.8e-8, -2.2e-16)] == ["9.8e-08", "-2.2e-16"]
    table = catalogue.named("certificate")
    results = {"certificate": {"token": CERTIFIED}}
    lines = tables.rows(table, results)
    errors = [line[OURS] for line in lines if "largest error" in line[0]]
    assert [x for x in errors if x] == ["9.8e-08", "2.2e-16"]


def test_earlier_records_fill_what_a_run_left_out(measured, tmp_path):
    run.measure(rows_of("table1")[:2], tmp_path)
    table, mine = catalogue.named("table1"), tables.collect(tmp_path)
    assert len(mine["table1"]) == 2
    together = tables.collect(tmp_path, earlier=measured)
    rows = tables.rows(table, together)
    for line, row in zip(table.lines, rows, strict=True):
        state = "ok" if line.row in mine["table1"] else "ok, recorded earlier"
        assert row[OURS] and row[STATE] == state
    alone = tables.rows(table, mine)
    assert [row[STATE] for row in alone].count("not run") == 8


def test_the_quick_set_names_rows_that_are_there():
    there = [f"{f}/{row}" for f in reproduce.FOLDERS for row in records.rows(f)]
    assert set(reproduce.CHOSEN) <= set(there)
    kept = [row for row in there if reproduce.chosen(row)]
    assert len(reproduce.CHOSEN) < len(kept) < len(there)


def test_a_paper_row_says_which_checkpoints_it_used():
    lines = catalogue.named("table3").lines
    line = next(line for line in lines if line.row == "ende_t5_small_t0")
    measured = {"alpha": 0.5, "alpha_se": 0.1}
    measured |= {"target": "flan-xxl", "draft": "flan-small"}
    record = record_of("table3_paper", line.row, measured)
    shown = tables.cells(line, {"table3_paper": {line.row: record}})
    assert shown[0] == f"{line.what} [flan-xxl with flan-small]"


def test_a_driver_measures_renders_and_tells(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "FOLDERS", ("table1",))
    monkeypatch.setattr(laws, "computed", dict)
    reproduce.reproduce(tmp_path)
    text = capsys.readouterr().out
    first = r"^\[1/6\] table1/\S+ \.\.\. measured in \d+ s$"
    assert re.search(first, text, re.MULTILINE)
    assert "6.862" in text and text.count("table1/") == 6
    (other,) = [line for line in text.splitlines() if line.startswith("Table 3")]
    assert other.endswith(": 28 lines not run, 37 lines not run here")
    assert str(tmp_path / "index.html") in text
    assert "6.862" in (tmp_path / "table1.html").read_text("utf-8")
    assert (tmp_path / "table1.md").exists()
    assert len(text.splitlines()) < 60


def test_what_was_recorded_earlier_is_counted_and_not_printed(measured, tmp_path):
    run.measure(rows_of("table1")[:1], tmp_path)
    records = tables.collect(tmp_path, earlier=measured)
    records["table1"]["alpha_0.9_gamma_10"]["provenance"]["note"] = "a"
    text = reproduce.short(catalogue.named("table1"), records)
    assert text.count("alpha = ") == 2
    noted = "2 lines recorded earlier, with a note"
    assert text.endswith(f"8 lines recorded earlier, {noted}\n")
    text = reproduce.short(catalogue.named("figure3"), records)
    assert text.count("\n") == 1 and text.endswith(": 8 lines recorded earlier\n")


def test_a_law_is_computed_where_it_is_shown(tmp_path):
    records = tables.collect(tmp_path, computed=laws.computed(("table1",)))
    rows = tables.rows(catalogue.named("table1"), records)
    assert [row[STATE] for row in rows] == ["ok"] * 12
    assert {row[tables.HEAD.index("date")] for row in rows} == {"now"}
    others = tables.rows(catalogue.named("table3"), records)
    assert {row[STATE].partition(" here")[0] for row in others} == {"not run"}


def test_there_is_one_record_a_row_and_none_of_a_law():
    for path in sorted(RESULTS.glob("*.jsonl")):
        rows = [record["row"] for record in jsonl.read(path)]
        assert len(rows) == len(set(rows)), path.name
        assert path.stem not in laws.FOLDERS


def test_committed_records_name_no_path_of_one_machine():
    """A default that names this machine would also make every other's records new."""
    for path in sorted(RESULTS.glob("*.jsonl")):
        for record in jsonl.read(path):
            origin = record["provenance"]
            named = re.findall(r"= '(/[^']*)'", origin["config"])
            named += [name for name in origin["inputs"] if name.startswith("/")]
            assert not named, (path.name, record["row"], named)


PLACES = {"ende": "(EnDe)", "joined": "(EnDe)", "docs": "(docs)"}
PLACES |= {"correct": "(correction)"}


def test_committed_records_say_what_they_measured():
    """A label may not name a pair that the record was not made with."""
    records = tables.collect(RESULTS)
    assert len(records["table3"]) == 28 and len(records["table2"]) >= 23
    for line in catalogue.named("table3").lines:
        if line.folder == "table3":
            record = records["table3"][line.row]
            it = record["measured"]
            place = PLACES.get(it["protocol"]["task"], "")
            heat = f"T = {it['protocol']['temperature']:g}"
            for word in (f"{it['target']} with {it['draft']}", heat, place):
                assert word in line.what
            published = line.published and {"alpha": line.published}
            assert record["published"] == published
    several = map(catalogue.named, ("table2", "table4"))
    for line in (line for table in several for line in table.lines):
        if record := records.get(line.folder, {}).get(line.row):
            it = record["measured"]
            place = PLACES.get(it["task"], "")
            pair = f"{it['target']} with {it['draft']} {place}".rstrip()
            by = ", XLA's products" if line.row.endswith(XLA) else ""
            wanted = f"{pair}, T = {it['temperature']:g}, batch {it['batch']}{by}: "
            if line.folder == "table2_data":  # its sides are called after their folders
                assert f", T = {it['temperature']:g}, " in line.what
                continue
            if "products" in record["provenance"]:
                assert (record["provenance"]["products"] == "xla") == bool(by)
            assert line.what.startswith(wanted)
