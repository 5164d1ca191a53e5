"""Reading config.json: what is there must be there, and be what the model can do."""

import json
import reprlib
from pathlib import Path
from typing import Any

from specjax.zoo.fields import MOST, is_size

Fields = dict[str, Any]


def read(path: Path) -> Fields:
    """A file that holds one JSON object. Raises ValueError for anything else."""
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path} holds {type(fields).__name__}, not an object")
    return fields


def size(fields: Fields, name: str, default: int | None = None) -> int:
    """A whole number of at least 1; null and missing are the default."""
    value = fields.get(name)
    value = default if value is None else value
    if not is_size(value):
        raise ValueError(
            f"config.json: {name} must be a whole number, 1 to {MOST}:"
            f" {reprlib.repr(value)}"
        )
    return value


def whole(fields: Fields, name: str) -> int:
    """A whole number of 0 or more. Raises ValueError for anything else."""
    value = fields[name]
    if value == 0 and type(value) is int:
        return value
    return size(fields, name)


def number(fields: Fields, name: str) -> float:
    """A number above 0. Raises ValueError for anything else."""
    value = fields.get(name)
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise ValueError(
            f"config.json: {name} must be a number above 0: {reprlib.repr(value)}"
        )
    return float(value)


def truth(fields: Fields, name: str, default: bool) -> bool:
    """True or false. Raises ValueError for anything else that is there."""
    value = fields.get(name, default)
    if type(value) is not bool:
        raise ValueError(
            f"config.json: {name} must be true or false: {reprlib.repr(value)}"
        )
    return value


def token(fields: Fields, name: str, default: int | None, vocab: int) -> int | None:
    """An id, or None where none is named, or one that the vocabulary does not have."""
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is not None and not _is_id(value):
        raise ValueError(
            f"config.json: {name} must be one id of 0 or more: {reprlib.repr(value)}"
        )
    return value if value is not None and value < vocab else None


def tokens(
    fields: Fields, name: str, default: int | None, vocab: int
) -> tuple[int, ...]:
    """The ids that a field names, one or a list, each once; without those that the
    vocabulary does not have."""
    value = fields.get(name)
    value = default if value is None else value
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(map(_is_id, ids)):
        raise ValueError(
            f"config.json: {name} must be ids of 0 or more: {reprlib.repr(value)}"
        )
    return tuple(dict.fromkeys(i for i in ids if i < vocab))


def written(ids: tuple[int, ...]) -> int | list[int] | None:
    """As `tokens` reads them: none, one or a list."""
    return ids[0] if len(ids) == 1 else list(ids) or None


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def only(fields: Fields, known: dict[str, tuple]) -> None:
    """Raises ValueError for a field that is there and has none of its known values."""
    for name, values in known.items():
        if name in fields and fields[name] not in values:
            has, can = reprlib.repr(fields[name]), " or ".join(map(repr, values))
            raise ValueError(f"config.json: {name} is {has}; known is {can}")
