"""Figures draw what the records say, the same bytes every time, and any token."""

import itertools
from xml.etree import ElementTree

import pytest

from experiments import (
    catalogue_walltime,
    figure_curves,
    figure_timeline,
    figure_trace,
    figure_wagner,
    figures,
)

SVG = "{http://www.w3.org/2000/svg}"
GAMMAS = [0, 1, 3, 7]


def times(**changes) -> dict:
    """`measured` of a row of table2."""
    return {
        "target": "code_9m",
        "draft": "code_05m",
        "temperature": 0.0,
        "batch": 1,
        "alpha": 0.6,
        "alpha_se": 0.02,
        "gamma": GAMMAS,
        "v": [1.0, 1.1, 1.5, 2.0],
        "overhead": [0.05, 0.1, 0.1, -0.01],
        "target_ms": 2.0,
        "draft_ms": [None, 0.1, 0.3, 0.7],
        "tokens_per_call": [1.0, 1.6, 2.2, 2.4],
        "speedup": [1.0, 1.2, 1.4, 0.9],
        "speedup_ci": [[1, 1], [1.1, 1.3], [1.3, 1.5], [0.8, 1.0]],
        "best_gamma": 3,
        "best_c": 0.051,
    } | changes


def step(accepted: str, rejected: str, added: str) -> dict:
    """A token a character."""
    parts = map(list, (accepted, rejected, added))
    return dict(zip(("accepted", "rejected", "added"), parts, strict=True))


def traced(gamma: int, steps: list[dict], **changes) -> dict:
    """`measured` of a row of figure1."""
    return {
        "target": "code_9m",
        "draft": "code_05m",
        "prompt": "if a < b:\n    x",
        "gamma": gamma,
        "temperature": 0.0,
        "tokens": sum(len(it["accepted"] + it["added"]) for it in steps),
        "target_calls": len(steps),
        "steps": steps,
    } | changes


TRACES = {
    "gamma_3": traced(
        3, [step("abc", "", "d"), step("e", "x", "f"), step("g", "", "")]
    ),
    "gamma_7": traced(7, [step("abcd", "x", "e"), step("", "x", "f")]),
}
PAIR = {"target": "t5_target", "draft": "t5_small"}
ENCODES = PAIR | {"encodes": True, "prefill_target_ms": 5.0, "prefill_draft_ms": 0.5}
TRANSLATED = {f"ende_{row}": trace | PAIR for row, trace in TRACES.items()}
POINTS = {"alpha": [0.0, 0.5, 1.0]}
RISING = POINTS | {"expected_tokens": [1.0, 1.9, None]}
SPEEDS = POINTS | {"speed": [1.0, 1.9, 4.0], "operations": [4.0, 2.0, 1.0]}
VERIFIED = {
    "docs": PAIR
    | {
        "methods": ["exact", "sigmoid_1e4"],
        "gamma": [1, 5, 6],
        "median_us_exact": [30.0, 40.0, 41.0],
        "low_us_exact": [29.0, 38.0, 40.0],
        "high_us_exact": [33.0, 45.0, 44.0],
        "step_peak_kib_exact_g1": 2048.0,
        "step_peak_kib_exact_g5": 3072.0,
        "step_peak_kib_sigmoid_1e4_g5": 2560.0,
    }
    | {f"{part}_us_sigmoid_1e4": [9.0, 9.5, 9.7] for part in ("median", "low", "high")}
}
CURVES = {
    "figure2": {"gamma_3": RISING, "gamma_10": RISING, "gamma_inf": RISING},
    "figure3": {"c_0.05": POINTS | {"best_gamma": [0, 3, 20]}},
    "figure4": {"gamma_3": SPEEDS, "gamma_7": SPEEDS},
}


@pytest.fixture
def found():
    bigram = times(draft="bigram", temperature=1.0, alpha=0.3, best_gamma=0)
    bigram |= {"best_c": None}
    rows = {"small_t0_b1": times(), "small_t0_b8": times(batch=8, alpha=0.61)}
    rows |= {"bigram_t1_b1": bigram, "ende_small_t0": times(**ENCODES, alpha=0.7)}
    folders = {"figure1": TRACES, "figure5": TRANSLATED, **CURVES, "table2": rows}
    folders |= {"wagner_time": VERIFIED}
    return {
        folder: {row: {"measured": measured} for row, measured in rows.items()}
        for folder, rows in folders.items()
    }


