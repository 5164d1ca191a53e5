"""One table of what is no whole checkpoint of a known model, for all readers.

Each is refused in words that name the fix, before a parameter is made.
"""

import sys
import types

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from specjax import checkpoints
from specjax.checkpoints import archive
from specjax.checkpoints.archive import Archive, Source
from specjax.checkpoints.t5x import store
from tests.support.broken_checkpoints import (
    INDEX,
    LAYOUTS,
    TREE,
    WEIGHTS,
    WHOLE,
    Break,
    as_integers,
    holds,
    lacks,
    lists,
    named,
    narrower,
    of_no_dtype,
    pickled,
    says,
    shaped,
    short,
    stores,
    tells,
    tree,
    twice,
    two_files,
    unlike,
    without_readout,
    zarr3,
)
from tests.support.checkpoint_folders import read_nothing, reconfigure, rewrite, written
from tests.support.t5x_files import LARGE

CONFIG, FIRST = "config.json", "encoder/layers_0/attention/query/kernel"
DEEP = "[" * 100_000
SPEC = {"driver": "zarr", "kvstore": 7, "metadata": {}}
A_CHUNK = f"*{LARGE.replace('/', '.')}/0.0"
CHUNKLESS = f"lacks chunk files of {LARGE}: it was cut"
DESCRIBED = f"*{LARGE.replace('/', '.')}/.zarray"
UNDESCRIBED = rf"no description \(.zarray\) of {LARGE}"
NOT_WHOLE = r"model.safetensors is not a whole safetensors file .*: copy or download"
SIZE = r"must be a whole number, 1 to 2147483647"
EMBEDDED = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
CUT = r"is not a whole checkpoint file, copy it again"


def another_readout(stored):
    return stored | {"proj_out.weight": stored["model.decoder.embed_tokens.weight"] + 1}


