"""Conversations as one text, by the chat template in a folder of Hugging Face.

A template is a program in Jinja, rendered in a sandbox (extra `hf`).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from specjax.tokenizers import folder as folders
from specjax.tokenizers.folder import TokenizerConfig, read_json

FURTHER = "chat_templates"  # a folder of templates, by their names
PLAIN = 'write {"prompt": text} instead'


def render(
    folder: Path,
    messages: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    stated: TokenizerConfig | None = None,
) -> str:
    """Returns the text of a conversation, up to where the model's answer begins.

    Args:
      options: variables of the template, such as tools.
      stated: the template and special tokens of a file; None reads those of `folder`.

    Raises:
      ValueError: there is no template, or it refuses the messages.
    """
    name = "tool_use" if options.get("tools") is not None else "default"
    template = find(folder, name, stated)
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ValueError(
            f"the chat template of {folder} needs jinja2: pip install"
            f" 'specjax[hf]', or {PLAIN}"
        ) from None
    place = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", generation()],
    )
    place.filters["tojson"] = to_json
    place.globals["raise_exception"] = refuse
    place.globals["strftime_now"] = datetime.now().strftime
    named = (stated or folders.read(folder)).named.items()
    variables: dict[str, Any] = dict(tools=None, documents=None)
    variables["add_generation_prompt"] = True
    variables |= {name: value["content"] for name, value in named}
    variables |= options
    variables["messages"] = [
        {name: value for name, value in message.items() if value is not None}
        for message in messages
    ]
    try:
        return place.from_string(template).render(variables)
    except Exception as error:  # a template is a program
        raise ValueError(
            f"the chat template of {folder} refuses these messages: {error}"
        ) from None


def find(
    folder: Path, name: str = "default", stated: TokenizerConfig | None = None
) -> str:
    """Returns a folder's template with this name, or else its default one. Raises
    ValueError where there is none."""
    files = {file.stem: file for file in sorted((folder / FURTHER).glob("*.jinja"))}
    if (folder / folders.TEMPLATE).is_file():
        files["default"] = folder / folders.TEMPLATE
    of_file = read_json(folder / folders.CONFIG) if stated is None else stated.fields
    named: Any = (stated is None and files) or of_file.get("chat_template")
    if isinstance(named, list):
        pairs = [entry for entry in named if isinstance(entry, dict)]
        named = {entry.get("name"): entry.get("template") for entry in pairs}
    if isinstance(named, dict):
        named = named.get(name) or named.get("default")
    if isinstance(named, Path):
        try:
            return named.read_text("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{named} is not UTF-8: {PLAIN}") from None
    if not isinstance(named, str):
        raise ValueError(f"{folder} has no chat template: {PLAIN}")
    return named


def generation() -> type:
    """Returns a Jinja tag for the model's own words, which training reads: their text
    is kept, and variables that are set among them are local to the tag, as in
    transformers."""
    from jinja2 import ext, nodes

    class Generation(ext.Extension):
        """The tag `{% generation %}`."""

        tags = {"generation"}  # noqa: RUF012 (never changed)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    return Generation


def refuse(message: str) -> NoReturn:
    """Raises ValueError with a template's message; templates call this function as
    `raise_exception`."""
    raise ValueError(message)


def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Returns a value as JSON; unlike Jinja's filter, it does not escape HTML. options:
    indent, sort_keys ..."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)
