"""Models compute few rows with few operations, and give the numbers of XLA's own
products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native
from specjax.drafters import autoregressive, nothing
from specjax.inputs import make_prompt
from specjax.models import families, gpt, llama, t5, whisper
from specjax.step import Decoder
from specjax.types import Features, Params
from tests.support import devices, tiny
from tests.support.model_cases import weights, write_greedy

# Of a layer: products before attention, attention, the product after it, feed-forward.
# A T5 and a Whisper read across by two products with attention between them. And the
# embedding, of positions too if they are learned, the last norm and a readout.
FAMILIES = {
    "gpt": (gpt.Config(512, 256, 512, 1, 4), 1 + 4 + 2),
    "t5": (t5.Config(512, 256, 512, 1, 1, 4, 64), 1 + 4 + 3 + 2),
    "whisper": (
        whisper.Config(512, 256, 512, 1, 1, 4, bands=8, frames=20, positions=32),
        2 + 4 + 3 + 2,
    ),
    "llama": (llama.Config(512, 256, 512, 1, 4, 2, 128), 1 + 4 + 2),
}
ROWS = 5  # other numbers of rows are the product's own

pytestmark = pytest.mark.skipif(
    native.problem() is not None, reason=f"no products: {native.problem()}"
)


def make_model(family: str, dtype: str):
    """Returns a model and its weights."""
    config, _ = FAMILIES[family]
    params = weights(config, 0) if family != "gpt" else tiny.weights(config, 0, 3.0)
    params = params if dtype == "float32" else tiny.quantize_params(params, dtype)
    return families.build(config), params


@pytest.mark.parametrize("dtype", ["float32", "int8", "int8_dynamic"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_is_few_operations_and_as_xlas(family, dtype):
    model, params = make_model(family, dtype)
    prompt = make_prompt([[0]], [[5, 6, 1]] if family == "t5" else None)
    if family == "whisper":
        sound = np.random.default_rng(2).standard_normal((1, 20, 8))
        prompt = prompt._replace(inputs=Features(jnp.float32(sound)))

    @jax.jit
    def logits(params, cache, tokens):
        features, _ = model.apply(params, tokens, jnp.array([0]), cache)
        return model.readout(params, features)

    cache = jax.jit(model.init, static_argnums=2)(params, prompt, 16)
    arguments = params, cache, np.arange(1, ROWS + 1)[None]
    program = str(jax.make_jaxpr(logits)(*arguments))
    assert program.count("specjax_rows[") == FAMILIES[family][1]
    assert "specjax_thin" not in program
    thin = logits(*arguments)
    with native.products(native.XLA):
        assert native.in_use() == "xla"
        assert "specjax_" not in str(jax.make_jaxpr(logits)(*arguments))
        plain = logits(*arguments)
    # A norm that rounds otherwise may move an activation by one of 127 levels.
    near = 5e-3 if dtype == "int8_dynamic" else 1e-4
    np.testing.assert_allclose(thin, plain, rtol=near, atol=near)


def wrong_at_times(params):
    """Changes scales and norms, so that a draft is right only sometimes."""

    def change_weights(leaf):
        if leaf.dtype == jnp.int8:
            return leaf
        swing = 1 + 0.2 * np.sin(np.arange(leaf.size, dtype=np.float32))
        return jnp.asarray(np.asarray(leaf) * swing.reshape(leaf.shape))

    return jax.tree.map(change_weights, params)


def test_greedy_texts_of_weights_in_eight_bits_are_those_without_drafts():
    target, weights = make_model("gpt", "int8")
    prompt, params = make_prompt([[1, 2, 3]]), Params(weights, wrong_at_times(weights))
    alone, drafted = (
        write_greedy(Decoder(target, drafter), params, prompt, new=40)
        for drafter in (nothing.drafter, autoregressive.build(target, 4))
    )
    np.testing.assert_array_equal(alone.tokens, drafted.tokens)
    calls, drafts = drafted.counts.calls[0], drafted.counts.accepted[0]
    assert 5 <= drafts <= 3 * calls  # some are kept, and not all


CACHED = """
import jax
import numpy as np
from specjax import quantized

random = np.random.default_rng(0)
x, w = (random.standard_normal(s, np.float32) for s in ((4, 256), (256, 1024)))
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
out = jax.jit(lambda x, w: quantized.dot(x, w) + 1)(x, w)
np.testing.assert_allclose(out, x @ w + 1, rtol=1e-4, atol=1e-3)
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def test_a_program_is_read_back_from_the_compilation_cache(tmp_path):
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    first, second = (int(devices.run_python("-c", CACHED, **kept)) for _ in range(2))
    assert first == 0 and second > 0
