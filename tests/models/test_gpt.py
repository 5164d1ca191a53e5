"""The models' contract: slots are read as far as a token's own, in any portions.

Axes: B rows, T tokens, V vocabulary.
"""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import attention, gpt, gpu
from specjax.models.cache import KeyValues, write_rows
from specjax.models.gpu import _write_at_once, _write_by_row
from specjax.types import Prompt
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME

B, T, SLOTS = 3, 10, 16
WORLD = tiny.transformers()
MODEL, WEIGHTS = WORLD.target, WORLD.target_weights
TOKENS = jax.random.randint(jax.random.key(0), (B, T), 0, MODEL.vocab)
ZERO = jnp.zeros(B, jnp.int32)


@jax.jit
def call(tokens, start, cache):
    """Logits [B, T, V] of one call, and the cache after it."""
    features, cache = MODEL.apply(WEIGHTS, tokens, start, cache)
    return MODEL.readout(WEIGHTS, features), cache


def fresh(rows: int = B):
    return MODEL.init(WEIGHTS, Prompt(TOKENS[:rows], ZERO[:rows] + T), SLOTS)


@pytest.mark.parametrize(
    ("config", "count"), [(gpt.PAPER_97M, 97_222_656), (gpt.PAPER_6M, 5_668_864)]
)
def test_the_papers_pair_has_the_papers_sizes(config, count):
    """97M and 6M (Section 4.2): 2 V E + layers (4 E^2 + 2 E F)."""
    layer = 4 * config.dim**2 + 2 * config.dim * config.mlp_dim
    assert count == 2 * config.vocab * config.dim + config.num_layers * layer
    assert gpt.num_params(config) == count


def test_each_logit_depends_on_all_tokens_up_to_it_and_on_none_after():
    def squares(embedding):
        """Of the logits of the text 0 1 2 ..., whose tokens are all different."""
        params = WEIGHTS | {"embedding": embedding}
        features, _ = MODEL.apply(params, jnp.arange(T)[None], ZERO[:1], None)
        return jnp.sum(MODEL.readout(params, features)[0] ** 2, axis=-1)

    jacobian = jax.jit(jax.jacrev(squares))(WEIGHTS["embedding"])
    influence = np.abs(jacobian).max(-1)[:, :T]  # of token t on logits s: [s, t]
    np.testing.assert_array_equal(influence > 0, np.tri(T, dtype=bool))


def test_training_sees_what_decoding_sees():
    alone, cached = call(TOKENS, ZERO, None)[0], call(TOKENS, ZERO, fresh())[0]
    assert alone.dtype == jnp.float32
    np.testing.assert_allclose(alone, cached, atol=1e-4)


def test_one_call_of_many_tokens_is_many_calls_of_one():
    """Rows begin at different slots, as they do once they have accepted differently."""
    begun, start = jnp.array([1, 4, 2]), 4
    first, whole = call(TOKENS, ZERO, fresh())
    # Row b's next token goes to slot begun[b]; what lies beyond it is stale already.
    index = begun[:, None] + jnp.arange(start)[None]
    block = jnp.take_along_axis(TOKENS, index, axis=1)
    together, at_once = call(block, begun, whole)
    cache, each = whole, []
    for i in range(start):
        logits, cache = call(block[:, i : i + 1], begun + i, cache)
        each.append(logits)
    np.testing.assert_allclose(jnp.concatenate(each, axis=1), together, atol=1e-4)
    wanted = jnp.take_along_axis(first, index[:, :, None], axis=1)
    np.testing.assert_allclose(together, wanted, atol=1e-4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), cache, at_once
    )


def test_a_call_writes_its_own_slots_and_no_others():
    before = call(TOKENS, ZERO, fresh())[1]
    start = jnp.array([1, 6, 3])
    after = call((TOKENS + 1)[:, :2] % MODEL.vocab, start, before)[1]
    slot = np.arange(SLOTS)
    written = (slot >= start[:, None]) & (slot < start[:, None] + 2)
    for old, new in zip(before, after, strict=True):
        for name, rest in (("keys", (1, 2)), ("values", (1, 3))):
            same = np.asarray(getattr(old, name)) == np.asarray(getattr(new, name))
            np.testing.assert_array_equal(~same.all(axis=rest), written)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tokens", [1, 2])
def test_both_ways_of_writing_write_the_same(tokens, rows):
    before = call(TOKENS[:rows], ZERO[:rows], fresh(rows))[1][0]
    new = before.keys[..., :tokens] + 1, before.values[:, :, :tokens] - 1
    start = jnp.array([6, 1, 3])[:rows]
    at_once, by_row = (
        jax.jit(write)(before, KeyValues(*new), start)
        for write in (_write_at_once, _write_by_row)
    )
    jax.tree.map(np.testing.assert_array_equal, at_once, by_row)
    for cache in at_once:  # what is kept, and what attention reads
        assert (np.asarray(cache.keys)[0, ..., 6 : 6 + tokens] == new[0][0]).all()
        assert not (np.asarray(cache.keys) == np.asarray(before.keys)).all()


