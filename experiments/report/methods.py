"""Tables that compare ways to verify: those of Wagner et al. (2024), of speech, and of
Chen et al.
"""

import itertools

import numpy as np

from experiments import catalogue
from experiments.records.markup import number
from experiments.records.table import Records
from experiments.report.columns import Item, grid, numbers_by_row, part
from experiments.report.typeset import Grid

SAME = 1e-6  # per cent: two reductions that differ by rounding only


def method_words(method: str) -> str:
    """Returns a method in words; sigmoid_1e4_top50 is "sigmoid, +-1e4, top-k 50"."""
    plainly = method.removesuffix("_top50")
    words = plainly.replace("_1e", ", +-1e").replace("_half", ", float16")
    words = words.replace("_", " ")  # of sigmoid_released and greedy_exact
    words = "control that keeps every draft" if plainly == "always" else words
    return f"{words}, top-k 50" if plainly != method else words


def update_record(measured: dict) -> dict:
    """Returns the numbers of a record with the reductions of the time of a token, which
    older records lack.

    Where the texts are as long as the baseline's, that of the time of a text is the
    same and has an error; elsewhere the error is unknown.
    """
    token = "wall_ms_a_token_"
    base = measured.get(f"{token}baseline")
    if base is None:
        return measured
    lacking = {}
    for name in (key.removeprefix(token) for key in measured if key.startswith(token)):
        own = 100 * (1 - measured[f"{token}{name}"] / base)
        lacking[f"wall_token_reduction_{name}"] = own
        if abs(own - measured.get(f"wall_reduction_{name}", np.nan)) < SAME:
            error = measured.get(f"wall_reduction_{name}_se")
            lacking[f"wall_token_reduction_{name}_se"] = error
    return lacking | measured


def wagner(folder: str, records: Records) -> list[Grid]:
    """Returns every method of every row, and the rows of the same kind for decoders."""
    lines, scales = catalogue.find_table(folder).lines, folder == "wagner_scale"
    names = {x.row: x.what.partition(":")[0] for x in lines if x.folder == folder}
    decoders = numbers_by_row(records, "wagner_data", "wagner_paper").items()
    rows = numbers_by_row(records, folder)
    rows |= {row: it for row, it in decoders if row.startswith("scale_") == scales}
    grids = []
    for row, it in rows.items():
        if f"acceptance_{it['methods'][0]}" in it:  # else of times alone
            items = [
                part(it, name)
                | {"method": method_words(name), "guarantee": it["guarantees"][name]}
                for name in it["methods"]
            ]
            grids += grid("methods", items, row=names.get(row, row))
    return grids


INTERVAL = "wer_ci_"  # how the names of intervals over recordings begin
ORDER = ("greedy", "alone", "exact", "sigmoid", "sigmoid released", "always")


def sort_key(name: str) -> tuple:
    """Returns the key by which methods are sorted: greedy texts, then sampled ones,
    then truncated laws; by rule, then by scale.
    """
    *words, scale = name.removesuffix("_top50").split("_")
    rule = " ".join(words) if scale[:2] == "1e" else name.split("_")[0]
    at = ORDER.index(rule) if rule in ORDER else len(ORDER)
    return rule != "greedy", name.endswith("_top50"), at, scale


def speech(records: Records) -> list[Grid]:
    """Returns every method of every row side by side, and every batch, for all
    records."""
    grids = []
    for row, it in numbers_by_row(records, "speech_data", "speech_paper").items():
        pair = f"{it['target']} with {it['draft']}, {row}"
        names = [key.removeprefix(INTERVAL) for key in it if key.startswith(INTERVAL)]
        if names:
            kind, names = "errors", sorted(names, key=sort_key)
            items = [part(it, x) | {"name": method_words(x)} for x in names]
        elif "guarantees" in it:
            kind, items = "alone", []
            for name, gamma in itertools.product(it["guarantees"], it["gamma"]):
                end, at = f"{name}_g{gamma}", {"name": method_words(name)}
                at |= {"gamma": gamma, "us_sd": it[f"us_{end}_sd"]}
                items.append(at | part(it, end))
        else:
            sizes = sorted(int(k[9:]) for k in it if k.startswith("speedup_b"))
            all_of = {"recordings": it["recordings"]}
            kind = "batches"
            items = [part(it, f"b{n}") | {"batch": n} | all_of for n in sizes]
        grids += grid(kind, items, pair=pair)
    return grids


QUALITY = {
    "pass1": {"pass1": "pass@1"},
    "rouge": {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2"},
}


def quality_text(it: Item, way: str) -> str:
    """Returns the quality of the texts that were written in a way, in words."""
    names = QUALITY[it["metric"]].items()
    return ", ".join(f"{name} {number(it[f'{key}_{way}'])}" for key, name in names)


def chen(records: Records) -> list[Grid]:
    """Returns the table of Chen et al., with a line for each row."""
    labels = {line.row: line.label for line in catalogue.find_table("chen").lines}
    items = []
    for row, it in numbers_by_row(records, "chen_data", "chen_paper").items():
        if "theoretical_speed" in it:
            stopped = it.get("why_not_alone", {}).items()
            gains = {way: quality_text(it, way) for way in ("alone", "speculative")}
            gains["stopped"] = ", ".join(f"{kind} {count}" for kind, count in stopped)
            items.append(it | gains | {"row": labels.get(row, row)})
    return grid("chen", items)
