"""The contract of a model, for every family: add one to `support/model_cases.py`.

Slots of a cache are read as far as a token's own, in portions of any size, whatever
lies beyond.
Axes: B rows, T tokens, S cache slots, V vocabulary.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.inputs import pad
from specjax.models import t5
from specjax.types import Features
from tests.support import tiny_t5
from tests.support.model_cases import (
    CASES,
    IDS,
    INPUTS,
    SLOTS,
    SOURCES,
    TOKENS,
    ZERO,
    T,
    call,
    close,
    differs,
    fresh,
    whole,
)

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


# What a logit depends on.


def test_each_logit_depends_on_all_tokens_up_to_it_and_on_none_after(case):
    """By gradients, of ids that are all different; but for those that a window leaves
    out. And on all of an input, but not on its padding."""
    text, read = jnp.arange(T)[None], np.arange(T, T + 8)
    inputs = t5.Inputs(jnp.asarray(read[None]), jnp.array([5]))
    inputs = case.inputs(1) if case.hears else inputs
    flat = flatten_dict(case.world().target_weights)
    # A tied readout stays as it is.
    flat = {("readout",): flat[case.embedding].T} | flat
    small = case.small
    small = small._replace(tied=False) if "tied" in small._fields else small

    @jax.jit
    @jax.jacrev
    def jacobian(table):
        """Of a sum of squares for each token."""
        params = unflatten_dict(flat | {case.embedding: table})
        logits = case.whole(small, params, text, inputs)[0, :, :IDS]
        return jnp.sum(logits**2, axis=-1)

    influence = np.abs(jacobian(flat[case.embedding])).max(-1) > 0
    unseen = np.tri(T, k=-(case.sees or T), dtype=bool)
    np.testing.assert_array_equal(influence[:, :T], np.tri(T, dtype=bool) & ~unseen)
    expected = (read < T + 5) & case.encodes & (not case.hears)
    np.testing.assert_array_equal(influence[:, T : T + 8], [expected] * T)


def test_the_order_of_tokens_matters(case):
    order = np.array([0, 2, 1, 3, 4])
    logits, other = (
        call(case, tokens, ZERO, fresh(case))[0]
        for tokens in (TOKENS, TOKENS[:, order])
    )
    assert differs(logits, other)[:, 3:].all()  # of tokens that have not moved


# Decoding with a cache.


def test_chunks_of_any_size_give_the_logits_of_the_whole(case):
    """And leave the same cache."""
    cache, start, logits = fresh(case), 0, []
    for width in (2, 1, 2):
        chunk, cache = call(case, TOKENS[:, start : start + width], ZERO + start, cache)
        logits.append(chunk)
        start += width
    together = np.concatenate(logits, axis=1)
    assert together.dtype == whole(case).dtype == jnp.float32
    close(together, whole(case))
    logits, at_once = call(case, TOKENS, ZERO, fresh(case))
    close(logits, whole(case))
    jax.tree.map(lambda a, b: close(a, b, 1e-5), cache, at_once)


def test_rows_may_stand_at_different_slots(case):
    """Rewritten after a rejection: what lies beyond a row's start is stale."""
    _, cache = call(case, (TOKENS + 3) % IDS, ZERO, fresh(case))
    prefix = np.array([1, 3, 2], np.int32)
    kept = np.arange(T) < prefix[:, None]
    stale, cache = call(case, np.where(kept, TOKENS, 28 - TOKENS), ZERO, cache)
    index = prefix[:, None] + np.arange(2)
    expected = np.take_along_axis(whole(case), index[:, :, None], axis=1)
    both = np.take_along_axis(TOKENS, index, axis=1)
    logits, _ = call(case, both, prefix, cache)
    close(logits, expected)
    first, cache = call(case, both[:, :1], prefix, cache)
    second, _ = call(case, both[:, 1:], prefix + 1, cache)
    close(np.concatenate([first, second], axis=1), expected)
    assert differs(stale, whole(case))[~kept].all()  # stale would show


def test_a_call_writes_its_own_slots_and_no_others(case):
    before = call(case, TOKENS, ZERO, fresh(case))[1]
    start = np.array([1, 6, 3], np.int32)
    after = call(case, (TOKENS + 1)[:, :2] % IDS, start, before)[1]
    for old, new in zip(case.own(before), case.own(after), strict=True):
        slots = old.values.shape[2]
        begin, slot = start[:, None] % slots, np.arange(slots)
        written = (slot == begin) | (slot == (begin + 1) % slots)
        for name, rest in (("keys", (1, 2)), ("values", (1, 3))):
            same = np.asarray(getattr(old, name)) == np.asarray(getattr(new, name))
            np.testing.assert_array_equal(~same.all(axis=rest), written)
    if case.encodes:
        jax.tree.map(np.testing.assert_array_equal, before.read, after.read)


def ruined(case, cache, own, read=INPUTS.length):
    """Huge numbers from slot own [B] on, and in what was read from slot read [B] on."""
    if case.hears:
        return tiny_t5.ruin(cache, own, read * 0 + case.config.states)
    if case.encodes:
        return tiny_t5.ruin(cache, own, read)
    return tiny_t5.ruin(t5.Cache(cache, [], None), own, read).own


