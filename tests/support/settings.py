"""Settings for tests, made from the names of all their fields."""

from typing import Any, TypeVar

from specjax.decode_config import NAMES, DecodeConfig

T = TypeVar("T")


def make(kind: type[T], **fields: Any) -> T:
    """Returns a setting of a type that holds a `DecodeConfig`, from its own fields and
    those of the `DecodeConfig`."""
    decode = {name: fields.pop(name) for name in NAMES if name in fields}
    return kind(decode=DecodeConfig(**decode), **fields)
