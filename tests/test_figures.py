"""Figures draw what the records say, the same bytes every time, and any token."""

from xml.etree import ElementTree

import pytest

from experiments import figure_curves, figure_timeline, figure_trace, figures

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
POINTS = {"alpha": [0.0, 0.5, 1.0]}
RISING = POINTS | {"expected_tokens": [1.0, 1.9, None]}
SPEEDS = POINTS | {"speed": [1.0, 1.9, 4.0], "operations": [4.0, 2.0, 1.0]}
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
    folders = {"figure1": TRACES, **CURVES, "table2": rows | {"bigram_t1_b1": bigram}}
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
