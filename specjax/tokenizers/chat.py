"""Conversations as one text, by the template that a folder of Hugging Face brings.

A template is a program in Jinja, rendered in a sandbox (extra `hf`).
"""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from specjax.tokenizers.huggingface import content, read_json

CONFIG, FILE = "tokenizer_config.json", "chat_template.jinja"
PLAIN = 'write {"prompt": text} instead'
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


def render(folder: Path, messages: Sequence[dict[str, str]]) -> str:
    """The text of a conversation, up to where the model's answer begins.

    Raises ValueError for a folder without a template, a template that refuses these
    messages, or without Jinja.
    """
    template = find(folder)
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ValueError(
            f"the chat template of {folder} needs jinja2: pip install jinja2,"
            f" or {PLAIN}"
        ) from None
    place = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    place.filters["tojson"] = to_json
    place.globals |= {"raise_exception": refuse, "strftime_now": today}
    fields = read_json(folder / CONFIG)
    names = {name: content(fields, name) or "" for name in SPECIAL}
    variables = names | {"messages": list(messages), "add_generation_prompt": True}
    try:
        return place.from_string(template).render(variables)
    except Exception as error:  # a template is a program
        raise ValueError(
            f"the chat template of {folder} refuses these messages: {error}"
        ) from None


def find(folder: Path) -> str:
    """The template of a folder. Raises ValueError where it has none."""
    if (folder / FILE).is_file():
        try:
            return (folder / FILE).read_text("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{folder / FILE} is not UTF-8: {PLAIN}") from None
    named = read_json(folder / CONFIG).get("chat_template")
    if isinstance(named, list):  # several by name
        pairs = [entry for entry in named if isinstance(entry, dict)]
        named = {entry.get("name"): entry.get("template") for entry in pairs}.get(
            "default"
        )
    if not isinstance(named, str):
        raise ValueError(f"{folder} has no chat template: {PLAIN}")
    return named


def refuse(message: str) -> NoReturn:
    """`raise_exception`, as templates call it."""
    raise ValueError(message)


def today(form: str) -> str:
    """`strftime_now`, as templates call it."""
    return datetime.now().strftime(form)


def to_json(value: Any, indent: int | None = None) -> str:
    """Unlike Jinja's own, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
