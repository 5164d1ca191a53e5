"""What compilers ask for changes no number, in any family: `models.lowering`.

Axes: B rows, T tokens, S cache slots.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import attention, gpt, lowering
from specjax.models.cache import KeyValues, write_rows
from specjax.models.lowering import _write_at_once, _write_by_row
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME
from tests.support.model_cases import (
    GPT,
    MODULES,
    SLOTS,
    T5,
    TOKENS,
    ZERO,
    B,
    T,
    call,
    close,
    compiled,
    fresh,
)

each_case = pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
nearly = functools.partial(jax.tree.map, functools.partial(close, atol=1e-5))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tokens", [1, 2])
def test_both_ways_of_writing_write_the_same(tokens, rows):
    before = call(GPT, TOKENS[:rows], ZERO[:rows], fresh(GPT, rows))[1][0]
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


def test_a_row_is_written_in_64_bit_jax_too():
    """Slots are of 32 bits, and whatever has no type of its own is of 64."""
    cache = KeyValues(np.zeros((2, 1, 3, 4), "f4"), np.zeros((2, 1, 4, 3), "f4"))
    new = KeyValues(np.ones((2, 1, 3, 1), "f4"), np.ones((2, 1, 1, 3), "f4"))
    start = jnp.array([3, 0], jnp.int32)
    with jax.enable_x64(True):
        _, written = jax.jit(_write_by_row)(cache, new, start)
    np.testing.assert_array_equal(written.values[:, 0, :, 0], np.eye(4)[[3, 0]])


@each_case
def test_a_model_without_it_computes_the_same(case, monkeypatch):
    """The model as the other modules say it."""

    def write(cache, new, start):
        return (write_rows(cache, new, start),) * 2

    shipped = call(case, TOKENS, ZERO, fresh(case))
    after = call(case, TOKENS[:, :1], ZERO + T, shipped[1])
    monkeypatch.setattr(lowering, "model", lambda model, joined=False: model)
    monkeypatch.setattr(lowering, "share_repeated_rows", lambda attend: attend)
    monkeypatch.setattr(lowering, "in_memory", lambda x, cache: x)
    monkeypatch.setattr(lowering, "write", write)
    monkeypatch.setattr(attention, "attend", attention.attend.__wrapped__)
    params = case.world().target_weights
    run = compiled(case.build(case.config))
    plain = run(params, TOKENS, ZERO, fresh(case))
    nearly(plain, shipped)
    nearly(run(params, TOKENS[:, :1], ZERO + T, plain[1]), after)


@each_case
def test_two_equal_rows_compute_what_one_does(case, monkeypatch):
    """What a GPU computes of one token of one row; the device is asked by JAX."""
    cache = call(case, TOKENS[:1], ZERO[:1], fresh(case, 1))[1]
    start = np.array([T], np.int32)
    single = call(case, TOKENS[:1, :1], start, cache)
    taken = as_on_a_gpu(monkeypatch)
    run = compiled(case.build(case.config))
    double = run(case.world().target_weights, TOKENS[:1, :1], start, cache)
    assert len(taken) - taken.count(None) == 2  # and a write of each layer
    nearly(single, double)


WAYS = [
    pytest.param(case, rows, joined, id=f"{case.name}-{rows}{'-joined' * joined}")
    for case in MODULES
    for rows, joined in [(1, case.joins), (B, False), *[(B, True)] * (case is GPT)]
]


@pytest.mark.parametrize(("case", "rows", "joined"), WAYS)
def test_a_few_tokens_are_the_same_on_a_gpu(case, rows, joined, monkeypatch):
    """Each a row of attention, and several matrices in one product."""
    config = case.config._replace(joined=True) if joined else case.config
    model = case.build(config)
    params, start = case.world().target_weights, np.full(rows, T, np.int32)
    init = jax.jit(model.init, static_argnums=2)
    own = functools.partial(call, case)
    run = functools.partial(compiled(model), params) if joined else own
    cache = init(params, case.prompt(rows), SLOTS)
    cache = run(TOKENS[:rows], ZERO[:rows], cache)[1]
    here = run(TOKENS[:rows, :3], start, cache)
    taken = as_on_a_gpu(monkeypatch)
    model = case.build(config)
    nearly(here, compiled(model)(params, TOKENS[:rows, :3], start, cache))
    assert any(taken)


def as_on_a_gpu(monkeypatch) -> list:
    """What a GPU would compute is computed; a list of what it was asked to, or None."""
    taken = []

    def choose(*arguments, default, cpu=None, cuda=None):
        taken.append(cuda)
        return (cuda or default)(*arguments)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    return taken


def looped(case) -> str:
    """The program that decodes a few tokens of one row."""
    model, params = case.world().target, case.world().target_weights

    @jax.jit
    def decode(params, cache, tokens):
        def body(i, carry):
            features, cache = model.apply(params, carry[0], i[None], carry[1])
            chosen = model.readout(params, features).argmax(-1)
            return chosen.astype(jnp.int32), cache

        return jax.lax.fori_loop(0, 4, body, (tokens, cache))

    return decode.lower(params, fresh(case, 1), TOKENS[:1, :1]).compile().as_text()


def copies(program: str, cached) -> tuple[int, int]:
    """Of arrays shaped like those `cached`; and how many of these there are."""
    shapes = [",".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(cached)]
    counts = [len(re.findall(rf"\[{x}\]\S* copy\(", program)) for x in set(shapes)]
    return sum(counts), len(shapes)


@each_case
def test_decoding_on_a_cpu_does_not_copy_its_caches(case):
    """But for those on entry."""
    cache, program = fresh(case, 1), looped(case)
    for part in [case.own(cache), *([cache.read] if case.encodes else [])]:
        count, entered = copies(program, part)
        assert count <= entered


def test_written_at_once_a_cpu_copies_its_cache(monkeypatch):
    """Why rows are written apart: when this fails, writing at once will do."""
    monkeypatch.setattr(lowering, "_write_by_row", _write_at_once)
    count, entered = copies(looped(GPT), fresh(GPT, 1))
    assert count > entered


# A joined cache: one buffer for all layers.


@pytest.mark.parametrize(("case", "rows"), [(GPT, 1), (T5, B)], ids=["gpt", "t5"])
def test_joined_layers_compute_what_apart_ones_do(case, rows):
    """Calls of many tokens and of one, ragged rows."""
    model = case.module.build(case.config._replace(joined=True))
    params, start = case.world().target_weights, ZERO[:rows]
    init, run = jax.jit(model.init, static_argnums=2), compiled(model)
    joined, apart = init(params, case.prompt(rows), SLOTS), fresh(case, rows)
    assert len(jax.tree.leaves(case.own(joined))) == 1
    for tokens, more in ((TOKENS, [T, 2, 4]), (TOKENS[:, :1], 1), (TOKENS[:, :2], 0)):
        expected, apart = call(case, tokens[:rows], start, apart)
        logits, joined = run(params, tokens[:rows], start, joined)
        close(logits, expected, 1e-5)
        for i, layer in enumerate(case.own(apart)):
            nearly(KeyValues(*case.own(joined)[i]), layer)
        start = start + np.broadcast_to(np.int32(more), B)[:rows]
    small = case.module.build(case.small._replace(joined=True))
    cut = case.world().cut  # an early exit reads its part of either
    exits = [
        compiled(model)(params, TOKENS[:rows, :1], start, cut(cache))
        for model, cache in ((case.world().shallow, apart), (small, joined))
    ]
    close(*(logits for logits, _ in exits), 1e-5)
    same = jax.tree.structure(cut(joined)) == jax.tree.structure(exits[1][1])
    assert same, "a loop could not carry it"


@pytest.mark.slow
def test_joined_layers_write_the_same_text():
    """With an early exit, which drafts from its part of the target's joined cache."""
    case, prompt = BY_NAME["early_exit"], make_prompt([[1, 2, 3], [4]])
    request = make_request(jax.random.key(0), prompt, 12, make_sampling(2, 1.0))
    whole, shallow = (
        gpt.build(config._replace(joined=True))
        for config in (tiny.TARGET, tiny.SHALLOW)
    )
    world = tiny.transformers()
    joined = world._replace(target=whole, shallow=shallow)
    # Another layer's keys and values are noticed: fewer drafted tokens are kept.
    wrong = joined._replace(cut=lambda cache: cache[1:])
    apart, same, other = (
        generate.build(case.decoder(each, 3), 20)(case.params(each), prompt, request)
        for each in (world, joined, wrong)
    )
    jax.tree.map(np.testing.assert_array_equal, apart, same)
    assert not np.array_equal(other.counts.accepted, apart.counts.accepted)
