"""Prompts, from a program or a file, in the form that a model reads.

A prompt is a text, or as JSON {"prompt": text}, {"tokens": [ids]} for ids that are used
unchanged, or {"messages": [{"role": ..., "content": ...}, ...]} for a conversation. A
program may also give a list of ids or of messages as a prompt, and one list of messages
in place of a list of prompts. "tools" and "documents" may stand beside the messages, as
lists of objects, and "chat_template_kwargs" holds other variables of the chat template,
such as {"enable_thinking": false}. {"turns": [text, ...]} is a conversation whose
answers are not written yet, and so are messages that are all of a user: every turn is
then a prompt, which follows the model's own answers to the turns before it."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax.pretrained import Pretrained
from specjax.prompts import questions, text_files
from specjax.prompts.fields import (
    SEVERAL_TURNS,
    Prompts,
    at_place,
    check_reads,
    encode,
    from_list,
    gather,
    make_prompts,
    parse,
    split_turns,
    start_prompt,
)
from specjax.prompts.questions import ALL, Chosen, Question

__all__ = [
    "Answer",
    "Line",
    "Prompts",
    "Turn",
    "at_place",
    "check_reads",
    "from_list",
    "gather",
    "make_prompts",
    "read",
    "start_prompt",
]

Answer = Callable[[list[list[int]]], list[str]]  # conversations as ids -> answers


class Line(NamedTuple):
    """A line of a file of prompts.

    where: its place, for error messages. place: its index, from 0. turns: the messages
    that lead to each answer; none for a prompt that is not a conversation."""

    where: str
    place: int
    fields: dict[str, Any]
    turns: list[list[dict[str, Any]]]


class Turn(NamedTuple):
    """A turn of a conversation that was read. number: from 0. ids: the tokens that the
    model reads; [] for a turn that is too long."""

    line: Line
    number: int
    ids: list[int]

    @property
    def num_after(self) -> int:
        """Returns the number of turns that follow it in its line."""
        return max(len(self.line.turns), 1) - 1 - self.number


def read(
    path: str | Path,
    model: Pretrained,
    answer: Answer | None = None,
    chosen: Chosen = ALL,
) -> Prompts:
    """Returns the prompts of a file of JSON objects, one per line, possibly .gz or .xz.

    answer: returns the answers that later turns follow; None refuses such turns.
    chosen: the questions to read. Raises ValueError naming the path, the line and the
    fix, OSError for a file that cannot be read."""
    check_reads(model)
    lines = {f"{path}, line {i}": line for i, line in text_files.numbered_lines(path)}
    if not lines:
        raise ValueError(f'{path} is empty: write {{"prompt": text}}, one per line')
    fields = [at_place(where, parse, line) for where, line in lines.items()]
    selected = split_lines([*lines], fields, questions.select(fields, chosen))
    every = read_turns(selected, model, answer, chosen.longest)
    turns = [turn for turn in every if turn.ids]
    if not turns:
        raise ValueError(
            f"no prompt has {chosen.longest} tokens or fewer: raise --longest"
        )
    left_out = sum(turn.num_after + 1 for turn in every if not turn.ids)
    return make_prompts([turn.ids for turn in turns], model)._replace(
        questions=tuple(map(question_of, turns)), left_out=left_out
    )


def split_lines(
    where: Sequence[str], fields: Sequence[dict[str, Any]], places: Iterable[int]
) -> list[Line]:
    """Returns the lines at these places, with their turns."""
    return [
        Line(where[i], i, fields[i], at_place(where[i], split_turns, fields[i]))
        for i in places
    ]


def read_turns(
    lines: list[Line],
    model: Pretrained,
    answer: Answer | None = None,
    longest: int | None = None,
) -> list[Turn]:
    """Returns the turns of lines, in the order of the lines; where a turn follows
    others of its line, their answers precede it.

    Turns of more than `longest` tokens have no ids, and there is none after them."""
    found = []
    for number in itertools.count():
        unfinished = []
        for line in lines:
            messages = line.turns[number] if line.turns else []
            ids = at_place(line.where, encode, line.fields, messages, model)
            if longest is not None and len(ids) > longest:
                found.append(Turn(line, number, []))
                continue
            found.append(Turn(line, number, ids))
            if number + 1 < len(line.turns):
                unfinished.append((line, ids))
        if not unfinished:
            break
        if answer is None:
            line, _ = unfinished[0]
            raise ValueError(f"{line.where}: {SEVERAL_TURNS.format(len(line.turns))}")
        answers = answer([ids for _, ids in unfinished])
        lines = [
            append_answer(line, number, text)
            for (line, _), text in zip(unfinished, answers, strict=True)
        ]
    return sorted(found, key=lambda turn: (turn.line.place, turn.number))


def question_of(turn: Turn) -> Question:
    """Returns the benchmark question that a turn belongs to."""
    line, text = turn.line, turn_text(turn.line, turn.number)
    return questions.make_question(line.fields, line.place, turn.number, text)


def append_answer(line: Line, turn: int, answer: str) -> Line:
    """Returns the line with this turn and its answer inserted before the next turn."""
    turns = list(line.turns)
    before = [*turns[turn], {"role": "assistant", "content": answer}]
    turns[turn + 1] = [*before, *turns[turn + 1]]
    return line._replace(turns=turns)


def turn_text(line: Line, turn: int) -> str:
    """Returns the text of a turn."""
    if line.turns:
        return line.turns[turn][-1].get("content") or ""
    return line.fields.get("prompt", "")