def words(text: str) -> list[str]:
    """Every text of a drawing, which must be well-formed."""
    return [
        "".join(it.itertext()) for it in ElementTree.fromstring(text).iter(f"{SVG}text")
    ]


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_figure_is_the_same_well_formed_svg_every_time(name, found, tmp_path):
    for path in (tmp_path / "one.svg", tmp_path / "two.svg"):
        figures.draw(name, found, path)
    content = path.read_bytes()
    assert content == (tmp_path / "one.svg").read_bytes()
    assert content.startswith(b"<svg") and b"date" not in content
    assert "not run" not in " ".join(words(content.decode()))
    assert b"#ffffff" in content[:2000]  # its own white background


@pytest.mark.parametrize("name", figures.NAMES)
def test_with_no_records_a_figure_says_so(name, tmp_path):
    figures.draw(name, {}, tmp_path / "none.svg")
    assert words((tmp_path / "none.svg").read_text("utf-8")) == [f"{name}: not run"]


@pytest.mark.parametrize("name", figure_curves.PANELS)
def test_curves_stand_alone_where_nothing_was_measured(name, found):
    del found["table2"]
    said = words(figures.svg(name, found))
    assert "alpha" in said and not any("measured" in it for it in said)


def test_an_unknown_figure_names_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="choose one of figure1"):
        figures.draw("figure6", {}, tmp_path / "no.svg")


def measured_points(name: str, panel: int = 0) -> list:
    rows = {"small": times(), "batch": times(batch=8), "other": times(alpha=0.3)}
    curves = sorted(CURVES[name], key=figure_curves.order)
    return figure_curves.points(figure_curves.PANELS[name][panel], curves, rows)


def test_points_of_figure_2_are_tokens_per_call():
    points = [point[1:] for point in measured_points("figure2")]
    assert points == [("gamma_3", a, 2.2, 0.02, ()) for a in (0.6, 0.3)]


def test_points_of_figure_3_are_the_best_gamma_with_its_c():
    series = "code_9m + code_05m, T = 0, c = 0.051"
    points = measured_points("figure3")
    assert points[0] == (series, None, 0.6, 3, 0.02, ())
    assert len(points) == 2
    none = {"it": times(best_gamma=0, best_c=None, alpha_se=None)}
    (point,) = figure_curves.points(figure_curves.PANELS["figure3"][0], [], none)
    assert point == ("code_9m + code_05m, T = 0, no draft", None, 0.6, 0, 0, ())


def test_points_of_figure_4_are_the_speedups():
    points = [point[1:] for point in measured_points("figure4")[:2]]
    assert points[0] == ("gamma_3", 0.6, 1.4, 0.02, (1.3, 1.5))
    assert points[1] == ("gamma_7", 0.6, 0.9, 0.02, (0.8, 1.0))
    assert measured_points("figure4", panel=1) == []


def drawn(name: str, found: dict):
    """The lines of the first panel by their data."""
    curves, rows = (figures.measured(found, it) for it in (name, "table2"))
    axes = figure_curves.drawing(name, curves, rows).axes[0]
    return axes, {tuple(map(tuple, line.get_data())): line for line in axes.lines}


def test_a_point_has_its_curves_color_and_is_on_top(found):
    axes, lines = drawn("figure4", found)
    for row, value in (("gamma_3", 1.4), ("gamma_7", 0.9)):
        line = lines[((0.6,), (value,))]
        place = list(CURVES["figure4"]).index(row)
        assert line.get_markeredgecolor() == f"C{place}"
        assert line.get_markerfacecolor() == "none"
        assert line.get_zorder() > axes.lines[place].get_zorder()
    assert lines[((0.6, 0.6), (1.3, 1.5))].get_color() == "C0"


