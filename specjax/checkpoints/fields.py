"""Readers of config.json, which refuse what a model does not support.

A field that transformers' class of a model does not read cannot change what a
checkpoint computes: such fields are ignored. A field that it reads is used here, or is
known in the values that change nothing, or is refused by its name.
"""

import json
import reprlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from specjax.zoo.sizes import MOST, is_size

Fields = dict[str, Any]

QUANTIZED = ("quantization_config", "quantization", "compression_config")
# The fields that transformers reads of every decoder, besides those of a family's own
# class: code that comes with a checkpoint, a model within another, masks, caches,
# positions.
READ = {
    "auto_map",
    *("text_config", "text_encoder", "decoder", "generator", "per_layer_config"),
    *("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"),
    *("is_causal", "use_bidirectional_attention", "pruned_heads"),
    *("sliding_window", "layer_types", "attention_chunk_size", "kv_sharing_modes"),
    *("number_of_conv_states", "fusion_config", "transformers_weights"),
    *("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq"),
    *("partial_rotary_factor", "original_max_position_embeddings"),
}


def read(path: Path) -> Fields:
    """Reads a file that holds one JSON object. Raises ValueError for anything else."""
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path} holds {type(fields).__name__}, not an object")
    return fields


def field_error(
    name: str, wanted: str, value: Any, *, file: str | Path = "config.json"
) -> ValueError:
    """Returns the error of a field that must be something else."""
    return ValueError(f"{file}: {name} must be {wanted}: {reprlib.repr(value)}")


def size(fields: Fields, name: str, default: int | None = None) -> int:
    """Returns a whole number of at least 1; null and missing are the default. Raises
    ValueError for anything else."""
    value = fields.get(name)
    value = default if value is None else value
    if value is None or not is_size(value):
        raise field_error(name, f"a whole number, 1 to {MOST}", value)
    return value


def sizes(fields: Fields, table: dict[str, str]) -> dict[str, Any]:
    """Returns sizes, whole numbers, by our names, by a table from ours to theirs."""
    return {ours: size(fields, theirs) for ours, theirs in table.items()}


def stored_sizes(config: Any, table: dict[str, str]) -> Fields:
    """Returns sizes by their names, by a table from ours to theirs."""
    return {theirs: getattr(config, ours) for ours, theirs in table.items()}


def whole_number(fields: Fields, name: str) -> int:
    """Returns a whole number of 0 or more. Raises ValueError for anything else."""
    value = fields[name]
    if value == 0 and type(value) is int:
        return value
    return size(fields, name)


def number(fields: Fields, name: str) -> float:
    """Returns a number above 0. Raises ValueError for anything else."""
    value: Any = fields.get(name)
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise field_error(name, "a number above 0", value)
    return float(value)


def truth(fields: Fields, name: str, default: bool) -> bool:
    """Returns true or false. Raises ValueError for anything else that is there."""
    value = fields.get(name, default)
    if type(value) is not bool:
        raise field_error(name, "true or false", value)
    return value


def token(
    fields: Fields, name: str, vocab: int, *, default: int | None = None
) -> int | None:
    """Returns an id; None where the field names none, or one outside of the vocabulary.

    default: taken where the field is missing; null names no id. Raises ValueError for
    anything that is not an id.
    """
    value = fields.get(name, default)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is not None and not _is_id(value):
        raise field_error(name, "one id of 0 or more", value)
    return value if value is not None and value < vocab else None


def tokens(
    fields: Fields, name: str, vocab: int, *, default: int | None = None
) -> tuple[int, ...]:
    """Returns the ids that a field names, one or a list, each once, without those
    outside of the vocabulary. default: see `token`. Raises ValueError as `token`
    does."""
    value = fields.get(name, default)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(map(_is_id, ids)):
        raise field_error(name, "ids of 0 or more", value)
    return tuple(dict.fromkeys(i for i in ids if i < vocab))


def check_ids(file: Path, fields: Fields) -> None:
    """Raises ValueError for fields of a file that are neither an id nor a list of
    ids."""
    for name, value in fields.items():
        if not all(map(_is_id, value if isinstance(value, list) else [value])):
            raise field_error(name, "ids of 0 or more", value, file=file)


def stored_ids(ids: tuple[int, ...]) -> int | list[int] | None:
    """Returns ids in the form that `tokens` reads: None, one id, or a list."""
    return ids[0] if len(ids) == 1 else list(ids) or None


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def refuse_read(fields: Fields, known: Collection[str]) -> None:
    """Raises ValueError for weights that are quantised, and for a field of `READ` that
    has a value and is unknown here. known: fields that are read here, or by a class
    that has no use for them."""
    for name in QUANTIZED:
        if stated := fields.get(name):
            how = stated.get("quant_method") if isinstance(stated, dict) else None
            of = f" ({reprlib.repr(how)})" if how else ""
            raise ValueError(
                f"config.json: {name} says that the weights are quantised{of}: name the"
                " checkpoint that they were made from"
            )
    for name in sorted(READ & fields.keys() - {*known}):
        if fields[name] not in (None, False, {}, []):
            raise ValueError(
                f"config.json: {name} is {reprlib.repr(fields[name])}, which may change"
                " what this model_type computes and is not known here: where it does"
                " not, take it out"
            )


def same_sizes(fields: Fields, aliases: dict[str, str]) -> None:
    """Raises ValueError for a size that the file states under two names with different
    values."""
    for name, of in aliases.items():
        alias, own = fields.get(name), fields.get(of)
        if None not in (alias, own) and alias != own:
            raise ValueError(
                f"config.json: {name} is {reprlib.repr(alias)} and {of}"
                f" {reprlib.repr(own)}, which are one size: take {name} out"
            )


def check_known_values(fields: Fields, known: dict[str, tuple]) -> None:
    """Raises ValueError for a field that is there and has none of its known values.
    Values are compared as in JSON, where true is not a number."""
    for name, values in known.items():
        if name in fields and not any(_equal(fields[name], value) for value in values):
            has, can = reprlib.repr(fields[name]), " or ".join(map(repr, values))
            raise ValueError(f"config.json: {name} is {has}; known is {can}")


def _equal(value: Any, known: Any) -> bool:
    return value == known and isinstance(value, bool) == isinstance(known, bool)
