"""Prompts of a program or a file, as a model reads them.

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

from specjax import zoo
from specjax.pretrained import Pretrained
from specjax.prompts import questions, text_files
from specjax.prompts.lines import (
    KINDS,
    SEVERAL_TURNS,
    check_template_options,
    check_text,
    check_tokens,
    drop_null,
    parse,
    quote,
    split_turns,
)
from specjax.prompts.questions import ALL, Chosen, Question

Answer = Callable[[list[list[int]]], list[str]]  # conversations as ids -> answers


class Prompts(NamedTuple):
    """The token lists that texts continue, each from the start token on.

    inputs: the ids that an encoder reads for each prompt; None for models without one.
    ends: ids that each end a text. questions: the benchmark question of each prompt;
    empty where the prompts come from no file. left_out: the number of turns of a file
    that were too long."""

    tokens: Sequence[Sequence[int]]
    inputs: Sequence[Sequence[int]] | None = None
    ends: tuple[int, ...] = (zoo.END,)
    questions: tuple[Question, ...] = ()
    left_out: int = 0


class Line(NamedTuple):
    """A line of a file of prompts.

    where: its place, for error messages. place: its index, from 0. turns: the messages
    that lead to each answer; none for a prompt that is not a conversation."""

    where: str
    place: int
    fields: dict[str, Any]
    turns: list[list[dict[str, Any]]]


class Turn(NamedTuple):
    """A turn of a line that was read. number: from 0. ids: what the model reads, [] for
    a turn that is too long."""

    line: Line
    number: int
    ids: list[int]

    @property
    def num_after(self) -> int:
        """Returns the number of turns of its line that come after it."""
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


def from_list(prompts: Sequence[Any], model: Pretrained) -> Prompts:
    """Returns the prompts of a list: texts, ids, conversations, or dictionaries.

    Dictionaries are as the lines of a file; a list of messages is one conversation.
    Raises ValueError naming the number of the prompt and the fix."""
    check_reads(model)
    if isinstance(prompts, str | dict) or not isinstance(prompts, Sequence):
        raise ValueError("prompts must be a list of texts, such as ['def add(']")
    if not prompts:
        raise ValueError("prompts is empty: give at least one")
    fields = [*map(to_fields, [prompts] if is_conversation(prompts) else prompts)]
    return gather([f"prompt {i}" for i in range(len(fields))], fields, model)


def is_conversation(prompt: Any) -> bool:
    """Returns whether a prompt is a list of messages, {"role": ..., "content": ...}."""
    is_list = isinstance(prompt, list | tuple) and len(prompt) > 0
    return is_list and all(
        isinstance(each, dict) and "role" in each and not {*KINDS} & each.keys()
        for each in prompt
    )


def to_fields(prompt: Any) -> dict[str, Any]:
    """Returns the fields that a line of a file would have for a prompt of a program."""
    if isinstance(prompt, dict):
        return drop_null(prompt)
    if is_conversation(prompt):
        return {"messages": [*prompt]}
    if isinstance(prompt, list | tuple) and all(type(i) is int for i in prompt):
        return {"tokens": [*prompt]}
    return {"prompt": prompt}


def at_place(where: str, do: Callable, *arguments: Any) -> Any:
    """Returns the result of `do`. Its ValueError is raised with the place in front."""
    try:
        return do(*arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def gather(
    where: Sequence[str], fields: Sequence[dict[str, Any]], model: Pretrained
) -> Prompts:
    """Returns the prompts of lines, of which each is one turn. Raises ValueError
    naming the line and the fix."""
    lines = split_lines(where, fields, range(len(fields)))
    return make_prompts([turn.ids for turn in read_turns(lines, model)], model)


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
    """Returns the turns of lines, in the order of the lines; the later turns of a line
    follow the answers to those before.

    Turns of more than `longest` tokens have no ids, and there is none after them."""
    found = []
    for number in itertools.count():
        unfinished = []
        for line in lines:
            ids = at_place(line.where, encode_turn, line, number, model)
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
    """Returns the line with this turn and its answer put before the next turn."""
    turns = list(line.turns)
    before = [*turns[turn], {"role": "assistant", "content": answer}]
    turns[turn + 1] = [*before, *turns[turn + 1]]
    return line._replace(turns=turns)


def turn_text(line: Line, turn: int) -> str:
    """Returns the text of a turn."""
    if line.turns:
        return line.turns[turn][-1].get("content") or ""
    return line.fields.get("prompt", "")


def start_prompt(model: Pretrained) -> Prompts:
    """Returns the start token alone. Raises ValueError for a model without one."""
    check_reads(model)
    if model.start is None:
        raise ValueError(f"{model.name} has no start token: write prompts for it")
    return make_prompts([[model.start]], model)


def check_reads(model: Pretrained) -> None:
    """Raises ValueError for a model of speech, which reads no prompts of this kind."""
    if model.listens:
        raise ValueError(
            f"{model.name} reads recordings and no texts: name a model of text, or"
            " decode recordings with specjax transcribe"
        )


def make_prompts(ids: list[list[int]], model: Pretrained) -> Prompts:
    """Returns prompts of these ids: inputs of an encoder, or beginnings of texts."""
    if model.model.encodes:
        begin: Any = [model.start]
        return Prompts([begin] * len(ids), ids, model.ends)
    return Prompts(ids, None, model.ends)


def encode_turn(line: Line, turn: int, model: Pretrained) -> list[int]:
    """Returns the ids that the model reads at a turn. Raises ValueError if it
    cannot."""
    fields = line.fields
    if line.turns:
        options = check_template_options(fields)
        ids = model.tokenizer.converse(line.turns[turn], **options)
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
            f"id {quote(wrong)} is not in 0..{vocab - 1}, the vocabulary of"
            f" {model.name}: is this its tokenizer?"
        )
    return ids
