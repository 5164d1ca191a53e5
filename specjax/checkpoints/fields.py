"""Reading config.json: what is there must be there, and be what the model can do."""

import json
from pathlib import Path
from typing import Any

Fields = dict[str, Any]


def read(path: Path) -> Fields:
    """A file that holds one JSON object. Raises ValueError for anything else."""
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path} holds {type(fields).__name__}, not an object")
    return fields


def size(fields: Fields, name: str, default: int | None = None) -> int:
    """A whole number of at least 1; null and missing are the default."""
    value = fields.get(name)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise ValueError(
            f"config.json: {name} must be a number of 1 or more: {value!r}"
        )
    return value


def token(fields: Fields, name: str, default: int | None, vocab: int) -> int | None:
    """An id, or None where none is named, or one that the vocabulary does not have."""
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is not None and type(value) is not int:
        raise ValueError(f"config.json: {name} must be one id: {value!r}")
    return value if value is not None and 0 <= value < vocab else None


def only(fields: Fields, known: dict[str, tuple]) -> None:
    """Raises ValueError for a field that is there and has none of its known values."""
    for name, values in known.items():
        if name in fields and fields[name] not in values:
            can = " or ".join(repr(value) for value in values)
            raise ValueError(f"config.json: {name} is {fields[name]!r}; known is {can}")
