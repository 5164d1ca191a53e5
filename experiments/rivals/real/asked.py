"""Prompts of a benchmark's questions: their first turns, a task after another."""

from collections import defaultdict
from itertools import chain, zip_longest
from pathlib import Path

from specjax import prompts, questions
from specjax.pretrained import Pretrained
from specjax.prompt_lines import parse
from specjax.prompts import Prompts


def read(path: Path, model: Pretrained, count: int, longest: int) -> Prompts:
    """The first `count`, as many of each task, of those of at most `longest` tokens.
    Raises ValueError where there are fewer, OSError for no such file."""
    by_task = defaultdict(list)
    for line in questions.content(path).splitlines():
        if line.strip():
            fields = parse(line)
            task = questions.task_of(fields.get("category", ""))
            by_task[task].append(first_turn(fields))
    turns = filter(None, chain.from_iterable(zip_longest(*by_task.values())))
    every = prompts.of(list(turns), model)
    kept = [ids for ids in every.tokens if len(ids) <= longest][:count]
    if len(kept) < count:
        raise ValueError(
            f"{path} has {len(kept)} questions of at most {longest} tokens; asked for"
            f" are {count}"
        )
    return every._replace(tokens=kept, asked=())


def first_turn(fields: dict) -> dict:
    if "turns" not in fields:
        return {
            k: v for k, v in fields.items() if k in ("prompt", "tokens", "messages")
        }
    return {"messages": [{"role": "user", "content": fields["turns"][0]}]}


def at_length(every: Prompts, length: int) -> list[int]:
    """One prompt of so many tokens: the questions, again and again."""
    joined = list(chain.from_iterable(every.tokens))
    return (joined * -(-length // len(joined)))[:length]