CASES: list[tuple[str, Break, str]] = [
    # config.json
    ("v1_1", says(model_type="bart"), r"model_type is 'bart'; known are t5, mt5, umt5"),
    ("v1_1", says(model_type=...), r"model_type is None"),
    ("v1_1", says(model_type=["t5"]), r"model_type is \['t5'\]; known are"),
    ("v1_1", says(d_kv=...), rf"v1_1: config.json: d_kv {SIZE}: None"),
    ("v1_1", says(d_model="16"), rf"d_model {SIZE}: '16'"),
    ("v1_1", says(num_layers=0), rf"num_layers {SIZE}: 0"),
    ("v1_1", says(num_heads=True), rf"num_heads {SIZE}: True"),
    ("v1_1", says(vocab_size=10**30), rf"vocab_size {SIZE}: 10+"),
    ("v1_1", says(num_layers=10**5), r"say 100000 encoder layers and .* are of 1:"),
    ("v1_1", says(num_decoder_layers=10**9), r"1000000000 decoder layers .* of 3: t"),
    ("gpt2", says(n_layer=10**5), r"say 100000 num layers and its arrays are of 2"),
    ("v1_1", says(feed_forward_proj="gated-relu"), r"_proj is 'gated-relu'; known"),
    ("v1_1", says(dense_act_fn="gelu"), r"dense_act_fn is 'gelu'; known is 'gelu_new'"),
    ("v1_1", says(is_gated_act=False), r"is_gated_act is False; known is True"),
    ("v1_1", says(relative_attention_num_buckets=64), r"buckets is 64; known is 32"),
    ("v1_1", says(relative_attention_max_distance=1), r"distance is 1; known is 128"),
    ("v1_1", says(layer_norm_epsilon=1e-5), r"epsilon is 1e-05; known is 1e-06"),
    ("v1_1", says(hidden_size=3), r"hidden_size is 3 and d_model 15, which are one"),
    ("gpt2", says(hidden_size=3), r"hidden_size is 3 and n_embd 12, which are one si"),
    *[
        (
            name,
            says(quantization_config={"quant_method": "gptq"}),
            r"_config says that the weights are quantised \('gptq'\): name the",
        )
        for name in ("v1_1", "gpt2", "whisper")
    ],
    ("v1_1", says(tie_encoder_decoder=True), r"tie_encoder_decoder is True"),
    ("v1_1", says(tie_word_embeddings="no"), r"tie_word_embeddings is 'no'"),
    (
        "v1_1",
        says(eos_token_id=[1, -2]),
        r"eos_token_id must be ids of 0 .*: \[1, -2\]",
    ),
    ("v1_1", says(eos_token_id=37), r"eos_token_id must be below vocab_size, 37"),
    ("v1_1", says(pad_token_id=-1), r"pad_token_id must be one id of 0 or more: -1"),
    ("v1_1", says(decoder_start_token_id=-7), r"start_token_id must be one id .*: -7"),
    ("v1_1", says(decoder_start_token_id=37), r"start_token_id must be below vocab_si"),
    ("gpt2", says(bos_token_id=-1), r"bos_token_id must be one id of 0 or more: -1"),
    ("gpt2", says(n_positions=...), rf"n_positions {SIZE}: None"),
    ("gpt2", says(n_head=5), r"n_embd 12 is no multiple of n_head 5"),
    ("gpt2", says(activation_function="gelu"), r"is 'gelu'; known is 'gelu_new' or"),
    ("gpt2", says(layer_norm_epsilon=1e-6), r"epsilon is 1e-06; known is 1e-05"),
    ("gpt2", says(scale_attn_weights=False), r"scale_attn_weights is False"),
    ("gpt2", says(scale_attn_by_inverse_layer_idx=True), r"inverse_layer_idx is True"),
    ("gpt2", says(add_cross_attention=True), r"add_cross_attention is True"),
    ("whisper", says(d_model=11), r"d_model 11 is no multiple of 2 and of the 3 heads"),
    ("whisper", says(num_mel_bins=0), rf"num_mel_bins {SIZE}: 0"),
    (
        "whisper",
        says(encoder_ffn_dim=20),
        r"encoder_ffn_dim is 20 and decoder_ffn_dim ",
    ),
    (
        "whisper",
        says(decoder_attention_heads=6),
        r"is 3 and decoder_attention_heads 6:",
    ),
    ("whisper", says(activation_function="relu"), r"activation_function is 'relu'; kn"),
    ("whisper", says(scale_embedding=True), r"scale_embedding is True; known is False"),
    (
        "whisper",
        says(tie_word_embeddings=False),
        r"tie_word_embeddings is False; known",
    ),
    (
        "whisper",
        says(rope_theta=1e4),
        r"rope_theta is 10000.0, which may change what",
    ),
    (
        "whisper",
        says(max_source_positions=8),
        r"positions.weight: \(7, 12\), not \(8, ",
    ),
    (
        "whisper",
        says(decoder_layers=3),
        r"say 3 decoder layers and its arrays are of 2",
    ),
    ("v1_1", short(CONFIG, -9), r"config.json is not JSON"),
    ("v1_1", holds(CONFIG, DEEP), r"config.json is not JSON: maximum recursion"),
    ("v1_1", holds(CONFIG, "[1, 2]"), r"config.json holds list, not an object"),
    ("v1_1", lacks(CONFIG), r"has no sizes: write it with specjax.zoo.save, or .*conf"),
    # Their files.
    ("whisper", stores(another_readout), r"proj_out.weight differs from .*one table"),
    ("v1_1", short(WEIGHTS, -7), NOT_WHOLE),
    ("v1_1", holds(WEIGHTS, "<html>404</html>"), NOT_WHOLE),
    ("v1_1", holds(WEIGHTS, ""), NOT_WHOLE),
    ("v1_1", holds(WEIGHTS, of_no_dtype()), r"a is stored as F8_E8M0: convert it to f"),
    ("v1_1", pickled, r"has pytorch_model.bin.*a pickle.*save_pretrained.* writes mod"),
    ("v1_1", lacks(WEIGHTS), r"has no weights, neither model.saf.* nor .*convert it w"),
    ("v1_1", lacks(WEIGHTS, CONFIG), r"is no checkpoint: .*no config.json.*: no weig"),
    ("shards", lacks("model-00002-*"), r"lacks shards .*: model-00002-of-00019.safet"),
    ("shards", short("model-*", -1), r"is not a whole safetensors file"),
    ("shards", lists("shared.scale"), r"lists arrays that no shard .*: shared.scale$"),
    ("shards", lists("shared.weight", "../a"), r"index.json has no weight_map of name"),
    ("shards", holds(INDEX, '{"metadata": {}}'), r"index.json has no weight_map"),
    ("shards", twice, r"is in two files"),
    # Their arrays.
    ("gpt2", stores(narrower), r"c_attn.weight: \(12, 39\), not \(12, 36\)"),
    ("v1_1", stores(without_readout), r"missing:\n  lm_head.weight$"),
    *[
        ("v1_1", unlike(name, "shared.weight"), f"{name} differs from shared.*one tab")
        for name in EMBEDDED
    ],
    # A bundled model's sizes.
    ("bundled", tells(config="[1]"), r"mine.safetensors: its sizes are list, not an"),
    ("bundled", tells(config="8"), r"its sizes are int.*again with specjax.zoo.save"),
    ("bundled", tells(config="{"), r"its sizes are not JSON"),
    ("bundled", tells(config=DEEP), r"its sizes are not JSON"),
    ("bundled", tells(config={"dim": ...}), r"its sizes lack dim"),
    ("bundled", tells(config={"dims": 8}), r"its sizes hold unknown 'dims'"),
    ("bundled", tells(family="bert"), r"its family is 'bert'; known are gpt, t5, lla"),
    ("bundled", tells(config={"dim": "8"}), rf"dim {SIZE}: '8'"),
    ("bundled", tells(config={"num_heads": 0}), rf"num_heads {SIZE}: 0"),
    ("bundled", tells(config={"num_heads": 3}), r"dim 8 is no multiple of heads 3"),
    ("bundled", tells(config={"num_heads": 8}), r"heads are of even width, not 1"),
    ("bundled", tells(config={"tied": 1}), r"tied must be true or false: 1"),
    ("bundled", tells(config={"positions": -1}), r"positions must be null or a whole"),
    ("bundled", tells(config={"num_layers": 10**6}), r"say 1000000 num layers and its"),
    ("bundled", tells(config={"vocab": 2**31 - 1}), r"embedding: \(13, 8\), not \(214"),
    ("bundled t5", tells(config={"pieces": 13}), r"pieces 13 exceeds vocab 12"),
    ("bundled t5", tells(config={"gate": "relu"}), r"gate is 'relu'; known are gelu,"),
    (
        "bundled llama",
        tells(config={"style": "mamba"}),
        r"'mamba'; known are llama, mi",
    ),
    ("bundled llama", tells(config={"key_heads": 3}), r"no multiple of key_heads 3"),
    ("bundled llama", tells(config={"head_width": 5}), r"of even width, not 5"),
    ("bundled llama", tells(config={"local": [0, 2]}), r"names layer 2, which is not"),
    (
        "bundled llama",
        tells(config={"local": [-1]}),
        r"local must be a list",
    ),
    ("bundled llama", tells(config={"window": None}), r"local layers need a window"),
    ("bundled llama", tells(config={"eps": 0}), r"eps must be a number above 0: 0"),
    ("bundled llama", tells(config={"rotation": [9.0]}), r"rotation are list, not an"),
    (
        "bundled llama",
        tells(config={"rotation": {"base": "9"}}),
        r"base must be a numb",
    ),
    ("bundled", as_integers, r"surplus:\n  more\nof an unusable dtype:\n  embedding"),
    # T5X's files.
    *[("native", short(TREE, kept), CUT) for kept in (0, 1, 40, -1)],
    *[("inline", short(TREE, kept), CUT) for kept in (0, 1, 40, -1)],
    ("native", lacks(A_CHUNK), CHUNKLESS),
    ("orbax_folders", lacks(A_CHUNK), CHUNKLESS),
    ("early_orbax", lacks(A_CHUNK), CHUNKLESS),
    ("native", lacks(f"*{LARGE.replace('/', '.')}"), f"lacks chunk files of {LARGE}"),
    ("orbax_folders", lacks(DESCRIBED), UNDESCRIBED),
    ("orbax_folders", lacks(f"*{LARGE.replace('/', '.')}"), UNDESCRIBED),
    ("early_orbax", lacks(DESCRIBED), UNDESCRIBED),
    ("orbax", short("_METADATA", 50), r"_METADATA is not Orbax's, copy it again"),
    ("orbax", short("state/manifest.ocdbt", 50), r"damaged or was cut short, copy"),
    ("orbax", lacks("manifest.ocdbt"), r"no description"),
    ("orbax", zarr3, r"its arrays are zarr 3"),
    # T5X's trees.
    ("inline", tree(), r"no parameters under target: found optimizer/state"),
    ("inline", tree(w=np.ones(3, np.uint16)), r"w is bfloat16 written as uint16"),
    ("inline", tree(w="elsewhere"), r"w is str, not an array"),
    ("inline", tree(w=SPEC), r"w is no zarr array with a path: .*'kvstore': 7"),
    ("inline", tree(w=SPEC | {"driver": "n5"}), r"w is no zarr array with a path"),
    ("inline", tree(w=np.ones(3)), r"is no T5: no token_embedder/embedding among w"),
    ("inline", shaped(LARGE, 2, 3, 4), r"embedding is \(2, 3, 4\), not a matrix"),
    ("inline", shaped(FIRST), r"query/kernel is \(\), not a matrix"),
    ("inline", shaped(FIRST, 6, 9), r"kernel is \(6, 9\) for 2 heads"),
    *[
        ("inline", shaped("encoder/relpos_bias/rel_embedding", *shape), r", not a matr")
        for shape in ((0, 32), (32,))
    ],
    (
        "inline",
        tree(decoder={"decoder": {"w": np.ones((2, 3))}}),
        r"which axis they are on is not known: decoder/decoder/pre_mlp.* is missing",
    ),
    # Names.
    ("nothing", named("code_10m"), r"no checkpoint at .*form org/name"),
    ("nothing", named("a" * 5000), r"no checkpoint at '.{200,}\.\.\.': it is no path"),
    ("nothing", two_files, r"nor one .*: a.safetensors, b.safetensors"),
    ("bundled", lambda file: file.rename(file.with_suffix(".pt")), r"is a pickle.* na"),
    (
        "nothing",
        lambda folder: (folder / "a.safetensors").mkdir() or folder / "a.safetensors",
        r"is no checkpoint: .*: no weights",
    ),
]


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    read_nothing(monkeypatch)


