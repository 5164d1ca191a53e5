"""One line of a file of prompts: what it may hold, and what is wrong with it.

`specjax.prompts` says what the kinds are.
"""

import json
from typing import Any

KINDS = ("prompt", "tokens", "messages", "turns")
WANTED = 'want {"prompt": text}, {"tokens": [ids]}, {"messages": [...]} or'
WANTED += ' {"turns": [text, ...]}'
UNANSWERED = "there are {} turns, and nobody answers here: ask the first alone, or"
UNANSWERED += " write its answers between as messages"
MISSING = "FULL BENCHMARK DATA SHOULD BE FETCHED"  # in SPEED-Bench, for a text


def parse(line: bytes) -> dict[str, Any]:
    """The fields of one line of a file that are not null. Raises ValueError for what is
    no JSON object."""
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("this is not UTF-8: save the file as UTF-8") from None
    except RecursionError:
        raise ValueError(f"this is nested too deeply: {WANTED}") from None
    except ValueError as error:
        if b"\r" in line.strip():
            raise ValueError(
                "lines end with \\r alone: save the file with \\n"
            ) from None
        raise ValueError(f"this is not JSON ({shown(str(error))}): {WANTED}") from None
    if not isinstance(fields, dict):
        raise ValueError(WANTED)
    return without_null(fields)


def without_null(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that say something: tables that are written as lines give a
    null to each line that lacks a column."""
    return {name: value for name, value in fields.items() if value is not None}


def check(line: bytes) -> None:
    """Raises ValueError for a line that is no prompt to any model, or asks for answers
    between its turns."""
    fields = parse(line)
    turns = turns_of(fields)
    if len(turns) > 1:
        raise ValueError(UNANSWERED.format(len(turns)))
    if turns:
        check_asked(fields)
    elif "tokens" in fields:
        check_tokens(fields["tokens"])
    else:
        check_text(fields["prompt"], "prompt")


def turns_of(fields: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The messages that lead to each answer that is asked for; none of what is no
    conversation. MT-bench also writes {"prompt": [text, ...]}, and Spec-Bench's readers
    "prompt" beside "turns", which is the first of them."""
    kinds = [kind for kind in KINDS if kind in fields]
    if "turns" in kinds or isinstance(fields.get("prompt"), list):
        name = "turns" if "turns" in kinds else "prompt"
        if {*kinds} - {"prompt", "turns"}:
            raise ValueError(WANTED)
        given = fields[name]
        if not isinstance(given, list) or not given:
            raise ValueError(f"{name} must be a list of texts; got {shown(given)}")
        texts = [check_text(text, "a turn") for text in given]
        return [[{"role": "user", "content": text}] for text in texts]
    if len(kinds) != 1:
        raise ValueError(WANTED)
    if kinds != ["messages"]:
        return []
    turns = [[]]
    messages = check_messages(fields["messages"])
    held = {message["role"] for message in messages} - {"system", "user"}
    for message in messages:
        if not held and any(each["role"] == "user" for each in turns[-1]):
            turns.append([])
        turns[-1].append(message)
    return turns


def check_text(value: Any, name: str) -> str:
    """Raises ValueError for what is no text, or cannot be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be one text; got {shown(value)}")
    if value.startswith(MISSING):
        raise ValueError(
            f"{name} is left out of SPEED-Bench: fetch it by NeMo-Skills'"
            " speed-bench/prepare.py, or by specdec_bench's prepare_data.py"
        )
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
        known = without_null(message) if isinstance(message, dict) else {}
        if "role" not in known or not {"content", "tool_calls"} & known.keys():
            raise ValueError(
                f'a message is {{"role": ..., "content": text}}; got {shown(message)}'
            )
        check_text(message["role"], "role")
        if "content" in known:
            check_text(known["content"], "content")
    return value


def check_asked(fields: dict[str, Any]) -> dict[str, Any]:
    """What the chat template is told besides the messages."""
    listed = {name: fields[name] for name in ("tools", "documents") if name in fields}
    for name, value in listed.items():
        entries = value if isinstance(value, list) else [None]
        if not all(isinstance(x, dict) for x in entries):
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
