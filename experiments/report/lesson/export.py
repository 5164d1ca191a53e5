"""The data of the lesson's pages as plain numbers: constants, laws, rows and traces.

p is the target's law, q the drafter's; alpha, gamma and c are those of Leviathan et al.
(2023). Nothing is measured here: speeds are those of the records. Axes: V vocabulary.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments import catalogue
from experiments.records import records
from experiments.records.table import Records
from experiments.report import images as drawings
from experiments.report.curves import TASKS
from experiments.report.lesson import replay, rules
from experiments.report.walltime import XLA
from specjax.exactness import certify
from specjax.exactness.checks import TOLERANCE
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import Fixture
from specjax.measure.texts import CUTS
from specjax.theory import closed_forms
from specjax.verifiers import token

TOKENS = ("cat", "dog", "fox", "owl", "bee")
PAIRS = {  # weights of p and q, out of 100
    "a usual pair": ((40, 25, 20, 10, 5), (20, 40, 10, 25, 5)),
    "p = q": ((40, 25, 20, 10, 5), (40, 25, 20, 10, 5)),
    "nothing in common": ((60, 40, 0, 0, 0), (0, 0, 50, 30, 20)),
    "a draft too sure of itself": ((40, 25, 20, 10, 5), (96, 1, 1, 1, 1)),
    "a draft of random tokens": ((88, 6, 3, 2, 1), (20, 20, 20, 20, 20)),
}
GAMMA, C = 4, 0.05


def two_laws_data() -> dict:
    """Returns the data of the page on which p and q are moved by hand: their initial
    values and the exercises.
    """
    p, q = laws("a usual pair")
    return {
        "tokens": TOKENS,
        "presets": [{"name": name, "p": p, "q": q} for name, (p, q) in PAIRS.items()],
        "gamma": GAMMA,
        "c": C,
        "alpha": closed_forms.acceptance(p, q),
        "given": [x for x, more in zip(TOKENS, p > q, strict=True) if more],
        "nothing": closed_forms.walltime_factor(0.0, 4, 0.1),
        "rejection": float(1 / (p / q).max()),  # Appendix A.2
    }


def laws(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns p and q [V] of a pair."""
    p, q = np.array(PAIRS[name], float) / 100
    return p, q


def samples() -> dict:
    """Returns the exact law of a token under each rule, for the right rule and for
    wrong ones.
    """
    p, q = laws("a usual pair")
    emitted = rules.emitted_laws(p, q)
    apart = {name: closed_forms.divergence(p, law) for name, law in emitted.items()}
    least = min(list(apart)[1:], key=apart.get)
    found = certify.certify(token.verifier, fixture(p, q), 3, 3, CLAIMS["token"])
    return {
        "tokens": TOKENS,
        "p": p.tolist(),
        "q": q.tolist(),
        "rules": [
            {"name": name, "law": law.tolist(), "apart": apart[name]}
            for name, law in emitted.items()
        ],
        "least": {
            "name": least,
            "apart": apart[least],
            # Mean |share - p| / 2 of N draws is sum sqrt(2 p (1 - p) / (pi N)) / 2.
            "draws": round(
                float((np.sqrt(p * (1 - p) / (2 * np.pi)).sum() / apart[least]) ** 2)
            ),
        },
        "error": found.error,
        "exact": found.exact,
        "tolerance": TOLERANCE["float32"],
    }


TRACED = ("figure1", "gamma_7"), ("figure1", "gamma_3"), ("figure5", "ende_gamma_7")


def steps(results: Records) -> dict:
    """Returns recorded texts, iteration by iteration."""
    traces = [trace(record_numbers(results, *it)) for it in TRACED]
    wasted = [
        sum(len(step["rejected"]) + len(step["untested"]) for step in it["steps"])
        for it in traces
    ]
    return {"traces": traces, "wasted": wasted}


def record_numbers(results: Records, folder: str, row: str) -> dict:
    """Returns the numbers of a record. Raises ValueError if there is no record."""
    try:
        return results[folder][row]["measured"]
    except KeyError:
        raise ValueError(
            f"no record {row} of {folder}: run gin_configs/{folder}/*.gin"
        ) from None


