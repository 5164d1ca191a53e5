"""What the models are asked to continue, as token lists.

`code`: the beginnings in `prompts.jsonl`, written for this project, so that acceptance
is measured on the same text everywhere. `unconditional`: the start token alone.
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


TASKS = {"code": _code, "unconditional": _unconditional}


def distinct(name: str) -> list[list[int]]:
    """Every prompt of a task once. Raises ValueError for a name that is no task."""
    if name not in TASKS:
        raise ValueError(f"no task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name]()


def prompts(name: str, count: int) -> list[list[int]]:
    """`count` prompts of a task, from the first on, beginning again where they end.

    Raises ValueError for a name that is no task.
    """
    known = distinct(name)
    return [known[i % len(known)] for i in range(count)]
