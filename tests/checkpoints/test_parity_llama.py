"""Llama, Mistral, Qwen and Gemma as transformers computes them: logits and greedy text.

transformers writes random models, of sizes that nothing else has; we load them.
Windows are shorter than the texts, and rotary positions are scaled within them.
Axes: B rows, T tokens, V vocabulary.
"""

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.inputs import make_prompt, make_request, make_sampling

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specjax import checkpoints, generate  # noqa: E402
from specjax.checkpoints import fields, names_llama  # noqa: E402
from specjax.checkpoints.names_llama import kinds  # noqa: E402
from specjax.drafters import autoregressive  # noqa: E402
from specjax.models import llama  # noqa: E402
from specjax.models.llama import Rotation, Stretch  # noqa: E402
from specjax.sides import first_layers  # noqa: E402
from specjax.step import Decoder  # noqa: E402
from specjax.types import Params  # noqa: E402

torch.set_num_threads(1)  # these are too small for more
transformers.utils.logging.disable_progress_bar()
MOST = 1e-4  # what logits may differ by, in float32
NEW, GAMMA, SLOTS, WINDOW = 14, 3, 40, 5
ENDS = [2, 11]
SIZES = dict(vocab_size=37, hidden_size=18, intermediate_size=23, num_hidden_layers=3)
SIZES |= dict(num_attention_heads=3, num_key_value_heads=1, head_dim=6)
SIZES |= dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
SIZES |= dict(max_position_embeddings=64)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0)
LLAMA3 |= dict(high_freq_factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="linear", factor=8.0, rope_theta=1e4)
QWEN = dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
GEMMA2 = dict(sliding_window=WINDOW, query_pre_attn_scalar=9)
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
GEMMA3 = GEMMA2 | dict(
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    rope_parameters=dict(
        full_attention=LONG,
        sliding_attention=dict(rope_type="default", rope_theta=100.0),
    ),
)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1)
VISION |= dict(num_attention_heads=2, image_size=28, patch_size=14)
IMAGES = dict(image_token_index=30, boi_token_index=31, eoi_token_index=32)
CASES = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama_long": (
        "Llama",
        dict(rope_parameters=LONG, attention_bias=True, mlp_bias=True),
    ),
    "mistral": ("Mistral", dict(sliding_window=WINDOW)),
    "qwen2": ("Qwen2", {}),
    "qwen2_local": ("Qwen2", QWEN),
    "qwen3": ("Qwen3", dict(attention_bias=True)),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", GEMMA2 | CAPS),
    "gemma3": ("Gemma3Text", GEMMA3),
    "gemma3_images": ("Gemma3", GEMMA3),
}


class Written(NamedTuple):
    """A model of transformers, and the folder that it wrote."""

    name: str
    model: object
    folder: Path


def config_of(called: str, **fields):
    if called != "Gemma3":
        return getattr(transformers, f"{called}Config")(**{**SIZES, **fields})
    text = transformers.Gemma3TextConfig(**{**SIZES, **fields})
    vision = transformers.SiglipVisionConfig(**VISION)
    of = dict(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    return transformers.Gemma3Config(**of, **IMAGES)


def model_of(called: str, config):
    """All numbers are random, norms and biases too: none can stand in for another."""
    torch.manual_seed(3)
    kind = "ForConditionalGeneration" if called == "Gemma3" else "ForCausalLM"
    name = called.removesuffix("Text") + kind
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(0.3 * torch.randn_like(leaf))
    return model


def write(name: str, folder: Path) -> Written:
    called, fields = CASES[name]
    model = model_of(called, config_of(called, **fields))
    model.generation_config.eos_token_id = ENDS
    model.save_pretrained(folder)
    return Written(name, model, folder)


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory) -> Written:
    return write(request.param, tmp_path_factory.mktemp(request.param))


def their_logits(model, tokens) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor(tokens)).logits.float().numpy()


def texts() -> np.ndarray:
    return np.random.default_rng(0).integers(3, 37, (2, 32))


def our_logits(model, params) -> np.ndarray:
    start = jnp.zeros(2, jnp.int32)
    features, _ = model.apply(params, jnp.asarray(texts()), start, None)
    return np.asarray(model.readout(params, features))


def difference(model, checkpoint) -> float:
    """The largest of any logit's, in texts of many windows."""
    logits, expected = our_logits(*checkpoint[3:5]), their_logits(model, texts())
    assert expected.shape == logits.shape
    return float(np.abs(expected - logits).max())


def check_parity(model, folder: Path) -> checkpoints.Pretrained:
    checkpoint = checkpoints.load(folder)
    distance = difference(model, checkpoint)
    print(f"{folder.name}: logits differ by {distance:.1e}")
    assert distance <= MOST, f"logits differ by {distance}"
    return checkpoint


