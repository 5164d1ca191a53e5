"""What the models are asked to continue, as token lists.

`code`: the beginnings in `prompts.jsonl`, written for this project, so that acceptance
is measured on the same text everywhere. `unconditional`: the start token alone.
`openings`: the start token and one of 128 frequent pieces of any tokenizer made here,
for argmax decoding, which continues one prompt in one way only.
"""

import json
from pathlib import Path

from specjax import zoo

PROMPTS = Path(__file__).with_name("prompts.jsonl")


def _code() -> list[list[int]]:
    lines = PROMPTS.read_text("utf-8").splitlines()
    return [zoo.encode(json.loads(line)["prompt"]) for line in lines]


def _unconditional() -> list[list[int]]:
    return [[zoo.START]]


def _openings() -> list[list[int]]:
    # After the special and the 256 byte pieces come the merges, most frequent first.
    return [[zoo.START, 261 + i] for i in range(128)]


TASKS = {"code": _code, "unconditional": _unconditional, "openings": _openings}


def distinct(name: str) -> list[list[int]]:
    """Every prompt of a task once. Raises ValueError for a name that is no task."""
    if name not in TASKS:
        raise ValueError(f"no task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name]()