@pytest.mark.parametrize("name", figure_curves.PANELS)
def test_no_point_is_out_of_sight(name, found):
    found["table2"]["small_t0_b1"]["measured"] |= {
        "tokens_per_call": [1.0, 1.0, 40.0, 0.5],
        "speedup_ci": [[1, 1], [1, 1], [0.2, 40.0], [0.1, 1]],
        "best_gamma": 60,
    }
    axes, lines = drawn(name, found)
    heights = [y for (_, ys), line in lines.items() if line.zorder > 2 for y in ys]
    low, high = axes.get_ylim()
    assert max(heights) > 30 and low <= min(heights) and max(heights) < high


def test_the_trace_keeps_every_token(found):
    text = figures.svg("figure1", found)
    said = words(text)
    assert "6 tokens in 2 calls of code_9m; code_05m drafts up to 7" in said[1]
    at = said.index("1")
    # Numbers of calls come first, then the legend and the tokens.
    assert said[0] == "prompt: if a < b:\\n    x"
    assert said[at : at + 2] == ["1", "2"]
    assert said[at + 5 :] == ["a", "b", "c", "d", "x", "e", "x", "f"]


def test_a_token_looks_like_what_became_of_it():
    root = ElementTree.fromstring(figure_trace.drawing(TRACES["gamma_7"]))
    inks = {it.text: it.get("fill") for it in root.iter(f"{SVG}text")}
    looks = figure_trace.LOOKS
    assert inks["a"] == looks["accepted"].ink
    assert inks["x"] == looks["rejected"].ink
    assert inks["e"] == looks["added"].ink
    assert len({look.ink for look in looks.values()}) == 3
    struck = list(root.iter(f"{SVG}path"))
    assert len(struck) == 1 + 2  # the legend's and the two rejected


def test_any_piece_is_escaped():
    pieces = ["<", "&amp;", ' "]]>', "\t", "\x0c", "</s>", "    "]
    steps = [{"accepted": pieces, "rejected": [], "added": ["é"]}]
    said = words(figure_trace.drawing(traced(7, steps)))
    shown = ["<", "&amp;", ' "]]>', "\\t", "\\x0c", "</s>", "    ", "é"]
    assert said[-8:] == shown


def test_spaces_keep_their_width():
    steps = [{"accepted": ["    ", "x"], "rejected": [], "added": []}]
    root = ElementTree.fromstring(figure_trace.drawing(traced(7, steps)))
    space, x = list(root.iter(f"{SVG}text"))[-2:]
    assert float(space.get("textLength")) == pytest.approx(4 * figure_trace.ADVANCE)
    apart = float(x.get("x")) - float(space.get("x"))
    assert apart > 4 * figure_trace.ADVANCE
    assert space.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"


def test_blocks_are_as_long_as_measured():
    rows, absent = figure_timeline.timelines(times(), TRACES)
    assert absent == [] and list(rows) == [0, 3, 7]
    first = [tuple(block) for block in rows[3][:5]]
    begins = [0, 0.1, 0.2, 0.3, 3.3]
    lengths = [0.1, 0.1, 0.1, 3.0, 0.2]
    kinds = ["draft"] * 3 + ["target", "rest"]
    for block, kind, begin, length in zip(first, kinds, begins, lengths, strict=True):
        assert block[0] == kind
        assert block[1:3] == pytest.approx((begin, length))
    assert figure_timeline.end(rows[3]) == pytest.approx(2 * 3.5)
    assert figure_timeline.end(rows[7]) == pytest.approx(2 * (0.7 + 4.0))
    assert figure_timeline.end(rows[0]) == pytest.approx(6 * 2.1)


def gave(row: list) -> list[int]:
    return [block.emitted for block in row if block.kind == "target"]


def test_every_row_gives_the_same_tokens():
    rows, _ = figure_timeline.timelines(times(), TRACES)
    assert [gave(row) for row in rows.values()] == [[1] * 6, [4, 2], [5, 1]]


def test_a_long_text_is_cut_where_a_limit_would():
    long = traced(7, [step("a" * 7, "", "a")] * 4)
    rows, absent = figure_timeline.timelines(times(), {"gamma_7": long})
    assert gave(rows[7]) == [8, 8, 4] and len(gave(rows[0])) == 20
    assert absent == ["gamma = 3 (no trace)"]