def test_logits_and_greedy_text_are_those_of_transformers(written):
    """Prompts of different lengths, one batch here and one at a time there; with a
    draft, the first layer's, the text is the same."""
    checkpoint = check_parity(written.model, written.folder)
    assert checkpoint.family == "llama"
    assert (checkpoint.start, checkpoint.ends) == (1, tuple(ENDS))
    prompts = [[1, 5, 9, 4, 20, 6, 3, 8, 30], [1], [1, 7]]
    options = dict(max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    expected = []
    for prompt in prompts:
        tokens = torch.tensor([prompt])
        mask = torch.ones_like(tokens)
        text = written.model.generate(tokens, attention_mask=mask, **options)
        expected.append(text[0].tolist())

    prompt, sampling = make_prompt(prompts), make_sampling(len(prompts), 0.0)
    around = NEW, sampling, checkpoint.ends
    request = make_request(jax.random.key(0), prompt, *around)
    draft = autoregressive.build(first_layers(checkpoint.config, 1), GAMMA)
    params = Params(checkpoint.params, checkpoint.params)
    for decoder in Decoder(checkpoint.model, draft), Decoder(checkpoint.model):
        output = generate.build(decoder, SLOTS)(params, prompt, request)
        rows = zip(output.tokens, output.length, strict=True)
        assert [tokens[:n].tolist() for tokens, n in rows] == expected
    assert len(np.unique(np.concatenate(expected))) > 6, "too little to be compared"


def test_what_we_write_transformers_reads(written, tmp_path):
    checkpoint = checkpoints.load(written.folder)
    folder = tmp_path / written.name
    checkpoints.save(folder, checkpoint, most=4000)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    logits, wanted = (their_logits(model, texts()) for model in (again, written.model))
    np.testing.assert_allclose(logits, wanted, atol=1e-5)
    back = checkpoints.load(folder)
    assert back.config == checkpoint.config and len(back.files) > 3
    assert back.ends == checkpoint.ends
    jax.tree.map(np.testing.assert_array_equal, back.params, checkpoint.params)


@pytest.mark.parametrize("name", ["llama3", "gemma3_images"])
def test_halves_in_shards_load_in_either_dtype(name, tmp_path):
    model = write(name, tmp_path / "whole").model.to(torch.bfloat16)
    model.save_pretrained(tmp_path / name, max_shard_size="3KB")
    assert len(list((tmp_path / name).glob("*.safetensors"))) > 3
    again = type(model).from_pretrained(tmp_path / name, dtype=torch.float32).eval()
    model = check_parity(again, tmp_path / name) and again
    half = checkpoints.load(tmp_path / name, "bfloat16")
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(half.params)} == {"bfloat16"}
    whole = checkpoints.load(tmp_path / name)
    jax.tree.map(np.testing.assert_array_equal, half.params, whole.params)
    assert 0 < difference(model, half) < 0.5


# What must be noticed.

WRONG: list[tuple[str, dict]] = [
    ("mistral", dict(window=WINDOW + 1)),
    ("qwen2_local", dict(local=(0, 1))),
    ("llama3", dict(rotation=Rotation(500.0))),
    ("llama3", dict(rotation=Rotation(500.0, stretch=Stretch(4.0, 1.0, 3.9, 16)))),
    ("llama_long", dict(rotation=Rotation(1e4))),
    ("gemma2", dict(scale=None)),
    ("gemma2", dict(score_cap=None)),
    ("gemma2", dict(logit_cap=None)),
    ("gemma2", dict(eps=1e-2)),
    ("gemma3", dict(local_rotation=None)),
    ("gemma3", dict(window=WINDOW - 1)),
    ("gemma3", dict(style="gemma2")),
]


def exchanged(*names: str) -> Callable:
    """The parameters of a layer by each other's names."""

    def exchange(layer: dict) -> None:
        *path, a = names[0].split("/")
        b = names[1].split("/")[-1]
        for part in path:
            layer = layer[part]
        layer[a], layer[b] = layer[b], layer[a]

    return exchange


SWAPS = [
    ("attention_norm", "mlp_norm"),
    ("attention_after_norm", "mlp_after_norm"),
    ("mlp_norm", "attention_after_norm"),
    ("attention/query_norm", "attention/key_norm"),
    ("attention/key", "attention/value"),
    ("mlp/gate", "mlp/in"),
]


@pytest.mark.parametrize(("name", "fields"), WRONG)
def test_the_check_notices_a_size_that_was_misread(name, fields, tmp_path):
    model = write(name, tmp_path / name).model
    checkpoint = checkpoints.load(tmp_path / name)
    config = checkpoint.config._replace(**fields)
    assert config != checkpoint.config
    other = checkpoint._replace(model=llama.build(config))
    assert difference(model, other) > 10 * MOST


