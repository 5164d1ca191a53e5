"""Folders of Hugging Face, hub's ids and bundled names, without transformers.

What is written comes back; every form of a file says the same; each reads no more than
it must. `test_parity_t5.py` and `test_parity_gpt2.py` check the meaning of the names.
"""

import json
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from specjax import checkpoints, zoo
from specjax.checkpoints import archive, huggingface, names_gpt2, names_t5
from specjax.checkpoints.archive import Archive, Part, Source
from specjax.models import gpt, t5

T5 = t5.Config(37, 15, 23, 1, 3, 3, 5)
GPT2 = gpt.Config(31, 12, 19, 2, 3, positions=16, learned=True, tied=True)
CONFIGS = {
    "v1_1": T5,
    "v1_0": T5._replace(gated=False, tied=True, encoder_layers=2, decoder_layers=1),
    "gpt2": GPT2,
    "gpt2_untied": GPT2._replace(tied=False),
}
NEAR_4GB = 4_000_000_000


def params_of(config):
    """Fresh weights; norms and biases are random too."""
    module = t5 if isinstance(config, t5.Config) else gpt
    shapes = module.abstract_params(config)
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(0)
    fresh = [rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in fresh])


def written(folder: Path, name: str = "v1_1", most: int = NEAR_4GB) -> Path:
    config = CONFIGS[name]
    checkpoints.save(folder / name, (config, params_of(config)), most)
    return folder / name


