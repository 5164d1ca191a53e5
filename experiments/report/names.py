"""Names of rows, such as "t5_target with t5_small (EnDe), T = 0, batch 8", and their
parts.
"""

import re
from collections.abc import Sequence
from functools import cache

from experiments import catalogue
from experiments.report.typeset import Grid, spell_part

# Parts that become columns of a table.
PART = re.compile(r"(T|l|gamma|alpha|c) = (\S+)|(batch|width|B|gamma|V) (\d+)")
# What records call published models, by their files, and what a reader calls them.
MODELS = {
    "smollm2": "SmolLM2-135M",
    "whisper-base": "Whisper base",
    "qwen2.5-coder-1.5b-instruct-q4_k_m": "Qwen2.5-Coder 1.5B",
    "qwen2.5-coder-0.5b-instruct-q4_k_m": "Qwen2.5-Coder 0.5B",
    "97m": "GPT-like 97M",
    "6m": "GPT-like 6M",
}


def split(names: Sequence[str]) -> tuple[list[str], Grid]:
    """Returns names without their parts, and the parts as columns; parts that all rows
    share move to the title."""
    labels, found = [], []
    for name in names:
        label, own = split_parts(name)
        labels.append(label)
        found.append(own)
    keys = list(dict.fromkeys(key for own in found for key in own))
    same = [key for key in keys if len({own.get(key) for own in found}) == 1]
    if len(same) == len(keys) and not any(labels):
        same = []
    title = ", ".join(spell_part(key, found[0][key]) for key in same)
    head = [key for key in keys if key not in same]
    rows = [[own.get(key, "") for key in head] for own in found]
    return labels, Grid(title, head, rows)


def split_parts(name: str) -> tuple[str, dict[str, str]]:
    """Returns a name without its parts, and the parts by their keys."""
    rest: list[str] = []
    own: dict[str, str] = {}
    for piece in name.split(", "):
        match = PART.fullmatch(piece)
        key, x = [it for it in match.groups() if it] if match else ("", piece)
        if key and key not in own:
            own[key] = x
        else:
            rest.append(piece)
    return ", ".join(rest), own


@cache
def timed_names() -> dict[tuple[str, str], str]:
    """Returns the name of each row whose walltime is measured, by folder and row, in
    the order of the catalogue."""
    found: dict[tuple[str, str], str] = {}
    for table in catalogue.tables():
        for line in table.lines:
            if line.quantity == "best_speedup":
                found.setdefault((line.folder, line.row), line.label)
    return found


def pair(folder: str, row: str, other: str) -> str:
    """Returns the pair of a row and its task, with the names of the catalogue.

    Args:
        other: what a row outside the catalogue is called.
    """
    name = timed_names().get((folder, row))
    return other if name is None else split_parts(name)[0]


@cache
def row_names() -> dict[tuple[str, str], str]:
    """Returns the name of each row of the catalogue, by folder and row: what all of its
    lines have before the first colon."""
    found: dict[tuple[str, str], str] = {}
    for table in catalogue.tables():
        for line in table.lines:
            found.setdefault((line.folder, line.row), line.what.partition(": ")[0])
    return found


def model(name: str) -> str:
    """Returns what a reader calls a model, whose record has the name of a file."""
    return re.sub(r"[\w.-]+", lambda word: MODELS.get(word[0], word[0]), name)


def pair_of_models(target: str, draft: str) -> str:
    """Returns the names of two models as "{target} with {draft}"; a draft of the same
    family is named by its size alone."""
    return f"{model(target)} with {draft_words(target, draft)}"


def draft_words(target: str, draft: str) -> str:
    """Returns what a reader calls the draft of a target."""
    if layers := re.fullmatch(rf"{re.escape(target)}, (\d+) layers", draft):
        return f"its first {layers[1]} layers"
    if draft.startswith(f"{target}, "):
        return f"itself, {draft.removeprefix(target + ', ')}"
    family = model(target).rpartition(" ")[0]
    return model(draft).removeprefix(f"{family} ") if family else model(draft)
