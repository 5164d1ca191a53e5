"""Settings of tests, by the names of all their fields."""

from typing import Any, TypeVar

from specjax.decode_config import NAMES, DecodeConfig

T = TypeVar("T")


def make(kind: type[T], **fields: Any) -> T:
    """Returns a setting of a type that holds a `DecodeConfig`, of its own fields and of
    those of that."""
    decode = {name: fields.pop(name) for name in NAMES if name in fields}
    return kind(decode=DecodeConfig(**decode), **fields)
