"""Damaged or unknown checkpoints are refused in one line, by every reader.

Each is refused in words that name the fix, before a parameter is made.
"""

import json
import shutil
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from specjax import checkpoints, zoo
from specjax.checkpoints import archive
from specjax.checkpoints.t5x import store
from specjax.models import gpt
from tests.support import checkpoint_folders as folders
from tests.support import t5x_files, tiny_llama
from tests.support.checkpoint_folders import reconfigure, rewrite, write_folder
from tests.support.t5x_files import LARGE, arrays, write_tree

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTED = "adapter_model.safetensors"
STEP, TREE = "checkpoint_7", "checkpoint"
CODE = gpt.Config(13, 8, 16, 1, 2)
Break = Callable[[Path], Path | None]  # what it returns is to be read instead


def save_bundled(folder: Path, config=CODE) -> Path:
    zoo.save(folder / "mine.safetensors", config, folders.random_params(config))
    return folder / "mine.safetensors"


WHOLE: dict[str, Callable[[Path], Path]] = {
    **{
        name: lambda folder, n=name: write_folder(folder, n) for name in folders.CONFIGS
    },
    "shards": lambda folder: write_folder(folder, most=3000),
    "bundled": save_bundled,
    "bundled t5": lambda folder: save_bundled(folder, t5x_files.CONFIG),
    "bundled llama": lambda folder: save_bundled(folder, tiny_llama.GEMMA3),
    "nothing": lambda folder: folder,
    **{
        layout.__name__: lambda folder, layout=layout: layout(folder / STEP, arrays())
        for layout in t5x_files.LAYOUTS
    },
}
LAYOUTS = {layout.__name__ for layout in t5x_files.LAYOUTS}


# Ways to break one.


def write_content(file: str, content: bytes | str) -> Break:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data) and None


def short(pattern: str, end: int) -> Break:
    """Returns a break that cuts off the end of the last file with such a name."""

    def cut_file(folder: Path) -> None:
        file = sorted(folder.rglob(pattern))[-1]
        file.write_bytes(file.read_bytes()[:end])

    return cut_file


