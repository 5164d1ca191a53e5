"""The lesson: what its pages show is what the library gives, in a real browser."""

import json
import re

import numpy as np
import pytest

from experiments import catalogue
from experiments.report import html, page, tables
from experiments.report.lesson import export, pages, replay, rules
from specjax.theory import closed_forms
from tests.experiments.report.test_lesson_rule import RULE, javascript
from tests.experiments.report.test_page import Reader
from tests.support import browser, mutants

WRONG = (html.TEMPLATES / "lesson" / "wrong.js").read_text("utf-8")
SLOT, PLACES = ["x", 0.5, 0.25, 1.0], [[["x", 0.5, 0.25]] * 4] * 5
RUN = [{"n": 2, "added": ["y"], "slots": [SLOT] * 4, "likely": PLACES}] * 3
REPLAYED = {  # by no model
    "target": "p",
    "draft": "q",
    "vocab": 8,
    "prompt": "a\n",
    "gamma": 4,
    "seeds": [0],
    "rules": {"token": "exact law", "block": "exact law"},
    "runs": {"token": [RUN], "block": [RUN[:2]]},
}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Of this checkout's records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "replays", lambda: REPLAYED)
        return pages.texts(tables.collect(catalogue.ROOT / "results"))


def test_pages_lead_to_each_other_and_hold_what_they_need(texts, tmp_path):
    for name in (name for name in texts if name.endswith(".html")):
        reader = Reader(texts[name])
        assert not {"src", "onclick"} & {x for _, own in reader.tags for x in own}
        assert not re.search(r"\bfetch\(|@import|url\(", texts[name])
        for link in reader.values("href"):
            near = link in texts or link == "../index.html"
            assert near or link.startswith("https://arxiv.org/abs/"), link
        data = texts.get(name.replace(".html", ".json"), "")
        assert not data or json.loads(data) == json.loads(data_of(texts[name]))
    linked = Reader(texts["index.html"]).values("href")
    assert {f"{it.name}.html" for it in pages.PAGES} < set(linked)
    (tmp_path / "lesson").mkdir()
    assert "lesson/index.html" not in page.page(tmp_path, {})
    (tmp_path / "lesson" / "index.html").write_text("")
    assert 'href="lesson/index.html"' in page.page(tmp_path, {})


def data_of(text: str) -> str:
    return re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]


def test_without_records_it_says_what_to_run():
    with pytest.raises(ValueError, match=r"run gin_configs/table2/\*\.gin"):
        export.clock({})


def test_laws_of_wrong_rules_are_those_of_their_tokens(tmp_path):
    """Each as drawn in JavaScript, within four deviations, and the right one is p."""
    p, q = export.laws("a usual pair")
    emitted, many = rules.emitted(p, q), 100_000
    np.testing.assert_allclose(emitted["Algorithm 1"], p, atol=1e-15)
    u = np.random.default_rng(0).random((3, many)).tolist()
    given = f"const p = {p.tolist()}, q = {q.tolist()}, u = {json.dumps(u)};"
    count = "const answer = Object.entries(RULES).map(([name, rule]) => {"
    count += "const found = p.map(() => 0); u[0].forEach((x, i) => "
    count += "found[rule(p, q, pick(q, x), u[1][i], u[2][i])]++);"
    count += "return [name, found]; });"
    found = dict(javascript(f"{RULE}\n{WRONG}\n{given}\n{count}", tmp_path))
    assert found.keys() == emitted.keys()
    for name, law in emitted.items():
        off = np.abs(np.array(found[name]) - many * law)
        assert (off <= 4 * np.sqrt(many * law * (1 - law)) + 1e-9).all(), name


def test_the_certificate_gives_a_wrong_rule_the_same_distance():
    p, q = export.laws("a usual pair")
    wrong = mutants.build("residual is p")
    found = mutants.certify.certify(wrong, export.fixture(p, q), 1, 1)
    law = rules.emitted(p, q)["after a rejection, draw from p"]
    assert found.tv == pytest.approx(closed_forms.divergence(p, law), abs=1e-6)


@pytest.mark.parametrize("width", browser.WIDTHS)
def test_a_browser_shows_every_page_with_the_librarys_values(width, texts, tmp_path):
    told, console = browser.browsed(texts, tmp_path, width)
    assert told.keys() == {name for name in texts if name.endswith(".html")}
    assert ":CONSOLE" not in console, console
    browser.check(told, width)
    said = {name.removesuffix(".html"): it["said"] for name, it in told.items()}
    data = {it.name: json.loads(texts[f"{it.name}.json"]) for it in pages.PAGES}

    p, q = export.laws("a usual pair")
    hand, alpha = said["hand"], closed_forms.acceptance(p, q)
    assert hand["alpha"] == f"{alpha:.3f}"
    tokens = closed_forms.expected_tokens(alpha, export.GAMMA)
    assert hand["tokens"] == f"{tokens:.3f}"
    factor = closed_forms.walltime_factor(alpha, export.GAMMA, export.C)
    assert hand["speed"] == f"{factor:.3f}"
    for x, chance in zip(export.TOKENS, p, strict=True):
        assert hand[f"out-of-{x}"] == f"{chance:.3f}"

    speed = said["speed"]
    alpha, c = float(speed["alpha"]), float(speed["c"])
    gamma, v = int(speed["gamma"]), 1 + float(speed["v"]) * int(speed["gamma"])
    assert speed["tokens"] == f"{closed_forms.expected_tokens(alpha, gamma):.2f}"
    assert speed["theorem"] == f"{closed_forms.walltime_factor(alpha, gamma, c):.2f}"
    costed = closed_forms.expected_tokens(alpha, gamma) / (gamma * c + v)
    assert speed["costed"] == f"{costed:.2f}"
    assert int(speed["best"]) == closed_forms.optimal_gamma(alpha, c)

    clock, pair = said["clock"], data["clock"]["pairs"][0]
    at = pair["gamma"].index(pair["best_gamma"])
    parts = pair["tokens"][at] / (pair["v"][at] + pair["best_gamma"] * pair["c"][at])
    assert (clock["alone"], clock["speed"]) == ("24", f"{parts:.2f}")
    assert clock["measured"] == f"{pair['best']:.2f}"

    assert (said["samples"]["draws"], said["samples"]["exact"]) == ("100", "0.0000")
    assert said["steps"]["phase"] == "Begin"
    assert said["tasks"]["shown"] == str(len(data["tasks"]["rows"]))
    assert said["decoder"]["per-call"] == "3.00"
    many = len(data["methods"]["methods"])
    assert said["methods"]["told"] == f"{many} of {many} methods."


@pytest.mark.slow
def test_replays_hold_the_rows_that_their_rule_decided_by():
    it = replay.replays()
    assert tuple(it["runs"]) == replay.RULES and it["rules"]["gumbel"] == "pathwise"
    slots = {
        rule: [slot for run in runs for step in run for slot in step["slots"]]
        for rule, runs in it["runs"].items()
    }
    for rule, several in slots.items():
        p, q, chance = np.array([slot[1:] for slot in several]).T
        sure = q > 0.01  # of numbers rounded to four places
        own = {"token": np.minimum(1, p / np.maximum(q, 1e-9)), "match": p, "gumbel": p}
        if rule in own:
            np.testing.assert_allclose(chance[sure], own[rule][sure], atol=0.02)
    for runs in it["runs"].values():
        for run in runs:
            written = sum(step["n"] + len(step["added"]) for step in run)
            assert 0 < written <= replay.TOKENS
    for row in (row for step in it["runs"]["token"][0] for row in step["likely"]):
        assert row == sorted(row, key=lambda it: -it[1])
