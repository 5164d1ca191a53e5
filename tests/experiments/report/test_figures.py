"""Figures draw what the records say, the same bytes every time, and any token."""

from xml.etree import ElementTree

import pytest

from experiments import catalogue
from experiments.report import curves as figure_curves
from experiments.report import figures, speeds, timeline, wagner
from experiments.report import trace as figure_trace

SVG = "{http://www.w3.org/2000/svg}"


def times(**changes) -> dict:
    """`measured` of a row of table2."""
    measured = {"target": "code_target", "draft": "code_small", "temperature": 0.0}
    measured |= {"batch": 1, "alpha": 0.6, "alpha_se": 0.02, "target_ms": 2.0}
    measured |= {"gamma": [0, 1, 3, 7], "v": [1.0, 1.1, 1.5, 2.0]}
    measured |= {"step_ms": [2.1, 2.5, 3.5, 4.68], "draft_ms": [None, 0.1, 0.3, 0.7]}
    measured |= {"tokens_per_call": [1.0, 1.6, 2.2, 2.4]}
    measured |= {"speedup": [1.0, 1.2, 1.4, 0.9]}
    measured |= {"speedup_ci": [[1, 1], [1.1, 1.3], [1.3, 1.5], [0.8, 1.0]]}
    measured |= {"best_gamma": 3, "best_c": 0.051}
    measured |= {"best_speedup": 1.4, "best_speedup_ci": [1.3, 1.5]}
    return measured | changes


def step(accepted: str, rejected: str, added: str) -> dict:
    """A token a character."""
    parts = map(list, (accepted, rejected, added))
    return dict(zip(("accepted", "rejected", "added"), parts, strict=True))


def traced(gamma: int, steps: list[dict], **changes) -> dict:
    """`measured` of a row of figure1."""
    tokens = sum(len(it["accepted"] + it["added"]) for it in steps)
    measured = {"target": "code_target", "draft": "code_small", "temperature": 0.0}
    measured |= {"prompt": "if a < b:\n    x", "gamma": gamma, "tokens": tokens}
    return measured | {"target_calls": len(steps), "steps": steps} | changes


LAST = step("g", "", "")  # at the limit
TRACES = {
    "gamma_3": traced(3, [step("abc", "", "d"), step("e", "x", "f"), LAST]),
    "gamma_7": traced(7, [step("abcd", "x", "e"), step("", "x", "f")]),
}
KINDS = tuple(timeline.ENCODERS)
PAIR = {"target": "t5_target", "draft": "t5_small"}
ENCODES = PAIR | {"encodes": True, "prefill_target_ms": 5.0, "prefill_draft_ms": 0.5}
TRANSLATED = {f"ende_{row}": trace | PAIR for row, trace in TRACES.items()}
POINTS = {"alpha": [0.0, 0.5, 1.0]}
RISING = POINTS | {"expected_tokens": [1.0, 1.9, None]}
SPEEDS = POINTS | {"speed": [1.0, 1.9, 4.0], "operations": [4.0, 2.0, 1.0]}
TIMES = {"gamma": [1, 5, 6], "median_us_exact": [30.0, 40.0, 41.0]}
TIMES |= {"low_us_exact": [29.0, 38.0, 40.0], "high_us_exact": [33.0, 45.0, 44.0]}
TIMES |= {f"{it}_us_sigmoid_1e4": [9.0, 9.5, 9.7] for it in ("median", "low", "high")}
MEMORY = {"step_peak_kib_exact_g1": 2048.0, "step_peak_kib_exact_g5": 3072.0}
MEMORY |= {"step_peak_kib_sigmoid_1e4_g5": 2560.0}
VERIFIED = {"docs": PAIR | {"methods": ["exact", "sigmoid_1e4"]} | TIMES | MEMORY}
CURVES = {
    "figure2": {"gamma_3": RISING, "gamma_10": RISING, "gamma_inf": RISING},
    "figure3": {"c_0.05": POINTS | {"best_gamma": [0, 3, 20]}},
    "figure4": {"gamma_3": SPEEDS, "gamma_7": SPEEDS},
}


