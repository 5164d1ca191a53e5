"""The pages of the lesson show what the library computes, in a real browser."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue
from experiments.report import html, page, tables
from experiments.report.lesson import export, heads, pages, replay, rules
from specjax import probs
from specjax.theory import closed_forms
from specjax.types import Draft, Sampling
from specjax.verifiers import block, token
from tests.experiments.report.test_page import Reader
from tests.support import browser

RULE, WRONG = (
    (html.TEMPLATES / "lesson" / f"{name}.js").read_text("utf-8")
    for name in ("rule", "wrong")
)
SLOT, PLACE = ["x", 0.5, 0.25, None], [["x", 0.5, 0.25, 1.0]] * 5
RUN = [{"n": 2, "added": ["y"], "slots": [SLOT] * 4, "likely": PLACE}] * 3
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
def results() -> dict:
    """The records of this checkout."""
    return tables.collect(catalogue.ROOT / "results")


@pytest.fixture(scope="module")
def texts(results) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "replays", lambda: REPLAYED)
        return pages.texts(results)


def test_pages_lead_to_each_other_and_hold_what_they_need(texts, tmp_path):
    for name in (name for name in texts if name.endswith(".html")):
        reader = Reader(texts[name])
        assert not {"src", "onclick"} & {x for _, own in reader.tags for x in own}
        assert not re.search(r"\bfetch\(|@import|url\(", texts[name])
        for link in reader.values("href"):
            near = link.partition("#")[0] in texts or link == "../index.html"
            assert near or link.startswith("https://arxiv.org/abs/"), link
        data = texts.get(name.replace(".html", ".json"), "")
        assert not data or json.loads(data) == json.loads(page_data(texts[name]))
    linked = Reader(texts["index.html"]).values("href")
    assert {f"{it.name}.html" for it in pages.PAGES} < set(linked)
    (tmp_path / "lesson").mkdir()
    assert "lesson/index.html" not in page.page(tmp_path, {})
    (tmp_path / "lesson" / "index.html").write_text("")
    assert 'href="lesson/index.html"' in page.page(tmp_path, {})


def page_data(text: str) -> str:
    return re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]


def test_rows_are_named_apart_and_paired_by_what_is_the_same(texts):
    """Labels name what differs between rows of a folder, and pairs of rows share all
    that truncates a law; menus are in ascending order."""
    tasks = json.loads(texts["tasks.json"])
    named = [(it["source"], it["name"]) for it in tasks["rows"]]
    assert len(set(named)) == len(named) and not any("GPU" in it for _, it in named)
    bench = [it for it in tasks["rows"] if it["source"] == export.SOURCES[export.BENCH]]
    assert bench and all("2 cores" in it["where"] for it in bench)
    pairs = export.pair_temperatures(tasks["rows"])
    for cold, warm in pairs:
        assert (cold["heat"], warm["heat"]) == (0, 1)
        assert cold["draft"] == warm["draft"] and cold["rule"] == warm["rule"]
    faster = sum(cold["speed"] > warm["speed"] for cold, warm in pairs)
    heats = {"pairs": len(pairs), "cooler": faster, "warmer": len(pairs) - faster}
    assert tasks["heats"] == heats and 0 < len(pairs) < len(bench) + len(pairs)
    several = json.loads(texts["speed.json"])["pairs"]
    many = [it["batch"] for it in several if it["row"].startswith("small_t0_b")]
    assert many == sorted(many) and len(many) > 2


def test_methods_name_files_that_there_are():
    """This includes rules and ways to draft: drafters, topologies, policies."""

    def files(*folders: str) -> set[str]:
        found = (catalogue.ROOT / "specjax" / it for it in folders)
        return {file.stem for folder in found for file in folder.glob("[a-z]*.py")}

    several = export.methods()["methods"]
    months = [(it["year"], it["month"]) for it in several]
    assert months == sorted(months) and {it["guarantee"] for it in several} <= {
        *export.KINDS
    }
    drafters = files("drafters", "topologies", "policies")
    for it in several:
        assert {*it["rules"]} <= files("verifiers") and {*it["drafters"]} <= drafters


def test_without_records_it_says_what_to_run():
    with pytest.raises(ValueError, match=r"run gin_configs/table2/\*\.gin"):
        export.clock_data({})
    with pytest.raises(ValueError, match=r"run gin_configs/heads/\*\.gin"):
        heads.rank_rows({})


def test_drafts_are_those_of_the_records(results, texts):
    """The page has each record once, and the small draft with the shapes of the bundled
    head."""
    it = json.loads(texts["methods.json"])
    for draft in it["drafts"]:
        measured = find_row(results, draft["row"])
        numbers = measured["tokens_per_call"], measured["estimates"]["counts"]["value"]
        assert (draft["tokens"], draft["share"]) == numbers
        assert draft["heat"] == measured["protocol"]["temperature"]
        assert "T = " not in draft["name"].replace("\N{NO-BREAK SPACE}", " ")
    named = [(draft["group"], draft["heat"], draft["name"]) for draft in it["drafts"]]
    assert len({*named}) == len(named)
    library = {x["row"] for x in it["drafts"] if x["group"] == it["groups"][0]}
    assert {"eagle3_t1_grown_16", "code_t1_grown_16", "code_t1_bigram_8"} < library
    assert "code_t1_traversal_16" not in library  # the head was not drafted so
    counted = {row for row in results["heads_data"] if "walltime" not in row}
    assert counted < {x["row"] for x in it["drafts"]}


def test_drafts_are_ordered_as_the_exercises_say(texts):
    it = json.loads(texts["methods.json"])
    asked, pip = it["asked"], it["groups"][1]
    assert asked["certain"]["share"] < asked["sampled"]["share"]
    assert asked["grown"]["tokens"] > asked["chain"]["tokens"]
    warm = [x for x in it["drafts"] if (x["group"], x["heat"]) == (pip, 1)]
    assert warm[-1]["tokens"] == asked["copied_warm"]["tokens"]
    assert asked["copied_warm"]["tokens"] < asked["copied_cold"]["tokens"]
    assert asked["copied_cold"]["tokens"] < asked["both_cold"]["tokens"]


def test_the_small_draft_stands_once_beside_the_head(results):
    """The row in the head's own folder is shown, and not also the one among the
    trees."""
    shown = {it["row"] for it in heads.head_rows(results)}
    assert "small_t1_token_4" in shown and "code_t1_token_4" not in shown
    rest = {row: it for row, it in results["heads"].items() if row[:5] != "small"}
    shown = {it["row"] for it in heads.head_rows(results | {"heads": rest})}
    assert "code_t1_token_4" in shown


def find_row(results: dict, row: str) -> dict:
    """Returns what was measured of a row of heads or of trees."""
    folders = heads.HEAD, heads.TREES, heads.TRAINED
    return next(results[x][row]["measured"] for x in folders if row in results[x])


def test_a_draft_by_a_rule_that_is_not_exact_is_refused(results):
    lossy = find_row(results, "copying_t1") | {"exactness": "lossy"}
    record = results["heads_data"]["copying_t1"] | {"measured": lossy}
    with pytest.raises(ValueError, match="heads_data copying_t1: its rule is lossy"):
        [*heads.folder_rows({"heads_data": {"copying_t1": record}}, "heads_data")]


def test_laws_of_wrong_rules_are_those_of_their_tokens(tmp_path):
    """Samples of each rule, drawn in JavaScript, are within four deviations of its law;
    that of the right rule is p."""
    p, q = export.laws("a usual pair")
    emitted, many = rules.emitted_laws(p, q), 100_000
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


@browser.needed
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_a_browser_shows_every_page_with_the_librarys_values(width, texts, tmp_path):
    told, console = browser.browse(texts, tmp_path, width)
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

    # The pair's own numbers and not those that a slider can show.
    speed, pair = said["speed"], data["speed"]["pairs"][0]
    alpha, gamma = pair["alpha"], pair["best_gamma"]
    c, v = pair["c"][pair["gamma"].index(gamma)], 1 + pair["slope"] * gamma
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
    assert clock["race-alone-is"].endswith(
        f" of {data['clock']['text']['tokens']} tokens"
    )
    assert (clock["rows-run"], clock["race-run"]) == ("Pause", "Pause")  # both move

    assert (said["samples"]["draws"], said["samples"]["exact"]) == ("100", "0.0000")
    first = data["steps"]["traces"][0]  # which moves by itself from its first phase on
    moving = rf"Iteration \d+ of {len(first['steps'])}: (Draft|Check|Keep|Add)"
    assert re.fullmatch(moving, said["steps"]["phase"])
    assert (said["images"]["count"], said["images"]["per-call"]) == ("0", "none yet")
    assert said["tasks"]["shown"] == str(len(data["tasks"]["rows"]))
    assert said["decoder"]["per-call"] == "3.00"
    many = len(data["methods"]["methods"])
    assert said["methods"]["told"] == f"{many} of {many} methods."
    drafts, first = data["methods"]["drafts"], data["methods"]["groups"][0]
    tokens = [x["tokens"] for x in drafts if (x["group"], x["heat"]) == (first, 1)]
    assert said["methods"]["drafts-shown"] == str(len(tokens)) and len(tokens) > 8
    faster = sum(x > 1.25 for x in tokens)  # a check of one call, a draft of a quarter
    assert said["methods"]["drafts-faster"] == str(faster)
    assert said["methods"]["most"] == f"{max(tokens) - 1:.2f}"


@pytest.mark.slow
def test_replays_hold_the_rows_that_their_rule_decided_by(monkeypatch):
    monkeypatch.setattr(replay, "SEEDS", range(2))
    it = replay.replays(at_once=False)
    assert tuple(it["runs"]) == replay.RULES and it["rules"]["gumbel"] == "pathwise"
    slots = {
        rule: [slot for run in runs for step in run for slot in step["slots"]]
        for rule, runs in it["runs"].items()
    }
    for rule, several in slots.items():
        p, q = np.array([slot[1:3] for slot in several]).T
        sure = q > 0.01
        own = {"token": np.minimum(1, p / np.maximum(q, 1e-9)), "match": p}
        if rule in own:
            chance = np.array([slot[3] for slot in several])
            np.testing.assert_allclose(chance[sure], own[rule][sure], atol=0.02)
    assert {slot[3] for slot in slots["gumbel"]} == {None}  # coins are the target's
    for runs in it["runs"].values():
        for run in runs:
            written = sum(step["n"] + len(step["added"]) for step in run)
            assert 0 < written <= replay.TOKENS
    for step in it["runs"]["token"][0]:
        *likely, (added, p, q, left) = step["likely"]
        assert likely == sorted(likely, key=lambda it: -it[1])
        if step["added"]:
            assert [added] == step["added"] and left > 0
            whole = step["n"] == replay.GAMMA
            assert left == pytest.approx(p, rel=1e-3) if whole else p > q


# Its rule in JavaScript, by the same uniforms as the library's.

CASES, GAMMA, VOCAB = 10_000, 3, 6
ASKED = """
function asked(i) {
  const law = (z) => standardize(z, it.temperature[i], it.top_k[i], it.top_p[i]);
  const n = it.num[i], p = it.p[i].slice(0, n + 1).map(law);
  const q = it.q[i].slice(0, n).map(law);
  const drafted = q.map((row, at) => pick(row, it.first[i][at]));
  const given = [p, q, drafted, it.u[i], it.sample[i]];
  const found = { p: p[0], beta: n ? acceptance(p[0], q[0]) : 1, drafted };
  return { ...found, token: verifyByToken(...given), block: verifyByBlock(...given) };
}
"""


def javascript(program: str, folder: Path) -> object:
    """Returns what a program leaves in `answer`."""
    if not (node := shutil.which("node")):
        pytest.skip("no node on PATH: install nodejs")
    file = folder / "asked.cjs"
    file.write_text(f"{program}\nconsole.log(JSON.stringify(answer));")
    done = subprocess.run([node, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@jax.jit
def compute_step(it: dict) -> tuple:
    """Returns the laws of both models, the drafts, and the result of each rule."""
    sampling = Sampling(*(it[key] for key in ("temperature", "top_k", "top_p")))
    p, q = (probs.standardize(it[side], sampling) for side in "pq")
    each = jnp.stack([it["first"]] * 2, axis=-1).reshape(-1, 2)
    drafted = probs.pick(probs.dense(q).reshape(-1, VOCAB), each).reshape(CASES, GAMMA)
    draft = Draft(drafted, it["num"], q)
    noise = token.Noise(it["u"], jnp.stack([it["sample"]] * 2, axis=-1))
    verdicts = [rule.verify(p, draft, noise, True) for rule in (token, block)]
    return probs.dense(p), probs.dense(q), drafted, verdicts


def test_the_step_in_the_browser_is_the_librarys(tmp_path):
    """Compared are laws, drafts, kept tokens, the added token and its law, with greedy
    rows, truncated laws, ties and short drafts among the cases."""
    rng = np.random.default_rng(0)
    z_p = rng.normal(0, 2, (CASES, GAMMA + 1, VOCAB)).round(1)
    z_q = (z_p[:, :GAMMA] + rng.normal(0, 1, (CASES, GAMMA, VOCAB))).round(1)
    first, u = rng.random((2, CASES, GAMMA))
    given = {"p": z_p, "q": z_q, "num": rng.integers(0, GAMMA + 1, CASES)}
    given |= {"first": first, "u": u, "sample": rng.random(CASES)}
    given |= {"temperature": rng.choice([0.0, 0.7, 1.0, 1.5], CASES)}
    given |= {"top_k": rng.choice([1, 3, VOCAB], CASES, p=[0.1, 0.3, 0.6])}
    given |= {"top_p": rng.choice([0.55, 0.9, 1.0], CASES, p=[0.2, 0.2, 0.6])}
    with jax.enable_x64(True):
        p, q, drafted, verdicts = jax.device_get(compute_step(given))
    it = json.dumps({key: x.tolist() for key, x in given.items()})
    program = f"{RULE}{ASKED}const it = {it}, answer = it.num.map((_, i) => asked(i));"
    answers = javascript(program, tmp_path)
    own = {key: [answer[key] for answer in answers] for key in answers[0]}
    near = dict(rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own["p"], p[:, 0], **near)
    beta = np.where(given["num"], np.minimum(p[:, 0], q[:, 0]).sum(-1), 1)
    np.testing.assert_allclose(own["beta"], beta, **near)
    lengths = zip(drafted.tolist(), given["num"], strict=True)
    assert own["drafted"] == [ids[:n] for ids, n in lengths]
    for name, verdict in zip(("token", "block"), verdicts, strict=True):
        n, found = verdict.num_accepted, own[name]
        np.testing.assert_array_equal([it["n"] for it in found], n)
        added = verdict.tokens[np.arange(CASES), n]
        np.testing.assert_array_equal([it["added"] for it in found], added)
        weights = [it["weights"] for it in found]
        np.testing.assert_allclose(weights, verdict.residual, **near)


def test_its_closed_forms_are_the_librarys(tmp_path):
    alphas, gammas = np.linspace(0, 1, 41), np.arange(12)
    both = "(a) => gammas.map((g) => [expectedTokens(a, g), speed(a, g, 0.07)])"
    given = f"const gammas = {gammas.tolist()}, alphas = {alphas.tolist()};"
    program = f"{RULE}{given} const answer = alphas.map({both});"
    tokens, speed = np.moveaxis(javascript(program, tmp_path), -1, 0)
    a, near = alphas[:, None], dict(rtol=1e-12)
    wanted = closed_forms.expected_tokens(a, gammas)
    np.testing.assert_allclose(tokens, wanted, **near)
    wanted = closed_forms.walltime_factor(a, gammas, 0.07)
    np.testing.assert_allclose(speed, wanted, **near)


def test_the_first_page_has_the_rows_of_one_call_and_a_text_of_its_pair(texts):
    it = json.loads(texts["clock.json"])
    assert len(it["rows"]) == export.CHECKED + 1
    for row, following in itertools.pairwise(it["rows"]):
        assert row["next"] == following["token"]
    text, pair = it["text"], it["pairs"][0]
    at = pair["gamma"].index(text["gamma"])
    assert (text["c"], text["v"]) == (pair["c"][at], pair["v"][at])
    written = [step["accepted"] + step["added"] for step in text["steps"]]
    assert sum(map(len, written)) == text["tokens"]
    assert len(written) == text["target_calls"]


def test_a_text_of_another_pair_is_refused(results):
    pair = export.timed_rows(results)[0] | {"draft": "another"}
    with pytest.raises(ValueError, match="must be of one pair"):
        export.timed_text(results, pair)


def test_the_index_has_a_picture_of_each_page(texts):
    pictures = re.findall(r'<svg class="picture".*?</svg>', texts["index.html"], re.S)
    assert len(pictures) == len(pages.PAGES)
    assert all(len(re.findall(r"<(?:rect|path|circle)", it)) > 5 for it in pictures)