def test_what_compilers_ask_for_changes_no_number(monkeypatch):
    """The model as the other modules say it: `models.gpu` left out."""

    def write(cache, new, start):
        return (write_rows(cache, new, start),) * 2

    shipped = call(TOKENS, ZERO, fresh())[1]
    wanted = call(TOKENS[:, :1], ZERO + T, shipped)
    monkeypatch.setattr(gpu, "model", lambda model: model)
    monkeypatch.setattr(gpu, "in_memory", lambda x, cache: x)
    monkeypatch.setattr(gpu, "write", write)
    monkeypatch.setattr(attention, "attend", attention.attend.__wrapped__)
    plain = gpt.build(tiny.TARGET)
    _, cache = plain.apply(WEIGHTS, TOKENS, ZERO, fresh())
    features, cache = plain.apply(WEIGHTS, TOKENS[:, :1], ZERO + T, cache)
    got = plain.readout(WEIGHTS, features), cache
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(close, got, wanted)


def test_two_equal_rows_compute_what_one_does(monkeypatch):
    """What a GPU computes of one token of one row; `models.gpu` chooses by device."""
    cache = call(TOKENS[:1], ZERO[:1], fresh(1))[1]
    start = jnp.array([T])
    one = call(TOKENS[:1, :1], start, cache)
    taken = []

    def as_on_a_gpu(*arguments, default, cpu=None, cuda=None):
        taken.append(cuda)
        return (cuda or default)(*arguments)

    monkeypatch.setattr(jax.lax, "platform_dependent", as_on_a_gpu)
    model = gpt.build(tiny.TARGET)
    features, after = model.apply(WEIGHTS, TOKENS[:1, :1], start, cache)
    two = model.readout(WEIGHTS, features), after
    assert len(taken) - taken.count(None) == 2  # and a write of each layer
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(close, one, two)


@pytest.mark.parametrize("write", [_write_at_once, _write_by_row])
def test_decoding_on_a_cpu_does_not_copy_its_cache(write, monkeypatch):
    """One token of one row, in a loop: but for those on entry, no copy of a cache."""
    monkeypatch.setattr(gpu, "_write_by_row", write)

    @jax.jit
    def decode(params, cache, tokens):
        def body(i, carry):
            features, cache = MODEL.apply(params, carry[0], i[None], carry[1])
            chosen = MODEL.readout(params, features).argmax(-1)
            return chosen.astype(jnp.int32), cache

        return jax.lax.fori_loop(0, 4, body, (tokens, cache))

    cache = MODEL.init(WEIGHTS, Prompt(TOKENS[:1], ZERO[:1] + T), SLOTS)
    compiled = decode.lower(WEIGHTS, cache, TOKENS[:1, :1]).compile().as_text()
    shapes = [",".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(cache)]
    copies = sum(len(re.findall(rf"\[{x}\]\S* copy\(", compiled)) for x in set(shapes))
    if write is _write_by_row:
        assert copies <= len(shapes)
    else:  # the reason for it: when this fails, writing at once will do everywhere
        assert copies > len(shapes)


def test_positions_matter():
    """Rotary positions: the same tokens in another order say something else."""
    swapped = TOKENS.at[:, [T - 3, T - 2]].set(TOKENS[:, [T - 2, T - 3]])
    one, other = call(TOKENS, ZERO, None)[0], call(swapped, ZERO, None)[0]
    assert np.abs(np.asarray(one - other))[:, -1].max() > 0.1


def test_an_early_exit_is_the_first_layers():
    """Its cache is theirs, and its weights are the whole model's."""
    shallow, cache = WORLD.shallow, call(TOKENS, ZERO, fresh())[1]
    cut = shallow.init(WEIGHTS, Prompt(TOKENS, ZERO + T), SLOTS)
    _, own = jax.jit(shallow.apply)(WEIGHTS, TOKENS, ZERO, cut)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), own, WORLD.cut(cache)
    )


JOINED, SHALLOW = (
    gpt.build(config._replace(joined=True)) for config in (tiny.TARGET, tiny.SHALLOW)
)


@pytest.mark.parametrize("rows", [1, 3])
def test_joined_layers_compute_what_apart_ones_do(rows):
    """One buffer for all layers: calls of many tokens and of one, ragged rows."""
    start, prompt = ZERO[:rows], Prompt(TOKENS[:rows], ZERO[:rows] + T)
    apart, joined = (model.init(WEIGHTS, prompt, SLOTS) for model in (MODEL, JOINED))
    assert len(jax.tree.leaves(joined)) == 2 < len(jax.tree.leaves(apart))
    for tokens, more in ((TOKENS, [T, 5, 2]), (TOKENS[:, :1], 1), (TOKENS[:, 2:5], 0)):
        given = WEIGHTS, tokens[:rows], start
        features, apart = jax.jit(MODEL.apply)(*given, apart)
        found, joined = jax.jit(JOINED.apply)(*given, joined)
        np.testing.assert_allclose(found, features, atol=1e-6)
        for i, layer in enumerate(apart):
            close = functools.partial(np.testing.assert_allclose, atol=1e-6)
            jax.tree.map(close, KeyValues(*joined[i]), layer)
        start = start + jnp.broadcast_to(jnp.array(more), B)[:rows]
    assert jax.tree.map(jnp.shape, joined[:1]) == jax.tree.map(
        jnp.shape, SHALLOW.init(WEIGHTS, prompt, SLOTS)
    )


