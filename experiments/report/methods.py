"""Tables that compare ways to verify: those of Wagner et al. (2024), of speech, and of
Chen et al.
"""

import itertools

import numpy as np

from experiments import catalogue
from experiments.records.markup import number
from experiments.records.table import Records
from experiments.report import names
from experiments.report.columns import Item, grid, grid_of_file, part
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


def wagner(folder: str, records: Records) -> dict[str, Grid]:
    """Returns every method of every row of a folder, and of the rows of the same kind
    for decoders, on a line each."""
    scales = folder == "wagner_scale"
    decoders = [
        (at, it)
        for at, it in find_rows(records, "wagner_data", "wagner_paper")
        if at[1].startswith("scale_") == scales
    ]
    items = [
        part(it, name)
        | name_record(at, pair_name(at, it))
        | {"method": method_words(name), "guarantee": it["guarantees"][name]}
        for at, it in [*find_rows(records, folder), *decoders]
        if f"acceptance_{it['methods'][0]}" in it  # else of times alone
        for name in it["methods"]
    ]
    return grid_of_file("methods", "methods", items)


def find_rows(records: Records, *folders: str) -> list[tuple[tuple[str, str], Item]]:
    """Returns the numbers of the rows of some folders, with their folder and row."""
    return [
        ((folder, row), record["measured"])
        for folder in folders
        for row, record in records.get(folder, {}).items()
    ]


def name_record(at: tuple[str, str], pair: str) -> dict[str, str]:
    """Returns the cells that name a line: what a reader calls its row, and its
    record."""
    return {"pair": pair, "record": "/".join(at)}


def pair_name(at: tuple[str, str], it: Item) -> str:
    """Returns what the catalogue calls a row, or else its pair of models."""
    models = names.pair_of_models(it["target"], it["draft"])
    return names.row_names().get(at, models)


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


def speech(records: Records) -> dict[str, Grid]:
    """Returns the word errors of every method, the times of verification alone, and the
    speeds by batch, for all records, on a line each."""
    items: dict[str, list[dict]] = {"errors": [], "alone": [], "batches": []}
    for at, it in find_rows(records, "speech_data", "speech_paper"):
        kind, lines = speech_lines(it)
        own = name_record(at, pair_name(at, it))
        items[kind] += [line | own for line in lines]
    return {kind: each for kind in items for each in grid(kind, items[kind])}


def speech_lines(it: Item) -> tuple[str, list[dict]]:
    """Returns the kind of a row of speech, and a line for each of its methods or
    batches."""
    methods = [key.removeprefix(INTERVAL) for key in it if key.startswith(INTERVAL)]
    if methods:
        methods.sort(key=sort_key)
        return "errors", [part(it, x) | {"name": method_words(x)} for x in methods]
    if "guarantees" in it:
        return "alone", [
            verification_times(it, method, gamma)
            for method, gamma in itertools.product(it["guarantees"], it["gamma"])
        ]
    sizes = sorted(int(key[9:]) for key in it if key.startswith("speedup_b"))
    shared = {"recordings": it["recordings"]}
    return "batches", [part(it, f"b{n}") | {"batch": n} | shared for n in sizes]


def verification_times(it: Item, method: str, gamma: int) -> dict:
    """Returns the times of verification alone by a method at a gamma."""
    end = f"{method}_g{gamma}"
    named = {"name": method_words(method), "gamma": gamma}
    return named | {"us_sd": it[f"us_{end}_sd"]} | part(it, end)


QUALITY = {
    "pass1": {"pass1": "pass@1"},
    "rouge": {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2"},
}


def quality_text(it: Item, way: str) -> str:
    """Returns the quality of the texts that were written in a way, in words."""
    shown = QUALITY[it["metric"]].items()
    return ", ".join(f"{name} {number(it[f'{key}_{way}'])}" for key, name in shown)


def chen(records: Records) -> dict[str, Grid]:
    """Returns the table of Chen et al., with a line for each row."""
    labels = {line.row: line.label for line in catalogue.find_table("chen").lines}
    items = []
    for (folder, row), it in find_rows(records, "chen_data", "chen_paper"):
        if "theoretical_speed" in it:
            stopped = it.get("why_not_alone", {}).items()
            gains = {way: quality_text(it, way) for way in ("alone", "speculative")}
            gains["stopped"] = ", ".join(f"{kind} {count}" for kind, count in stopped)
            label = labels.get(row, row)
            items.append(it | gains | name_record((folder, row), label))
    return grid_of_file("rows", "chen", items)