def test_rows_stop_where_their_texts_part():
    other = {"gamma_7": traced(7, [step("abz", "", "d"), step("e", "", "f")])}
    rows, _ = figure_timeline.timelines(times(), TRACES | other)
    assert [gave(row) for row in rows.values()] == [[1] * 2, [2], [2]]


def test_what_is_absent_is_said(found):
    short = {"gamma": GAMMAS[:3]}
    found["table2"]["small_t0_b1"]["measured"] |= short
    said = " ".join(words(figures.svg("figure5", found)))
    assert "not run: gamma = 7 (no times)" in said and "gamma = 3" in said
    for changes, why in (
        ({"draft": "bigram"}, "another pair"),
        ({"prompt": "x"}, "another prompt"),
    ):
        other = {"gamma_7": TRACES["gamma_7"] | changes}
        rows, absent = figure_timeline.timelines(times(), TRACES | other)
        assert list(rows) == [0, 3] and absent == [f"gamma = 7 (trace of {why})"]


def test_the_timeline_writes_its_numbers(found):
    said = words(figures.svg("figure5", found))
    totals = ["6 calls, 12.6 ms", "2 calls, 7.0 ms", "2 calls, 9.4 ms"]
    assert [it for it in said if it.endswith(" ms")] == totals
    rows = ["1"] * 6, ["4", "2"], ["5", "1"]
    assert [it for it in said if it.isdigit()][-10:] == [
        it for row in rows for it in row
    ]
    title = "the first 6 tokens at T = 0, code_9m + code_05m, batch 1"
    assert title in said


def encoded(**changes) -> dict[int, list]:
    """The timelines of an encoder-decoder."""
    traces = {row: trace | PAIR for row, trace in TRACES.items()}
    rows, absent = figure_timeline.timelines(times(**ENCODES | changes), traces)
    assert absent == []
    return rows


KINDS = ("target_encoder", "draft_encoder")
ENCODERS = {0: [5.0], 3: [5.0, 0.5], 7: [5.0, 0.5]}


def given(block) -> tuple:
    """All of a block but where it begins."""
    return block.kind, block.length, block.emitted


def faults(rows: dict[int, list], read: dict[int, list]) -> list[str]:
    """How rows of an encoder-decoder differ from those of a decoder and its input."""
    alone, _ = figure_timeline.timelines(times(), TRACES)
    found = []
    for gamma, row in rows.items():
        first, steps = row[: len(read[gamma])], row[len(read[gamma]) :]
        if [block.kind for block in first] != list(KINDS[: len(first)]):
            found.append(f"gamma = {gamma}: does not begin with its encoders")
        if [block.length for block in first] != read[gamma]:
            found.append(f"gamma = {gamma}: encoders of another length")
        if list(map(given, steps)) != list(map(given, alone[gamma])):
            found.append(f"gamma = {gamma}: other steps")
        begins = [0.0, *itertools.accumulate(block.length for block in row)]
        if [block.begin for block in row] != pytest.approx(begins[:-1]):
            found.append(f"gamma = {gamma}: a gap")
        whole = figure_timeline.end(alone[gamma]) + sum(read[gamma])
        if figure_timeline.end(row) != pytest.approx(whole):
            found.append(f"gamma = {gamma}: another end")
    return found


def test_an_encoder_decoder_begins_with_its_encoders():
    assert faults(encoded(), ENCODERS) == []


def test_no_draft_no_encoder_of_it():
    kinds = [{block.kind for block in row} for row in encoded().values()]
    assert [set(KINDS) & it for it in kinds] == [{KINDS[0]}, set(KINDS), set(KINDS)]


def without_encoders(rows):
    return {
        gamma: [it for it in row if it.kind not in KINDS] for gamma, row in rows.items()
    }


def encoders_last(rows):
    return {
        gamma: sorted(row, key=lambda it: it.kind in KINDS)
        for gamma, row in rows.items()
    }


def from_the_first_step(rows):
    return {
        gamma: [it._replace(begin=it.begin - 5.0) for it in row]
        for gamma, row in rows.items()
    }


def without_the_drafts(rows):
    return {
        gamma: [it for it in row if it.kind != KINDS[1]] for gamma, row in rows.items()
    }


