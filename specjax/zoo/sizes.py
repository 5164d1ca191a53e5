"""The sizes of a model in the metadata of a bundled file, as JSON that is checked."""

import json
import math
import reprlib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from specjax.models import families
from specjax.models.families import Config


def metadata(config: Config) -> dict[str, str]:
    """Returns the metadata that `read` reads. Raises ValueError as `families.of` does.

    What a head taps is not a size of the model, and is left out.
    """
    family, fields = families.of(config).name, _to_json(config)
    fields.pop("taps", None)
    return {"family": family, "config": json.dumps(fields)}


def read(stated: dict[str, str]) -> tuple[str, Config]:
    """Returns the family's name and the sizes. Raises ValueError for any that no model
    has."""
    family = families.by_name(stated.get("family", families.GPT.name))
    try:
        sizes = json.loads(stated["config"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its sizes are not JSON: {error}") from None
    config = _read(sizes, family.config)
    family.check(config)
    return family.name, config


# Each field is checked against its annotation.

MOST = 2**31 - 1  # of any size
WANTED = {
    int: f"a whole number, 1 to {MOST}",
    float: "a number above 0",
    bool: "true or false",
    str: "a text",
    tuple: "a list of numbers of layers, from 0 on",
}


def _to_json(sizes: Any) -> Any:
    """Returns a NamedTuple of sizes as JSON: objects and lists."""
    if hasattr(sizes, "_asdict"):
        return {name: _to_json(value) for name, value in sizes._asdict().items()}
    return list(sizes) if isinstance(sizes, tuple) else sizes


def _read(sizes: Any, kind: Any, name: str = "its sizes") -> Any:
    """Returns the NamedTuple of this kind that a JSON object describes. Raises
    ValueError for any other object."""
    if not isinstance(sizes, Mapping):
        raise ValueError(f"{name} are {type(sizes).__name__}, not an object")
    hints = get_type_hints(kind)
    missing = hints.keys() - kind._field_defaults.keys() - sizes.keys()
    unknown = sizes.keys() - hints.keys()
    if missing or unknown:
        names = ", ".join(sorted(missing) or map(reprlib.repr, sorted(unknown)))
        raise ValueError(f"{name} {'lack' if missing else 'hold unknown'} {names}")
    return kind(**{each: _value(sizes[each], hints[each], each) for each in sizes})


def is_size(value: Any) -> bool:
    """Returns whether a value of JSON can be a size."""
    return type(value) is int and 1 <= value <= MOST


def _value(value: Any, hint: Any, name: str) -> Any:
    """Returns the value of a field. hint: the annotation of the field: a type, or a
    type or None. Raises ValueError for another value."""
    if isinstance(hint, UnionType):
        (hint,) = set(get_args(hint)) - {NoneType}
        if value is None:
            return None
        optional = "null or "
    else:
        optional = ""
    if hasattr(hint, "_fields"):
        return _read(value, hint, name)
    kind = get_origin(hint) or hint
    if not FITS[kind](value):
        wanted = optional + WANTED[kind]
        raise ValueError(f"{name} must be {wanted}: {reprlib.repr(value)}")
    return tuple(value) if kind is tuple else kind(value)


def _are_layers(value: Any) -> bool:
    counts = isinstance(value, list) and all(type(x) is int for x in value)
    return counts and all(0 <= x <= MOST for x in value)


FITS = {
    int: is_size,
    float: lambda x: type(x) in (int, float) and 0 < x < math.inf,
    bool: lambda value: isinstance(value, bool),
    str: lambda value: isinstance(value, str),
    tuple: _are_layers,
}