def test_what_is_stale_is_never_read(case):
    """Beyond a row's cursor, and beyond its input."""
    _, cache = call(case, TOKENS, ZERO, fresh(case))
    start = np.array([3, 5, 4], np.int32)
    clean, _ = call(case, TOKENS[:, :1], start, cache)
    logits, _ = call(case, TOKENS[:, :1], start, ruined(case, cache, start))
    np.testing.assert_array_equal(clean, logits)
    wrong = [(start - 1, INPUTS.length)]
    of_ids = case.encodes and not case.hears
    wrong += [(start, INPUTS.length - 1)] if of_ids else []
    for slots in wrong:  # the check notices
        logits, _ = call(case, TOKENS[:, :1], start, ruined(case, cache, *slots))
        assert differs(logits, clean).all()


def test_neither_batch_mates_nor_widths_enter(case):
    """A row alone; its input in an array as wide as itself, and in a wider one."""
    run = jax.jit(functools.partial(case.whole, case.config))
    for row, width in ((1, 3), (2, 9)):
        alone, inputs = slice(row, row + 1), case.inputs()
        if case.hears:
            inputs = Features(inputs.frames[alone])
        elif case.encodes:
            inputs = t5.Inputs(*pad([SOURCES[row]], width))
        logits = run(case.world().target_weights, TOKENS[alone], inputs)
        close(logits, whole(case)[alone], 1e-5)


def test_an_early_exit_is_the_first_layers(case):
    """Its cache is theirs, and its weights are the whole model's."""
    world, cache = case.world(), call(case, TOKENS, ZERO, fresh(case))[1]
    weights = world.target_weights

    @jax.jit
    def run(params):
        cache = world.shallow.init(params, case.prompt(), SLOTS)
        return world.shallow.apply(params, TOKENS, ZERO, cache)[1]

    shallow = run(weights)
    jax.tree.map(lambda a, b: close(a, b, 1e-5), shallow, world.cut(cache))
    assert len(case.own(shallow)) == 1 < len(case.own(cache))


# Numbers and parameters.


def test_bfloat16_activations_leave_float32_logits(case):
    """Features and cache are bfloat16, and logits not far from exact."""
    model = case.build(case.config._replace(dtype="bfloat16"))

    @jax.jit
    def run(params):
        cache = model.init(params, case.prompt(), SLOTS)
        features, cache = model.apply(params, TOKENS, ZERO, cache)
        return features, model.readout(params, features), cache

    features, logits, cache = run(case.world().target_weights)
    layers = cache._replace(length=()) if isinstance(cache, t5.Cache) else cache
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((features, layers))}
    assert dtypes == {jnp.dtype("bfloat16")} and logits.dtype == jnp.float32
    exact = whole(case)[..., :IDS]
    off = np.abs(logits[..., :IDS] - exact)
    assert 0 < off.mean() < 0.03 * np.abs(exact).mean()


# By the end of a parameter's path, a kernel's without its last name.
AXES = {
    "/embedding": ("vocab", "embed"),
    "/readout": ("embed", "vocab"),
    "/logits_dense": ("embed", "vocab"),
    "/rel_embedding": ("heads", "relpos_buckets"),
    "/scale": ("embed",),
    "norm": ("embed",),
    "/positions": ("positions", "embed"),
    "/conv_0": ("window", "bands", "embed"),
    "/conv_1": ("window", "bands", "embed"),
    "query_norm/scale": ("head_width",),
    "key_norm/scale": ("head_width",),
    "/query": ("embed", "joined_heads"),
    "/key": ("embed", "joined_heads"),
    "/value": ("embed", "joined_heads"),
    "attention/out": ("joined_heads", "embed"),
    "mlp/in": ("embed", "mlp"),
    "mlp/gate": ("embed", "mlp"),
    "mlp/out": ("mlp", "embed"),
    "mlp/wi": ("embed", "mlp"),
    "mlp/wi_0": ("embed", "mlp"),
    "mlp/wi_1": ("embed", "mlp"),
    "mlp/wo": ("mlp", "embed"),
}


def axes_of(name: str) -> tuple[str, ...]:
    if name.endswith("/bias"):
        return axes_of(name.removesuffix("/bias"))[-1:]
    path = f"/{name.removesuffix('/kernel')}"
    return AXES[max(filter(path.endswith, AXES), key=len)]


def test_every_parameter_names_its_axes_and_is_counted(case):
    for config in case.variants:
        init = functools.partial(case.module.init_params, config=config)
        boxes = flatten_dict(jax.eval_shape(init, jax.random.key(0)), sep="/")
        specs = flatten_dict(case.module.partition_specs(config), sep="/")
        shapes = flatten_dict(case.module.abstract_params(config), sep="/")
        assert boxes.keys() == specs.keys() == shapes.keys()
        for name, box in boxes.items():
            assert isinstance(box, nn.LogicallyPartitioned), name
            assert box.names == tuple(specs[name]) == axes_of(name), name
            assert len(box.names) == box.value.ndim
            assert box.value.shape == shapes[name].shape
            assert shapes[name].dtype == jnp.float32
        sizes = [leaf.size for leaf in shapes.values()]
        assert case.module.num_params(config) == sum(sizes)
