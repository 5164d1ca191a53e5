"""The sizes of a model, as a bundled file's metadata holds them: JSON, checked."""

import json
import reprlib
from typing import Any, get_type_hints

from specjax.models import gpt, t5, whisper

FAMILIES = {"gpt": gpt, "t5": t5, "whisper": whisper}
Config = gpt.Config | t5.Config | whisper.Config
MOST = 2**31 - 1  # of any size
WANTED = {
    int: f"a whole number, 1 to {MOST}",
    int | None: f"null or a whole number, 1 to {MOST}",
    bool: "true or false",
    str: "a text",
}


def read(metadata: dict[str, str]) -> tuple[str, Config]:
    """The family and the sizes. Raises ValueError for any that no model has."""
    family = metadata.get("family", "gpt")
    if family not in FAMILIES:
        raise ValueError(f"its family is {family!r}; known are {', '.join(FAMILIES)}")
    try:
        sizes = json.loads(metadata["config"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its sizes are not JSON: {error}") from None
    if not isinstance(sizes, dict):
        raise ValueError(f"its sizes are {type(sizes).__name__}, not an object")
    kind = FAMILIES[family].Config
    _check_fields(sizes, kind)
    config = kind(**sizes)
    _check_shapes(config)
    return family, config


def is_size(value: Any) -> bool:
    """Whether a value of JSON can be a size."""
    return type(value) is int and 1 <= value <= MOST


def _check_fields(sizes: dict[str, Any], kind: type) -> None:
    hints = get_type_hints(kind)
    missing = hints.keys() - kind._field_defaults.keys() - sizes.keys()
    unknown = sizes.keys() - hints.keys()
    if missing or unknown:
        names = ", ".join(sorted(missing) or map(reprlib.repr, sorted(unknown)))
        raise ValueError(f"its sizes {'lack' if missing else 'hold unknown'} {names}")
    for name, value in sizes.items():
        hint = hints[name]
        fits = is_size(value) if hint is int else isinstance(value, hint)
        if hint == int | None:
            fits = value is None or is_size(value)
        if not fits:
            raise ValueError(f"{name} must be {WANTED[hint]}: {reprlib.repr(value)}")


def _check_shapes(config: Config) -> None:
    """What fields say together."""
    if isinstance(config, t5.Config):
        if config.pieces is not None and config.pieces > config.vocab:
            raise ValueError(f"pieces {config.pieces} exceeds vocab {config.vocab}")
        return
    if config.dim % config.num_heads:
        raise ValueError(f"dim {config.dim} is no multiple of heads {config.num_heads}")
    if config.positions is None and config.head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {config.head_width}")
