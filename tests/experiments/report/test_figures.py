"""Figures draw what the records say, with any tokens."""

from xml.etree import ElementTree

import pytest

from experiments import catalogue
from experiments.report import curves as figure_curves
from experiments.report import figures, images, laws, speeds, tables, timeline, wagner
from experiments.report import trace as figure_trace
from experiments.report.trace import LOOKS

SVG = "{http://www.w3.org/2000/svg}"


def times(**changes) -> dict:
    """Returns `measured` of a row of table2."""
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
    """Returns a step in which each character is a token."""
    parts = map(list, (accepted, rejected, added))
    return dict(zip(("accepted", "rejected", "added"), parts, strict=True))


def trace_numbers(gamma: int, steps: list[dict], **changes) -> dict:
    """Returns `measured` of a row of figure1."""
    tokens = sum(len(it["accepted"] + it["added"]) for it in steps)
    measured = {"target": "code_target", "draft": "code_small", "temperature": 0.0}
    measured |= {"prompt": "if a < b:\n    x", "gamma": gamma, "tokens": tokens}
    return measured | {"target_calls": len(steps), "steps": steps} | changes


LAST = step("g", "", "")  # at the limit
TRACES = {
    "gamma_3": trace_numbers(3, [step("abc", "", "d"), step("e", "x", "f"), LAST]),
    "gamma_7": trace_numbers(7, [step("abcd", "x", "e"), step("", "x", "f")]),
}
PAIR = {"target": "t5_target", "draft": "t5_small"}
ENCODES = PAIR | {"encodes": True, "prefill_target_ms": 5.0}


@pytest.fixture(scope="module")
def committed():
    folder, kinds = catalogue.ROOT / "results", [*figure_curves.KINDS]
    return tables.collect(folder, laws=laws.compute(kinds))


@pytest.fixture
def results(committed):
    """Of this checkout's records; rows of table2 can be changed."""
    return committed | {"table2": {**committed["table2"]}}


def drawing_words(text: str) -> list[str]:
    """Returns every text of a drawing, which must be well-formed."""
    texts = ElementTree.fromstring(text).iter(f"{SVG}text")
    return ["".join(it.itertext()) for it in texts]


def test_committed_drawings_are_what_the_records_say(committed):
    """The words of matplotlib's drawings are compared; their paths depend on its
    release."""
    for name in figures.NAMES:
        text = (catalogue.ROOT / f"results/{name}.svg").read_text("utf-8")
        drawn = figures.svg(name, committed)
        assert drawn == text or name not in figures.TRACES, name
        assert drawing_words(drawn) == drawing_words(text), name


def test_a_figure_says_where_it_was_not_run(results):
    for name in figures.NAMES:
        assert drawing_words(figures.svg(name, {})) == [f"{name}: not run"]
    with pytest.raises(ValueError, match="choose one of figure1"):
        figures.svg("figure6", {})
    del results["table2"]
    for name in figure_curves.KINDS:  # which stand alone where nothing was measured
        text = drawing_words(figures.svg(name, results))
        assert "alpha" in text and "measured" not in " ".join(text)


def test_a_timeline_says_what_it_lacks(results):
    def figure_words(name):
        return " ".join(drawing_words(figures.svg(name, results)))

    rows, own = results["table2"], results["table2"]["ende_small_t0"]
    rows["ende_small_t0"] = {"measured": own["measured"] | {"prefill_draft_ms": None}}
    assert figure_words("figure5_ende").count("no encoder times") == 3
    rows["ende_small_t0"] = own
    results["figure5"] = results["figure1"]  # traces of the other pair
    absent = "not run: gamma = 3 (no trace), gamma = 7 (no trace)"
    assert absent in figure_words("figure5_ende") and "not run" not in figure_words(
        "figure5"
    )
    rows["small_t0_b1"] = {"measured": times(gamma=[0, 1, 3])}
    assert "not run: gamma = 7 (no times)" in figure_words("figure5")


def test_a_pixel_has_the_color_of_who_wrote_it_and_the_depth_of_its_shade():
    steps = [
        {"accepted": [0, 16], "rejected": [7], "added": [8]},
        {"accepted": [], "rejected": [], "added": [40]},  # no shade: as dark as can be
    ]
    image = {"digit": 3, "steps": steps}
    measured = {"target": "p", "draft": "q", "gamma": 3, "temperature": 1.0}
    measured |= {"tokens": 4, "target_calls": 2, "side": 2, "shades": 17}
    text = images.drawing(measured | {"images": [image]})
    pale, ink = (LOOKS["accepted"].fill, LOOKS["accepted"].ink)
    drawn = [
        (float(it.get("x")) - 12, it.get("fill"))
        for it in ElementTree.fromstring(text).iter(f"{SVG}rect")
        if it.get("width") == str(images.SIZE)
    ]
    middle = images.color(0.5, "added")
    assert drawn == [(0, pale), (10, ink), (0, middle), (10, LOOKS["added"].ink)]
    assert "3: 2 calls" in drawing_words(text) and text.count("<path") == 1
    red, green, blue = bytes.fromhex(middle[1:])
    assert blue > green > red  # halfway between the blues


