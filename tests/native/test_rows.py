"""Operations on few rows are near their twins in XLA, and a row has the same bits in
every call."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native
from specjax.drafters import autoregressive, eagle, eagle3, heads, nothing
from specjax.inputs import make_prompt
from specjax.models import families, gpt, llama, t5, whisper
from specjax.models.tree_mask import token_positions
from specjax.native import library, operation
from specjax.step import Decoder
from specjax.types import Branches, Features, Params
from tests.support import devices, slow, tiny
from tests.support.model_cases import weights, write_greedy

V, SLOTS = 300, 40  # no multiples of a vector
SMALL = dict(vocab=V, dim=72, mlp_dim=136, num_layers=2)
LLAMA = llama.Config(**SMALL, num_heads=4, key_heads=2, head_width=18, biased=True)
QWEN3 = LLAMA._replace(style="qwen3", tied=True, biased=False)
GEMMA2 = LLAMA._replace(
    style="gemma2", window=6, local=(0,), score_cap=20.0, logit_cap=30.0, biased=False
)
GPT = gpt.Config(**SMALL, num_heads=4)
LEARNED = GPT._replace(positions=SLOTS, learned=True, tied=True)
T5 = t5.Config(V, 72, 136, 1, 2, 4, 18)
WHISPER = whisper.Config(V, 72, 136, 1, 2, 4, bands=5, frames=14, positions=SLOTS)
INPUTS = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20], [4]]  # of a T5; the first is longest
CONFIGS = dict(llama=LLAMA, qwen3=QWEN3, gemma2=GEMMA2, gpt=GPT, learned=LEARNED)
CONFIGS |= dict(t5=T5, t5_relu=T5._replace(gated=False), whisper=WHISPER)
CONFIGS |= {  # keys and values in eight bits
    f"{name}_cached": CONFIGS[name]._replace(cache="int8")
    for name in ("llama", "qwen3", "gemma2", "learned")
}
CONFIGS |= dict(  # for threads
    wide=LLAMA._replace(dim=288, mlp_dim=640, num_heads=8, head_width=36),
    wide_whisper=WHISPER._replace(dim=288, mlp_dim=640, num_heads=8),
)
SOUNDS = np.random.default_rng(1).standard_normal((3, 14, 5)).astype(np.float32)
DTYPES = "float32", "bfloat16", "int8", "int8_dynamic"
NEAR = {"float32": 2e-4, "int8": 2e-4, "int8_dynamic": 5e-3, "bfloat16": 0.2}
TOKENS = np.random.default_rng(0).integers(1, V, (3, 12)).astype(np.int32)
READ = 7  # tokens of a text before the calls that are compared
PORTION = 5  # gemma2's rings have 11 slots, which a call after READ tokens goes around

# Each family in float32, and Llama in all dtypes.
CASES = [(family, "float32") for family in CONFIGS if "wide" not in family]
CASES += [("llama", dtype) for dtype in DTYPES[1:]]
CASES += [("llama_cached", "bfloat16"), ("t5", "bfloat16"), ("whisper", "bfloat16")]
CASES += [("t5", "int8_dynamic"), ("whisper", "int8")]
of_cases = pytest.mark.parametrize(("family", "dtype"), CASES)


@pytest.fixture(autouse=True)
def compiled():
    if problem := library.compiled_library().problem:
        pytest.skip(problem)


def config_of(family, dtype):
    config = CONFIGS[family]
    return config._replace(dtype=dtype) if dtype == "bfloat16" else config


def build(config, portion=PORTION):
    windows = isinstance(config, llama.Config) and config.window
    return llama.build(config, portion) if windows else families.build(config)


@functools.cache
def make_model(family, dtype):
    """Returns a model, its weights, and a function (params, tokens, start, cache[,
    branches]) -> logits and cache."""
    config = config_of(family, dtype)
    if isinstance(config, gpt.Config):
        params = tiny.weights(config, 3, 3.0)
    else:
        params = weights(config, 3)
    if dtype == "bfloat16":
        params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    elif dtype != "float32":
        params = tiny.quantize_params(params, dtype)
    model = build(config)

    def logits(params, tokens, start, cache, branches=None):
        features, cache = model.apply(params, tokens, start, cache, branches)
        return model.readout(params, features), cache

    return model, params, jax.jit(logits)


def initial_cache(family, dtype, rows=1, slots=SLOTS, portion=PORTION):
    _, params, _ = make_model(family, dtype)
    prompt = make_prompt([[1]] * rows, INPUTS[:rows] if "t5" in family else None)
    if "whisper" in family:
        prompt = prompt._replace(inputs=Features(jnp.asarray(SOUNDS[:rows])))
    return build(config_of(family, dtype), portion).init(params, prompt, slots)


def call(family, dtype, tokens, start, cache, branches=None):
    _, params, run = make_model(family, dtype)
    return run(params, np.asarray(tokens), np.asarray(start), cache, branches)


def one_by_one(family, dtype, tokens, slots=SLOTS):
    """Returns the logits [T, V] of a text [T], with a call for each token."""
    cache, rows = initial_cache(family, dtype, slots=slots), []
    for t, token in enumerate(tokens):
        logits, cache = call(family, dtype, [[token]], [t], cache)
        rows.append(logits[0, 0])
    return np.stack(rows)


@of_cases
def test_they_are_near_their_twins(family, dtype):
    _, params, run = make_model(family, dtype)
    given = params, TOKENS[:2], np.zeros(2, np.int32), initial_cache(family, dtype, 2)
    assert "specjax_rows" in str(jax.make_jaxpr(run)(*given))
    fused, cache = run(*given)
    with native.products(native.XLA):
        assert "specjax_rows" not in str(jax.make_jaxpr(run)(*given))
        plain, wanted = run(*given)
    scale = np.abs(np.asarray(plain)).max()
    assert np.abs(np.asarray(fused) - plain).max() <= NEAR[dtype] * scale
    for new, old in zip(jax.tree.leaves(cache), jax.tree.leaves(wanted), strict=True):
        near = 1 if new.dtype == jnp.int8 else 20 * NEAR[dtype]  # one level
        np.testing.assert_allclose(
            np.float32(new), np.float32(old), atol=near, rtol=0.05
        )


@of_cases
def test_a_rows_bits_do_not_depend_on_the_call(family, dtype):
    """They do not depend on the number of its tokens, on other texts, or on slots that
    are not visible."""
    alone = one_by_one(family, dtype, TOKENS[0])
    once, _ = call(family, dtype, TOKENS[:1], [0], initial_cache(family, dtype))
    np.testing.assert_array_equal(once[0], alone)
    beside, _ = call(family, dtype, TOKENS[:2], [0, 0], initial_cache(family, dtype, 2))
    np.testing.assert_array_equal(beside[0], alone)
    longer = initial_cache(family, dtype, slots=SLOTS + 13, portion=PORTION + 3)
    once, _ = call(family, dtype, TOKENS[:1], [0], longer)
    np.testing.assert_array_equal(once[0], alone)
    _, cache = call(family, dtype, TOKENS[:1, :READ], [0], initial_cache(family, dtype))
    for count in 2, 5:
        few, _ = call(family, dtype, TOKENS[:1, READ : READ + count], [READ], cache)
        np.testing.assert_array_equal(few[0], alone[READ : READ + count])


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "float32"),
        ("gpt", "bfloat16"),
        ("llama_cached", "float32"),
        ("gemma2", "float32"),
        ("gemma2", "bfloat16"),
        ("gemma2_cached", "float32"),
    ],
)
def test_a_trees_path_has_the_bits_of_a_chain(family, dtype):
    """The text has two branches, of which the second is the path in TOKENS."""
    chain = one_by_one(family, dtype, TOKENS[0, : READ + 3])
    _, cache = call(family, dtype, TOKENS[:1, :READ], [0], initial_cache(family, dtype))
    root, first, second = TOKENS[0, READ : READ + 3]
    nodes = [[root, second, first, first, second]]
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    sees = np.zeros((1, 5, 5), bool)
    for node, path in enumerate(paths):
        sees[0, node, path] = True
    depth = np.array([[len(path) - 1 for path in paths]], np.int32)
    branches = Branches(jnp.asarray(depth), jnp.asarray(sees))
    assert token_positions(jnp.array([READ]), 5, branches).shape == (1, 5)
    logits, _ = call(family, dtype, nodes, [READ], cache, branches)
    for node, position in (0, READ), (2, READ + 1), (4, READ + 2):
        np.testing.assert_array_equal(logits[0, node], chain[position])


def test_xlas_rows_do_depend_on_the_call():
    """The tests above would therefore fail for operations that sum in another order."""
    with native.products(native.XLA):
        alone = one_by_one("llama", "float32", TOKENS[0])
        once, _ = call(
            "llama", "float32", TOKENS[:1], [0], initial_cache("llama", "float32")
        )
    assert (np.asarray(once[0]) != alone).any()


def test_what_is_not_finite_stays_so():
    _, params, run = make_model("llama", "float32")
    bad = jax.tree.map(lambda x: x, params)
    bad["layers_0"]["mlp"]["in"]["kernel"] = jnp.full_like(
        params["layers_0"]["mlp"]["in"]["kernel"], jnp.nan
    )
    logits, _ = run(
        bad, TOKENS[:1, :3], np.array([0]), initial_cache("llama", "float32")
    )
    assert np.isnan(logits).all()


def test_in_batches_and_for_gradients_they_are_their_twins():
    config = LLAMA._replace(num_layers=1)
    model, params = families.build(config), weights(config, 1)
    cache = model.init(params, make_prompt([[1]]), 8)

    def loss(params, tokens, cache=cache):
        features, _ = model.apply(params, tokens, jnp.array([0]), cache)
        return (features**2).sum()

    def run_both(function):
        fused = function()
        with native.products(native.XLA):
            return jax.tree.leaves(fused), jax.tree.leaves(function())

    rows = jnp.asarray(TOKENS[:, None, :3])
    batch = run_both(lambda: jax.vmap(loss, (None, 0))(params, rows))
    # No gradient passes the writing of a cache on a CPU.
    slope = run_both(lambda: jax.jit(jax.grad(loss))(params, rows[0], cache=None))
    for new, old in (*zip(*batch, strict=True), *zip(*slope, strict=True)):
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)


DECODED = [("llama", "float32"), ("gpt", "int8_dynamic"), ("llama", "bfloat16")]
DECODED += [("llama", "int8_dynamic"), ("gpt", "float32"), ("gpt", "bfloat16")]


@pytest.mark.parametrize(("family", "dtype"), slow.mark_slow_after(3, DECODED))
def test_greedy_drafted_texts_are_the_targets_own(family, dtype):
    """Their logits have the same bits, so that ties are decided equally."""
    target, own, _ = make_model(family, dtype)
    drafts = jax.tree.map(
        lambda x: x if x.dtype == jnp.int8 else (x * 1.01 + 0.003).astype(x.dtype), own
    )
    prompt, params = make_prompt([[1, 2, 3], [4, 5]]), Params(own, drafts)
    alone, drafted = (
        write_greedy(Decoder(target, drafter), params, prompt, new=24)
        for drafter in (nothing.drafter, autoregressive.build(target, 4))
    )
    np.testing.assert_array_equal(alone.tokens, drafted.tokens)
    assert drafted.counts.calls.sum() < alone.counts.calls.sum()


THREADS = """
import hashlib
import numpy as np
from tests.native import test_rows as rows

