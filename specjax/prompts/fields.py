"""The fields of a prompt: their checks, and the ids that a model reads.

`specjax.prompts` describes the kinds of prompts. A line of a file is an object of such
fields, and a prompt of a program is made one."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from specjax import zoo
from specjax.pretrained import Pretrained
from specjax.prompts.questions import Question

KINDS = ("prompt", "tokens", "messages", "turns")
FORMS = 'write {"prompt": text}, {"tokens": [ids]}, {"messages": [...]} or'
FORMS += ' {"turns": [text, ...]}'
SEVERAL_TURNS = "there are {} turns, and no model answers between them here: keep the"
SEVERAL_TURNS += " first alone, or write the answers between the turns as messages"
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"  # of SPEED-Bench


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
    """Returns a prompt of a program as the fields that a line of a file would have."""
    if isinstance(prompt, dict):
        return drop_null(prompt)
    if is_conversation(prompt):
        return {"messages": [*prompt]}
    if isinstance(prompt, list | tuple) and all(type(i) is int for i in prompt):
        return {"tokens": [*prompt]}
    return {"prompt": prompt}


def at_place(where: str, do: Callable, *arguments: Any) -> Any:
    """Returns the result of `do`; a ValueError that it raises is preceded by the
    place."""
    try:
        return do(*arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def gather(
    where: Sequence[str], fields: Sequence[dict[str, Any]], model: Pretrained
) -> Prompts:
    """Returns the prompts of fields, each of one turn.

    Args:
      where: the place of each, for error messages.
      fields: the fields of each prompt.

    Raises:
      ValueError: with the place and the fix.
    """
    both = zip(where, fields, strict=True)
    return make_prompts(
        [at_place(at, encode_one, each, model) for at, each in both], model
    )


def encode_one(fields: dict[str, Any], model: Pretrained) -> list[int]:
    """Returns the ids of a prompt of one turn. Raises ValueError for several turns."""
    turns = split_turns(fields)
    if len(turns) > 1:
        raise ValueError(SEVERAL_TURNS.format(len(turns)))
    return encode(fields, turns[0] if turns else [], model)


def encode(
    fields: dict[str, Any], messages: list[dict[str, Any]], model: Pretrained
) -> list[int]:
    """Returns the ids that the model reads for a prompt, or for one turn of it.

    messages: those that lead to the answer; [] for a prompt that is not a conversation.
    Raises ValueError if the model cannot read it."""
    if messages:
        options = check_template_options(fields)
        ids = model.tokenizer.converse(messages, **options)
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


def start_prompt(model: Pretrained) -> Prompts:
    """Returns the start token as the only prompt. Raises ValueError for a model without
    a start token."""
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


def parse(line: bytes) -> dict[str, Any]:
    """Returns the fields of a line that are not null. Raises ValueError for a line that
    is not a JSON object."""
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("this is not UTF-8: save the file as UTF-8") from None
    except RecursionError:
        raise ValueError(f"this is nested too deeply: {FORMS}") from None
    except ValueError as error:
        if b"\r" in line.strip():
            raise ValueError(
                "lines end with \\r alone: save the file with \\n"
            ) from None
        raise ValueError(f"this is not JSON ({quote(str(error))}): {FORMS}") from None
    if not isinstance(fields, dict):
        raise ValueError(FORMS)
    return drop_null(fields)


def drop_null(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that are not null.

    Tables written as lines have a null in each line that lacks a column."""
    return {name: value for name, value in fields.items() if value is not None}


def check(line: bytes) -> None:
    """Raises ValueError for a line that cannot be a prompt of any model.

    It also does for a line with several turns, whose answers are not written."""
    fields = parse(line)
    turns = split_turns(fields)
    if len(turns) > 1:
        raise ValueError(SEVERAL_TURNS.format(len(turns)))
    if turns:
        check_template_options(fields)
    elif "tokens" in fields:
        check_tokens(fields["tokens"])
    else:
        check_text(fields["prompt"], "prompt")


def split_turns(fields: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Returns the messages that lead to each answer of a conversation; [] for other
    prompts.

    MT-bench also writes {"prompt": [text, ...]}; Spec-Bench's readers write "prompt"
    beside "turns", and it is the first of them."""
    kinds = [kind for kind in KINDS if kind in fields]
    if "turns" in kinds or isinstance(fields.get("prompt"), list):
        name = "turns" if "turns" in kinds else "prompt"
        if {*kinds} - {"prompt", "turns"}:
            raise ValueError(FORMS)
        turns = fields[name]
        if not isinstance(turns, list) or not turns:
            raise ValueError(f"{name} must be a list of texts; got {quote(turns)}")
        texts = [check_text(text, "a turn") for text in turns]
        return [[{"role": "user", "content": text}] for text in texts]
    if len(kinds) != 1:
        raise ValueError(FORMS)
    if kinds != ["messages"]:
        return []
    turns = [[]]
    messages = check_messages(fields["messages"])
    answered = {message["role"] for message in messages} - {"system", "user"}
    for message in messages:
        if not answered and any(each["role"] == "user" for each in turns[-1]):
            turns.append([])
        turns[-1].append(message)
    return turns


def check_text(value: Any, name: str) -> str:
    """Returns the value. Raises ValueError unless it is a text that UTF-8 can
    encode."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be one text; got {quote(value)}")
    if value.startswith(PLACEHOLDER):
        raise ValueError(
            f"{name} is a placeholder of SPEED-Bench: fetch the text with NeMo-Skills'"
            " speed-bench/prepare.py, or with specdec_bench's prepare_data.py"
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(value[error.start]):x}"
        raise ValueError(
            f"{name} has {half}, half a character or a byte that is not UTF-8: write"
            " it as UTF-8"
        ) from None
    return value


def check_tokens(value: Any) -> list[int]:
    """Returns the value. Raises ValueError unless it is a list of ids."""
    if not isinstance(value, list) or not all(type(i) is int for i in value):
        raise ValueError(f"tokens must be a list of ids; got {quote(value)}")
    if not value:
        raise ValueError("tokens is empty: begin with the model's start id")
    return value


def check_messages(value: Any) -> list[dict[str, Any]]:
    """Returns the value. Raises ValueError unless it is a list of messages."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"messages must be a list of messages; got {quote(value)}")
    for message in value:
        known = drop_null(message) if isinstance(message, dict) else {}
        if "role" not in known or not {"content", "tool_calls"} & known.keys():
            raise ValueError(
                f'a message is {{"role": ..., "content": text}}; got {quote(message)}'
            )
        check_text(message["role"], "role")
        if "content" in known:
            check_text(known["content"], "content")
    return value


def check_template_options(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the variables of the chat template besides the messages."""
    names = "tools", "documents"
    listed: dict[str, Any] = {name: fields[name] for name in names if name in fields}
    for name, value in listed.items():
        entries = value if isinstance(value, list) else [None]
        if not all(isinstance(x, dict) for x in entries):
            raise ValueError(f"{name} must be a list of objects; got {quote(value)}")
    options = fields.get("chat_template_kwargs", {})
    if not isinstance(options, dict) or "messages" in options:
        raise ValueError(
            "chat_template_kwargs must be an object of the template's own variables,"
            f' such as {{"enable_thinking": false}}; got {quote(options)}'
        )
    return listed | options


def quote(value: Any) -> str:
    """Returns a value in ASCII, shortened so that it fits into a line."""
    try:
        text = ascii(value)
    except RecursionError:
        return type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