def remove_files(*patterns: str) -> Break:
    def remove(folder: Path) -> None:
        for path in [path for name in patterns for path in folder.rglob(name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def write_adapter(name: str, *more: str) -> Break:
    """Returns a break that writes what peft writes; `name` is read, or the folder where
    it is empty."""

    def write(folder: Path) -> Path:
        save_file({"q.lora_A": np.zeros((2, 4), np.float32)}, folder / ADAPTED)
        for file in ("adapter_config.json", *more):
            fields = {"base_model_name_or_path": "org/base", "model_type": "llama"}
            (folder / file).write_text(json.dumps(fields))
        return folder / name

    return write


def lists_another(folder: Path) -> None:
    """Adds an array to the index that no shard has."""
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["shared.scale"] = "model-00001-of-00019.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def change_metadata(**metadata) -> Break:
    """Returns a break that changes the metadata of a bundled file; a dict changes
    sizes, and `...` removes a key."""

    def write(file: Path) -> None:
        with safe_open(file, "np") as opened:
            had = opened.metadata()
        for name, value in metadata.items():
            if isinstance(value, dict):
                sizes = json.loads(had[name]) | value
                value = json.dumps({n: v for n, v in sizes.items() if v is not ...})
            had[name] = value
        save_file(load_file(file), file, had)

    return write


def tree(**target) -> Break:
    """Returns a break that puts these parameters into a T5X checkpoint in one file."""
    return lambda folder: write_tree(folder / TREE, target)


def write_shape(name: str, *shape: int) -> Break:
    flat = arrays() | {name: np.zeros(shape, np.float32)}
    return lambda folder: write_tree(folder / TREE, t5x_files.nest(flat))


def store_unlike(name: str, of: str) -> Break:
    def store(stored):
        return stored | {name: folders.nudge(stored[of])}

    return lambda folder: rewrite(folder, store)


def zarr3(folder: Path) -> None:
    reconfigure(folder / "state", "_METADATA", use_zarr3=True)


def save_array_twice(folder: Path) -> None:
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    save_file(load_file(first) | load_file(second), second)


def save_integers(file: Path) -> None:
    stored = {name: array.astype(np.int8) for name, array in load_file(file).items()}
    save_file(stored | {"more": np.zeros(2)}, file, safe_open(file, "np").metadata())


def unknown_dtype_file() -> bytes:
    """Returns a file with one array in a float format that numpy does not have."""
    header = {"a": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0\0"


def rename_to_pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def two_files(folder: Path) -> None:
    for name in ("a", "b"):
        save_file({"x": np.ones(1)}, folder / f"{name}.safetensors")


# What is broken.

CONFIG, FIRST = "config.json", "encoder/layers_0/attention/query/kernel"
DEEP = "[" * 100_000
SPEC = {"driver": "zarr", "kvstore": 7, "metadata": {}}
A_CHUNK = f"*{LARGE.replace('/', '.')}/0.0"
CHUNKLESS = f"lacks chunk files of {LARGE}: it was cut"
DESCRIBED = f"*{LARGE.replace('/', '.')}/.zarray"
UNDESCRIBED = rf"no description \(.zarray\) of {LARGE}"
NOT_WHOLE = r"model.safetensors is not a whole safetensors file .*: copy or download"
SIZE = r"must be a whole number, 1 to 2147483647"
STACKED = {"decoder": {"w": np.ones((2, 3))}}
EMBEDDED = "decoder.embed_tokens.weight"
CUT = r"is not a whole checkpoint file, copy it again"
GPTQ = {"quant_method": "gptq"}
CONFIGS = {  # of which folder: fields of its config.json, and what is said of them
    "v1_1": [
        (dict(model_type="bart"), r"model_type is 'bart'; known are gpt2, t5, mt5"),
        (dict(model_type=...), r"model_type is None"),
        (dict(d_kv=...), rf"v1_1: config.json: d_kv {SIZE}: None"),
        (dict(num_heads=True), rf"num_heads {SIZE}: True"),
        (dict(vocab_size=10**30), rf"vocab_size {SIZE}: 10+"),
        (dict(num_decoder_layers=10**9), r"1000000000 decoder layers .* of 3: t"),
        (dict(feed_forward_proj="gated-relu"), r"_proj is 'gated-relu'; known"),
        (dict(dense_act_fn="gelu"), r"dense_act_fn is 'gelu'; known is 'gelu_new'"),
        (dict(relative_attention_num_buckets=64), r"buckets is 64; known is 32"),
        (dict(layer_norm_epsilon=1e-5), r"epsilon is 1e-05; known is 1e-06"),
        (dict(hidden_size=3), r"hidden_size is 3 and d_model 15, which are one"),
        (dict(quantization_config=GPTQ), r"are quantised \('gptq'\): name the"),
        (dict(tie_encoder_decoder=True), r"tie_encoder_decoder is True"),
        (dict(tie_word_embeddings="no"), r"tie_word_embeddings is 'no'"),
        (dict(eos_token_id=[1, -2]), r"eos_token_id must be ids .*: \[1, -2\]"),
        (dict(eos_token_id=37), r"eos_token_id must be an id below vocab_size, 37"),
        (dict(pad_token_id=-1), r"pad_token_id must be one id of 0 or more: -1"),
    ],
    "gpt2": [
        (dict(n_head=5), r"n_embd 12 is not a multiple of n_head 5"),
        (dict(activation_function="gelu"), r"is 'gelu'; known is 'gelu_new' or"),
        (dict(scale_attn_by_inverse_layer_idx=True), r"inverse_layer_idx is True"),
        (dict(add_cross_attention=True), r"add_cross_attention is True"),
        (dict(quantization_config=GPTQ), r"are quantised \('gptq'\): name the"),
    ],
    "whisper": [
        (dict(d_model=11), r"d_model 11 is not a multiple of 2 and of the 3 heads"),
        (dict(encoder_ffn_dim=20), r"ffn_dim is 20 and decoder_ffn_dim "),
        (dict(scale_embedding=True), r"scale_embedding is True; known is False"),
        (dict(rope_theta=1e4), r"rope_theta is 10000.0, which may change what"),
        (dict(max_source_positions=8), r"s.weight: \(7, 12\), not \(8, "),
        (dict(decoder_layers=3), r"say 3 decoder layers and its arrays are of 2"),
        (dict(quantization_config=GPTQ), r"are quantised \('gptq'\): name the"),
    ],
}
CASES: list[tuple[str, Break, str]] = [
    # Files of config.json.
    ("v1_1", short(CONFIG, -9), r"config.json is not JSON"),
    (
        "v1_1",
        write_content(CONFIG, DEEP),
        r"config.json is not JSON: maximum recursion",
    ),
    ("v1_1", write_content(CONFIG, "[1, 2]"), r"config.json holds list, not an object"),
    (
        "v1_1",
        remove_files(CONFIG),
        r"has no sizes: write it with specjax.zoo.save, or .*conf",
    ),
    # Their files.
    (
        "whisper",
        store_unlike("proj_out.weight", f"model.{EMBEDDED}"),
        r"proj_.*one table",
    ),
    ("v1_1", short(WEIGHTS, -7), NOT_WHOLE),
    (
        "v1_1",
        write_content(WEIGHTS, unknown_dtype_file()),
        r"a is stored as F8_E8M0: c",
    ),
    (
        "v1_1",
        rename_to_pickle,
        r"has pytorch_model.bin.*a pickle.*save_pretrained.* wr",
    ),
    (
        "v1_1",
        remove_files(WEIGHTS),
        r"has no weights, neither model.saf.* nor .*convert it w",
    ),
    (
        "v1_1",
        remove_files(WEIGHTS, CONFIG),
        r"is not a checkpoint: .*no config.json.*: no we",
    ),
    (
        "shards",
        remove_files("model-00002-*"),
        r"lacks shards .*: model-00002-of-00019.safet",
    ),
    ("shards", short("model-*", -7), r"00019-of-00019.saf.* is not a whole .*: copy"),
    ("shards", lists_another, r"lists arrays that no shard .*: shared.scale$"),
    (
        "shards",
        write_content(INDEX, '{"metadata": {}}'),
        r"index.json has no weight_map",
    ),
    ("shards", save_array_twice, r"is in two files"),
    # Their arrays.
    ("v1_1", store_unlike(EMBEDDED, "shared.weight"), f"{EMBEDDED} differs from sha"),
    # A bundled model's sizes.
    (
        "bundled",
        change_metadata(config="[1]"),
        r"mine.safetensors: its sizes are list, not an",
    ),
    ("bundled", change_metadata(config=DEEP), r"its sizes are not JSON"),
    ("bundled", change_metadata(config={"dim": ...}), r"its sizes lack dim"),
    ("bundled", change_metadata(config={"dims": 8}), r"its sizes hold unknown 'dims'"),
    (
        "bundled",
        change_metadata(family="bert"),
        r"its family is 'bert'; known are gpt, t5, lla",
    ),
    ("bundled", change_metadata(config={"num_heads": 0}), rf"num_heads {SIZE}: 0"),
    (
        "bundled",
        change_metadata(config={"num_heads": 3}),
        r"dim 8 is not a multiple of heads 3",
    ),
    (
        "bundled",
        change_metadata(config={"num_heads": 8}),
        r"heads are of even width, not 1",
    ),
    ("bundled", change_metadata(config={"tied": 1}), r"tied must be true or false: 1"),
    (
        "bundled",
        change_metadata(config={"positions": -1}),
        r"positions must be null or a whole",
    ),
    (
        "bundled t5",
        change_metadata(config={"pieces": 13}),
        r"pieces 13 exceeds vocab 12",
    ),
    (
        "bundled t5",
        change_metadata(config={"gate": "relu"}),
        r"gate is 'relu'; known are gelu,",
    ),
    (
        "bundled llama",
        change_metadata(config={"style": "mamba"}),
        r"'mamba'; known are llama",
    ),
    (
        "bundled llama",
        change_metadata(config={"key_heads": 3}),
        r"not a multiple of key_heads 3",
    ),
    ("bundled llama", change_metadata(config={"local": [-1]}), r"local must be a list"),
    (
        "bundled llama",
        change_metadata(config={"window": None}),
        r"local layers need a window",
    ),
    (
        "bundled llama",
        change_metadata(config={"rotation": {"base": "9"}}),
        r"base must be a n",
    ),
    ("bundled", save_integers, r"lus:\n  more\nof an unusable dtype:\n  embed"),
    # T5X's files.
    *[("native", short(TREE, kept), CUT) for kept in (0, -1)],
    *[("inline", short(TREE, kept), CUT) for kept in (1, 40)],
    ("native", remove_files(A_CHUNK), CHUNKLESS),
    ("orbax_folders", remove_files(A_CHUNK), CHUNKLESS),
    ("orbax_folders", remove_files(DESCRIBED), UNDESCRIBED),
    ("orbax", short("_METADATA", 50), r"_METADATA is not Orbax's, copy it again"),
    ("orbax", short("state/manifest.ocdbt", 50), r"damaged or was cut short, copy"),
    ("orbax", remove_files("manifest.ocdbt"), r"no description"),
    ("orbax", zarr3, r"its arrays are zarr 3"),
    # T5X's trees.
    ("inline", tree(), r"no parameters under target: found optimizer/state"),
    ("inline", tree(w=np.ones(3, np.uint16)), r"w is bfloat16 written as uint16"),
    ("inline", tree(w=SPEC), r"w is not a zarr array with a path: .*'kvstore': 7"),
    ("inline", tree(w=np.ones(3)), r"is not a T5: no token_embedder/embedding among w"),
    ("inline", write_shape(LARGE, 2, 3, 4), r"embedding is \(2, 3, 4\), not a matrix"),
    ("inline", write_shape(FIRST, 6, 9), r"kernel is \(6, 9\) for 2 heads"),
    (
        "inline",
        write_shape("encoder/relpos_bias/rel_embedding", 0, 32),
        r", not a matr",
    ),
    ("inline", tree(decoder=STACKED), r"axis .* not known: decoder/d.* is missing"),
    # Names.
    ("nothing", lambda folder: folder / "code_10m", r"no checkpoint .*form org/name"),
    ("nothing", lambda folder: folder / ("a" * 5000), r"at '.{200,}\.\.\.': it is no"),
    ("nothing", lambda folder: "/", r"^/ is not a checkpoint: not a folder of"),
    ("nothing", lambda folder: "/dev", r"^/dev is not a checkpoint: not a folder of"),
    *(
        (
            "nothing",
            write_adapter(*files),
            r"holds an adapter for 'org/base' and no model: m",
        )
        for files in (("",), ("", "config.json"), (ADAPTED,))
    ),
    ("nothing", two_files, r"nor one .*: a.safetensors, b.safetensors"),
    ("bundled", lambda file: file.rename(file.with_suffix(".pt")), r"is a pickle.* na"),
]


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    folders.read_nothing(monkeypatch)


@pytest.mark.parametrize("name", sorted(WHOLE.keys() - LAYOUTS - {"nothing"}))
def test_a_whole_checkpoint_does_reach_its_weights(tmp_path, name):
    with pytest.raises(AssertionError, match="a parameter was read"):
        checkpoints.load(WHOLE[name](tmp_path))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_refused(tmp_path, name):
    folder = write_folder(tmp_path, name)
    whole = (folder / CONFIG).read_text()
    for fields, words in CONFIGS[name]:
        reconfigure(folder, **fields)
        with pytest.raises(ValueError, match=words):
            checkpoints.load(folder)
        (folder / CONFIG).write_text(whole)


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


def test_options_out_of_range(tmp_path):
    whole = {name: write_folder(tmp_path, name) for name in ("v1_1", "gpt2")}
    for name, options, words in (
        ("v1_1", dict(dtype="int4"), r"dtype is one of float16.*got 'int4'"),
        ("v1_1", dict(pieces=38), r"pieces must be in 1\.\.37.*got 38"),
        ("v1_1", dict(pieces=0), r"pieces must be in 1\.\.37.*got 0"),
        ("gpt2", dict(pieces=30), r"a GPT has no padding of its vocabulary"),
        ("v1_1", dict(sharding={"a": None}), r"shardings are those of another .*: a"),
    ):
        with pytest.raises(ValueError, match=words):
            checkpoints.load(whole[name], **options)


def test_all_mismatches_are_listed_at_once(tmp_path):
    def change(stored):
        del stored["encoder.final_layer_norm.weight"]
        stored["lora.weight"] = np.ones(3, np.float32)
        stored["shared.weight"] = stored["shared.weight"][:-1]
        name = "decoder.block.2.layer.2.DenseReluDense.wo.weight"
        stored[name] = stored[name].astype(np.int8)
        return stored

    whole = write_folder(tmp_path)
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

    # A size that is wrong everywhere is a message of some lines.
    whole = write_folder(tmp_path / "other")
    reconfigure(whole, d_model=16)
    with pytest.raises(ValueError, match=r"\n  and \d+ more$") as caught:
        checkpoints.load(whole)
    assert len(str(caught.value).splitlines()) == archive.SHOWN + 2


class GatedRepoError(OSError):
    """The error, with the name that the hub's client gives it."""


class Answer(OSError):
    """An answer of the hub with a status."""

    def __init__(self, status):
        self.response = types.SimpleNamespace(status_code=status)


def error_after(error):
    """Returns an error of the client, which says that nothing is in the cache and has
    the reason as its cause."""
    outer = FileNotFoundError("not in the cache")
    outer.__cause__ = error
    return outer


LICENCE = r"org/name only to who has accepted .*huggingface.co/org/name, .* HF_TOKEN"
ABSENT = r"the hub has no org/name, or .* without a token: .* set HF_TOKEN"
OFFLINE = r"org/name is not a path, is not in the cache .* fetched from it: no network$"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, r"pip install 'specjax\[hf\]'$"),
        (FileNotFoundError("no network\nand more"), OFFLINE),
        (GatedRepoError("401"), LICENCE),
        (error_after(GatedRepoError("401")), LICENCE),
        (Answer(403), LICENCE),
        (Answer(401), ABSENT),
        (error_after(Answer(404)), ABSENT),
        (Answer(500), "could not be fetched from it"),
    ],
)
def test_an_id_that_the_hub_does_not_give(monkeypatch, error, words):
    def snapshot_download(name, allow_patterns):
        raise error

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub if error else None)
    with pytest.raises(ValueError, match=words) as caught:
        checkpoints.load("org/name")
    assert "\n" not in str(caught.value)


def test_a_bucket_that_does_not_answer(monkeypatch):
    """The error must come soon, and not after dozens of retries."""
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(store.PATIENCE, "max_retries", 1)
    words = r"gs://some-bucket/run cannot be read: .*set GOOGLE_APPLICATION_CREDENTIALS"
    with pytest.raises(ValueError, match=words):
        checkpoints.load("gs://some-bucket/run")
