"""The contract of a model, for every family: add one to `support/model_cases.py`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.models import t5
from tests.support import tiny
from tests.support.model_cases import (
    CASES,
    IDS,
    INPUTS,
    LLAMA,
    MODULES,
    SLOTS,
    TOKENS,
    ZERO,
    T,
    close,
    differs,
    whole,
)

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# Styles of Llama's kind differ in numbers, of which chunks ask.
each_module = pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)


@pytest.mark.parametrize("case", (LLAMA, *MODULES), ids=lambda case: case.name)
def test_each_logit_depends_on_all_tokens_up_to_it_and_on_none_after(case):
    """But for those that a window leaves out; of an input, on all but its padding."""
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


@each_case
def test_chunks_of_any_size_give_the_logits_of_the_whole(case):
    """And leave the same cache."""
    cache, start, logits = case.fresh(), 0, []
    for width in (2, 1, 2):
        chunk, cache = case.call(TOKENS[:, start : start + width], ZERO + start, cache)
        logits.append(chunk)
        start += width
    together = np.concatenate(logits, axis=1)
    assert together.dtype == whole(case).dtype == jnp.float32
    close(together, whole(case))
    logits, at_once = case.call(TOKENS, ZERO, case.fresh())
    close(logits, whole(case))
    jax.tree.map(lambda a, b: close(a, b, 1e-5), cache, at_once)


@each_case
def test_rows_may_stand_at_different_slots(case):
    """Rewritten after a rejection: what lies beyond a row's start is stale."""
    _, cache = case.call((TOKENS + 3) % IDS, ZERO, case.fresh())
    prefix = np.array([1, 3, 2], np.int32)
    kept = np.arange(T) < prefix[:, None]
    stale, cache = case.call(np.where(kept, TOKENS, 28 - TOKENS), ZERO, cache)
    index = prefix[:, None] + np.arange(2)
    expected = np.take_along_axis(whole(case), index[:, :, None], axis=1)
    both = np.take_along_axis(TOKENS, index, axis=1)
    logits, _ = case.call(both, prefix, cache)
    close(logits, expected)
    first, cache = case.call(both[:, :1], prefix, cache)
    second, _ = case.call(both[:, 1:], prefix + 1, cache)
    close(np.concatenate([first, second], axis=1), expected)
    assert differs(stale, whole(case))[~kept].all()  # stale would show


def ruined(case, cache, own, read=INPUTS.length):
    """Huge numbers from slot own [B] on, and in what was read from slot read [B] on."""
    if not case.encodes:
        return tiny.ruined(cache, own)
    read = read * 0 + case.config.states if case.hears else read
    own, read = tiny.ruined(cache.own, own), tiny.ruined(cache.read, read)
    return cache._replace(own=own, read=read)


@each_module
def test_what_is_stale_is_never_read(case):
    """Beyond a row's cursor, and beyond its input."""
    _, cache = case.call(TOKENS, ZERO, case.fresh())
    start = np.array([3, 5, 4], np.int32)
    clean, _ = case.call(TOKENS[:, :1], start, cache)
    logits, _ = case.call(TOKENS[:, :1], start, ruined(case, cache, start))
    np.testing.assert_array_equal(clean, logits)
    wrong = [(start - 1, INPUTS.length)]
    of_ids = case.encodes and not case.hears
    wrong += [(start, INPUTS.length - 1)] if of_ids else []
    for slots in wrong:  # the check notices
        logits, _ = case.call(TOKENS[:, :1], start, ruined(case, cache, *slots))
        assert differs(logits, clean).all()


@each_module
def test_an_early_exit_is_the_first_layers(case):
    """Its cache is theirs, and its weights are the whole model's."""
    world, cache = case.world(), case.call(TOKENS, ZERO, case.fresh())[1]

    @jax.jit
    def run(params):
        cache = world.shallow.init(params, case.prompt(), SLOTS)
        return world.shallow.apply(params, TOKENS, ZERO, cache)[1]

    shallow = run(world.target_weights)
    jax.tree.map(lambda a, b: close(a, b, 1e-5), shallow, world.cut(cache))
    assert len(case.own(shallow)) == 1 < len(case.own(cache))


@each_module
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


@each_case
def test_every_parameter_names_its_axes_and_is_counted(case):
    """An axis of a name has one size, but for those that a config has several of."""
    for config in filter(None, (case.config, case.other)):
        init, sizes = functools.partial(case.module.init_params, config=config), {}
        boxes, specs, shapes = (
            flatten_dict(tree, sep="/")
            for tree in (
                jax.eval_shape(init, jax.random.key(0)),
                case.module.partition_specs(config),
                case.module.abstract_params(config),
            )
        )
        assert boxes.keys() == specs.keys() == shapes.keys()
        for name, box in boxes.items():
            assert box.names == tuple(specs[name]) and None not in box.names, name
            assert box.value.shape == shapes[name].shape, name
            assert shapes[name].dtype == jnp.float32
            for axis, size in zip(box.names, box.value.shape, strict=True):
                same = sizes.setdefault(axis, size) == size
                assert same or axis in ("positions", "bands", "joined_heads"), name
        total = sum(leaf.size for leaf in shapes.values())
        assert case.module.num_params(config) == total
