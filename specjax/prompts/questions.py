"""Questions of a benchmark: what a line of its file says beside what is asked.

Spec-Bench, MT-bench, the files of EAGLE and DeepSpec and SPEED-Bench number their
questions and sort them into categories; MT-bench's eight are one task of Spec-Bench.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

IDS = ("question_id", "id", "prompt_id")
MT_BENCH = "writing roleplay reasoning math coding extraction stem humanities".split()
TASKS = dict.fromkeys(MT_BENCH, "mt_bench")  # any other category is a task of its own
GROUPS = ("category", "task", "sub_category")


class Asked(NamedTuple):
    """The question that a prompt is of. id: the line's own, or its place in the file,
    from 0. category, sub_category: empty where the line has none. turn: from 0. text:
    what is asked at this turn."""

    id: str | int
    category: str
    sub_category: str
    turn: int
    text: str


class Chosen(NamedTuple):
    """Which prompts of a file are read. per_category: so many questions of each, the
    first by their ids. longest: no prompt of more tokens. task: of this one alone. None
    is all. unique: refuses lines that share an id. by: refuses lines that have none of
    this, one of GROUPS."""

    per_category: int | None = None
    longest: int | None = None
    task: str | None = None
    unique: bool = False
    by: str | None = None


ALL = Chosen()


def asked(fields: Mapping[str, Any], place: int, turn: int, text: str) -> Asked:
    """Which question a line is, by the first of IDS that it has and that is not null.
    place: of the line."""
    given = (fields[name] for name in IDS if fields.get(name) is not None)
    named = next(given, place)
    named = named if isinstance(named, str | int) else str(named)
    kinds = [fields.get(name) for name in ("category", "sub_category")]
    kinds = ["" if kind is None else str(kind) for kind in kinds]
    return Asked(named, *kinds, turn, text)


def places(lines: Sequence[Mapping[str, Any]], chosen: Chosen) -> list[int]:
    """The places of the lines that are read, in their order. The first of a category
    are so by id: 2 before 10, and "mtbench-9" before "mtbench-81". Raises ValueError
    for a task that no line is of, and what `chosen` refuses."""
    each = [asked(fields, place, 0, "") for place, fields in enumerate(lines)]
    task, most = chosen.task, chosen.per_category
    of_it = [i for i, it in enumerate(each) if task in (None, task_of(it.category))]
    if not of_it:
        there = ", ".join(sorted({task_of(it.category) for it in each} - {""}))
        raise ValueError(f"no question is of {task}: there are {there or 'no tasks'}")
    kept, seen = [], Counter()
    for place in sorted(of_it, key=lambda i: in_order(each[i].id)):
        seen[each[place].category] += 1
        if most is None or seen[each[place].category] <= most:
            kept.append(place)
    shared = [x for x, n in Counter(each[i].id for i in kept).items() if n > 1]
    if chosen.unique and shared:
        raise ValueError(
            f"several lines are question {shared[0]}: give each a"
            ' "question_id" of its own'
        )
    for place in sorted(kept) if chosen.by is not None else ():
        group(each[place], chosen.by)
    return sorted(kept)


def task_of(category: str) -> str:
    return TASKS.get(category, category)


def in_order(named: str | int) -> list[str | int]:
    """A key that sorts ids as a person does, by the numbers within."""
    parts = re.split(r"(\d+)", str(named))
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def group(question: Asked, by: str) -> str:
    """The category, sub_category or task of a question. Raises ValueError for none."""
    name = question.category if by == "task" else getattr(question, by)
    if not name:
        field = "category" if by == "task" else by
        raise ValueError(
            f"question {question.id} has no {field}: write it in its line, as"
            f' "{field}": "writing", or leave --by out'
        )
    return task_of(name) if by == "task" else name