def test_points_of_a_figure_are_what_was_measured_and_what_is_published():
    curves = {"figure2": ["gamma_3", "gamma_10"], "figure3": ["c_0.05"]}
    curves["figure4"] = ["gamma_3", "gamma_7"]

    def points(name, *rows):
        of = figure_curves.KINDS[name], curves[name]
        return [p for row in rows for p in figure_curves.measured_points(*of, row)]

    ours = points("figure2", times(), times(alpha=0.3))
    told = [(p.curve, p.alpha, p.value, p.error, p.ends) for p in ours]
    assert told == [("gamma_3", alpha, 2.2, 0.02, ()) for alpha in (0.6, 0.3)]
    (best,) = points("figure3", times())  # c = 0.051: of the nearest curve
    assert best == ("c_0.05", 0.6, 3, "code", 0, 0.02, ())
    assert points("figure3", times(best_gamma=0, best_c=None)) == []
    assert points("figure2", times(draft="copying")) == []  # it may draft less
    assert points("figure4", times(draft="copying"))
    three, seven = points("figure4", times())
    assert (three.curve, three.value, three.ends) == ("gamma_3", 1.4, (1.3, 1.5))
    assert (seven.curve, seven.value, seven.ends) == ("gamma_7", 0.9, (0.8, 1.0))
    # At c = 0 the speed of Table 1 is the tokens of a call; gamma of Table 4.
    papers = figure_curves.published_points("figure2", ["gamma_3", "gamma_10"])
    assert [p[:3] for p in papers] == [("gamma_3", 0.7, 2.53), ("gamma_10", 0.9, 6.86)]
    papers = figure_curves.published_points("figure3", ["c_0.02", "c_0.1"])
    assert len(papers) == 12 and papers[2][:3] == ("c_0.1", 0.82, 7)
    papers = figure_curves.published_points("figure4", ["gamma_3", "gamma_7"])
    assert ("gamma_7", 0.75, 3.4) in [p[:3] for p in papers] and len(papers) == 8


@pytest.mark.parametrize("name", figure_curves.KINDS)
def test_no_point_and_no_word_is_cut_and_no_legend_lies_on_a_panel(name, results):
    far = {"tokens_per_call": [1.0, 1.0, 40.0, 0.5], "best_gamma": 60}
    far |= {"speedup_ci": [[1, 1], [1, 1], [0.2, 40.0], [0.1, 1]]}
    results["table2"]["small_t0_b1"] = {"measured": times(**far)}
    curves, rows = (figures.numbers_by_row(results, it) for it in (name, "table2"))
    figure = figure_curves.drawing(name, curves, rows)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    boxes = [it.get_window_extent() for it in (legend, *legend.texts)]
    assert all(figure.bbox.x0 <= it.x0 and it.x1 <= figure.bbox.x1 for it in boxes)
    assert all(boxes[0].x0 <= it.x0 and it.x1 <= boxes[0].x1 for it in boxes)
    for axes in figure.axes:
        panel = axes.get_window_extent()
        assert not panel.overlaps(boxes[0]) and panel.width > figure.bbox.width / 5
        low, high = axes.get_ylim()
        lines = [line for line in axes.lines if line.zorder > 2]
        assert all(low <= y <= high for line in lines for y in line.get_ydata())
        # The best gamma is whole.
        steps = axes.lines[0].get_drawstyle() == "steps-post"
        assert steps == (name == "figure3")


def test_speeds_stand_with_both_spreads_beside_the_published():
    rows = {"small_t0_b1": times(), "small_t0_b8": times(batch=8, best_speedup=1.2)}
    rows |= {"bigram_t1_b1": times(draft="bigram", temperature=1.0)}
    rows |= {"ende_small_t0": times(**PAIR)}
    rows["small_t0_b1_xla"] = times(best_speedup=9)  # the same pair by XLA's products
    rows["again"] = times(best_speedup=2.5)  # another run of the first
    records = {
        row: {"row": row, "table": "table2", "measured": it, "provenance": {}}
        for row, it in rows.items()
    }
    again = {"again": records.pop("again")}
    axes = speeds.drawing({"table2": records, "elsewhere": again}).axes[0]
    values = {tuple(line.get_xdata()) for line in axes.lines}
    assert values >= {(1.4,), (1.3, 1.5), (3.4,)}  # published: ende_small_t0
    records["small_t0_b1_xla"]["provenance"]["products"] = "xla"
    axes = speeds.drawing({"table2": records, "elsewhere": again}).axes[0]
    values = {tuple(line.get_xdata()) for line in axes.lines}
    assert (1.4, 2.5) in values and (9,) not in values
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [
        "code_target with bigram, T = 1",
        "code_target with code_small, T = 0",
        "t5_target with t5_small (EnDe), T = 0",
        "code_target with code_small, T = 0, batch 8",
    ]