def rewrite(folder: Path, change) -> None:
    """Puts what `change` makes of a folder's arrays in their place."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


def reconfigure(folder: Path, **fields) -> None:
    file = folder / "config.json"
    whole = json.loads(file.read_text()) | fields
    kept = {name: value for name, value in whole.items() if value is not ...}
    file.write_text(json.dumps(kept))


def same(one, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("most", [NEAR_4GB, 3000], ids=["whole", "shards"])
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_written_comes_back(tmp_path, name, most):
    folder, config = written(tmp_path, name, most), CONFIGS[name]
    found = checkpoints.load(folder)
    assert found.config == config and found.name == name
    assert found.family == ("t5" if isinstance(config, t5.Config) else "gpt")
    assert found.files[0] == folder / "config.json"
    assert (len(found.files) > 2) == (most == 3000)
    assert {file.parent for file in found.files} == {folder}
    same(found.params, params_of(config))
    assert not list(tmp_path.glob(".*")), "a temporary folder was left"


def test_the_ends_of_texts_come_back(tmp_path):
    found = checkpoints.load(written(tmp_path))
    assert (found.start, found.end) == (0, 1)
    checkpoints.save(tmp_path / "other", found._replace(start=5, end=7))
    found = checkpoints.load(tmp_path / "other")
    assert (found.start, found.end) == (5, 7)
    gpt2 = written(tmp_path, "gpt2")
    reconfigure(gpt2, bos_token_id=50256, eos_token_id=[30])  # of 31
    found = checkpoints.load(gpt2)
    assert (found.start, found.end) == (None, 30)


def test_a_dtype_is_that_of_weights_and_of_activations(tmp_path):
    found = checkpoints.load(written(tmp_path), "bfloat16")
    assert found.config == T5._replace(dtype="bfloat16")
    half = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), params_of(T5))
    assert {leaf.dtype for leaf in jax.tree.leaves(found.params)} == {
        jnp.dtype("bfloat16")
    }
    same(found.params, half)
    checkpoints.save(tmp_path / "half", found)  # half the bytes, as they are
    size = (tmp_path / "half" / "model.safetensors").stat().st_size
    assert size < 0.6 * (tmp_path / "v1_1" / "model.safetensors").stat().st_size
    same(checkpoints.load(tmp_path / "half").params, half)


# What config.json says.


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        (dict(num_decoder_layers=None), dict(decoder_layers=1)),
        (dict(num_decoder_layers=...), dict(decoder_layers=1)),
        (dict(feed_forward_proj=..., tie_word_embeddings=...), dict(gated=False)),
        (dict(is_gated_act=True, dense_act_fn="gelu_new"), {}),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), dict(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=True), {}),
        (dict(tie_word_embeddings=...), {}),
    ],
)
def test_fields_that_are_missing_or_new(tmp_path, fields, change):
    folder = written(tmp_path)
    reconfigure(folder, **fields)
    read = names_t5.read_config(
        json.loads((folder / "config.json").read_text()), "float32"
    )
    tied = "scale_decoder_outputs" not in fields and "tie_word_embeddings" in fields
    tied = fields.get("scale_decoder_outputs", tied)
    assert read == T5._replace(tied=tied)._replace(**change)


@pytest.mark.parametrize(
    ("vocab", "pieces", "found"),
    [
        (32128, None, 32100),
        (32128, 32128, None),
        (32128, 32000, 32000),
        (37, None, None),
        (37, 30, 30),
        (250112, None, None),
    ],
)
def test_published_vocabularies_end_before_their_padding(vocab, pieces, found):
    config = T5._replace(vocab=vocab)
    assert names_t5.with_pieces(config, pieces).pieces == found


# Forms of the same weights.


def only_copy_is(name: str):
    def change(arrays):
        arrays[name] = arrays.pop("shared.weight")
        return arrays

    return change


def with_copies(arrays):
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    return arrays | dict.fromkeys(names, arrays["shared.weight"])


def with_an_old_bias(arrays):
    return arrays | {names_t5.UNREAD[0]: np.zeros((32, 3), np.float32)}


def in_half(arrays):
    return {name: leaf.astype(np.float16) for name, leaf in arrays.items()}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v1_0", only_copy_is("lm_head.weight")),
        ("v1_0", only_copy_is("decoder.embed_tokens.weight")),
        ("v1_1", only_copy_is("encoder.embed_tokens.weight")),
        ("v1_1", with_copies),
        ("v1_1", with_an_old_bias),
        ("v1_1", in_half),
    ],
)
def test_copies_and_relics_are_known(tmp_path, name, change):
    folder = written(tmp_path, name)
    rewrite(folder, change)
    found = checkpoints.load(folder).params
    exact = 0 if change is not in_half else 1e-2
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=exact),
        found,
        params_of(CONFIGS[name]),
    )


def test_v1_1_without_a_readout_of_its_own_reads_out_by_its_embedding(tmp_path):
    folder = written(tmp_path)
    rewrite(folder, lambda arrays: {n: a for n, a in arrays.items() if "lm_" not in n})
    reconfigure(folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    found = checkpoints.load(folder)
    assert found.config == T5
    table = found.params["token_embedder"]["embedding"]
    same(found.params["decoder"]["logits_dense"]["kernel"], table.T)


def test_gpt2_without_prefix_and_with_masks(tmp_path):
    folder = written(tmp_path, "gpt2")

    def published(arrays):
        bare = {name.removeprefix("transformer."): a for name, a in arrays.items()}
        masks = {f"h.{i}.attn.bias": np.ones((1, 1, 16, 16), bool) for i in (0, 1)}
        return bare | masks | {"lm_head.weight": bare["wte.weight"]}

    rewrite(folder, published)
    same(checkpoints.load(folder).params, params_of(GPT2))


@pytest.mark.parametrize("name", ["v1_1", "v1_0"])
def test_sizes_are_inferred_from_the_names_of_t5x(name):
    config = CONFIGS[name]
    arrays = flatten_dict(t5.abstract_params(config), sep="/")
    assert names_t5.infer(arrays, "float32", "here") == config
    with pytest.raises(ValueError, match=r"here is no T5: no token_embedder/embedding"):
        names_t5.infer(flatten_dict(gpt.abstract_params(GPT2), sep="/"), "f", "here")


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_has_one_source(name):
    """No stored number is read twice, and none is left out."""
    config = CONFIGS[name]
    module, table = (t5, names_t5) if name.startswith("v") else (gpt, names_gpt2)
    fields = table.write_config(config, None, None)
    sources = table.names(config, fields).sources
    assert (
        sources.keys() == flatten_dict(module.abstract_params(config), sep="/").keys()
    )
    places = [(source.name, source.part) for source in sources.values()]
    assert len(set(places)) == len(places)


# Reading.


def held(arrays: dict[str, np.ndarray], read=None) -> Archive:
    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    return Archive(shapes, read or (lambda name, index: arrays[name][index]), "here")


def test_any_part_of_a_parameter_is_that_part_of_the_whole():
    stored = np.arange(7 * 12, dtype=np.float32).reshape(7, 12)
    middle = stored[:, 4:8]
    for source, whole in (
        (Source("a"), stored),
        (Source("a", transpose=True), stored.T),
        (Source("a", part=Part(1, 1, 3)), middle),
        (Source("a", True, Part(1, 1, 3)), middle.T),
    ):
        shape = whole.shape
        assert archive.stored_shape(source, shape) == (7, 12)
        read = archive.reader(held({"a": stored}), source, shape, np.dtype("float32"))
        for index in (
            (slice(None), slice(None)),
            (slice(1, 3), slice(None, 2)),
            (slice(2, None), slice(0, 4, None)),
        ):
            np.testing.assert_array_equal(read(index), whole[index])


def test_one_array_is_in_memory_at_a_time():
    alive, most = set(), []

    def read(name, index):
        most.append(len(alive))
        alive.add(name)
        array = np.ones((50, 50), np.float32)
        weakref.finalize(array, alive.remove, name)
        return array

    arrays = {f"p{i}": np.ones((50, 50), np.float32) for i in range(6)}
    shapes = held(arrays).arrays
    sources = {name: Source(name) for name in arrays}
    archive.fill(held(arrays, read), sources, shapes, "bfloat16")
    assert most == [0] * 6 and not alive


SHARDED = """
import sys, jax, numpy as np
from pathlib import Path
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from specjax import checkpoints
from specjax.checkpoints import archive
from tests import test_checkpoints_huggingface as the