@pytest.mark.parametrize("name", ["autoregressive", "early_exit"])
def test_joined_layers_write_the_same_text(name):
    case, prompt = BY_NAME[name], make_prompt([[1, 2, 3], [4]])
    request = make_request(jax.random.key(0), prompt, 12, make_sampling(2, 1.0))
    joined = WORLD._replace(target=JOINED, draft=JOINED, shallow=SHALLOW)
    one, other = (
        generate.build(case.parts(world, 3), 20)(case.params(world), prompt, request)
        for world in (WORLD, joined)
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)
    # Another layer's keys and values are noticed: fewer drafted tokens are kept.
    wrong = joined._replace(cut=lambda cache: cache[1:])
    found = generate.build(case.parts(wrong, 3), 20)
    counts = found(case.params(wrong), prompt, request).counts
    same = np.array_equal(counts.accepted, one.counts.accepted)
    assert same == (name == "autoregressive")


def test_bfloat16_activations_leave_float32_logits():
    model = gpt.build(tiny.TARGET._replace(dtype="bfloat16"))
    cache = jax.eval_shape(lambda: model.init(WEIGHTS, Prompt(TOKENS, ZERO + T), SLOTS))
    features, cache = jax.eval_shape(model.apply, WEIGHTS, TOKENS, ZERO, cache)
    assert {leaf.dtype for leaf in jax.tree.leaves((features, cache))} == {
        jnp.dtype("bfloat16")
    }
    assert jax.eval_shape(model.readout, WEIGHTS, features).dtype == jnp.float32


# Sharding.

AXES = {
    "embedding": ("vocab", "embed"),
    "readout": ("embed", "vocab"),
    "attention/query/kernel": ("embed", "joined_heads"),
    "attention/key/kernel": ("embed", "joined_heads"),
    "attention/value/kernel": ("embed", "joined_heads"),
    "attention/out/kernel": ("joined_heads", "embed"),
    "mlp/in/kernel": ("embed", "mlp"),
    "mlp/out/kernel": ("mlp", "embed"),
}


def test_every_parameter_names_its_axes():
    boxed = jax.eval_shape(lambda: gpt.init_params(jax.random.key(0), tiny.TARGET))
    named = jax.tree_util.tree_leaves_with_path(
        boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
    )
    found = {}
    for path, leaf in named:
        name = "/".join(entry.key for entry in path)
        found[name.removeprefix("layers_0/").removeprefix("layers_1/")] = leaf.names
        assert len(leaf.names) == leaf.value.ndim
    assert found == AXES


SHARDED = """
import flax.linen as nn, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from specjax import generate, inputs
from specjax.models import gpt
from tests import conftest
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME

world, case = tiny.transformers(), BY_NAME["autoregressive"]
prompt = inputs.make_prompt([[1, 2, 3], [4]])
sampling = inputs.make_sampling(2, 1.0)
request = inputs.make_request(jax.random.key(0), prompt, 12, sampling)
run = jax.jit(generate.build_loop(case.parts(world, 3), 20))
plain = run(case.params(world), prompt, request)

mesh = Mesh(np.array(jax.devices()).reshape(1, 2), ("data", "model"))
rules = [("batch", "data"), ("vocab", "model"), ("mlp", "model"), ("embed", None),
         ("joined_heads", "model"), ("heads", "model"), ("slots", None)]
boxed = jax.eval_shape(lambda: gpt.init_params(jax.random.key(0), tiny.TARGET))
specs = nn.get_partition_spec(boxed)
params = case.params(world)
vocab = tiny.TARGET.vocab  # odd: its two matrices stay whole
def place(leaf, spec):
    axes = nn.logical_to_mesh_axes(spec, rules)
    whole = vocab in leaf.shape
    return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec() if whole else axes))
params = jax.tree.map(lambda tree: jax.tree.map(place, tree, specs), params,
                      is_leaf=lambda node: isinstance(node, dict))
kernel = params.target["layers_0"]["mlp"]["in"]["kernel"]
assert kernel.addressable_shards[0].data.shape == (16, 16), kernel.sharding
with mesh, nn.logical_axis_rules(rules):
    run = jax.jit(generate.build_loop(case.parts(world, 3), 20))
    spread = run(params, prompt, request)
jax.tree.map(np.testing.assert_array_equal, plain, spread)
print("same")
"""


@pytest.mark.slow
def test_two_devices_write_the_same_text():
    """Weights split by their axis names over a mesh: only the placement changes."""
    devices = "--xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        env=os.environ | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("same\n"), done.stderr[-2000:]
