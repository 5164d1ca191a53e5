"""Models multiply few rows in one pass, to the numbers of XLA's own products."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, native
from specjax.drafters import autoregressive, nothing
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, llama, t5
from specjax.step import Decoder
from specjax.types import Params
from tests.support import int8_files, tiny, tiny_llama, tiny_t5

# Every matrix is large enough to be worth it.
GPT = gpt.Config(512, 256, 512, 2, 4)
T5 = t5.Config(512, 256, 512, 1, 2, 4, 64)
LLAMA = llama.Config(512, 256, 512, 2, 4, 2, 128)
FAMILIES = "gpt", "t5", "llama"
ROWS = 5  # other numbers of rows are the product's own
DTYPES = "float32", "int8"  # of weights

pytestmark = pytest.mark.skipif(
    native.problem() is not None, reason=f"no products: {native.problem()}"
)


@functools.cache
def sized(family: str, dtype: str):
    """A model, its weights, and a prompt of three tokens."""
    if family == "gpt":
        model, params = gpt.build(GPT), tiny.weights(GPT, 0, 3.0)
        prompt = make_prompt([[1, 2, 3]])
    elif family == "llama":
        model, params = llama.build(LLAMA), tiny_llama.weights(LLAMA, 0)
        prompt = make_prompt([[1, 2, 3]])
    else:
        model, params = t5.build(T5), tiny_t5.weights(T5, 0)
        prompt = make_prompt([[0, 2, 3]], [[5, 6, 1]])
    return model, int8_files.rounded(params) if dtype == "int8" else params, prompt


@functools.cache
def case(family: str, dtype: str):
    """A model's logits of tokens [1, T] after three, and what it takes before them."""
    model, params, prompt = sized(family, dtype)

    @jax.jit
    def prefilled(params):
        cache = model.init(params, prompt, 16)
        return model.apply(params, prompt.tokens, jnp.array([0]), cache)[1]

    @jax.jit
    def logits(params, cache, tokens):
        features, _ = model.apply(params, tokens, jnp.array([3]), cache)
        return model.readout(params, features)

    return logits, params, prefilled(params), np.arange(1, ROWS + 1)[None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_few_tokens_have_the_logits_of_xlas_products(family, dtype):
    logits, *arguments = case(family, dtype)
    thin = logits(*arguments)
    with native.products(native.XLA):
        plain = logits(*arguments)
    np.testing.assert_allclose(thin, plain, rtol=1e-4, atol=1e-4)


# Of a layer: q, k, v, out and two; a T5 gates, and reads across by two; Llama's gates.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "family, products",
    [("gpt", 2 * 6 + 1), ("t5", 2 * 9 + 1), ("llama", 2 * 7 + 1)],
)
def test_every_product_of_a_call_is_one_pass(family, products, dtype):
    logits, *arguments = case(family, dtype)
    name = f"specjax_thin{'_int8' * (dtype == 'int8')}_product"
    assert str(jax.make_jaxpr(logits)(*arguments)).count(name) == products
    with native.products(native.XLA):
        assert name not in str(jax.make_jaxpr(logits)(*arguments))


def wrong_at_times(params):
    """Other scales and norms: a draft that is right now and then."""

    def moved(leaf):
        if leaf.dtype == jnp.int8:
            return leaf
        swing = 1 + 0.2 * np.sin(np.arange(leaf.size, dtype=np.float32))
        return jnp.asarray(np.asarray(leaf) * swing.reshape(leaf.shape))

    return jax.tree.map(moved, params)


def test_greedy_texts_of_weights_in_eight_bits_are_those_without_drafts():
    target, weights, prompt = sized("gpt", "int8")
    params = Params(weights, wrong_at_times(weights))
    request = make_request(jax.random.key(0), prompt, 40, make_sampling(1, 0.0))
    texts = []
    for drafter in nothing.drafter, autoregressive.build(target, 4):
        run = generate.build(Decoder(target, drafter), 48)
        texts.append(run(params, prompt, request))
    alone, drafted = texts
    np.testing.assert_array_equal(alone.tokens, drafted.tokens)
    calls, drafts = drafted.counts.calls[0], drafted.counts.accepted[0]
    assert 5 <= drafts <= 3 * calls  # some are kept, and not all


CACHED = """
import jax
import numpy as np
from specjax import native, quantized

random = np.random.default_rng(0)
x, w = (random.standard_normal(s, np.float32) for s in ((4, 256), (256, 1024)))
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
out = jax.jit(lambda x, w: quantized.dot(x, w) + 1)(x, w)
np.testing.assert_allclose(out, x @ w + 1, rtol=1e-4, atol=1e-3)
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def test_a_program_is_read_back_from_the_compilation_cache(tmp_path):
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    root, hits = Path(__file__).resolve().parents[2], []
    for _ in range(2):
        command = [sys.executable, "-c", CACHED]
        run = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        hits.append(int(run.stdout))
    assert hits[0] == 0 and hits[1] > 0
