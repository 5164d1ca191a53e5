"""The sizes of a model, as a bundled file's metadata holds them: JSON, checked."""

import json
import math
import reprlib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from specjax.models import gpt, llama, t5, whisper

FAMILIES = {"gpt": gpt, "t5": t5, "llama": llama, "whisper": whisper}
Config = gpt.Config | t5.Config | llama.Config | whisper.Config


def written(config: Config) -> dict[str, str]:
    """The metadata that `read` reads."""
    family = next(n for n, m in FAMILIES.items() if isinstance(config, m.Config))
    return {"family": family, "config": json.dumps(_written(config))}


def read(metadata: dict[str, str]) -> tuple[str, Config]:
    """The family and the sizes. Raises ValueError for any that no model has."""
    family = metadata.get("family", "gpt")
    if family not in FAMILIES:
        raise ValueError(f"its family is {family!r}; known are {', '.join(FAMILIES)}")
    try:
        sizes = json.loads(metadata["config"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its sizes are not JSON: {error}") from None
    config = _read(sizes, FAMILIES[family].Config)
    check(config)
    return family, config


def check(config: Config) -> None:
    """Raises ValueError for fields that do not go together."""
    match config:
        case t5.Config():
            if config.pieces is not None and config.pieces > config.vocab:
                raise ValueError(f"pieces {config.pieces} exceeds vocab {config.vocab}")
            if config.gate not in t5.GATES:
                known = ", ".join(t5.GATES)
                raise ValueError(f"gate is {config.gate!r}; known are {known}")
        case llama.Config():
            _check_llama(config)
        case _:
            _check_heads(config)


def _check_heads(config: gpt.Config | whisper.Config) -> None:
    if config.dim % config.num_heads:
        raise ValueError(f"dim {config.dim} is no multiple of heads {config.num_heads}")
    if config.positions is None and config.head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {config.head_width}")


def _check_llama(config: llama.Config) -> None:
    if config.style not in llama.STYLES:
        known = ", ".join(llama.STYLES)
        raise ValueError(f"style is {config.style!r}; known are {known}")
    if config.num_heads % config.key_heads:
        raise ValueError(
            f"heads {config.num_heads} are no multiple of key_heads {config.key_heads}"
        )
    if config.head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {config.head_width}")
    if max(config.local, default=0) >= config.num_layers:
        raise ValueError(f"local names layer {max(config.local)}, which is not there")
    if config.local and config.window is None:
        raise ValueError("local layers need a window")


# Each field is checked against its annotation.

MOST = 2**31 - 1  # of any size
WANTED = {
    int: f"a whole number, 1 to {MOST}",
    float: "a number above 0",
    bool: "true or false",
    str: "a text",
    tuple: "a list of numbers of layers, from 0 on",
}


def _written(sizes: Any) -> Any:
    """A NamedTuple of sizes as what JSON holds: objects and lists."""
    if hasattr(sizes, "_asdict"):
        return {name: _written(value) for name, value in sizes._asdict().items()}
    return list(sizes) if isinstance(sizes, tuple) else sizes


def _read(sizes: Any, kind: type, name: str = "its sizes") -> Any:
    """The NamedTuple of this kind that an object of JSON holds."""
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
    """Whether a value of JSON can be a size."""
    return type(value) is int and 1 <= value <= MOST


def _value(value: Any, hint: Any, name: str) -> Any:
    """A field's value. hint: its annotation, of one kind, or that or None."""
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
