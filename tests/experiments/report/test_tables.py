"""Tables show the numbers of the records, and say what is absent, noted or
different."""

import random
import re

import pytest

from experiments import catalogue, reproduce, run
from experiments.questions import verdict
from experiments.records import markup, records
from experiments.records.table import Line
from experiments.report import (
    bench,
    columns,
    derived,
    details,
    estimators,
    latex,
    laws,
    methods,
    names,
    numbers,
    printed,
    tables,
    typeset,
    walltime,
)
from experiments.report.typeset import Grid
from specjax.measure import jsonl, provenance

CLOSED_FORM = ("table1", "figure2", "figure3", "figure4")
OURS, STATE = tables.HEAD.index("ours"), tables.HEAD.index("state")
RESULTS = run.ROOT / "results"
TABLE4 = catalogue.find_table("table4").lines
PREDICTED = [line for line in TABLE4 if line.quantity == "best_predicted"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with every closed form in it."""
    folder = tmp_path_factory.mktemp("results")
    run.measure([file for name in CLOSED_FORM for file in list_rows(name)], folder)
    return folder


def list_rows(folder):
    return list(records.rows(folder).values())


ANOTHER = "the row file has changed since"


PAGES = {table.page for table in catalogue.tables()} - {*laws.ENUMERATED}


@pytest.fixture(scope="module")
def committed():
    return {name: (RESULTS / f"{name}.md").read_text("utf-8") for name in PAGES}


@pytest.fixture(scope="module")
def new_files(committed):
    """The files that are made of the committed records.

    Certificates are left out, which take a minute; which settings of rows have changed
    takes seconds, and is computed only for pages that say it.
    """
    spoken = {
        line.folder
        for table in catalogue.tables()
        if ANOTHER in committed.get(table.page, "")
        for line in table.lines
    }
    whole = records.changed_settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "experiments.records.records.changed_settings",
            lambda record: whole(record) if record["table"] in spoken else [],
        )
        return tables.texts(tables.collect(RESULTS, laws=laws.compute(CLOSED_FORM)))


def test_committed_pages_are_what_the_records_say(committed, new_files):
    for name, text in committed.items():
        assert new_files[f"{name}.md"] == text, f"render {name}.md again"
        check_page(text)


def check_page(text: str) -> None:
    """Asserts that a page begins with a sentence, has no long line, and says a footnote
    once, which some row has."""
    for section in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n\n")
        about = rest.partition("\n\n")[0].replace("\n", " ")
        assert re.fullmatch(r"This (table|figure|page) says [^.]*.*\.", about), title
        assert max(map(len, section.splitlines())) <= typeset.LIMIT, title
        notes = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
        assert len(notes) == len(set(notes)), title
        rows = [line for line in section.splitlines() if line.startswith(("|", "**"))]
        marks = re.findall("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", "".join(rows))
        numbers = {int(mark.translate(typeset.LOWERED)) for mark in marks}
        assert numbers == {*range(1, len(notes) + 1)}, title


def test_thirty_cells_of_the_pages_are_the_numbers_of_the_records():
    """They are read from the pages as they are, by the names of row and column."""
    there = tables.collect(RESULTS)
    lines = [
        (table, line)
        for table in catalogue.tables()
        for line in table.lines
        if line.row in there.get(line.folder, {})
        and isinstance(cell_number(there, line), int | float)
    ]
    for table, line in random.Random(0).sample(lines, 30):
        x = cell_number(there, line)
        cells = column_cells((RESULTS / f"{table.page}.md").read_text("utf-8"), line)
        numbers = [re.match(r"-?\d[\d.]*(e[-+]\d+)?", cell) for cell in cells]
        assert any(is_rounded(found[0], x) for found in numbers if found), (
            table.name,
            line,
            x,
            cells,
        )


def is_rounded(text: str, x: float) -> bool:
    """Returns whether a printed number is x with four digits, or with as many decimals
    as it has."""
    decimals = len(text.partition("e")[0].partition(".")[2])
    counted = decimals > 0 or abs(x) >= 10
    half = 0.51 * 10**-decimals if counted and "e" not in text else 0
    return float(text) == pytest.approx(x, rel=6e-4, abs=max(half, 6e-5))


def cell_number(records: dict, line: Line) -> object:
    return records[line.folder][line.row]["measured"].get(line.quantity)


def column_cells(page: str, line: Line) -> list[str]:
    """Returns the cells of a page in the column of a number, in rows of its name."""
    found, name = [], line.label.split(", ")[0]
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = (
            re.split(r"(?<!\\) ?\| ?", row)[1:-1] for row in block.splitlines()
        )
        for row in rows:
            row = [re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹,]+$", "", cell) for cell in row]
            for at, cell in enumerate(row):
                column = head[at].removesuffix(", ours")
                of = column == "ours" or column.startswith(line.column or "alpha")
                if name in row[0] and of:
                    found.append(cell)
                if row[0] in (line.column, f"{line.column}, ours"):  # turned around
                    found.append(cell)
                if at and PARTS.fullmatch(name) and of:
                    found.append(cell)
    return found


PARTS = re.compile(r"(T|l|gamma|alpha|c) = \S+")


def test_a_wide_grid_has_footnotes_then_turns_and_then_is_cut():
    long, wide = "a reason that is longer than a cell may be", ["x" * 50] * 5
    grid = Grid("", ["what", *wide], [["a", *["1"] * 4, long]] * 2)
    notes = typeset.Notes()
    (turned,) = typeset.fit(grid, notes)
    assert notes.texts == [long] and turned.head == ["", "a", "a"]
    assert (
        turned.rows[0] == [wide[0], "1", "1"]
        and turned.rows[4][1] == f"{typeset.NONE}¹"
    )
    several = grid._replace(rows=[["a", "1", "2", "3", "", ""]] * 5)
    cut = typeset.fit(several, notes)
    assert [part.head[0] for part in cut] == ["what"]
    cut = typeset.fit(several._replace(rows=[["a", *"12345"]] * 5), notes)
    assert [len(part.head) for part in cut] == [4, 3]
    assert max(map(typeset.line_width, cut)) <= typeset.LIMIT


def test_a_row_has_its_parts_as_columns_and_what_is_the_same_as_a_title():
    labels, parts = names.split(
        ["a with b, T = 0, batch 1", "a with c, T = 1, batch 1"]
    )
    assert labels == ["a with b", "a with c"] and parts.title == "batch 1"
    assert parts.head == ["T"] and parts.rows == [["0"], ["1"]]
    assert names.split(["T = 0", "T = 0"])[1].head == ["T"]


def test_tables_fit_a_column_of_a_paper():
    """A cell that is wider than the column has a table of its own."""
    there = tables.collect(RESULTS)
    for name in ("table2", "table3", "table4", "chip", "quality", "figure_wagner"):
        page = printed.print_table(catalogue.find_table(name), there)
        for grid in page.grids:
            short = typeset.shorten(grid, typeset.Notes(), latex.ROOM)
            for panel in latex.panels(short):
                widths = latex.column_widths(panel)
                assert latex.width(widths) <= latex.COLUMN or (
                    len(panel.head) == panel.keys + 1
                )
        text = latex.latex(name, page)
        assert "\\toprule" in text and f"\\label{{tab:{name}}}" in text
        assert text.count("{") == text.count("}") and "%" not in re.sub(
            r"\\%|^% .*", "", text, flags=re.MULTILINE
        )


def test_every_table_of_latex_is_well_formed(new_files):
    """pdflatex reads ASCII alone here; every row has as many cells as its table has
    columns, and no special character stands for itself."""
    texts = {name: x for name, x in new_files.items() if name.endswith(".tex")}
    assert len(texts) > 40
    for name, text in texts.items():
        assert text.isascii(), (name, re.findall(r"[^\x00-\x7f]", text))
        code = re.sub(r"\\[&%$#_{}]", "", re.sub(r"^% Needs.*\n", "", text))
        assert code.count("{") == code.count("}") and code.count("$") % 2 == 0, name
        assert not re.search(r"[%#_~^]", re.sub(r"\\label\{[^}]*\}", "", code)), name
        assert code.count(r"\begin{table}") == code.count(r"\end{table}") > 0
        labels = re.findall(r"\\label\{([^}]*)\}", text)
        assert len(labels) == len({*labels}), name
        for sides, body in re.findall(
            r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}(.*?)\\end\{tabular\}",
            code,
            re.DOTALL,
        ):
            rows = re.findall(r"^.* \\\\(?:\[2pt\])?$", body, re.MULTILINE)
            assert len(rows) > 1, name
            for row in rows:
                pairs = row.count(r"\multicolumn{2}")
                assert row.count("&") + pairs + 1 == len(sides), (name, sides, row)


def test_a_published_number_and_ours_are_not_cut_apart():
    head = ["what", *(f"{x}, {of}" for x in "abcdef" for of in ("published", "ours"))]
    grid = Grid("", head, [["a pair", *["1.25"] * 12], ["b", *[""] * 10, "2", "3"]])
    wide = grid._replace(
        rows=[[*row[:-1], "1.5 [1.25, 1.75]" * 3] for row in grid.rows]
    )
    cut = latex.panels(wide)
    assert len(cut) > 1
    for panel in cut:
        told = [name for name in panel.head if name.endswith("published")]
        assert all(f"{name[:1]}, ours" in panel.head for name in told)
        assert all(any(row[1:]) for row in panel.rows)  # no row of nothing
    assert [len(panel.rows) for panel in cut] == [1, 2]


def test_long_footnotes_have_a_page_of_their_own():
    rows = [["a with b, T = 0", "1"] for _ in range(44)]
    note = "a reason. " * 200
    grid = Grid("", ["pair", "x"], rows)
    page = printed.Printed("X", "This.", [grid], *[[]] * 4, "", "")
    text = latex.latex("x", page._replace(origin=[note]))
    _, first, last = text.split(r"\begin{table}")
    assert "X: notes" in last and "tabular}" not in last and "reason" not in first
    text = latex.latex("x", page._replace(origin=["a reason."]))
    assert text.count(r"\begin{table}") == 1


def test_what_a_reader_must_know_stands_beside_the_number(measured):
    """This is a difference, a note, a golden text that changed, or a row or an input
    that has changed since; the column shows the record's number, whatever was
    published."""
    records = tables.collect(measured)
    row = records["table1"]["alpha_0.6_gamma_2"]
    origin, table = row["provenance"], catalogue.find_table("table1")

    def states():
        return [line[STATE] for line in tables.rows(table, records)]

    assert states() == ["ok"] * 12
    config = origin["config"]
    origin["config"] = config.replace("ALPHA = 0.6", "ALPHA = 0.7")
    told = "ok, with a note: the row file has changed since: ALPHA"
    assert config != origin["config"] and states() == [told] * 2 + ["ok"] * 10
    origin["typed"] = ["ALPHA = 0.7"]  # as it was asked for
    assert states() == ["ok"] * 12
    assert provenance.GOLDENS == origin["goldens"]
    origin |= {"goldens": 0, "note": "by hand", "inputs": {"README.md": "0"}}
    told = f"by hand; older than goldens {provenance.GOLDENS}; README.md changed since"
    assert states()[:2] == [f"ok, with a note: {told}"] * 2
    assert tables.states(table, records) == "2 ok, with a note, 10 ok"
    row["measured"]["speed"] += 100
    (line,) = (x for x in tables.rows(table, records) if x[STATE].startswith("DIFFERS"))
    assert float(line[OURS]) > 100 > float(line[1])


def test_notes_of_records_that_are_not_as_clean_as_others():
    record = {"kind": "time", "provenance": {"dirty": True, "commit": "0123456789"}}
    told = "measured in a tree with uncommitted changes (commit 01234567)"
    assert records.notes(record | {"measured": {}}) == [told]
    assert records.notes({"kind": "time", "provenance": {}, "measured": {}}) == []
    law = record | {"kind": "law", "measured": {}}
    assert records.notes(law) == []  # it is computed now
    chosen = {"gamma": [0, 2, 4], "exp": [1.0], "chosen_on": 12}
    for changed, told in (
        ({}, False),
        ({"gamma": [0, 2], "chosen_on": None}, False),
        ({"chosen_on": 0}, True),
        ({"chosen_on": None}, True),
    ):
        assert printed.is_chosen_on_what_was_timed(chosen | changed) == told
    names = ["a.py", "b/c.cc", "b/d.cc"]
    assert records.list_files(names) == "a.py, 2 files of b"


def test_the_estimator_of_alpha_is_named_or_inferred():
    timed = {"rule": "token", "alpha": 0.5, "tokens": 10}
    for more, name in (
        ({}, "share kept"),
        ({"alpha": 0.5172}, "mean beta"),
        ({"predicted_steps": [10.0, None]}, "mean beta"),
        ({"predicted_steps": [None, None]}, "share kept"),
        ({"alpha_fresh": 0.4}, "mean beta"),
        ({"alpha_fresh": 0.4, "alpha_estimator": "counts"}, "share kept"),
        ({"alpha": 0.5172, "turns": []}, "share kept"),  # answers to questions
        ({"alpha_estimator": "rao_blackwell"}, "mean beta"),
    ):
        assert estimators.name(timed | more, "alpha") == name
    assert estimators.name({"alpha": 0.5}, "alpha") == ""


def test_a_verdict_is_shown_by_its_parts():
    text = verdict.judge("the gain is", 0.0395, error=0.0093, bound=0.0)
    assert details.split_verdict(text) == {
        "said": "survives",
        "test": "the gain is",
        "number": "3.95% ± 0.93%",
        "bound": "> 0%",
    }
    plain = details.split_verdict("dropped: by hand")
    assert plain == {"said": "dropped", "test": "by hand", "number": "", "bound": ""}


def test_a_share_that_rounds_to_zero_has_no_sign():
    got = columns.table("", {"x": "{x:.1%}"}, [{"x": -0.0001}, {"x": -0.01}])
    assert got[0].rows == [["0.0%"], ["-1.0%"]]


def test_numbers_that_follow_from_those_of_a_record():
    """The error of tokens a call is that of Chen's r times gamma + 1; an interval over
    one recording is none."""
    protocol, r = {"gamma": 4}, {"chen_r": {"value": 0.5, "se": 0.02}}
    chain = {"protocol": protocol, "estimates": r, "tokens_per_call": 2.5}
    assert derived.update_record(chain)["tokens_per_call_se"] == 0.1
    tree = chain | {"estimates": {"counts": {"value": 0.5, "se": 0.1}}}
    assert "tokens_per_call_se" not in derived.update_record(tree)
    assert derived.update_record({"tokens_per_call": [2.5], "estimates": r}) == {
        "tokens_per_call": [2.5],
        "estimates": r,
    }
    costs = {"gamma_3_cost": 0.4, "gamma_3_cost_se": 0.1, "gamma_4_cost": 0.5}
    found = derived.update_record(costs | {"best_gamma": 3})
    assert (found["best_fixed_cost"], found["best_fixed_cost_se"]) == (0.4, 0.1)
    greedy = {"same_greedy_texts": 3, "texts": 4}
    assert derived.update_record(greedy)["same_of_texts"] == "3 of 4"
    heard = {"wer_ci_exact": [4.5, 4.5], "speedup_ci_b1": [1.0, 1.1], "recordings": 1}
    assert derived.update_record(heard) == heard | {"wer_ci_exact": None}
    assert derived.update_record(heard | {"recordings": 2})["wer_ci_exact"]


def made_table(*lines: Line):
    return catalogue.find_table("table1")._replace(note="", lines=[*lines])


def made_line(row: str, quantity: str, **more) -> Line:
    it = Line("made", row, f"{row}: {quantity}", quantity, label=row, column="speed")
    return it._replace(**more)


def made_records(**rows: dict) -> dict:
    record = {"scale": "laptop", "kind": "time", "table": "made"}
    device = {"platform": "gpu", "kind": "a chip", "count": 1}
    origin = {"date": "2026-11-29", "device": device}
    return {
        "made": {
            row: record | {"row": row, "measured": it, "provenance": origin}
            for row, it in rows.items()
        }
    }


def test_a_number_without_an_error_has_a_footnote_where_others_have_one():
    lines = [made_line(row, "speed") for row in ("a, T = 0", "b, T = 0", "c, T = 1")]
    rows = {"a, T = 0": {"speed": 2.5, "speed_se": 0.1}, "b, T = 0": {"speed": 2.0}}
    rows["c, T = 1"] = {"speed": 1.5, "texts": 1}
    page = printed.print_table(made_table(*lines), made_records(**rows))
    cells = [row[-1] for row in page.grids[0].rows]
    assert cells == ["2.50 ± 0.10", "2¹", "1.5²"]
    assert page.notes == [printed.ERRORLESS, printed.ALONE]
    rows["a, T = 0"].pop("speed_se")
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert page.notes == []  # no row has an error, as for a time that was read once


def test_a_ratio_of_too_few_times_has_no_interval():
    times = {"a": [[1.0, 2.0], [1.0, 2.0]], "b": [[1.0], [2.0]]}
    it = {"beside": {}, "seconds": times, "over_a": 1.5, "over_b": 2.0}
    it |= {"over_a_ci": (1.4, 1.6), "over_b_ci": (1.99, 2.01), "over_b_se": 0.01}
    record = made_records(x=derived.update_record(it))
    lines = [made_line("x", f"over_{name}", label=name) for name in "ab"]
    page = printed.print_table(made_table(*lines), record)
    assert [row[-1] for row in page.grids[0].rows] == ["1.50 [1.40, 1.60]", "2¹"]
    assert page.notes == [printed.FEW_TIMES]


def test_a_method_is_in_words():
    ways = "always", "greedy_exact", "sigmoid_1e4_top50", "sigmoid_released_1e3"
    assert [methods.method_words(way) for way in ways] == [
        "control that keeps every draft",
        "greedy exact",
        "sigmoid, +-1e4, top-k 50",
        "sigmoid released, +-1e3",
    ]
    assert methods.method_words("sigmoid_1e1_half") == "sigmoid, +-1e1, float16"


def test_an_interval_is_found_by_its_name_and_a_deviation_is_no_error():
    times = {"us_b1": 12.0, "us_b1_sd": 3.0, "speedup_b1": 2.0}
    records = made_records(a=times | {"speedup_ci_b1": [1.9, 2.2]})
    speed = made_line("a", "speedup_b1")
    time = made_line("a", "us_b1", error="us_b1_sd", column="us")
    page = printed.print_table(made_table(speed, time), records)
    assert page.grids[0].rows == [["a", "2.00 [1.90, 2.20]", "12.0 (sd 3.0)"]]
    assert page.origin[-1] == (
        "Brackets hold 95 % intervals; in parentheses is the standard deviation of one"
        " round."
    )
    flat = dict(zip(tables.HEAD, tables.cells(time, records), strict=True))
    assert flat["standard error"] == "" and flat["standard deviation"] == "3"
    flat = dict(zip(tables.HEAD, tables.cells(speed, records), strict=True))
    assert (flat["interval from"], flat["to"]) == ("1.9", "2.2")


def test_published_numbers_of_rows_that_cannot_run_are_shown_with_the_reason():
    lines = [
        made_line(f"the paper's models: {row}", quantity, published=x, column=quantity)
        for row, quantity, x in (
            ("X with Y, T = 0", "alpha", 0.75),
            ("X with Y, T = 0", "speed", 3.4),
            ("X with Z, T = 1", "alpha", 0.62),
        )
    ]
    needing = [line._replace(needs="a big machine") for line in lines]
    page = printed.print_table(made_table(*needing), {})
    (grid,) = page.grids
    assert grid.title == printed.PUBLISHED and grid.head == [
        "pair",
        "T",
        "alpha",
        "speed",
    ]
    assert grid.rows == [
        ["X with Y", "0", "0.75", "3.40"],
        ["X with Z", "1", "0.62", ""],
    ]
    assert page.notes == []  # the reason is said below
    assert page.absent == ["Not run: 2 rows (3 numbers); needs a big machine."]
    assert printed.print_table(made_table(*lines), {}).grids == []  # can run here
    check_page(typeset.markdown(page._replace(about="This table says how fast.")))


def test_what_was_predicted_stands_beside_the_question_and_the_verdict():
    folder = tables.collect(RESULTS)
    for name in details.ANSWERED:
        asked, verdicts, *_ = details.questions(name, folder)
        assert "before anything was measured" in asked.title
        parts = [row[0] for row in asked.rows]
        assert parts[:3] == ["question", "given up if", "predicted before measuring"]
        assert len(asked.rows) % 3 == 0 and all(map(all, asked.rows))
        assert {row[-1] for row in verdicts.rows} <= {"survives", "killed", "undecided"}
    point = {"rule": "Algorithm 1, 1 steps ahead", "kept": 0.5, "kept_se": 0.1}
    assert details.point_text(point, "rule") == "Algorithm 1, 1 step ahead"
    assert details.point_text(point, "kept") == "0.50 ± 0.10"


def test_a_page_of_several_tables_says_what_it_is_about():
    text = tables.page_head("open_questions")
    check_page(text)
    names = [x.title for x in catalogue.tables() if x.page == "open_questions"]
    assert re.findall(r"^\* (.*)$", text, re.MULTILINE) == names
    assert tables.page_head("table1") == ""
    grid = Grid("", ["what", "T", "batch", "x"], [["a", "1", "8", "2"]], keys=3)
    assert typeset.transpose(grid).head == ["", "a, T = 1, batch 8"]


def test_the_index_leads_to_every_file_and_the_csv_has_every_point(measured):
    records = tables.collect(measured)
    text, files = tables.index(records), tables.texts(records)
    for link in re.findall(r"\]\((.+?)\)", text):
        assert link in files or link.endswith(".svg")
    states = [
        tables.states(catalogue.find_table(name), records)
        for name in ("table1", "table3")
    ]
    assert states == ["12 ok", "32 not run, 91 not run here"]
    points = files["figure2.csv"]
    assert len(points.splitlines()) == 1 + 6 * 101
    assert "gamma_7,0.8,4.16114" in points and "gamma_inf,1,\n" in points


def test_every_line_has_a_row_and_every_record_here_a_line():
    lines = [line for table in catalogue.tables() for line in table.lines]
    known = {(line.folder, line.row): line for line in lines}
    for (folder, row), line in known.items():
        # Rows of experiments/rivals are configured without gin.
        there = row in records.rows(folder)
        assert there or line.needs or folder == "bench"
    for path in RESULTS.glob("*.jsonl"):
        for record in jsonl.read(path):
            assert (path.stem, record["row"]) in known


def test_a_new_row_of_a_table_is_shown_by_the_names_in_its_record():
    new = {"row": "new", "measured": {"alpha": 0.5, "alpha_se": 0.1, "tokens": 9}}
    *_, own = tables.all_tables({"table3": {"new": new}})
    assert own.name == "own_table3" and own.command.endswith("gin_configs/table3/*.gin")
    shown = {(line.row, line.quantity) for line in own.lines}
    assert shown == {("new", "alpha"), ("new", "tokens")}


def test_markup_escapes_and_numbers_keep_four_digits():
    """No number but 0 is printed as 0, although the errors of a certificate are
    small."""
    grid = Grid("", ["a|b"], [["c"]])
    assert typeset.grid_markdown(grid) == "| a\\|b |\n| --- |\n| c |"
    assert latex.escape(f"50% & c_hat±{typeset.NONE}¹²") == (
        r"50\% \& c\_hat$\pm$--\textsuperscript{12}"
    )
    stack = latex.cell("1.33 [1.2, 1.4]")
    assert stack == r"\shortstack[r]{1.33 \\ {\tiny [1.2, 1.4]}}"
    assert markup.comma_separated(["a"], [["x, y"]]) == 'a\n"x, y"\n'
    assert markup.text_table(["a", "b"], [["ccc", ""]]) == "a    b\nccc\n"
    numbers = (
        0.03456,
        1.5306122,
        12,
        None,
        0.0,
        9.8e-8,
        -2.2e-16,
        142159.0,
        2e7,
        13824,
    )
    shown = ["0.0346", "1.531", "12", "infinite", "0", "9.8e-08", "-2.2e-16"]
    shown += ["142200", "2e+07", "13824"]
    assert [markup.number(x) for x in numbers] == shown


def test_earlier_records_fill_what_a_run_left_out(measured, tmp_path):
    """Such records are counted and not printed."""
    run.measure(list_rows("table1")[:2], tmp_path)
    table, mine = catalogue.find_table("table1"), tables.collect(tmp_path)
    assert len(mine["table1"]) == 2
    records = tables.collect(tmp_path, earlier=measured)
    for line, row in zip(table.lines, tables.rows(table, records), strict=True):
        state = "ok" if line.row in mine["table1"] else "ok, recorded earlier"
        assert row[OURS] and row[STATE] == state
    records["table1"]["alpha_0.9_gamma_10"]["provenance"]["note"] = "a"
    text = reproduce.summarize(table, records)
    assert text.count("0.6") == 1 and "0.9" not in text
    noted = "2 numbers recorded earlier, with a note"
    assert text.endswith(f"6 numbers recorded earlier, {noted}\n")
    text = reproduce.summarize(catalogue.find_table("figure3"), records)
    assert text.count("\n") == 1 and text.endswith(": 8 numbers recorded earlier\n")


def test_a_driver_measures_renders_and_tells(tmp_path, monkeypatch, capsys):
    there = [f"{f}/{row}" for f in reproduce.FOLDERS for row in records.rows(f)]
    kept = [row for row in there if reproduce.is_chosen(row)]
    assert {*reproduce.CHOSEN} < {*kept} < {*there}  # of the quick set
    monkeypatch.setattr(reproduce, "FOLDERS", ("table1",))
    monkeypatch.setattr(laws, "compute", lambda **options: {})
    reproduce.reproduce(tmp_path)
    text = capsys.readouterr().out
    assert re.search(r"^\[1/6\] table1/\S+ \.\.\. measured in \d+ s$", text, re.M)
    (other,) = [line for line in text.splitlines() if "Table 3" in line]
    assert other.endswith(": 32 numbers not run, 91 numbers not run here")
    assert str(tmp_path / "index.html") in text and (tmp_path / "table1.md").exists()
    for shown in (text, (tmp_path / "table1.html").read_text("utf-8")):
        assert "6.862" in shown


def test_there_is_one_record_a_row_none_of_a_law_and_no_path_of_one_machine():
    """A default that names a machine would also make all other machines' records
    new."""
    for path in sorted(RESULTS.glob("*.jsonl")):
        rows = [record["row"] for record in jsonl.read(path)]
        assert len(rows) == len(set(rows)), path.name
        assert path.stem not in laws.FOLDERS
        for record in jsonl.read(path):
            origin = record["provenance"]
            named = re.findall(r"= '(/[^']*)'", origin["config"])
            named += [name for name in origin["inputs"] if name.startswith("/")]
            assert not named, (path.name, record["row"], named)


CLEAN_SINCE = "2026-11-27T16:30"  # earlier records name commits with changes beside


def test_records_are_of_commits_alone():
    for path in sorted(RESULTS.glob("*.jsonl")):
        for record in jsonl.read(path):
            origin = record["provenance"]
            if origin["date"] >= CLEAN_SINCE:
                assert origin["dirty"] is False, (path.name, record["row"])


PLACES = {"ende": "(EnDe)", "joined": "(EnDe)", "docs": "(docs)"}
PLACES |= {"correct": "(correction)"}


def test_committed_records_say_what_they_measured():
    """A label must name the pair with which the record was made."""
    records = tables.collect(RESULTS)
    assert len(records["table3"]) == 32 and len(records["table2"]) >= 23
    several = (
        catalogue.find_table(name).lines for name in ("table2", "table3", "table4")
    )
    for line in (line for lines in several for line in lines):
        if record := records.get(line.folder, {}).get(line.row):
            it, products = record["measured"], record["provenance"].get("products")
            setting = it | it.get("protocol", {})
            place = PLACES.get(setting["task"], "")
            words = [f"{it['target']} with {it['draft']} {place}".rstrip()]
            # Sides are files, or the paper's.
            words = [] if line.folder.endswith(("_data", "_paper", "_pair")) else words
            words += [f"T = {setting['temperature']:g}"]
            if line.folder == "table3":
                published = line.published and {"alpha": line.published}
                assert record["published"] == published
            elif words[1:]:
                by = ", XLA's products" if line.row.endswith(walltime.XLA) else ""
                words += [f"batch {it['batch']}{by}: "]
                assert products is None or (products == "xla") == bool(by)
            assert all(word in line.what for word in words), line.what


def test_speeds_and_predictions_are_those_of_the_seconds():
    """The wrong numbers in a record are not used; what is absent is said to be."""
    records, row = tables.collect(RESULTS), "small_t0_b1"
    (line,) = (line for line in PREDICTED if line.row == row)

    def all_cells(measured: dict) -> list:
        records["table2"][row]["measured"] = walltime.update_record(measured)
        grids = walltime.paper_tables(records)
        grids += walltime.pair_lines("table2", records)
        return [*grids, tables.cells(line, records)]

    it = records["table2"][row]["measured"]
    right = all_cells(it)
    stored = "speedup", "predicted", "best_speedup", "best_predicted", "best_exp"
    assert all_cells(it | dict.fromkeys(stored, 9.87)) == right
    it["timed"]["others"]["expected_steps"] = None
    assert all_cells(it)[-1][STATE] == walltime.LAWLESS


def test_a_number_has_the_decimals_of_its_error():
    """Both have as many, zeros at the end included; an error of 0 is not shown."""
    for x, error, text in (
        (0.08112, 9.2e-4, "0.0811 ± 0.0009"),
        (0.84801, 0.0161, "0.848 ± 0.016"),
        (3.1, 0.14, "3.10 ± 0.14"),
        (-0.001, 0.2, "0.00 ± 0.20"),
        (0.5, 2.34e-5, "0.50000 ± 0.00002"),
        (12345.6, 123.4, "12346 ± 123"),
        (1.0, 0.0, "1"),
        (0.5, None, "0.5000"),
        (0.5, 1e-9, "0.5000 ± 1.0e-09"),
    ):
        assert markup.number_with_error(x, error) == text
    for x, ends, text in (
        (1.43012, [1.3036, 1.567], "1.43 [1.30, 1.57]"),
        (1.0981, [1.0543, 1.1441], "1.098 [1.054, 1.144]"),
        (3.0761, [2.4493, 3.8631], "3.08 [2.45, 3.86]"),
        (2.0, [2.0, 2.0], "2 [2, 2]"),
        (2.0, None, "2"),
    ):
        assert markup.interval(x, ends) == text


def test_footnotes_are_numbered_as_a_reader_comes_to_them():
    grid = Grid("of b³", ["what", "x²"], [["a", "1²,³"], ["b¹", "2"]])
    (ordered,), notes = typeset.order_notes([grid], ["one", "two", "three", "unused"])
    assert notes == ["three", "two", "one"]
    assert (ordered.title, ordered.head) == ("of b¹", ["what", "x²"])
    assert ordered.rows == [["a", "1¹,²"], ["b³", "2"]]


def test_committed_pages_have_their_footnotes_in_order(new_files):
    for name in PAGES:
        for section in re.split(r"^# ", new_files[f"{name}.md"], flags=re.MULTILINE):
            rows = [x for x in section.splitlines() if x.startswith(("|", "**"))]
            numbers = typeset.marked_notes("\n".join(rows))
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), name


def test_a_column_with_few_errors_says_so_once():
    lines = [made_line(row, "speed") for row in ("a, T = 0", "b, T = 0", "c, T = 1")]
    rows = {line.row: {"speed": 2.0} for line in lines}
    rows["a, T = 0"] = {"speed": 2.5, "speed_se": 0.1}
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert [row[-1] for row in page.grids[0].rows] == ["2.50 ± 0.10", "2", "2"]
    told = "Where a number under `speed` has no error, its record has none."
    assert page.notes == [] and told in page.origin


def test_names_are_pairs_only_where_each_is_one():
    head = printed.head_of_names
    assert head(["a with b", "a with b: exact", "a with copying, else b"]) == "pair"
    assert head(["a with b", "questions"]) == head(["questions, with b"]) == "what"


def test_models_are_named_where_the_row_does_not():
    line = made_line("r", "speed", needs="files")

    def note(label, target, draft):
        record = {"measured": {"target": target, "draft": draft}}
        return printed.unnamed_models(printed.Row(label, record, {"speed": line}))

    assert note("Llama-like 34M with 0.6M", "target", "draft, top 40") == ""
    coder = "qwen2.5-coder-{}b-instruct-q4_k_m"
    large, small = coder.format("1.5"), coder.format("0.5")
    assert note("Qwen2.5-Coder 1.5B with 0.5B, code", large, small) == ""
    assert note("Whisper base with its first 4 layers", *WHISPERS) == ""
    assert note("questions", "smollm2", "smollm2_draft") == (
        "measured with SmolLM2-135M and smollm2_draft"
    )
    assert note("sizes", {"layers": 1}, "draft") == ""
    assert note("SmolLM2, news, Lookahead", "smollm2", "lookahead") == ""


WHISPERS = "whisper-base", "whisper-base, 4 layers"


def test_a_rule_is_said_of_every_row_that_names_it():
    lines = [made_line(row, "kept", column="share kept") for row in "ab"]
    lines += [made_line("c by block", "speed")]
    rows = {"a": {"kept": 0.5, "rule": "token"}, "b": {"kept": 0.5, "rule": "block"}}
    rows["c by block"] = {"speed": 2.0, "rule": "block"}
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert page.notes == ["verified by `block`"] and printed.VERIFIED in page.origin
    assert [row[0] for row in page.grids[0].rows] == ["a", "b¹"]
    rows["a"] = rows["b"]
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert printed.VERIFIED not in page.origin


def test_two_estimators_on_a_page_are_not_compared():
    lines = [made_line(row, "alpha", column="alpha") for row in "ab"]
    rows = {"a": {"alpha": 0.5, "rule": "token", "alpha_estimator": "counts"}}
    rows["b"] = rows["a"] | {"alpha_estimator": "rao_blackwell"}
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert printed.MIXED in page.origin
    del rows["b"]
    page = printed.print_table(made_table(*lines), made_records(**rows))
    assert printed.MIXED not in page.origin


def test_a_published_number_beside_ours_is_not_repeated():
    """It is the same in column, value, T and task; another of the row is shown."""
    ours = made_line("a with b (docs), T = 0", "alpha", published=0.75, column="alpha")
    more = {"needs": "a big machine", "column": "alpha"}
    theirs = [
        made_line(f"the paper's models: X ({task}), T = {heat}", "alpha", published=x)
        for task, heat, x in (
            ("CNN/DM", 0, 0.75),
            ("CNN/DM", 1, 0.75),
            ("CNN/DM", 0, 0.7),
            ("EnDe", 0, 0.75),
        )
    ]
    speed = made_line(theirs[0].label, "speed", published=3.4, needs="a big machine")
    theirs = [line._replace(**more) for line in theirs]
    there = made_records(**{ours.row: {"alpha": 0.5}})
    *_, shown = printed.print_table(made_table(ours, *theirs, speed), there).grids
    assert shown.head == ["what", "T", "alpha", "speed"]
    assert shown.rows == [
        ["X (CNN/DM)", "1", "0.75", ""],
        ["X (CNN/DM)", "0", "0.70", "3.40"],
        ["X (EnDe)", "0", "0.75", ""],
    ]


def test_what_an_older_record_lacks_is_a_footnote():
    notes = typeset.Notes()
    cells = [walltime.BEFORE, f"2 [1, 3] {walltime.RECORDED}", walltime.BASELINE]
    grid = printed.with_footnotes(Grid("", ["a", "b", "c"], [cells]), notes)
    assert grid.rows == [[f"{typeset.NONE}¹", "2 [1, 3]²", walltime.BASELINE]]
    assert notes.texts == [walltime.BEFORE, printed.NO_SECONDS]


def test_a_line_of_the_csv_names_its_record(measured):
    there = tables.collect(measured)
    flat = [
        dict(zip(tables.HEAD, row, strict=True))
        for row in tables.rows(catalogue.find_table("table1"), there)
    ]
    assert {it["record"].partition("/")[0] for it in flat} == {"table1"}
    made = there["table1"][flat[0]["record"].partition("/")[2]]["provenance"]["commit"]
    assert flat[0]["commit"] == (made or "")[:8]
    missing = tables.cells(made_line("none", "speed"), {})
    assert len(missing) == len(tables.HEAD) and missing[STATE] == "not run"


def test_what_repeats_a_page_is_in_files_alone():
    there = tables.collect(RESULTS)
    for name in ("wagner_text", "wagner_scale", "speech", "chen", "beams"):
        assert details.detail_tables(name, there) == []
        files = details.long_tables(name, there)
        page = printed.print_table(catalogue.find_table(name), there)
        (said,) = (text for text in page.origin if text.startswith("More numbers: "))
        assert files and all(f"{name}_{end}.csv" in said for end in files)
    (lines,) = details.long_tables("wagner_text", there).values()
    named = {(row[0], row[1]) for row in lines.rows}
    assert ("SmolLM2-135M with smollm2_draft (XSum)", "wagner_data/calls_smollm2") in (
        named
    )
    kinds = details.long_tables("speech", there)
    assert {"errors", "alone", "batches"} == kinds.keys()
    assert kinds["errors"].rows[0][:2] == [
        "bundled pair, synthesised sentences",
        "speech_data/words",
    ]


def test_rows_of_the_bench_have_readable_names():
    grids = details.detail_tables("bench", tables.collect(RESULTS))
    (engines,) = (grid for grid in grids if grid.head[:2] == ["row", "engine"])
    assert {row[0] for row in engines.rows} <= {*bench.ROWS.values()}
    titles = [grid.title for grid in grids]
    assert "SmolLM2-135M on questions, one text at a time" in titles


def test_the_number_of_an_engine_that_failed_is_its_reason():
    it = {"over_other": 1.5, "refusals": {"llama_cpp_q4_1": "its process ended"}}
    assert numbers.value(it, "over_llama_cpp_q4_1") == "its process ended"
    assert numbers.value(it, "over_other") == 1.5
    with pytest.raises(KeyError, match="over_absent"):
        numbers.value(it, "over_absent")


def test_a_further_run_of_known_rows_is_no_table_of_its_own():
    new = {"row": "new", "measured": {"alpha": 0.5}}
    rows = {"small_t0_b1": new, "new": new}
    *_, last = tables.all_tables({"noon/table2": rows})
    assert last.name == "own_noon_table2" and [x.row for x in last.lines] == ["new"]
    assert tables.all_tables({"noon/table2": {"small_t0_b1": new}}) == [
        *catalogue.tables()
    ]
