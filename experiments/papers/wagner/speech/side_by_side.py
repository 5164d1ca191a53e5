"""Every method, batch and gamma of a row of speech side by side, below its lines."""

import itertools

from experiments.papers.wagner.speech.methods import of_errors
from experiments.papers.wagner.speech.table import SCALES
from experiments.records.markup import number

HEAD = ["method", "WER, %", "95 %", "drafts kept", "tokens a call"]
ALONE = ["method", "gamma", "us a verification", "deviation", "% less", "KiB"]
TIMES = ["batch", "times as fast", "95 %", "drafts kept", "tokens a call", "same texts"]


def wider(records: dict[str, dict[str, dict]]) -> list[tuple[str, list, list]]:
    """Every method of every row side by side, and every batch; of all records."""
    tables = []
    for folder in ("speech_data", "speech_paper"):
        for row, record in records.get(folder, {}).items():
            it = record["measured"]
            title = f"{it['target']} with {it['draft']}, {row}"
            names = [key[len("wer_ci_") :] for key in it if key.startswith("wer_ci_")]
            if names:
                cells = [_method(it, name) for name in sorted(names, key=_place)]
                tables.append((f"{title}: by method", HEAD, cells))
                continue
            if "guarantees" in it:
                tables.append((f"{title}: verification alone", ALONE, _alone(it)))
                continue
            sizes = [key[len(SPEED) :] for key in it if key.startswith(SPEED)]
            sizes.sort(key=int)
            tables.append((f"{title}: by batch", TIMES, [_batch(it, n) for n in sizes]))
    return tables


SPEED = "speedup_b"
SIGMOIDS = ("sigmoid", "sigmoid_released")
ORDER = [method.name for method in of_errors(SCALES, SIGMOIDS)]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _method(it: dict, name: str) -> list[str]:
    wide = _interval(it[f"wer_ci_{name}"])
    return [
        name.replace("_", " "),
        shown(it.get(f"wer_{name}")),
        wide,
        *_calls(it, name),
    ]


def _batch(it: dict, size: str) -> list[str]:
    wide = _interval(it[f"speedup_ci_b{size}"])
    same = f"{it[f'same_texts_b{size}']} of {it['recordings']}"
    return [size, shown(it[SPEED + size]), wide, *_calls(it, f"b{size}"), same]


def _alone(it: dict) -> list[list[str]]:
    keys = "us_{}", "us_{}_sd", "step_reduction_{}", "peak_kib_{}"
    return [
        [
            method.replace("_", " "),
            str(gamma),
            *(shown(it[key.format(f"{method}_g{gamma}")]) for key in keys),
        ]
        for method, gamma in itertools.product(it["guarantees"], it["gamma"])
    ]


def _calls(it: dict, name: str) -> list[str]:
    return [shown(it.get(f"alpha_{name}")), shown(it.get(f"tokens_per_call_{name}"))]


def _interval(pair: list[float]) -> str:
    return f"{shown(pair[0])} to {shown(pair[1])}"


def shown(value: float | None) -> str:
    return "" if value is None else number(value)
