"""Prompts of a person or a file, as a model reads them.

A prompt is a text, or as JSON {"prompt": text}, {"tokens": [ids]} for ids as they are,
or {"messages": [{"role": ..., "content": ...}, ...]} for a conversation. A program may
also give a list of ids or of messages as a prompt, and one list of messages in place of
a list of prompts. Beside its messages "tools" and "documents" may stand, lists of
objects, and in "chat_template_kwargs" whatever else the chat template asks, such as
{"enable_thinking": false}. {"turns": [text, ...]} is a conversation that is still to be
held, as are messages of a user alone: every turn is a prompt, behind the model's own
answers to the turns before it.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import zoo
from specjax.models import families
from specjax.pretrained import Pretrained
from specjax.prompts import questions, text_files
from specjax.prompts.lines import (
    KINDS,
    UNANSWERED,
    check_asked,
    check_text,
    check_tokens,
    parse,
    shown,
    turns_of,
    without_null,
)
from specjax.prompts.questions import ALL, Asked, Chosen

Answer = Callable[[list[list[int]]], list[str]]  # to conversations, as ids


class Prompts(NamedTuple):
    """What is continued: token lists, each once, from the start token on. inputs: what
    an encoder reads of each, None without one. ends: ids that each end a text. asked:
    the question that each is of; empty where nothing says. left_out: how many turns of
    a file were too long."""

    tokens: Sequence[Sequence[int]]
    inputs: Sequence[Sequence[int]] | None = None
    ends: tuple[int, ...] = (zoo.END,)
    asked: tuple[Asked, ...] = ()
    left_out: int = 0


class Line(NamedTuple):
    """A line of a file. where: it stands, for what is wrong with it. place: from 0.
    turns: the messages that lead to each answer; none of what is no conversation."""

    where: str
    place: int
    fields: dict[str, Any]
    turns: list[list[dict[str, Any]]]


def read(
    path: str | Path,
    model: Pretrained,
    answer: Answer | None = None,
    chosen: Chosen = ALL,
) -> Prompts:
    """The prompts of a file, one JSON object a line; .gz and .xz are unpacked. answer:
    gives the answers that later turns stand behind; None refuses those. chosen: which
    are read. Raises ValueError naming the path, the line and what to write, OSError for
    a file that cannot be read."""
    check_reads(model)
    numbered = {f"{path}, line {i}": line for i, line in text_files.numbered(path)}
    if not numbered:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')
    fields = [located(where, parse, line) for where, line in numbered.items()]
    return gather([*numbered], fields, model, answer, chosen)


def of(prompts: Sequence[Any], model: Pretrained) -> Prompts:
    """The same of a list: texts, ids, conversations, or dictionaries as the lines of a
    file hold; a list of messages is one conversation. Raises ValueError naming the
    number of the prompt and what to write."""
    check_reads(model)
    if isinstance(prompts, str | dict) or not isinstance(prompts, Sequence):
        raise ValueError("prompts must be a list of texts, such as ['def add(']")
    if not prompts:
        raise ValueError("there are no prompts: name at least one")
    fields = [*map(fields_of, [prompts] if is_chat(prompts) else prompts)]
    return gather([f"prompt {i}" for i in range(len(fields))], fields, model)


def is_chat(prompt: Any) -> bool:
    """Whether a prompt is a list of messages, {"role": ..., "content": ...}."""
    several = isinstance(prompt, list | tuple) and len(prompt) > 0
    return several and all(
        isinstance(each, dict) and "role" in each and not {*KINDS} & each.keys()
        for each in prompt
    )


def fields_of(prompt: Any) -> dict[str, Any]:
    """A prompt of a program as a line of a file would hold it."""
    if isinstance(prompt, dict):
        return without_null(prompt)
    if is_chat(prompt):
        return {"messages": [*prompt]}
    if isinstance(prompt, list | tuple) and all(type(i) is int for i in prompt):
        return {"tokens": [*prompt]}
    return {"prompt": prompt}


def located(where: str, do: Callable, *arguments: Any) -> Any:
    """What `do` returns. Raises its ValueError with the place in front."""
    try:
        return do(*arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def gather(
    where: Sequence[str],
    fields: Sequence[dict[str, Any]],
    model: Pretrained,
    answer: Answer | None = None,
    chosen: Chosen = ALL,
) -> Prompts:
    """The prompts of lines, turn by turn: all first ones, then those behind an answer.
    Of a question whose turn is too long the later ones are left out too."""
    lines = [
        Line(where[i], i, fields[i], located(where[i], turns_of, fields[i]))
        for i in questions.places(fields, chosen)
    ]
    longest, left_out, found = chosen.longest, 0, []
    for turn in itertools.count():
        going_on = []
        for line in lines:
            ids = located(line.where, ids_of, line, turn, model)
            if longest is not None and len(ids) > longest:
                left_out += max(len(line.turns), 1) - turn
                continue
            about = questions.asked(line.fields, line.place, turn, said(line, turn))
            found.append((line.place, turn, ids, about))
            if turn + 1 < len(line.turns):
                going_on.append((line, ids))
        if not going_on:
            break
        if answer is None:
            line, _ = going_on[0]
            raise ValueError(f"{line.where}: {UNANSWERED.format(len(line.turns))}")
        answers = answer([ids for _, ids in going_on])
        lines = [
            behind(line, turn, text)
            for (line, _), text in zip(going_on, answers, strict=True)
        ]
    if not found:
        raise ValueError(f"no prompt has {longest} tokens or fewer: raise --longest")
    *_, ids, about = zip(*sorted(found, key=lambda each: each[:2]), strict=True)
    return as_read(list(ids), model)._replace(asked=about, left_out=left_out)


def behind(line: Line, turn: int, answer: str) -> Line:
    """The line with its next turn behind this one and its answer."""
    turns = list(line.turns)
    said = [*turns[turn], {"role": "assistant", "content": answer}]
    turns[turn + 1] = [*said, *turns[turn + 1]]
    return line._replace(turns=turns)


def said(line: Line, turn: int) -> str:
    """What is asked at a turn, as a text."""
    if line.turns:
        return line.turns[turn][-1].get("content") or ""
    return line.fields.get("prompt", "")


def start(model: Pretrained) -> Prompts:
    """The start token alone. Raises ValueError for a model without one."""
    check_reads(model)
    if model.start is None:
        raise ValueError(f"{model.name} has no start token: write prompts for it")
    return as_read([[model.start]], model)


def check_reads(model: Pretrained) -> None:
    """Raises ValueError for a model of speech, which reads no prompts of this kind."""
    if families.of(model.config).listens:
        raise ValueError(
            f"{model.name} listens and reads no texts: name a model of text, or"
            " recordings, by specjax transcribe"
        )


def as_read(ids: list[list[int]], model: Pretrained) -> Prompts:
    """An encoder's inputs, or beginnings of texts."""
    if model.model.encodes:
        return Prompts([[model.start]] * len(ids), ids, model.ends)
    return Prompts(ids, None, model.ends)


def ids_of(line: Line, turn: int, model: Pretrained) -> list[int]:
    """The ids that the model reads at a turn. Raises ValueError for none such."""
    fields = line.fields
    if line.turns:
        asked = check_asked(fields)
        ids = model.tokenizer.converse(line.turns[turn], **asked)
    elif "tokens" in fields:
        ids = check_tokens(fields["tokens"])
    else:
        ids = model.tokenizer.encode(check_text(fields["prompt"], "prompt"))
    if not ids and model.start is not None:
        ids = [model.start]
    if not ids:
        raise ValueError("the prompt is empty, and this model has no start token")
    vocab = model.model.vocab
    if not 0 <= min(ids) <= max(ids) < vocab:
        wrong = next(i for i in ids if not 0 <= i < vocab)
        raise ValueError(
            f"id {shown(wrong)} is not in 0..{vocab - 1}, the vocabulary of"
            f" {model.name}: is this its tokenizer?"
        )
    return ids
