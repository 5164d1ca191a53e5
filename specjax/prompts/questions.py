"""The questions of a benchmark: the ids, categories and turns that a line has beside
its prompt.

Spec-Bench, MT-bench, SPEED-Bench and the files of EAGLE and DeepSpec number their
questions and sort them into categories. The eight categories of MT-bench are one task
of Spec-Bench."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

IDS = ("question_id", "id", "prompt_id")
MT_BENCH = "writing roleplay reasoning math coding extraction stem humanities".split()
TASKS = dict.fromkeys(MT_BENCH, "mt_bench")  # any other category is a task of its own
GROUPS = ("category", "task", "sub_category")


class Question(NamedTuple):
    """The question that a prompt belongs to.

    id: that of the line, or its place in the file, from 0. category, sub_category:
    empty where the line has none. turn: from 0. text: the user's text at this turn."""

    id: str | int
    category: str
    sub_category: str
    turn: int
    text: str


class Chosen(NamedTuple):
    """The choice of prompts in a file; None means no limit.

    per_category: the number of questions of each category, the first by their ids.
    longest: the largest number of tokens of a prompt. task: questions of this task, or
    of this category, alone. unique: refuses lines that share an id. by: one of GROUPS;
    refuses lines without it."""

    per_category: int | None = None
    longest: int | None = None
    task: str | None = None
    unique: bool = False
    by: str | None = None


ALL = Chosen()


def make_question(
    fields: Mapping[str, Any], place: int, turn: int, text: str
) -> Question:
    """Returns the question of a line; its id is the first of IDS that is not null.

    place: the index of the line, from 0."""
    ids = (fields[name] for name in IDS if fields.get(name) is not None)
    name = next(ids, place)
    kinds = [fields.get(field) for field in ("category", "sub_category")]
    category, sub_category = ("" if kind is None else str(kind) for kind in kinds)
    return Question(
        id=name if isinstance(name, str | int) else str(name),
        category=category,
        sub_category=sub_category,
        turn=turn,
        text=text,
    )


def select(lines: Sequence[Mapping[str, Any]], chosen: Chosen) -> list[int]:
    """Returns the places of the selected lines, in their order.

    The first questions of a category are the first by id: 2 before 10, and "mtbench-9"
    before "mtbench-81". Raises ValueError for a task without lines, and for lines that
    `chosen` refuses."""
    each = [make_question(fields, place, 0, "") for place, fields in enumerate(lines)]
    task, most = chosen.task, chosen.per_category
    matches = [
        i
        for i, it in enumerate(each)
        if task in (None, it.category, task_of(it.category))
    ]
    if not matches:
        tasks = ", ".join(sorted({task_of(it.category) for it in each} - {""}))
        raise ValueError(
            f"no question belongs to {task}: the file has {tasks or 'no tasks'}"
        )
    selected: list[int] = []
    counts: Counter[str] = Counter()
    for place in sorted(matches, key=lambda i: sort_key(each[i].id)):
        counts[each[place].category] += 1
        if most is None or counts[each[place].category] <= most:
            selected.append(place)
    shared = [x for x, n in Counter(each[i].id for i in selected).items() if n > 1]
    if chosen.unique and shared:
        raise ValueError(
            f"several lines have question_id {shared[0]}: give each line a"
            ' "question_id" of its own'
        )
    if chosen.by is not None:
        for place in sorted(selected):
            group_name(each[place], chosen.by)
    return sorted(selected)


def task_of(category: str) -> str:
    return TASKS.get(category, category)


def sort_key(name: str | int) -> list[str | int]:
    """Returns a key that sorts ids by the numbers in them, so that 2 comes before
    10."""
    parts = re.split(r"(\d+)", str(name))
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def group_name(question: Question, by: str) -> str:
    """Returns the category, sub_category or task of a question. Raises ValueError if it
    has none."""
    name = question.category if by == "task" else getattr(question, by)
    if not name:
        field = "category" if by == "task" else by
        raise ValueError(
            f"question {question.id} has no {field}: write it in its line, as"
            f' "{field}": "writing", or leave --by out'
        )
    return task_of(name) if by == "task" else name
