"""Lines of the table of kernels: what was predicted, what measured, goals met or not.

Predictions and goals are those of `experiments/gpu/kernels/predictions.json`, written
before anything ran on a GPU. What has no record is called unmeasured.
Axes: B texts, G = gamma, V vocabulary.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from experiments.records import markup
from experiments.records.records import rows as rows_of
from experiments.records.table import PUBLISHED, Line, Table, command
from experiments.records.words import FAILED, over

FILE = Path(__file__).with_name("predictions.json")
NEEDS = "one GPU of Hopper or later (`experiments/gpu/run_all.sh`)"
SHAPE = re.compile(r"(torch_)?b(\d+)_g(\d+)_v(\d+)_(f32|bf16)")
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
UNMEASURED, TRIAL = "unmeasured", "unmeasured: the record is of a trial on a CPU"
GOALS_HEAD = ["goal", "what", "formula", "goal is", "predicted", "measured", "verdict"]
TIMES_HEAD = ["B, gamma, V, logits", "program", "acceptance", "predicted us", "us"]
TIMES_HEAD += ["10 % to 90 %", "of a copy's speed", "state"]
PEERS_HEAD = ["published by", "what", "value", "machine", "work", "source"]
ALSO_HEAD = ["what", "found"]
# Quantity of a record and its name.
QUANTITIES = (
    ("copy_us", "what a copy of its bytes would take, us"),
    ("read_us", "every logit read once by XLA, us"),
    ("ref_jnp_us", "compiled reference, us"),
    ("onepass_us", "one-pass XLA, us"),
    ("triton_us", "the same launches by Triton, us"),
    ("four_launches_us", "four launches, us"),
    ("fused_us", "Mosaic GPU from logits, us"),
    ("fused_draft_us", "Mosaic GPU, draft's statistics carried, us"),
    ("fused_both_us", "Mosaic GPU, both carried, us"),
    ("sigmoid_us", "Mosaic GPU, sigmoid rule (lossy), us"),
    ("fused_share", "Mosaic GPU from logits over the speed of a copy"),
)
TORCH = (
    ("hf_eager_us", "steps of transformers, eager, us"),
    ("eager_us", "batched, eager, us"),
    ("compiled_us", "batched, torch.compile, us"),
)
OTHERS = (
    (
        "equality",
        "differing_outside",
        "tokens other than float64's, outside margins",
    ),
    ("equality", "differing_inside", "tokens other than float64's, inside margins"),
    ("equality", "chi_square_p", "chi-square of emitted tokens, smallest p"),
    ("sanitizer", "memcheck", "compute-sanitizer, memory"),
    ("sanitizer", "racecheck", "compute-sanitizer, races"),
    ("capture", "loop", "a decoding loop"),
    ("capture", "mosaic_gpu", "a verification"),
)


@cache
def expectations() -> dict:
    return json.loads(FILE.read_text("utf-8"))


def kernels() -> Table:
    title = "Kernels: one verification, every way to make it, on one GPU"
    note = (
        "Microseconds of one verification from logits to tokens in a chain of many,"
        " inputs cold, for (B, gamma, V): texts, drafted tokens, vocabulary; median of"
        " 30 rounds, tokens checked against float64 before. Mosaic GPU is the fastest"
        " of the tiles that were tried. A line without a number is unmeasured or"
        " failed. Early exit at (64, 10, 128256) is not implemented, so not measured."
    )
    return Table("kernels", title, note, command("kernels"), lines())


def lines() -> list[Line]:
    listed = [
        Line("kernels", row, f"{spelled(row)}: {name}", quantity, needs=NEEDS)
        for row in rows()
        for quantity, name in (TORCH if row.startswith("torch_") else QUANTITIES)
    ]
    listed += [
        Line("kernels", row, f"all kernels: {name}", quantity, needs=NEEDS)
        for row, quantity, name in OTHERS
    ]
    return listed


def rows() -> list[str]:
    """Rows of a shape, small ones first, PyTorch's after."""
    names = filter(SHAPE.fullmatch, rows_of("kernels"))
    return sorted(names, key=lambda row: (row.startswith("torch_"), *sizes(row)))


def sizes(row: str) -> tuple:
    _, batch, gamma, vocab, dtype = SHAPE.fullmatch(row).groups()
    return int(batch), int(gamma), int(vocab), dtype


def spelled(row: str) -> str:
    batch, gamma, vocab, dtype = sizes(row)
    side = "PyTorch, " if row.startswith("torch_") else ""
    return f"{side}({batch}, {gamma}, {vocab}) {DTYPES[dtype]}"


def wider(records: Mapping[str, dict]) -> list[tuple[str, list, list]]:
    """Goals, times, and what others published: title, head, rows."""
    tables = [
        (
            f"Goals and predictions of {expectations()['date']}",
            GOALS_HEAD,
            goals(records),
        ),
        ("Predicted and measured, us", TIMES_HEAD, times(records)),
        (
            "Published by others: other machines and other work, not to be compared"
            " digit by digit",
            PEERS_HEAD,
            peers(),
        ),
    ]
    if others := also(records):
        tables.append(("What else was found on the device", ALSO_HEAD, others))
    return tables