@pytest.mark.parametrize("names", SWAPS)
def test_the_check_notices_a_wrong_name(names, tmp_path):
    model = write("gemma3", tmp_path / "gemma3").model
    checkpoint = checkpoints.load(tmp_path / "gemma3")
    exchanged(*names)(checkpoint.params["layers_1"])
    assert difference(model, checkpoint) > 100 * MOST


# Every field of their configs: it changes what we compute as it does there, or is
# refused, or changes nothing there.

OTHER = {
    int: lambda value: value + 2,
    float: lambda value: value * 1.5 + 0.25,
    bool: lambda value: not value,
    str: lambda value: "relu",
}
# What the class has no default for, or cannot have another of by the rules above.
VALUES = {
    "vocab_size": 41,
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "rope_parameters": LLAMA3,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "use_bidirectional_attention": True,
    "max_window_layers": 0,
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "attn_logit_softcapping": 1.5,
    "final_logit_softcapping": 1.5,
    "dtype": "float64",
    "architectures": ["Other"],
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": [5, 6],
    "id2label": {"0": "a"},
    "label2id": {"a": 0},
    "problem_type": "regression",
    "transformers_version": "4.0",
}
KEPT = ("pretraining_tp", "return_dict")  # of which others are refused there
KINDS = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3Text",
}
# Windows are on, so that what depends on them can be seen.
ON = {
    "mistral": dict(sliding_window=WINDOW),
    "qwen2": QWEN,
    "qwen3": QWEN,
    "gemma2": GEMMA2 | CAPS,
    "gemma3_text": GEMMA2,
}


def fields_of(called: str) -> list[str]:
    kind = getattr(transformers, f"{called}Config")
    return [field.name for field in dataclasses.fields(kind)]


def ours(fields: dict):
    """The config that we read, or None where we refuse it."""
    try:
        config = names_llama.read_config(fields, "float32")
        return config, names_llama.ends(fields, config)
    except ValueError as error:
        assert "config.json: " in str(error)
        return None


def theirs_to_us(config) -> dict:
    """As they write it, but for the types of layers, which other fields imply."""
    fields = json.loads(json.dumps(config.to_dict(), default=str))
    return fields | {"layer_types": None}


def changes(model, called: str, fields: dict) -> bool:
    """Whether the same weights have other logits by these fields, or do not fit."""
    try:
        other = model_of(called, config_of(called, **fields))
    except Exception:  # they refuse it themselves
        return False
    try:
        other.load_state_dict(model.state_dict())
    except RuntimeError:
        return True
    logits = (their_logits(each, texts()) for each in (model, other))
    return not np.allclose(*logits, atol=1e-5)


@pytest.mark.parametrize("model_type", KINDS)
def test_every_field_of_their_class_is_used_or_refused_or_changes_nothing(model_type):
    called, on = KINDS[model_type], ON.get(model_type, {})
    plain = config_of(called, **on)
    model = model_of(called, plain)
    before = ours(theirs_to_us(plain))
    assert before is not None
    seen = set()
    for name in {*fields_of(called)} - {*KEPT}:
        value = getattr(plain, name)
        other = VALUES.get(name, OTHER.get(type(value), lambda value: None)(value))
        assert other != value, name
        if name == "rope_parameters" and model_type == "gemma3_text":
            other = {"sliding_attention": LLAMA3}
        after = ours(theirs_to_us(plain) | {name: other})
        if changes(model, called, {**SIZES, **on, name: other}):
            assert after is None or after[0] != before[0], f"{name} changes logits"
            seen.add(name)
        elif name in ("bos_token_id", "eos_token_id"):
            assert after[1] != before[1]
    assert {"hidden_size", "rms_norm_eps", "rope_parameters"} <= seen, seen


# What changes no logit of a text: how it is computed, dropped or padded.
ASIDE = {"_attn_implementation", "attention_dropout", "pad_token_id", "get_text_config"}
ASIDE |= {"text_config", "vision_config", "image_token_id", "mm_tokens_per_image"}


@pytest.mark.parametrize("model_type", KINDS)
def test_every_field_that_their_module_reads_is_used_or_known(model_type):
    """By its source: a version that reads another one is to be looked at."""
    kind, name = kinds.KINDS[model_type], model_type.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    source = inspect.getsource(module)
    read = {*re.findall(r"\bconfig\.(\w+)", source)}
    read |= {*re.findall(r'getattr\((?:self\.)?config, "(\w+)"', source)}
    assert read - ASIDE <= {*kind.read, *kind.only, *fields.READ}
    assert {"hidden_size", "rms_norm_eps"} <= read