@pytest.fixture
def results():
    bigram = times(draft="bigram", temperature=1.0, alpha=0.3, best_gamma=0)
    bigram |= {"best_c": None}
    rows = {"small_t0_b1": times(), "small_t0_b8": times(batch=8, alpha=0.61)}
    rows |= {"bigram_t1_b1": bigram, "ende_small_t0": times(**ENCODES, alpha=0.7)}
    folders = {"figure1": TRACES, "figure5": TRANSLATED, **CURVES, "table2": rows}
    folders |= {"wagner_time": VERIFIED, "speech": {"recording": TRACES["gamma_3"]}}
    return {
        folder: {row: {"measured": measured} for row, measured in rows.items()}
        for folder, rows in folders.items()
    }


def words(text: str) -> list[str]:
    """Every text of a drawing, which must be well-formed."""
    texts = ElementTree.fromstring(text).iter(f"{SVG}text")
    return ["".join(it.itertext()) for it in texts]


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_figure_is_the_same_well_formed_svg_every_time(name, results, tmp_path):
    text = figures.svg(name, results)
    figures.draw(name, results, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text("utf-8") == text
    assert text.startswith("<svg") and "date" not in text
    assert "not run" not in " ".join(words(text)) and "#ffffff" in text[:2000]
    assert words(figures.svg(name, {})) == [f"{name}: not run"]


@pytest.mark.parametrize("name", figure_curves.KINDS)
def test_curves_stand_alone_where_nothing_was_measured(name, results):
    del results["table2"]
    text = words(figures.svg(name, results))
    assert "alpha" in text and "measured" not in " ".join(text)


def test_an_unknown_figure_names_the_known_ones():
    with pytest.raises(ValueError, match="choose one of figure1"):
        figures.svg("figure6", {})


def points_of(name: str, *rows: dict) -> list:
    """What was measured."""
    curves = sorted(CURVES[name], key=figure_curves.order)
    kind = figure_curves.KINDS[name]
    return [p for row in rows for p in figure_curves.measured(kind, curves, row)]


def test_points_of_a_figure_are_what_was_measured():
    ours = points_of("figure2", times(), times(alpha=0.3))
    told = [(p.curve, p.alpha, p.value, p.error, p.ends) for p in ours]
    assert told == [("gamma_3", alpha, 2.2, 0.02, ()) for alpha in (0.6, 0.3)]
    (best,) = points_of("figure3", times())  # c = 0.051: of the nearest curve
    assert best == ("c_0.05", 0.6, 3, "code", 0, 0.02, ())
    assert points_of("figure3", times(best_gamma=0, best_c=None)) == []
    three, seven = points_of("figure4", times())
    assert (three.curve, three.value, three.ends) == ("gamma_3", 1.4, (1.3, 1.5))
    assert (seven.curve, seven.value, seven.ends) == ("gamma_7", 0.9, (0.8, 1.0))


def test_points_of_a_figure_are_what_is_published_too():
    """At c = 0 the speed of Table 1 is the tokens of a call; gamma of Table 4."""
    papers = figure_curves.published("figure2", ["gamma_3", "gamma_10"])
    assert [p[:3] for p in papers] == [("gamma_3", 0.7, 2.53), ("gamma_10", 0.9, 6.86)]
    papers = figure_curves.published("figure3", ["c_0.02", "c_0.1"])
    assert len(papers) == 12 and papers[2][:3] == ("c_0.1", 0.82, 7)
    papers = figure_curves.published("figure4", ["gamma_3", "gamma_7"])
    assert ("gamma_7", 0.75, 3.4) in [p[:3] for p in papers] and len(papers) == 8


def test_every_task_has_a_marker_of_its_own_and_every_temperature_a_fill():
    tasks = [*figure_curves.TASKS, "mine"]
    rows = [times(task=task, temperature=heat) for task in tasks for heat in (0, 1)]
    looks = [figure_curves.looks(point) for point in points_of("figure3", *rows)]
    kinds = {(look["marker"], look.get("markerfacecolor")) for look in looks}
    assert len(kinds) == len(rows) and {fill for _, fill in kinds} == {None, "white"}


def drawn(name: str, results: dict) -> dict:
    """The panels by their titles, and what each has drawn, by its data."""
    curves, rows = (figures.measured(results, it) for it in (name, "table2"))
    panels = figure_curves.drawing(name, curves, rows).axes
    return {
        axes.get_title(loc="left"): (
            axes,
            {tuple(map(tuple, line.get_data())): line for line in axes.lines},
        )
        for axes in panels
    }


def test_a_point_has_its_curves_color_and_stands_in_its_panel(results):
    panels = drawn("figure4", results)
    assert list(panels) == [
        "",
        "gamma = 3",
        "gamma = 7",
        "operations, target alone = 1",
    ]
    for at, (title, value) in enumerate({"gamma = 3": 1.4, "gamma = 7": 0.9}.items()):
        _, lines = panels[title]
        point = lines[((0.6,), (value,))]
        assert point.get_color() == f"C{at}"
        assert point.get_zorder() > next(iter(lines.values())).get_zorder()
    assert panels["gamma = 3"][1][((0.6, 0.6), (1.3, 1.5))].get_color() == "C0"


def test_no_legend_lies_on_a_panel(results):
    """Nor squeezes one: each panel is wider than a fifth of the figure."""
    for name in figure_curves.KINDS:
        curves, rows = (figures.measured(results, it) for it in (name, "table2"))
        figure = figure_curves.drawing(name, curves, rows)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        for axes in figure.axes:
            panel = axes.get_window_extent()
            assert not panel.overlaps(box) and panel.width > figure.bbox.width / 5
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_speeds_stand_with_their_intervals_beside_the_published(results):
    rows = figures.measured(results, "table2")
    axes, batches = speeds.drawing(
        rows | {"small_t0_b1_xla": times(best_speedup=9)}
    ).axes
    values = {tuple(line.get_xdata()) for line in axes.lines}
    assert values >= {(1.4,), (1.3, 1.5), (3.4,)}  # published: ende_small_t0
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["Python, bigram", "Python, code_small", "Python, t5_small"]
    assert [label.get_text() for label in batches.get_xticklabels()] == ["1", "8"]
    assert (9,) not in values  # the same pair by XLA's products


@pytest.mark.parametrize("name", figure_curves.KINDS)
def test_no_point_is_out_of_sight(name, results):
    results["table2"]["small_t0_b1"]["measured"] |= {
        "tokens_per_call": [1.0, 1.0, 40.0, 0.5],
        "speedup_ci": [[1, 1], [1, 1], [0.2, 40.0], [0.1, 1]],
        "best_gamma": 60,
    }
    for axes, lines in drawn(name, results).values():
        heights = [y for (_, ys), line in lines.items() if line.zorder > 2 for y in ys]
        low, high = axes.get_ylim()
        assert all(low <= y <= high for y in heights)


def test_the_trace_keeps_every_token_and_shows_what_became_of_it(results):
    svg = figures.svg("figure1", results)
    text = words(svg)
    assert text[0] == "prompt: if a < b:\\n    x"
    assert "6 tokens in 2 calls of code_target; code_small drafts up to 7" in text[1]
    # Numbers of calls come first, then the legend and the tokens.
    assert text[2:4] == ["1", "2"]
    assert text[7:] == ["a", "b", "c", "d", "x", "e", "x", "f"]
    root = ElementTree.fromstring(svg)
    inks = {it.text: it.get("fill") for it in root.iter(f"{SVG}text")}
    looks = [figure_trace.LOOKS[it].ink for it in ("accepted", "rejected", "added")]
    assert [inks[token] for token in "axe"] == looks and len(set(looks)) == 3
    # Struck through: the legend's and the two rejected.
    assert len(list(root.iter(f"{SVG}path"))) == 1 + 2


def test_any_piece_is_escaped_and_keeps_its_spaces():
    pieces = ["<", "&amp;", ' "]]>', "\t", "\x0c", "</s>", "    "]
    steps = [{"accepted": pieces, "rejected": [], "added": ["é"]}]
    text = figure_trace.drawing(traced(7, steps))
    shown = ["<", "&amp;", ' "]]>', "\\t", "\\x0c", "</s>", "    ", "é"]
    assert words(text)[-8:] == shown
    space, after = list(ElementTree.fromstring(text).iter(f"{SVG}text"))[-2:]
    assert float(space.get("textLength")) == pytest.approx(4 * figure_trace.ADVANCE)
    assert float(after.get("x")) > float(space.get("x")) + 4 * figure_trace.ADVANCE
    assert space.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"


def test_blocks_are_as_long_as_measured():
    rows, absent = timeline.timelines(times(), TRACES)
    assert absent == [] and list(rows) == [0, 3, 7]
    first = rows[3][:5]
    assert [it.kind for it in first] == ["draft"] * 3 + ["target", "rest"]
    assert [it.begin for it in first] == pytest.approx([0, 0.1, 0.2, 0.3, 3.3])
    assert [it.length for it in first] == pytest.approx([0.1, 0.1, 0.1, 3.0, 0.2])


def emitted(**traces: dict | None) -> tuple[list[list[int]], list[str]]:
    """The tokens of each call of the target, by row, and what is absent."""
    rows, absent = timeline.timelines(times(), TRACES | traces)
    calls = [[it for it in row if it.kind == "target"] for row in rows.values()]
    return [[it.emitted for it in row] for row in calls], absent


def test_rows_give_the_same_tokens():
    """Cut where a limit would, and where their texts part."""
    assert emitted() == ([[1] * 6, [4, 2], [5, 1]], [])
    long = traced(7, [step("a" * 7, "", "a")] * 4)
    rows, absent = emitted(gamma_3=None, gamma_7=long)
    assert rows == [[1] * 20, [8, 8, 4]] and absent == ["gamma = 3 (no trace)"]
    parted = traced(7, [step("abz", "", "d"), step("e", "", "f")])
    assert emitted(gamma_7=parted) == ([[1] * 2, [2], [2]], [])


def test_what_is_absent_is_said(results):
    results["table2"]["small_t0_b1"]["measured"] |= {"gamma": [0, 1, 3]}
    text = " ".join(words(figures.svg("figure5", results)))
    assert "not run: gamma = 7 (no times)" in text and "gamma = 3" in text
    parted, trace = [[1] * 7, [4, 2, 1]], TRACES["gamma_7"]
    for key, value, what in (("draft", "bigram", "pair"), ("prompt", "x", "prompt")):
        absent = [f"gamma = 7 (trace of another {what})"]
        assert emitted(gamma_7=trace | {key: value}) == (parted, absent)
    trace = traced(7, [step("zb", "", "d")])
    assert emitted(gamma_7=trace) == ([], ["the texts have no token in common"])


def test_timelines_write_their_numbers(results):
    texts = [words(figures.svg(name, results)) for name in figures.TIMELINES]
    pairs = "code_target + code_small", "t5_target + t5_small"
    axes = "decoding time (ms)", "time from the beginning of the text (ms)"
    totals = [(6, 12.6), (2, 7.0), (2, 9.4)], [(6, 17.6), (2, 12.5), (2, 14.9)]
    for text, pair, axis, ends in zip(texts, pairs, axes, totals, strict=True):
        told = [f"{calls} calls, {ms} ms" for calls, ms in ends]
        assert [it for it in text if it.endswith(" ms")] == told
        assert [it for it in text if it.isdigit()][-10:] == [*"111111", *"42", *"51"]
        assert f"the first 6 tokens at T = 0, {pair}, batch 1" in text
        assert any(it.startswith(axis) for it in text)
    legend = set(timeline.NAMES.values())
    assert legend <= set(texts[1])
    assert legend - set(texts[0]) == {timeline.NAMES[kind] for kind in KINDS}


def test_nothing_is_left_white_between_blocks():
    """No block has an edge of the page's color, which a short one would vanish in."""
    rows, absent = timeline.timelines(times(), TRACES)
    (axes,) = timeline.drawing(times(), rows, absent).axes
    blocks = [it for it in axes.collections if it.get_facecolor().size]
    assert sum(len(it.get_paths()) for it in blocks) == sum(map(len, rows.values()))
    assert all((it.get_edgecolor() == it.get_facecolor()).all() for it in blocks)


def encoded(**changes) -> dict[int, list]:
    """The timelines of an encoder-decoder."""
    traces = {row: trace | PAIR for row, trace in TRACES.items()}
    rows, absent = timeline.timelines(times(**ENCODES | changes), traces)
    assert absent == []
    return rows


def test_an_encoder_decoder_begins_with_its_encoders():
    """Then come the steps of a decoder alone, later by what the input took."""
    alone, _ = timeline.timelines(times(), TRACES)
    for gamma, lengths in {0: [5.0], 3: [5.0, 0.5], 7: [5.0, 0.5]}.items():
        row, encoders = encoded()[gamma], len(lengths)
        assert tuple(it.kind for it in row[:encoders]) == KINDS[:encoders]
        assert [it.length for it in row[:encoders]] == lengths
        assert [it[2:] for it in row[encoders:]] == [it[2:] for it in alone[gamma]]
        begins = [it.begin + sum(lengths) for it in alone[gamma]]
        assert [it.begin for it in row[encoders:]] == pytest.approx(begins)
    noisy = encoded(prefill_draft_ms=-0.25)[3]  # noise: nothing is shorter than 0
    assert [it.length for it in noisy[:2]] == [5.0, 0.0]


def test_without_an_encoder_nothing_precedes_the_steps():
    """Though prompts are read there too: that is no part of decoding."""
    read = times(prefill_target_ms=5.0, prefill_draft_ms=0.5)
    steps = timeline.timelines(times(), TRACES)
    assert timeline.timelines(read, TRACES) == steps
    assert timeline.timelines(read | {"encodes": False}, TRACES) == steps


def test_an_encoder_that_was_not_timed_is_not_drawn(results):
    record = results["table2"]["ende_small_t0"]
    timed = record["measured"]
    absent = {key: timed[key] for key in timed if key != "prefill_draft_ms"}
    for measured in (timed | {"prefill_target_ms": None}, absent):
        record["measured"] = measured
        (text,) = words(figures.svg("figure5_ende", results))
        assert text.startswith("figure5_ende: not run: gamma = 0 (no encoder times), ")
        assert text.count("no encoder times") == 3


def test_each_timeline_has_its_own_traces(results):
    del results["figure5"]
    text = " ".join(words(figures.svg("figure5_ende", results)))
    assert "not run: gamma = 3 (no trace), gamma = 7 (no trace)" in text
    assert "not run" not in " ".join(words(figures.svg("figure5", results)))
    results["figure5"] = results["figure1"]  # of the other pair, under its names
    assert text == " ".join(words(figures.svg("figure5_ende", results)))


def test_verification_is_drawn_as_measured():
    time, memory = wagner.drawing(VERIFIED).axes
    heights = [
        [line.get_ydata().tolist() for line in it.lines] for it in (time, memory)
    ]
    assert heights == [[[30.0, 40.0, 41.0], [9.0, 9.5, 9.7]], [[2.0, 3.0], [2.5]]]
    assert [line.get_xdata().tolist() for line in memory.lines] == [[1, 5], [5]]
    band = time.collections[0].get_paths()[0].vertices
    assert {(1, 29), (1, 33), (5, 38), (5, 45)} <= {tuple(it) for it in band}
    assert [it.get_label() for it in time.lines] == VERIFIED["docs"]["methods"]


def test_what_figure_5_draws_is_in_its_table():
    for name, figure in figures.TIMELINES.items():
        lines = catalogue.named(name).lines
        assert {it.row for it in lines if it.folder == "table2"} == {figure.times}
    assert {it.row for it in lines if it.folder == figure.traces} == set(TRANSLATED)