def goals(records: Mapping[str, dict]) -> list[list[str]]:
    table = []
    for goal in expectations()["goals"]:
        value = reached(goal, records)
        bound = f"{goal['sense']} {goal['bound']}"
        number = markup.number(value) if isinstance(value, int | float) else value
        cells = [goal["name"], goal["what"], goal["formula"], bound]
        table.append([*cells, predicted(goal), number, verdict(goal, value)])
    return table


def reached(goal: dict, records: Mapping[str, dict]) -> float | str:
    """The number of a goal, or why there is none."""
    if "every" in goal:
        wanted = [row for row in rows() if not row.startswith("torch_")]
        return smallest([measured(records, row, goal["every"]) for row in wanted])
    if not goal["of"]:
        return "not implemented"
    value = measured(records, *goal["of"][0])
    if "under" not in goal:
        return value
    under = measured(records, *goal["under"][0])
    unmeasured = isinstance(value, str) and value.startswith(UNMEASURED)
    return over(value, under, peer=not unmeasured)


def smallest(values: list[float | str]) -> float | str:
    missing = [value for value in values if isinstance(value, str)]
    if FAILED in missing:
        return FAILED
    return missing[0] if missing else min(values)


def measured(records: Mapping[str, dict], row: str, quantity: str) -> float | str:
    if row not in records:
        return UNMEASURED
    it = records[row]["measured"]
    return TRIAL if it.get("dry") else it[quantity]


def verdict(goal: dict, value: float | str) -> str:
    """met, missed, or why that cannot be said; a program of ours that failed misses."""
    if value == FAILED:
        return "missed: it failed"
    if isinstance(value, str):
        return value if value.startswith(UNMEASURED) else f"{UNMEASURED}: {value}"
    ahead = value >= goal["bound"] if goal["sense"] == ">=" else value <= goal["bound"]
    return "met" if ahead else "missed"


def predicted(goal: dict) -> str:
    """Of the quantity itself, if it was predicted."""
    if len(goal.get("of", ())) != 1 or "under" in goal:
        return ""
    return prediction(*goal["of"][0])


def prediction(row: str, quantity: str) -> str:
    for guess in expectations()["predictions"]:
        if (guess["row"], guess["quantity"]) == (row, quantity):
            return f"{guess['low']} to {guess['high']}"
    return ""


def times(records: Mapping[str, dict]) -> list[list[str]]:
    """Every program that was timed, those that failed, and what was only predicted."""
    table = []
    for row in rows():
        record = records.get(row)
        if record is None or record["measured"].get("dry"):
            table += expected_only(row, TRIAL if record else UNMEASURED)
        else:
            table += timed(row, record["measured"])
    return table


def expected_only(row: str, state: str) -> list[list[str]]:
    said_of = [guess for guess in expectations()["predictions"] if guess["row"] == row]
    return [
        [
            spelled(row),
            name_of(guess["quantity"]),
            "",
            prediction(row, guess["quantity"]),
        ]
        + ["", "", "", state]
        for guess in said_of
    ]


def timed(row: str, it: dict) -> list[list[str]]:
    cells, shown = spelled(row), []
    for line in it.get("programs", it.get("lines", [])):
        around = f"{markup.number(line['p10'])} to {markup.number(line['p90'])}"
        share = f"{100 * line['share']:.0f} %" if "share" in line else ""
        guess = prediction(row, quantity_of(line["name"]))
        accepted = str(line.get("acceptance", "0.7"))
        us = markup.number(line["us"])
        shown.append([cells, line["name"], accepted, guess, us, around, share, "ok"])
    told = [(failure["name"], failure["error"]) for failure in it.get("failed", [])]
    told += it.get("skipped", {}).items()
    return shown + [[cells, name, "", "", "", "", "", why] for name, why in told]


def quantity_of(name: str) -> str:
    """The quantity that a program's time is a candidate for."""
    own = {"mosaic_gpu": "fused"}
    kind, _, carried = name.partition("/")
    return f"{own.get(kind, kind)}_us" if carried.split("/")[0] in ("", "none") else ""


def name_of(quantity: str) -> str:
    return dict((*QUANTITIES, *TORCH))[quantity].removesuffix(", us")


def peers() -> list[list[str]]:
    keys = "who", "what", "value", "machine", "work", "source"
    listed = [
        [str(peer[key]) for key in keys]
        for peer in expectations()["published_elsewhere"]
    ]
    wagner = json.loads(PUBLISHED.read_text("utf-8"))["wagner2024"]
    table = wagner["table3_bandwidth_gb_s"]["rows"]
    every = [value for row in table for value in row[2:]]
    value = f"{min(every):.0f} to {max(every):.0f}"
    what = "speed of the memory reached, GB/s, all models and methods"
    work = "their profiled verification, softmax included"
    cells = ["Wagner et al. (2024)", what, value, "their GPUs", work]
    return [*listed, [*cells, "Table 3"]]


def also(records: Mapping[str, dict]) -> list[list[str]]:
    """What is no number: compute-sanitizer, and CUDA graphs."""
    table = []
    for row in ("sanitizer", "capture"):
        it = records.get(row, {}).get("measured", {})
        table += [[f"{row}: {name}", value] for name, value in it.items()]
    return table
