"""Rotary positions in config.json, as versions 2 to 5 of transformers write them.

Either `rope_theta` and `rope_scaling`, or `rope_parameters` with both; Gemma 3 has one
of them for each type of its layers.
"""

import reprlib

from specjax.checkpoints import fields as field
from specjax.checkpoints.fields import Fields
from specjax.models import llama
from specjax.models.llama import Rotation, Stretch

BASE, LOCAL_BASE, LONG_BASE = 10_000.0, 10_000.0, 1_000_000.0
LAYERS = ("full_attention", "sliding_attention")
KNOWN = ("default", "linear", "llama3")


def read(stated: Fields, positions: int | None) -> tuple[Rotation, Rotation | None]:
    """The rotation of all layers, and that of the local ones where it is another's.

    stated: fields of `kinds.of`. Raises ValueError for a field or a kind of scaling
    that is not known.
    """
    base, scaling = stated["rope_theta"], _object(stated, "rope_scaling")
    whole = _object(stated, "rope_parameters")
    if "rope_local_base_freq" not in stated:
        return _rotation(scaling or whole, base or BASE, positions), None
    for name, value in whole.items():
        if name not in LAYERS and value is not None:
            raise ValueError(
                f"config.json: rope_parameters has {name}; known are"
                f" {', '.join(LAYERS)}"
            )
    full, sliding = (_object(whole, name) for name in LAYERS)
    if scaling.get("rope_type") is None and scaling.get("type") not in (
        None,
        "default",
    ):
        raise ValueError(
            f"config.json: rope_scaling says type {reprlib.repr(scaling['type'])} and"
            " no rope_type, which versions of transformers before 5 follow and later"
            " ones ignore: call it rope_type, or take rope_scaling out"
        )
    local_base = stated["rope_local_base_freq"] or LOCAL_BASE
    return (
        _rotation(full | scaling, base or LONG_BASE, positions),
        _rotation(sliding, local_base, positions),
    )


def _object(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(
            f"config.json: {name} must be an object: {reprlib.repr(value)}"
        )
    return value


def _rotation(scaling: Fields, base: float, positions: int | None) -> Rotation:
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if not isinstance(kind, str) or kind not in KNOWN:
        raise ValueError(
            f"config.json: rope_type is {reprlib.repr(kind)}; known are"
            f" {', '.join(KNOWN)}"
        )
    field.only(scaling, {"partial_rotary_factor": (1, None)})
    scaling = {"rope_theta": base} | _told(scaling)
    base = field.number(scaling, "rope_theta")
    if kind == "default":
        return Rotation(base)
    factor = field.number(scaling, "factor")
    if kind == "linear":
        return Rotation(base, slower=factor)
    low, high = (field.number(scaling, f"{x}_freq_factor") for x in ("low", "high"))
    if low >= high:
        raise ValueError(
            f"config.json: low_freq_factor {low} must be below high_freq_factor {high}"
        )
    original = field.size(scaling, "original_max_position_embeddings", positions)
    return Rotation(base, stretch=Stretch(factor, low, high, original))


def _told(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


def write(config: llama.Config) -> Fields:
    """As versions before 5 had it, which later versions read too."""
    rotation, local = config.rotation, config.local_rotation
    scaling = None
    if rotation.stretch is not None:
        factor, low, high, original = rotation.stretch
        scaling = {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
    elif rotation.slower != 1:
        scaling = {"rope_type": "linear", "factor": rotation.slower}
    return {
        "rope_theta": rotation.base,
        "rope_scaling": scaling,
        "rope_local_base_freq": (local or Rotation()).base,
    }