@pytest.mark.parametrize(
    "spoil", [without_encoders, encoders_last, from_the_first_step, without_the_drafts]
)
def test_broken_timelines_of_an_encoder_decoder_are_noticed(spoil):
    assert faults(spoil(encoded()), ENCODERS)


def test_noise_cannot_make_an_encoder_negative():
    rows = encoded(prefill_draft_ms=-0.25)
    assert faults(rows, {0: [5.0], 3: [5.0, 0.0], 7: [5.0, 0.0]}) == []


@pytest.mark.parametrize("changes", [{"encodes": False}, {}])
def test_without_an_encoder_nothing_precedes_the_steps(changes):
    """Though prompts are read there too: that is no part of decoding."""
    alone = times(prefill_target_ms=5.0, prefill_draft_ms=0.5, **changes)
    assert figure_timeline.timelines(alone, TRACES)[0] == without_encoders(
        figure_timeline.timelines(times(), TRACES)[0]
    )


@pytest.mark.parametrize("name", ["prefill_target_ms", "prefill_draft_ms"])
@pytest.mark.parametrize("how", ["absent", "none"])
def test_an_encoder_that_was_not_timed_is_not_drawn(name, how, found):
    measured = found["table2"]["ende_small_t0"]["measured"]
    assert "not run" not in " ".join(words(figures.svg("figure5_ende", found)))
    measured |= {name: None}
    if how == "absent":
        del measured[name]
    (said,) = words(figures.svg("figure5_ende", found))
    assert said.startswith("figure5_ende: not run: gamma = 0 (no encoder times), ")
    assert said.count("no encoder times") == 3


def test_the_timeline_of_an_encoder_decoder_writes_its_numbers(found):
    said = words(figures.svg("figure5_ende", found))
    totals = ["6 calls, 17.6 ms", "2 calls, 12.5 ms", "2 calls, 14.9 ms"]
    assert [it for it in said if it.endswith(" ms")] == totals
    assert "the first 6 tokens at T = 0, t5_target + t5_small, batch 1" in said
    assert any(it.startswith("time from the beginning of the text (ms)") for it in said)
    legend = set(figure_timeline.NAMES.values())
    assert legend <= set(said)
    alone = words(figures.svg("figure5", found))
    assert legend - set(alone) == {figure_timeline.NAMES[kind] for kind in KINDS}
    assert any(it.startswith("decoding time (ms)") for it in alone)


def test_each_timeline_has_its_own_traces(found):
    del found["figure5"]
    said = " ".join(words(figures.svg("figure5_ende", found)))
    assert "not run: gamma = 3 (no trace), gamma = 7 (no trace)" in said
    assert "not run" not in " ".join(words(figures.svg("figure5", found)))
    found["figure5"] = found["figure1"]  # of the other pair, under its names
    assert said == " ".join(words(figures.svg("figure5_ende", found)))


def test_texts_with_no_token_in_common_are_not_drawn():
    other = {"gamma_7": traced(7, [step("zb", "", "d")])}
    rows, absent = figure_timeline.timelines(times(), TRACES | other)
    assert rows == {} and absent == ["the texts have no token in common"]


def test_verification_is_drawn_as_measured():
    time, memory = figure_wagner.drawing(VERIFIED).axes
    drawn = [
        [line.get_ydata().tolist() for line in axes.lines] for axes in (time, memory)
    ]
    assert drawn == [[[30.0, 40.0, 41.0], [9.0, 9.5, 9.7]], [[2.0, 3.0], [2.5]]]
    assert [line.get_xdata().tolist() for line in memory.lines] == [[1, 5], [5]]
    band = time.collections[0].get_paths()[0].vertices
    assert {(1, 29), (1, 33), (5, 38), (5, 45)} <= {tuple(it) for it in band}
    labels = [line.get_label() for line in time.lines]
    assert labels == VERIFIED["docs"]["methods"]


def test_what_figure_5_draws_is_in_its_table():
    for name, one in figures.TIMELINES.items():
        table = getattr(catalogue_walltime, name)()
        drawn = {line.row for line in table.lines if line.folder == "table2"}
        assert drawn == {one.times}
    rows = {line.row for line in table.lines if line.folder == one.traces}
    assert rows == set(TRANSLATED)