@pytest.mark.parametrize("name", sorted(WHOLE.keys() - LAYOUTS - {"nothing"}))
def test_a_whole_checkpoint_does_reach_its_weights(tmp_path, name):
    with pytest.raises(AssertionError, match="a parameter was read"):
        checkpoints.load(WHOLE[name](tmp_path))


@pytest.mark.parametrize(("whole", "breaks", "words"), CASES)
def test_it_is_refused(tmp_path, whole, breaks, words):
    path = WHOLE[whole](tmp_path)
    path = breaks(path) or path
    with pytest.raises(ValueError, match=words):
        checkpoints.load(path)


# What takes more than a break to see.


def test_openai_s_format_needs_pytorch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "tiny.pt").write_bytes(b"PK")
    for path in (tmp_path, tmp_path / "tiny.pt"):
        with pytest.raises(ValueError, match=r"tiny.pt is a pickle.*pip install tor"):
            checkpoints.load(path)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("v1_1", dict(dtype="int4"), r"dtype is one of float16.*got 'int4'"),
        ("v1_1", dict(dtype="float7"), r"dtype is one of float16.*got 'float7'"),
        ("v1_1", dict(pieces=38), r"pieces must be in 1\.\.37.*got 38"),
        ("v1_1", dict(pieces=0), r"pieces must be in 1\.\.37.*got 0"),
        ("gpt2", dict(pieces=30), r"a GPT has no padding of its vocabulary"),
        ("whisper", dict(pieces=30), r"a Whisper has no padding of its vocabulary"),
        ("v1_1", dict(sharding={"a": None}), r"shardings are those of another .*: a"),
    ],
)
def test_options_out_of_range(tmp_path, name, options, words):
    with pytest.raises(ValueError, match=words):
        checkpoints.load(written(tmp_path, name), **options)


