"""The forms of computations that compilers need change no number in any family:
`models.lowering`."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, native
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import lowering
from specjax.models.cache import KeyValues
from specjax.models.lowering import _write_at_once, _write_by_row
from tests.support import drafter_cases, slow, tiny
from tests.support.model_cases import (
    GPT,
    MODULES,
    T5,
    TOKENS,
    ZERO,
    T,
    assert_close,
    compile_call,
)

each_case = pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
nearly = functools.partial(jax.tree.map, functools.partial(assert_close, atol=1e-5))


def test_a_row_is_written_in_64_bit_jax_too():
    """Slots are 32-bit numbers, while JAX gives 64 bits to numbers without a type."""
    cache = KeyValues(np.zeros((2, 1, 3, 4), "f4"), np.zeros((2, 1, 4, 3), "f4"))
    new = KeyValues(np.ones((2, 1, 3, 1), "f4"), np.ones((2, 1, 1, 3), "f4"))
    start = jnp.array([3, 0], jnp.int32)
    with jax.enable_x64(True):
        _, written = jax.jit(_write_by_row)(cache, new, start)
    np.testing.assert_array_equal(written.values[:, 0, :, 0], np.eye(4)[[3, 0]])


ON_A_GPU = [(case, 1, "joined" in case.config._fields) for case in MODULES]
ON_A_GPU += [(GPT, 3, True), (T5, 3, False), (MODULES[-1], 3, False)]
ids = [f"{case.name}-{rows}{'-joined' * joined}" for case, rows, joined in ON_A_GPU]


@pytest.mark.parametrize(
    ("case", "rows", "joined"), slow.mark_slow_after(3, ON_A_GPU), ids=ids
)
def test_a_few_tokens_are_the_same_on_a_gpu(case, rows, joined, monkeypatch):
    """Each token is a row of attention, and a single token is two equal rows. JAX is
    asked for the device."""
    model = case.build(case.config._replace(joined=True) if joined else case.config)
    params, start = case.world().target_weights, np.full(rows, T, np.int32)
    apart = case.call(TOKENS[:rows], ZERO[:rows], case.fresh(rows))[1]
    cache = join_cache(case, apart) if joined else apart
    chunks = [TOKENS[:rows, :count] for count in ((1, 3) if rows == 1 else (3,))]
    here = [case.call(chunk, start, apart) for chunk in chunks]
    taken, run = imitate_gpu(monkeypatch), compile_call(model)
    for chunk, (logits, after) in zip(chunks, here, strict=True):
        with native.products(native.XLA):  # a GPU has no native operation
            there, moved = run(params, chunk, start, cache)
        assert_close(there, logits, 1e-5)
        for i, layer in enumerate(case.own(after)):
            nearly(KeyValues(*case.own(moved)[i]), layer)
        assert any(taken)
        taken.clear()


def join_cache(case, cache):
    own = lowering.join(case.own(cache))
    if not case.encodes:
        return own
    return cache._replace(own=own, read=lowering.join(cache.read))


def imitate_gpu(monkeypatch) -> list:
    """Makes this device compute as a GPU would; returns the list of the functions that
    were chosen, None where there was no choice for GPUs."""
    taken = []

    def choose(*arguments, default, cpu=None, cuda=None):
        taken.append(cuda)
        return (cuda or default)(*arguments)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    return taken


def compile_loop(case) -> str:
    """Compiles the program that decodes a few tokens of one row."""
    model, params = case.world().target, case.world().target_weights

    @jax.jit
    def decode(params, cache, tokens):
        def body(i, carry):
            features, cache = model.apply(params, carry[0], i[None], carry[1])
            chosen = model.readout(params, features).argmax(-1)
            return chosen.astype(jnp.int32), cache

        return jax.lax.fori_loop(0, 4, body, (tokens, cache))

    return decode.lower(params, case.fresh(1), TOKENS[:1, :1]).compile().as_text()


def copies(program: str, caches) -> tuple[int, int]:
    """Returns the number of copies of arrays shaped like those in `caches`, and the
    number of these arrays."""
    shapes = [",".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(caches)]
    counts = [len(re.findall(rf"\[{x}\]\S* copy\(", program)) for x in set(shapes)]
    return sum(counts), len(shapes)


@each_case
def test_decoding_on_a_cpu_does_not_copy_its_caches(case):
    """Copies at the start of the program are allowed."""
    cache, program = case.fresh(1), compile_loop(case)
    for part in [case.own(cache), *([cache.read] if case.encodes else [])]:
        count, entered = copies(program, part)
        assert count <= entered


IN_STEPS = "renewal", "autoregressive", "tree_grown", "copying_else", "hierarchy"


@pytest.mark.parametrize("name", slow.mark_slow_after(1, IN_STEPS))
def test_steps_do_not_copy_the_caches_of_a_pair(name):
    """A policy's draft has several widths. Each is a loop of its own: the branch of a
    conditional would copy the target's cache in every step."""
    (case,) = (case for case in drafter_cases.CASES if case.name == name)
    world = tiny.transformers()
    decoder, params = case.decoder(world, 4), case.params(world)
    prompt = make_prompt([[1, 2, 3]])
    request = make_request(jax.random.key(0), prompt, 8, make_sampling(1, 0.0))
    state = generate.prefill(decoder, params, prompt, slots=37)
    loop = jax.jit(generate.build_rest(decoder)).lower(params, request, state)
    count, _ = copies(loop.compile().as_text(), state.target_cache)
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.target_cache)}
    both = jax.tree.leaves((state.target_cache, state.draft_cache))
    assert count <= sum(leaf.shape in shapes for leaf in both)  # at the program's start


def test_written_at_once_a_cpu_copies_its_cache(monkeypatch):
    """Rows are written one by one for this reason: when this test fails, all can be
    written at once."""
    monkeypatch.setattr(lowering, "_write_by_row", _write_at_once)
    with native.products(native.XLA):  # native attention writes it in place
        count, entered = copies(compile_loop(GPT), GPT.fresh(1))
    assert count > entered


@pytest.mark.parametrize("case", [GPT, T5], ids=["gpt", "t5"])
def test_an_early_exit_reads_its_part_of_a_joined_cache(case):
    params, cut = case.world().target_weights, case.world().cut
    model, small = (
        case.module.build(config._replace(joined=True))
        for config in (case.config, case.small)
    )
    cache = jax.jit(model.init, static_argnums=2)(params, case.prompt(), 12)
    assert len(jax.tree.leaves(case.own(cache))) == 1
    joined = compile_call(model)(params, TOKENS, ZERO, cache)[1]
    apart = case.call(TOKENS, ZERO, case.fresh())[1]
    logits, after = compile_call(small)(params, TOKENS[:, :1], ZERO + T, cut(joined))
    wanted, _ = compile_call(case.world().shallow)(
        params, TOKENS[:, :1], ZERO + T, cut(apart)
    )
    assert_close(logits, wanted, 1e-5)
    same = jax.tree.structure(cut(joined)) == jax.tree.structure(after)
    assert same, "a loop could not carry it"
