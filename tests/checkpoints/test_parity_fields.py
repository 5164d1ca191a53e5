"""Every field of a Llama's config either changes our logits as it changes those of
transformers, or is refused, or changes nothing there."""

import dataclasses
import json

import numpy as np
import pytest

from specjax.checkpoints import names_llama

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.support import format_defaults as table  # noqa: E402
from tests.support import transformers_models as theirs  # noqa: E402
from tests.support.transformers_models import make_config, make_model  # noqa: E402

OTHER = {
    int: lambda value: value + 2,
    float: lambda value: value * 1.5 + 0.25,
    bool: lambda value: not value,
    str: lambda value: "relu",
}
# What the class has no default for, or cannot have another of by the rules above.
VALUES = dict(vocab_size=41, hidden_size=24, num_attention_heads=6, head_dim=4)
VALUES |= dict(num_key_value_heads=3, max_window_layers=0, dtype="float64")
VALUES |= dict(rope_parameters=theirs.LLAMA3, use_bidirectional_attention=True)
VALUES |= dict(layer_types=["full_attention", "sliding_attention", "full_attention"])
VALUES |= dict(hidden_act="relu", hidden_activation="relu", architectures=["Other"])
VALUES |= dict(attn_logit_softcapping=1.5, final_logit_softcapping=1.5)
VALUES |= dict(pad_token_id=3, bos_token_id=4, eos_token_id=[5, 6])
VALUES |= dict(id2label={"0": "a"}, label2id={"a": 0}, problem_type="regression")
VALUES |= dict(transformers_version="4.0")
KEPT = ("pretraining_tp", "return_dict")  # of which others are refused there
# Windows are on, so that what depends on them can be seen.
ON = {
    "mistral": dict(sliding_window=theirs.WINDOW),
    "qwen2": theirs.QWEN,
    "qwen3": theirs.QWEN,
    "gemma2": theirs.GEMMA2 | theirs.CAPS,
    "gemma3_text": theirs.GEMMA2,
}


def config_fields(called: str) -> list[str]:
    kind = getattr(transformers, f"{called}Config")
    return [field.name for field in dataclasses.fields(kind)]


def read_or_none(fields: dict):
    """Returns the config that we read, or None where we refuse it."""
    try:
        config = names_llama.read_config(fields, "float32")
        return config, names_llama.ends(fields, config)
    except ValueError as error:
        assert "config.json: " in str(error)
        return None


def theirs_to_us(config) -> dict:
    """Returns a config as transformers writes it, without the types of layers, which
    other fields imply."""
    fields = json.loads(json.dumps(config.to_dict(), default=str))
    return fields | {"layer_types": None}


def changes(model, called: str, fields: dict) -> bool:
    """Returns whether these fields change the logits of the same weights, or do not fit
    these."""
    try:
        other = make_model(called, make_config(called, **fields))
    except Exception:  # they refuse it themselves
        return False
    try:
        other.load_state_dict(model.state_dict())
    except RuntimeError:
        return True
    tokens = theirs.texts(37)
    logits = (theirs.logits(each, called, tokens) for each in (model, other))
    return not np.allclose(*logits, atol=1e-5)


@pytest.mark.parametrize("model_type", names_llama.KINDS)
def test_every_field_of_their_class_is_used_or_refused_or_changes_nothing(model_type):
    called = "".join(map(str.capitalize, model_type.split("_")))
    on = ON.get(model_type, {})
    plain = make_config(called, **on)
    model = make_model(called, plain)
    before = read_or_none(theirs_to_us(plain))
    assert before is not None
    seen = set()
    for name in {*config_fields(called)} - {*KEPT}:
        value = getattr(plain, name)
        other = VALUES.get(name, OTHER.get(type(value), lambda value: None)(value))
        assert other != value, name
        if name == "rope_parameters" and model_type == "gemma3_text":
            other = {"sliding_attention": theirs.LLAMA3}
        after = read_or_none(theirs_to_us(plain) | {name: other})
        if changes(model, called, {**theirs.LLAMA, **on, name: other}):
            assert after is None or after[0] != before[0], f"{name} changes logits"
            seen.add(name)
        elif name in ("bos_token_id", "eos_token_id"):
            assert after[1] != before[1]
    assert {"hidden_size", "rms_norm_eps", "rope_parameters"} <= seen, seen


@pytest.mark.parametrize("kind", table.CONFIGS)
def test_what_a_missing_field_is_read_as_is_the_default_of_their_class(kind):
    config = transformers.AutoConfig.for_model(kind)
    declared = {field.name: field.default for field in dataclasses.fields(config)}
    compared = set()
    for row in table.CONFIGS[kind]:
        theirs = declared.get(row.key, getattr(config, row.key, row.value))
        if row.value is not table.NOTHING and "rope" not in row.key:
            assert (theirs or False) == (row.value or False), row
            compared.add(row.key)
    assert {"eos_token_id", "tie_word_embeddings"} & compared