def test_all_mismatches_are_listed_at_once(tmp_path):
    def change(stored):
        del stored["encoder.final_layer_norm.weight"]
        stored["lora.weight"] = np.ones(3, np.float32)
        stored["shared.weight"] = stored["shared.weight"][:-1]
        name = "decoder.block.2.layer.2.DenseReluDense.wo.weight"
        stored[name] = stored[name].astype(np.int8)
        return stored

    whole = written(tmp_path)
    rewrite(whole, change)
    with pytest.raises(ValueError) as caught:
        checkpoints.load(whole)
    assert str(caught.value).splitlines() == [
        f"{whole} does not hold the model that its sizes describe; missing:",
        "  encoder.final_layer_norm.weight",
        "surplus:",
        "  lora.weight",
        "of another shape:",
        "  shared.weight: (36, 15), not (37, 15)",
        "of an unusable dtype:",
        "  decoder.block.2.layer.2.DenseReluDense.wo.weight: int8, not float16 or"
        " bfloat16 or float32 or float64",
    ]


def test_a_size_that_is_wrong_everywhere_is_a_message_of_some_lines(tmp_path):
    whole = written(tmp_path)
    reconfigure(whole, d_model=16)
    with pytest.raises(ValueError, match=r"\n  and \d+ more$") as caught:
        checkpoints.load(whole)
    assert len(str(caught.value).splitlines()) == archive.SHOWN + 2


