"""`--report` writes a page about a user's rows, in words and drawings."""

import json
import re
from xml.etree import ElementTree

import pytest

from specjax.cli import by_gamma, compare, measure, report
from specjax.measure import verdict

ROW = {"target": "a<b", "draft": "small", "temperature": 0.0, "exactness": "exact law"}
ROW |= {"batch": 1, "texts": 8, "same_greedy_texts": 8, "prompts": 20, "others": 4}
ROW |= {"gamma": [0, 3], "c": [None, 0.1], "v": [1.0, 1.2], "overhead": [0.0, 0.05]}
ROW |= {"overhead_se": [0.0, 0.01], "tokens_per_call": [1.0, 3.1], "chosen_on": 4}
ROW |= {
    "predicted": [1.0, 2.0],
    "speedup": [1.0, 1.9],
    "speedup_ci": [None, [1.7, 2.1]],
}
ROW |= {"best_gamma": 3, "best_speedup": 1.9, "best_speedup_ci": [1.7, 2.1]}
MADE = {"device": {"kind": "cpu"}, "date": "2026-01-02T03", "commit": None, "seed": 0}
RECORD = {"row": "small", "measured": ROW, "provenance": MADE}


def test_a_verdict_names_speed_sameness_and_what_costs_most():
    said = verdict.verdict(ROW)
    assert said.startswith(
        "gamma 3: 1.90x [1.70, 2.10], faster than the target alone; "
    )
    assert "greedy texts 8 of 8 identical; drafting (gamma c) costs most" in said
    spent = {"draft": 0.3, "score": 1.2, "rest": 0.05}
    assert verdict.costs(ROW, 1) == pytest.approx(spent)
    other = ROW | {"v": [1.0, 1.4], "temperature": 1.0, "exactness": "lossy, no bound"}
    assert verdict.verdict(other).endswith(
        "another distribution (lossy, no bound); the target's call on more tokens (v)"
        " costs most"
    )
    for ends, words in (([0.9, 1.1], "no difference"), ([0.5, 0.9], "slower than")):
        assert words in verdict.verdict(ROW | {"best_speedup_ci": ends})
    assert "without an interval" in verdict.verdict(ROW | {"best_speedup_ci": None})


@pytest.mark.parametrize(
    ("regime", "alpha", "words"),
    [
        ("sampled law", 0.11, ["alpha is 0.11, little above chance: was the draft"]),
        ("law of some ids", 0.11, ["alpha is 0.11, little above chance: was the"]),
        ("law of some ids", 0.48, []),
        ("sampled law", None, []),
        ("certain", 0.11, []),
        ("table law", 0.11, []),
    ],
)
def test_a_draft_little_above_chance_is_doubted(regime, alpha, words):
    """A file does not show whether a head reads the layers that it was trained on."""
    found = verdict.warnings(ROW | {"draft_regime": regime, "alpha": alpha})
    assert len(found) == len(words)
    assert all(map(str.startswith, found, words))


def test_what_speaks_against_the_numbers_is_said_alike_everywhere(capsys):
    assert verdict.summary(ROW)["warnings"] == []
    bad = {"best_speedup_ci": [0.7, 1.5], "overhead": [-0.2, 0.05]}
    bad |= {"estimates": {}, "target_ms": 2.0, "exp": [1.0, 1.8], "rounds": 2}
    bad |= {"draft_regime": "certain", "best_predicted": None, "chosen_on": 4}
    said = verdict.summary(ROW | bad)
    below, wide = said["warnings"]
    assert "42% of it wide" in wide and "below 0 at gamma = 0 (-0.200)" in below
    assert said["costs_most"] == "draft" and "no difference" in said["verdict"]
    by_gamma.report(ROW | bad)
    page = report.section("small", RECORD | {"measured": ROW | bad})
    printed = capsys.readouterr().out
    for each in (said["verdict"], below, wide):
        assert each in printed and each in page
    (alone,) = (x for x in printed.splitlines() if x.strip().startswith("0 "))
    assert "-0.2" not in alone and "<td>-0.2</td>" not in page  # no draft, no overhead
    assert printed.count("gamma 3") == 1 and "predicted:" not in printed
    assert "same distribution as the target alone (exact); the draft is" in printed
    assert "decode without a draft" in verdict.speed_verdict(
        {"best_speedup_ci": [0.5, 0.9]}
    )


def test_a_page_has_words_numbers_and_both_drawings(tmp_path):
    path = tmp_path / "a.html"
    report.write(path, {"small": RECORD, "rule <own>": RECORD})
    page = path.read_text()
    assert "rule &lt;own&gt;" in page and "a&lt;b" in page and "<own>" not in page
    assert page.count('class="verdict"') == 2 and "1.70 to 2.10" in page
    drawings = re.findall("<svg.*?</svg>", page, re.DOTALL)
    speeds, costs = map(ElementTree.fromstring, drawings)
    words = " ".join(speeds.itertext())
    assert "times as fast as the target alone" in words and "small" in words
    assert "drafting (gamma c)" in " ".join(costs.itertext())
    assert not re.search('<link|<script|src="|url[(]http', page)  # a file by itself
    with pytest.raises(ValueError, match="only those can be drawn"):
        report.write(path, {"x": RECORD | {"measured": {"alpha": 0.5}}})


def test_both_files_of_a_comparison_are_drawn_on_one_page(tmp_path, capsys):
    files = [tmp_path / f"{x}.jsonl" for x in "ab"]
    whole = RECORD | {"table": "measure", "published": None, "scale": "measured"}
    for file in files:
        file.write_text(json.dumps(whole) + "\n")
    page = tmp_path / "both.html"
    assert compare.main([*map(str, files), "--report", str(page)]) == 0
    assert "small (A)" in page.read_text() and "small (B)" in page.read_text()


def test_rows_that_cannot_be_shown_leave_the_measurement(tmp_path, capsys):
    out, page = tmp_path / "a.jsonl", tmp_path / "a.html"
    out.write_text('{"row": 3}\n')
    flags = measure.make_parser().parse_args(
        ["--data", "x", "--out", str(out), "--report", str(page)]
    )
    assert not by_gamma.write_page(flags, RECORD)
    assert "no page was written: " in capsys.readouterr().err and not page.exists()


@pytest.mark.parametrize("place", ["", "no/such/folder.html"])
def test_where_no_page_can_be_written_nothing_is_measured(tmp_path, place, refused):
    told = refused(measure.main, ["--data", "x.jsonl", "--report", tmp_path / place])
    assert "name a file in a folder that exists" in told
