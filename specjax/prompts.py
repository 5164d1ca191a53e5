"""Prompts of a person or a file, as a model reads them.

A prompt is a text, or as JSON {"prompt": text}, {"tokens": [ids]} for ids as they are,
or {"messages": [{"role": ..., "content": ...}, ...]} for a conversation. Beside its
messages "tools" and "documents" may stand, lists of objects, and in
"chat_template_kwargs" whatever else the chat template asks, such as
{"enable_thinking": false}.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax import zoo
from specjax.models import whisper
from specjax.pretrained import Pretrained

KINDS = ("prompt", "tokens", "messages")
WANTED = 'want {"prompt": text}, {"tokens": [ids]} or {"messages": [...]}'


class Prompts(NamedTuple):
    """What is continued: token lists, each once, from the start token on. inputs: what
    an encoder reads of each, None without one. ends: ids that each end a text."""

    tokens: Sequence[Sequence[int]]
    inputs: Sequence[Sequence[int]] | None = None
    ends: tuple[int, ...] = (zoo.END,)


def read(path: str | Path, model: Pretrained) -> Prompts:
    """The prompts of a file, one JSON object a line. Raises ValueError naming the path,
    the line and what to write, OSError for a file that cannot be read."""
    check_reads(model)
    ids = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            ids.append(ids_of(parse(line), model))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not ids:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')
    return gather(ids, model)


def of(prompts: Sequence[Any], model: Pretrained) -> Prompts:
    """The same of a list: texts, or dictionaries as the lines of a file hold. Raises
    ValueError naming the number of the prompt and what to write."""
    check_reads(model)
    if isinstance(prompts, str | dict) or not isinstance(prompts, Sequence):
        raise ValueError("prompts must be a list of texts, such as ['def add(']")
    if not prompts:
        raise ValueError("there are no prompts: name at least one")
    ids = []
    for number, prompt in enumerate(prompts):
        line = prompt if isinstance(prompt, dict) else {"prompt": prompt}
        try:
            ids.append(ids_of(line, model))
        except ValueError as error:
            raise ValueError(f"prompt {number}: {error}") from None
    return gather(ids, model)


def start(model: Pretrained) -> Prompts:
    """The start token alone. Raises ValueError for a model without one."""
    check_reads(model)
    if model.start is None:
        raise ValueError(f"{model.name} has no start token: write prompts for it")
    return gather([[model.start]], model)


def check_reads(model: Pretrained) -> None:
    """Raises ValueError for a model of speech, which reads no prompts of this kind."""
    if isinstance(model.config, whisper.Config):
        raise ValueError(
            f"{model.name} listens and reads no texts: name a model of text, or"
            " recordings, by specjax transcribe"
        )


def gather(ids: list[list[int]], model: Pretrained) -> Prompts:
    """An encoder's inputs, or beginnings of texts."""
    if model.model.encodes:
        return Prompts([[model.start]] * len(ids), ids, model.ends)
    return Prompts(ids, None, model.ends)


def parse(line: bytes) -> dict[str, Any]:
    """One line of a file. Raises ValueError for what is no JSON object."""
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("this is not UTF-8: save the file as UTF-8") from None
    except RecursionError:
        raise ValueError(f"this is nested too deeply: {WANTED}") from None
    except ValueError as error:
        raise ValueError(f"this is not JSON ({shown(str(error))}): {WANTED}") from None
    if not isinstance(fields, dict):
        raise ValueError(WANTED)
    return fields


def ids_of(fields: dict[str, Any], model: Pretrained) -> list[int]:
    """The ids that the model reads of one prompt. Raises ValueError for none such."""
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1:
        raise ValueError(WANTED)
    value = fields[kinds[0]]
    if kinds == ["tokens"]:
        ids = check_tokens(value)
    elif kinds == ["messages"]:
        ids = model.tokenizer.converse(check_messages(value), **check_asked(fields))
    else:
        ids = model.tokenizer.encode(check_text(value, "prompt"))
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


def check_text(value: Any, name: str) -> str:
    """Raises ValueError for what is no text, or cannot be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be one text; got {shown(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(value[error.start]):x}"
        raise ValueError(
            f"{name} holds {half}, half a character or a byte that is not UTF-8: write"
            " it as UTF-8"
        ) from None
    return value


def check_tokens(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(i) is int for i in value):
        raise ValueError(f"tokens must be a list of ids; got {shown(value)}")
    if not value:
        raise ValueError("tokens is empty: begin with the model's start id")
    return value


def check_messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"messages must be a list of messages; got {shown(value)}")
    for message in value:
        known = isinstance(message, dict) and "role" in message
        if not known or not {"content", "tool_calls"} & message.keys():
            raise ValueError(
                f'a message is {{"role": ..., "content": text}}; got {shown(message)}'
            )
        check_text(message["role"], "role")
        if message.get("content") is not None or "tool_calls" not in message:
            check_text(message["content"], "content")
    return value


def check_asked(fields: dict[str, Any]) -> dict[str, Any]:
    """What the chat template is told besides the messages."""
    listed = {name: fields[name] for name in ("tools", "documents") if name in fields}
    for name, value in listed.items():
        entries = value if isinstance(value, list) else [None]
        if value is not None and not all(isinstance(x, dict) for x in entries):
            raise ValueError(f"{name} must be a list of objects; got {shown(value)}")
    asked = fields.get("chat_template_kwargs", {})
    if not isinstance(asked, dict) or "messages" in asked:
        raise ValueError(
            "chat_template_kwargs must be an object of the template's own variables,"
            f' such as {{"enable_thinking": false}}; got {shown(asked)}'
        )
    return listed | asked


def shown(value: Any) -> str:
    """What was written, cut to a length that fits into a line."""
    try:
        text = ascii(value)
    except RecursionError:
        return type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