for family in "wide", "wide_whisper":
    for dtype in "float32", "bfloat16", "int8_dynamic":
        cache = rows.initial_cache(family, dtype, 2)
        logits, _ = rows.call(family, dtype, rows.TOKENS[:2, :6], [0, 0], cache)
        print(family, dtype, hashlib.sha256(np.asarray(logits).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_bits_do_not_depend_on_threads():
    texts = {
        devices.run_python("-c", THREADS, NPROC=str(count)) for count in (1, 2, 4, 8)
    }
    assert len(texts) == 1


# Of a call: the embedding, EAGLE's product that joins or the two norms of EAGLE-3,
# products before attention, attention, the product after it, and feed-forward.
LAYER = LLAMA._replace(num_layers=1)
HEADS = {
    "eagle": (eagle.Config(LAYER), 6),
    "eagle3": (eagle3.Config(LAYER, LAYER.dim, (0, 1)), 7),
    "eagle3_normed": (
        eagle3.Config(LAYER._replace(style="qwen3"), LAYER.dim, (0,)),
        7,
    ),
}


@functools.cache
def make_head(name):
    """Returns a head, its weights with those of its target, and a memory in which the
    target's states of all slots are known."""
    config, _ = HEADS[name]
    module = eagle if name == "eagle" else eagle3
    random = np.random.default_rng(5)

    def draw(x):
        return jnp.float32(random.normal(size=x.shape) * x.shape[0] ** -0.5)

    own = jax.tree.map(draw, module.abstract_params(config))
    target = {"embedding": draw(np.zeros((V, LAYER.dim)))}
    params = heads.with_target(own, target)
    if name == "eagle":
        model = eagle.head(config, lambda params, states: states)
    else:
        model = eagle3.head(config)
        params = eagle3.parameters(config, own, target)
    memory = model.init(params, make_prompt([[1]] * 2), SLOTS)
    hidden = draw(np.zeros(memory.hidden.shape))
    known = jnp.full_like(memory.known, SLOTS)
    return model, params, memory._replace(hidden=hidden, known=known)


def call_head(name, tokens, start, memory, branches=None):
    model, params, _ = make_head(name)
    tokens, start = np.asarray(tokens), np.asarray(start)
    return jax.jit(model.apply)(params, tokens, start, memory, branches)


def first_text(memory):
    return jax.tree.map(lambda x: x[:1], memory)


@pytest.mark.parametrize("name", HEADS)
def test_a_heads_call_is_few_operations_near_their_twins(name):
    model, params, memory = make_head(name)
    tokens, start = TOKENS[:2, :5], np.array([0, 3])

    def count():
        program = jax.make_jaxpr(model.apply)(params, tokens, start, memory)
        return str(program).count("specjax_rows[")

    assert count() == HEADS[name][1]
    states, after = call_head(name, tokens, start, memory)
    with native.products(native.XLA):
        assert count() == 0
        plain, wanted = call_head(name, tokens, start, memory)
    scale = np.abs(np.asarray(plain)).max()
    assert np.abs(np.asarray(states) - plain).max() <= NEAR["float32"] * scale
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", HEADS)
def test_a_heads_bits_do_not_depend_on_the_call(name):
    *_, memory = make_head(name)
    text, count = TOKENS[:1], 8
    both, _ = call_head(name, TOKENS[:2, :count], [0, 0], memory)
    once, _ = call_head(name, text[:, :count], [0], first_text(memory))
    np.testing.assert_array_equal(both[0], once[0])
    alone = first_text(memory)
    for t in range(count):
        state, alone = call_head(name, text[:, t : t + 1], [t], alone)
        np.testing.assert_array_equal(state[0, 0], once[0, t])
    # As a tree, whose second branch is the text.
    _, before = call_head(name, text[:, :5], [0], first_text(memory))
    root, other, last = text[0, 5:8]
    nodes = [[root, last, other]]
    sees = np.array([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], bool)
    branches = Branches(jnp.array([[0, 1, 1]], jnp.int32), jnp.asarray(sees))
    states, _ = call_head(name, nodes, [5], before, branches)
    np.testing.assert_array_equal(states[0, 0], once[0, 5])
    np.testing.assert_array_equal(states[0, 2], once[0, 6])


def test_in_use_is_false_where_it_is_switched_off():
    assert operation.in_use()
    with native.products(native.XLA):
        assert not operation.in_use()