def test_any_piece_is_escaped_and_keeps_its_spaces():
    pieces = ["<", "&amp;", ' "]]>', "\t", "\x0c", "</s>", "    "]
    steps = [{"accepted": pieces, "rejected": [], "added": ["é"]}]
    text = figure_trace.drawing(trace_numbers(7, steps))
    shown = ["<", "&amp;", ' "]]>', "\\t", "\\x0c", "</s>", "    ", "é"]
    assert drawing_words(text)[-8:] == shown
    space, after = list(ElementTree.fromstring(text).iter(f"{SVG}text"))[-2:]
    assert float(space.get("textLength")) == pytest.approx(4 * figure_trace.ADVANCE)
    assert float(after.get("x")) > float(space.get("x")) + 4 * figure_trace.ADVANCE


PARTED = trace_numbers(7, [step("abz", "", "d"), step("e", "", "f")])
STRANGE = trace_numbers(7, [step("zb", "", "d")])
LONG = {"gamma_3": None, "gamma_7": trace_numbers(7, [step("a" * 7, "", "a")] * 4)}
OTHER = TRACES["gamma_7"] | {"draft": "bigram"}


@pytest.mark.parametrize(
    ("traces", "calls", "absent"),
    [
        ({}, [[1] * 6, [4, 2], [5, 1]], []),
        # Cut where a limit would, and where their texts part.
        (LONG, [[1] * 20, [8, 8, 4]], ["gamma = 3 (no trace)"]),
        ({"gamma_7": PARTED}, [[1] * 2, [2], [2]], []),
        ({"gamma_7": STRANGE}, [], ["the texts have no token in common"]),
        (
            {"gamma_7": OTHER},
            [[1] * 7, [4, 2, 1]],
            ["gamma = 7 (trace of another pair)"],
        ),
    ],
)
def test_rows_of_a_timeline_give_the_same_tokens(traces, calls, absent):
    rows, told = timeline.timelines(times(), TRACES | traces)
    rows = [[it for it in row if it.kind == "target"] for row in rows.values()]
    assert ([[it.emitted for it in row] for row in rows], told) == (calls, absent)


def test_an_encoder_decoder_begins_with_its_encoders():
    """A committed drawing shows the steps after them; no time is negative, although
    noise could make it so."""
    traces = {row: trace | PAIR for row, trace in TRACES.items()}
    rows, _ = timeline.timelines(times(**ENCODES, prefill_draft_ms=-1), traces)
    assert [it.length for it in rows[3][:2]] == [5.0, 0.0]
    assert rows[0][0].length == 5.0 == rows[0][1].begin


def test_verification_is_drawn_as_measured():
    measured = {"gamma": [1, 5], "median_us_exact": [30.0, 40.0]}
    measured |= {"low_us_exact": [29.0, 38.0], "high_us_exact": [33.0, 45.0]}
    measured |= {"methods": ["exact"], "step_peak_kib_exact_g5": 3072.0}
    time, memory = wagner.drawing({"docs": PAIR | measured}).axes
    drawn = [[line.get_ydata().tolist() for line in it.lines] for it in (time, memory)]
    assert drawn == [[[30.0, 40.0]], [[3.0]]]
    assert memory.lines[0].get_xdata().tolist() == [5] and memory.get_ylim()[0] == 0
    band = time.collections[0].get_paths()[0].vertices
    assert {(1, 29), (1, 33), (5, 38), (5, 45)} <= {tuple(it) for it in band}


def test_many_speeds_have_a_panel_for_each_target():
    """Rows of heads, trees and questions are among them, by readable names."""
    results = tables.collect(catalogue.ROOT / "results")
    lines = speeds.measured_speeds(results)
    labels = [line.label for line in lines]
    assert len(set(labels)) == len(labels) > speeds.MOST
    assert {
        "code_target with code_eagle3, by block, T = 1",
        "t5_target with tree of t5_small (EnDe), by traversal, T = 1",
        "SmolLM2-135M with suffix (passages), T = 0",
        "Qwen2.5-Coder 1.5B with 0.5B (Spec-Bench), T = 0",
        "code_target with code_small, renewal, T = 0",
    } < {*labels}
    assert not any("qwen2.5" in label or "smollm2," in label for label in labels)
    panels = speeds.split_by_target(lines)
    assert sum(map(len, panels.values())) == len(lines) and "t5_target" in panels
    assert min(map(len, panels.values())) >= speeds.LEAST
    figure = speeds.drawing(results)
    first = figure.axes[0].get_yticklabels()[0].get_text()
    title = figure.axes[0].get_title(loc="left")
    assert first.startswith("with ") and title in panels
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert speeds.split_by_target(lines[:9]) == {"": lines[:9]}


def test_of_rows_that_differ_in_gamma_alone_the_fastest_has_a_line():
    two = {"draft": "suffix", "best_speedup": 1.1, "best_speedup_ci": [1.0, 1.2]}
    rows = {"speed_rag_suffix_8_t0": times(**two), "speed_rag_suffix_t0": times(**two)}
    rows["speed_rag_suffix_t0"] |= {"best_speedup": 1.2, "group": "all"}
    rows["speed_rag_suffix_8_t0"]["group"] = "all"
    records = {
        row: {"row": row, "table": "model_free_speed", "measured": it}
        | {"provenance": {}}
        for row, it in rows.items()
    }
    (line,) = speeds.measured_speeds({"model_free_speed": records})
    assert line.value == 1.2