def trace(it: dict) -> dict:
    """Returns the fields of a record of Figure 1 that the page shows."""
    names = "target", "draft", "prompt", "gamma", "tokens", "target_calls", "steps"
    return {name: it[name] for name in names}


DRAWN = "drawn_t1", "drawn_t0"  # rows of folder images


def images(results: Records) -> dict:
    """Returns recorded images, call by call, and which shares of the first row's pixels
    were drafted and kept, for paper and for ink.
    """
    names = "target", "draft", "gamma", "temperature", "images"
    records = [record_numbers(results, "images", row) for row in DRAWN]
    first = records[0]["images"]
    written = [pixel for image in first for pixel in drawings.pixels(image["steps"])]
    paper, ink = (
        [kind == "accepted" for shade, kind, _ in written if (shade == 0) == empty]
        for empty in (True, False)
    )
    calls, side = [len(image["steps"]) for image in first], records[0]["side"]
    return {
        "traces": [{name: it[name] for name in names} for it in records],
        "side": side,
        "shades": records[0]["shades"],
        "fewest": -(-(side**2) // (records[0]["gamma"] + 1)),
        "calls": [min(calls), max(calls)],
        "paper": float(np.mean(paper)),
        "ink": float(np.mean(ink)),
    }


def fixture(p: np.ndarray, q: np.ndarray) -> Fixture:
    """Returns two models whose laws are the same after every prefix."""
    z_p, z_q = (np.log(law).astype(np.float32) for law in (p, q))
    return Fixture("the lesson's", p.size, lambda _: z_p, lambda _: z_q)


READ = 3  # texts a rule that can be gone through; the others are counted


def decoder() -> dict:
    """Returns runs of a real pair under every rule for chains, and the mean number of
    kept tokens.
    """
    it = replay.replays()
    shown = {rule: runs[:READ] for rule, runs in it["runs"].items()}
    counts = [{"rule": rule} | count_tokens(runs) for rule, runs in it["runs"].items()]
    return it | {"runs": shown, "counted": counts}


def count_tokens(runs: list[list[dict]]) -> dict:
    """Returns the calls and tokens of several runs together, and the standard error of
    their ratio over texts.
    """
    calls = np.array([len(run) for run in runs])
    tokens = np.array(
        [sum(step["n"] + len(step["added"]) for step in run) for run in runs]
    )
    several, mean = len(runs), tokens.sum() / calls.sum()
    off = ((tokens - mean * calls) ** 2).sum() * several / max(1, several - 1)
    both = {"calls": int(calls.sum()), "tokens": int(tokens.sum())}
    return both | {"per_call": float(mean), "se": float(np.sqrt(off) / calls.sum())}


TIMED = "table2", "table2_data"  # folders of rows of walltime
OPENED = "small_t0_b1"  # the row that a page opens with
CROWDED = "small_t0_b32"  # the same pair with the most texts at a time


def clock_data(results: Records) -> dict:
    """Returns the rows that one call computes, a text decoded in two ways, and the
    times of rows of walltime.
    """
    pairs = [it for it in timed_rows(results) if len(it["gamma"]) > 2]
    crowded = next(it for it in pairs if it["row"] == CROWDED)
    last = pairs[0]["gamma"].index(pairs[0]["best_gamma"])
    return {
        "rows": attention_rows(results),
        "text": timed_text(results, pairs[0]),
        "pairs": pairs,
        "gamma": pairs[0]["best_gamma"],
        "v": pairs[0]["v"][last],
        "crowded_gamma": crowded["gamma"][-1],
        "crowded_v": crowded["v"][-1],
    }


CHECKED = 4  # drafted tokens of the first picture


def attention_rows(results: Records) -> list[dict]:
    """Returns the rows that one call computes, each with its token and the token that
    follows: the last token of the prompt, and CHECKED drafted tokens that were kept.
    """
    it = record_numbers(results, *TRACED[0])
    drafted = it["steps"][0]["accepted"]
    if len(drafted) <= CHECKED:
        raise ValueError(f"{TRACED[0]}: its first call kept no {CHECKED + 1} tokens")
    tokens = [last_line(it["prompt"]), *drafted[: CHECKED + 1]]
    return [{"token": a, "next": b} for a, b in itertools.pairwise(tokens)]


def last_line(text: str) -> str:
    return text.splitlines()[-1].strip()


def timed_text(results: Records, pair: dict) -> dict:
    """Returns a recorded text of the pair, call by call, with the measured c and v of
    its gamma.
    """
    it = record_numbers(results, *TRACED[0])
    if (it["target"], it["draft"]) != (pair["target"], pair["draft"]):
        raise ValueError(f"{TRACED[0]} and {OPENED} must be of one pair")
    place = pair["gamma"].index(it["gamma"])
    return trace(it) | {"c": pair["c"][place], "v": pair["v"][place]}


def speed(results: Records) -> dict:
    """Returns the data that relates speed to alpha, gamma, c and v, with every pair
    that was timed."""
    pairs = timed_rows(results)
    each = [
        (speed, ci)
        for it in pairs
        for speed, ci in zip(it["speed"][1:], it["ci"][1:], strict=True)
    ]
    best = [it for it in pairs if it["best_ci"] and it["best_ci"][1] < 1]
    return {
        "pairs": pairs,
        "timings": len(each),
        "slower": sum(bool(ci) and ci[1] < 1 for _, ci in each),
        "never": [it["name"] for it in best],
        "rule": closed_forms.optimal_gamma(0.7, 0.1),
        "cheap": closed_forms.optimal_gamma(0.7, 0.01),
        "one": pairs[0]["slope"],
        "many": next(it["slope"] for it in pairs if it["row"] == CROWDED),
    }


def timed_rows(results: Records) -> list[dict]:
    """Returns the rows of walltime, first the one that pages open with; their lists are
    by gamma.
    """
    found = [
        pair(folder, row, record)
        for folder in TIMED
        for row, record in sorted(results.get(folder, {}).items())
        if not row.endswith(XLA)
    ]
    for row in (OPENED, CROWDED):
        record_numbers(results, "table2", row)
    return sorted(found, key=place)


def place(it: dict) -> tuple:
    """Returns a sort key: first the row that pages open with, then by folder and words,
    and by batch as a number.
    """
    words = it["name"].rpartition(",")[0]
    return it["row"] != OPENED, TIMED.index(it["folder"]), words, it["batch"]


def pair(folder: str, row: str, record: dict) -> dict:
    it = record["measured"]
    gamma, v = np.array(it["gamma"][1:]), np.array(it["v"][1:])
    drafts = [x or 0.0 for x in it["c"]]
    return {
        "row": row,
        "name": row_words(row, it),
        "target": it["target"],
        "draft": it["draft"],
        "rule": it["rule"],
        "cut": [it.get(cut) for cut in CUTS],
        "folder": folder,
        "where": f"{records.device(record)}, {record['provenance']['date'][:10]}",
        "batch": it["batch"],
        "heat": it["temperature"],
        "alpha": it["alpha"],
        "gamma": it["gamma"],
        "c": drafts,
        "v": it["v"],
        "speed": it["speedup"],
        "ci": it["speedup_ci"],
        "tokens": it["tokens_per_call"],
        "target_ms": it["target_ms"],
        "step_ms": it["step_ms"],
        "best_gamma": it["best_gamma"],
        "best": it["best_speedup"],
        "best_ci": it["best_speedup_ci"],
        # v = 1 + slope gamma, by least squares: what a slider shows.
        "slope": float(gamma @ (v - 1) / (gamma @ gamma)),
        "prefill_ms": it["prefill_ms"],
    }


def row_words(row: str, it: dict) -> str:
    """Returns a row in words: the text, the draft, the sampling and the batch."""
    task = TASKS.get(it.get("task", "code"), row.partition("_")[0])
    trained = it["target"] == "target"
    sides = "a trained Llama pair" if trained else f"{it['draft']} for {it['target']}"
    many = f"{it['batch']} text{'s' * (it['batch'] > 1)} at a time"
    cut = "".join(f", {x.replace('_', '-')} {it[x]:g}" for x in CUTS if it.get(x))
    return join_firmly(f"{task}: {sides}, T = {it['temperature']:g}{cut}, {many}")


def join_firmly(words: str) -> str:
    """Returns words joined by spaces that do not break, so that no line ends within "T
    = 0".
    """
    return words.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


BENCH = "spec_bench"
SOURCES = {
    "table2": "Table 2, models trained here",
    "table2_data": "real data",
    BENCH: "Spec-Bench, SmolLM2",
}


def tasks(results: Records) -> dict:
    """Returns the speed by task, one text at a time, beside the published speed."""
    rows = [it for it in timed_rows(results) if it["batch"] == 1]
    shown = [*map(pair_point, rows), *bench_points(results)]
    cold = [it for it in shown if it["source"] == SOURCES[BENCH] and it["heat"] == 0]
    if not cold:
        raise ValueError("no record of spec_bench: run gin_configs/spec_bench/*.gin")
    by_speed = sorted(cold, key=lambda it: it["speed"])
    apart = [cold["speed"] - warm["speed"] for cold, warm in pair_temperatures(shown)]
    cooler = sum(gap > 0 for gap in apart)
    return {
        "rows": shown,
        "sources": list(SOURCES.values()),
        "fastest": by_speed[-1],
        "slowest": by_speed[0],
        "smallest": sum(smallest_leads(shown, place) for place in PLACES),
        "places": len(PLACES),
        "heats": {
            "pairs": len(apart),
            "cooler": cooler,
            "warmer": len(apart) - cooler,
        },
    }


SAME = "source", "target", "draft", "rule", "cut"  # where T alone differs


def pair_temperatures(rows: list[dict]) -> list[tuple[dict, dict]]:
    """Returns the rows at T = 0, each with the row at T = 1 of the same text, pair and
    rule."""
    found = {(it["source"], it["row"]): it for it in rows}
    return [
        (it, other)
        for (source, row), it in found.items()
        for other in [found.get((source, row.replace("_t0", "_t1")))]
        if "_t0" in row and other and all(it[key] == other[key] for key in SAME)
    ]


PLACES = "ende_{}_t0", "ende_{}_t1", "docs_{}_t0", "docs_{}_t1"  # the paper's tasks


def smallest_leads(rows: list[dict], place: str) -> bool:
    """Returns whether t5_small is the fastest of three drafts, if all three were
    timed."""
    own = SOURCES["table2"]
    speeds = {it["row"]: it["speed"] for it in rows if it["source"] == own}
    three = [speeds.get(place.format(size)) for size in ("small", "base", "large")]
    return None not in three and three[0] == max(three)


def pair_point(it: dict) -> dict:
    papers = catalogue.published_numbers(it["folder"], it["row"]) or {}
    same = {key: it[key] for key in SAME if key in it}
    return same | {
        "row": it["row"],
        "name": it["name"].removesuffix(", 1 text at a time"),
        "source": SOURCES[it["folder"]],
        "heat": it["heat"],
        "alpha": it["alpha"],
        "gamma": it["best_gamma"],
        "speed": it["best"],
        "ci": it["best_ci"],
        "published": papers.get("best_speedup"),
        "where": it["where"],
    }


def bench_points(results: Records) -> Iterator[dict]:
    """Yields the rows that this folder's own lines name, because another folder of the
    same table has rows with the same names.
    """
    lines = [line for line in catalogue.find_table(BENCH).lines if line.folder == BENCH]
    titles = {line.row: join_firmly(line.what.rpartition(":")[0]) for line in lines}
    for row, record in sorted(results.get(BENCH, {}).items()):
        it = record["measured"]
        yield {key: it[key] for key in SAME if key in it} | {
            "row": row,
            "name": titles[row],
            "cut": [it.get(cut) for cut in CUTS],
            "source": SOURCES[BENCH],
            "heat": it["temperature"],
            "alpha": it["alpha"],
            "gamma": it["best_gamma"],
            "speed": it["best_speedup"],
            "ci": it["best_speedup_ci"],
            "published": None,
            "where": f"{records.device(record)}, {record['provenance']['date'][:10]}",
        }


KINDS = {  # of guarantees, in words
    "law": "the target's law",
    "pathwise": "the target's law, and its very text for the same key",
    "greedy": "the target's greedy text",
    "mode": "the target's law in one setting, none in another",
    "none": "none",
}


def methods() -> dict:
    """Returns the methods by month, with the guarantee of each.

    Rules and drafters are files of this library that do what the method does, policies
    and topologies among them.
    """
    file = Path(__file__).with_name("methods.json")
    return {"methods": json.loads(file.read_text("utf-8")), "kinds": KINDS}