reads, fill = [], archive.of_safetensors
def noted(files, where):
    found = fill(files, where)
    def read(name, index):
        reads.append((name, found.read(name, index).size))
        return found.read(name, index)
    return found._replace(read=read)
archive.of_safetensors = noted

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
config = the.CONFIGS["gpt2"]
def place(leaf):
    sharded = leaf.ndim == 2 and leaf.shape[1] == 12
    return NamedSharding(mesh, P(None, "model") if sharded else P())
params = the.params_of(config)
shardings = jax.tree.map(place, params)
found = checkpoints.load(sys.argv[1], sharding=shardings)
the.same(found.params, params)
query = found.params["layers_0"]["attention"]["query"]["kernel"]
assert query.addressable_shards[0].data.shape == (12, 6), query.sharding
sizes = [size for name, size in reads if name.endswith("h.0.attn.c_attn.weight")]
assert sizes == [72] * 6, sizes  # three parts, two halves of each, each read once
everywhere = NamedSharding(mesh, P())
whole = checkpoints.load(sys.argv[1], sharding=everywhere)
the.same(whole.params, params)
assert whole.params["embedding"].sharding == everywhere
print("same")
"""


def run(code: str, *arguments, **environment) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_devices_read_their_own_shards_once(tmp_path):
    folder = written(tmp_path, "gpt2")
    flags = "--xla_force_host_platform_device_count=4"
    assert run(SHARDED, folder, XLA_FLAGS=flags) == "same\n"


# Names of other kinds.


def test_bundled_models_and_files_of_the_zoo(tmp_path):
    found, wanted = checkpoints.load("code_05m"), zoo.load("code_05m")
    assert (found.name, found.family) == ("code_05m", "gpt")
    assert (found.start, found.end) == (zoo.START, zoo.END)
    assert found.config == wanted.config
    same(found.params, wanted.params)
    for config in (T5, gpt.Config(13, 8, 16, 1, 2)):
        file = tmp_path / config.__class__.__module__ / "mine.safetensors"
        file.parent.mkdir()
        zoo.save(file, config, params_of(config))
        half = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), params_of(config))
        for path in (file, str(file), file.parent):
            found = checkpoints.load(path)
            assert found.config == config and found.files == (file,)
            same(found.params, half)


@pytest.mark.parametrize("name", ["v1_1", "v1_0"])
def test_checkpoints_of_t5x(tmp_path, name):
    """A step's folder, or the last of a run; sizes come from the arrays."""
    params, run = params_of(CONFIGS[name]), tmp_path / "a.run"
    checkpoints.t5x.save(run, 1, jax.tree.map(jnp.zeros_like, params))
    step = checkpoints.t5x.save(run, 20, params)
    for path in (step, run, str(run)):
        found = checkpoints.load(path)
        assert found.family == "t5" and (found.start, found.end) == (0, 1)
        assert found.name == Path(path).name and found.files == (Path(path),)
        assert found.config == CONFIGS[name]
        same(found.params, params)
    found = checkpoints.load(run, "bfloat16", pieces=30)
    assert found.config == CONFIGS[name]._replace(pieces=30, dtype="bfloat16")
    checkpoints.save(tmp_path / "as_huggingface", found)
    same(checkpoints.load(tmp_path / "as_huggingface", "bfloat16").params, found.params)


def test_a_hubs_name_fetches_weights_and_no_pickle(tmp_path, monkeypatch):
    folder, asked = written(tmp_path), {}

    def snapshot_download(name, allow_patterns):
        asked.update(name=name, patterns=allow_patterns)
        return str(folder)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    found = checkpoints.load("org/some-model.v1")
    assert found.name == asked["name"] == "org/some-model.v1"
    same(found.params, params_of(T5))
    endings = {pattern.rsplit(".", 1)[1] for pattern in asked["patterns"]}
    assert endings == {"json", "safetensors", "model"}
    assert asked["patterns"] == list(huggingface.FETCHED)


CACHED = """
import sys
from specjax import checkpoints
assert checkpoints.load("org/name").config.vocab == 37
try:
    checkpoints.load("org/other")
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_a_network_the_cache_is_used(tmp_path):
    """Laid out as huggingface_hub lays it out."""
    pytest.importorskip("huggingface_hub")
    commit, model = "0" * 40, tmp_path / "hub" / "models--org--name"
    written(model / "snapshots")
    (model / "snapshots" / "v1_1").rename(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    said = run(CACHED, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert said.startswith("org/other is no path, is not in the cache")


def test_boxed_parameters_are_not_written(tmp_path):
    params = params_of(GPT2)

    def box(leaf):
        return nn.LogicallyPartitioned(leaf, ("axis",) * leaf.ndim)

    boxed = jax.tree.map(box, params)
    with pytest.raises(ValueError, match=r"unbox"):
        checkpoints.save(tmp_path / "boxed", (GPT2, boxed))
    checkpoints.save(tmp_path / "boxed", (GPT2, nn.meta.unbox(boxed)))
    same(checkpoints.load(tmp_path / "boxed").params, params)