def test_nothing_is_read_of_what_does_not_fit():
    def refuse(name, index):
        raise AssertionError("read")

    leaf = jax.ShapeDtypeStruct((2, 3), np.dtype("float32"))
    stored = Archive({"a": leaf, "b": leaf}, refuse, "here")
    with pytest.raises(ValueError, match=r"here .*surplus:\n  b$"):
        archive.fill(stored, {"x": Source("a")}, {"x": leaf}, "float32")
    device = SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(AssertionError):
        sources = {"x": Source("a")}, {"x": leaf}
        archive.fill(stored, *sources, "float32", device, ("b*",))


def test_an_id_without_the_hubs_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install huggingface_hub"):
        checkpoints.load("org/name")


def test_an_id_that_cannot_be_had(monkeypatch):
    def snapshot_download(name, allow_patterns):
        raise FileNotFoundError("no network\nand more")

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    words = r"org/name is no path, is not in the cache .* fetched from it: no network$"
    with pytest.raises(ValueError, match=words):
        checkpoints.load("org/name")


class GatedRepoError(OSError):
    """As the hub's client names it."""


class Answer(OSError):
    """Of the hub, by its status."""

    def __init__(self, status):
        self.response = types.SimpleNamespace(status_code=status)


def behind(error):
    """The client may say that nothing is in the cache, and why as the cause."""
    outer = FileNotFoundError("not in the cache")
    outer.__cause__ = error
    return outer


LICENCE = r"org/name only to who has accepted .*huggingface.co/org/name, .* HF_TOKEN"
ABSENT = r"the hub has no org/name, or .* without a token: .* set HF_TOKEN"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GatedRepoError("401"), LICENCE),
        (behind(GatedRepoError("401")), LICENCE),
        (Answer(403), LICENCE),
        (Answer(401), ABSENT),
        (behind(Answer(404)), ABSENT),
        (Answer(500), "could not be fetched from it"),
    ],
)
def test_an_id_that_the_hub_does_not_give(monkeypatch, error, words):
    def snapshot_download(name, allow_patterns):
        raise error

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ValueError, match=words) as caught:
        checkpoints.load("org/name")
    assert "\n" not in str(caught.value)


def test_a_bucket_that_does_not_answer(monkeypatch):
    """Soon, and not after some dozen retries."""
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(store.PATIENCE, "max_retries", 1)
    words = r"gs://some-bucket/run cannot be read: .*set GOOGLE_APPLICATION_CREDENTIALS"
    with pytest.raises(ValueError, match=words):
        checkpoints.load("gs://some-bucket/run")
