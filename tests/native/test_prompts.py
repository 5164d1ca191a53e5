"""Reading a prompt leaves the same bits whatever the buffer, so that a greedy text does
not depend on gamma."""

import jax
import numpy as np
import pytest

from specjax import generate, native
from specjax.drafters import autoregressive, nothing
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import families, few_rows, gpt, llama
from specjax.step import Decoder
from specjax.types import Params
from tests.support import slow, tiny
from tests.support.model_cases import weights, write_greedy

V, WIDTH = 300, 70  # tokens of a prompt; XLA multiplies float32 weights by so many
SMALL = dict(vocab=V, dim=72, mlp_dim=136, num_layers=2, num_heads=4)
LLAMA = llama.Config(**SMALL, key_heads=2, head_width=18)
CONFIGS = dict(llama=LLAMA, gpt=gpt.Config(**SMALL))
CONFIGS["gemma2"] = LLAMA._replace(style="gemma2", window=6, local=(0,), score_cap=20.0)
CONFIGS["wide"] = LLAMA._replace(key_heads=4)  # no matrix too small for eight bits
CONFIGS["cached"] = LLAMA._replace(cache="int8")
PROMPT = make_prompt(
    [np.random.default_rng(1).integers(1, V, n).tolist() for n in (WIDTH, WIDTH - 9)]
)
CASES = [("llama", None), ("gemma2", None), ("gpt", "int8_dynamic"), ("cached", None)]

pytestmark = pytest.mark.skipif(
    native.problem() is not None, reason=f"no products: {native.problem()}"
)


def make_model(family: str, kind: str | None):
    config = CONFIGS[family]
    if kind == "bfloat16":
        config = config._replace(dtype=kind)
    random = tiny.weights(config, 3, 3.0) if family == "gpt" else weights(config, 3)
    if kind == "bfloat16":
        params = jax.tree.map(lambda x: x.astype(kind), random)
    else:
        params = random if kind is None else tiny.quantize_params(random, kind)
    return families.build(config), params


@pytest.mark.parametrize(("family", "kind"), slow.mark_slow_after(2, CASES))
def test_the_cache_of_a_prompt_does_not_depend_on_slots(family, kind):
    model, params = make_model(family, kind)
    assert PROMPT.tokens.size > few_rows.MOST_FLOAT32

    def read(slots: int):
        read = generate.jit_prefill(Decoder(model), slots)
        state = read(Params(params), PROMPT)
        last = state.tokens[:, WIDTH - 1 : WIDTH]
        features, _ = jax.jit(model.apply)(
            params, last, state.length - 1, state.target_cache
        )
        return state.target_cache, jax.jit(model.readout)(params, features)

    (short, logits), (long, wanted) = read(WIDTH + 33), read(WIDTH + 37)
    np.testing.assert_array_equal(logits, wanted)
    for new, old in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        same = tuple(map(slice, map(min, new.shape, old.shape)))
        np.testing.assert_array_equal(np.float32(new[same]), np.float32(old[same]))


@pytest.mark.parametrize("kind", ["bfloat16", "int8", "int8_dynamic"])
def test_a_long_prompt_read_with_narrow_weights_does_not_depend_on_the_batch(kind):
    """Alone, each prompt is as wide as it is long, and the short one has few rows."""
    model, params = make_model("wide", kind)
    random = np.random.default_rng(4)
    texts = [random.integers(1, V, count).tolist() for count in (WIDTH, WIDTH - 9, 20)]
    read = generate.jit_prefill(Decoder(model), WIDTH + 8)
    together = read(Params(params), make_prompt(texts)).target_cache
    for i, text in enumerate(texts):
        alone = read(Params(params), make_prompt([text])).target_cache
        for layer, wanted in zip(alone, together, strict=True):
            keys = layer.keys[0, ..., : len(text)], layer.values[0, :, : len(text)]
            others = wanted.keys[i, ..., : len(text)], wanted.values[i, :, : len(text)]
            np.testing.assert_array_equal(np.float32(keys[0]), np.float32(others[0]))
            np.testing.assert_array_equal(np.float32(keys[1]), np.float32(others[1]))


@pytest.mark.parametrize(("family", "kind"), CASES[:1])
def test_greedy_texts_after_a_long_prompt_do_not_depend_on_gamma(family, kind):
    model, params = make_model(family, kind)
    drafts = jax.tree.map(lambda x: x * 1.01 + 0.003, params)
    drafters = nothing.drafter, *(autoregressive.build(model, g) for g in (1, 4))
    texts = [
        write_greedy(Decoder(model, drafter), Params(params, drafts), PROMPT, new=24)
        for drafter in drafters
    ]
    for text in texts[1:]:
        np.testing.assert_array_equal(text.tokens, texts[0].tokens)


def test_greedy_texts_of_a_batch_of_eight_are_those_of_each_alone():
    """A step of eight texts has 40 rows with gamma = 4, and 48 with gamma = 5."""
    model, params = make_model("llama", None)
    drafts = jax.tree.map(lambda x: x * 1.01 + 0.003, params)
    random = np.random.default_rng(2)
    prompt = make_prompt([random.integers(1, V, 2 + i % 5).tolist() for i in range(8)])
    run = generate.build(Decoder(model), prompt.tokens.shape[1] + 16 + 8)
    alone = []
    for i in range(8):
        row = jax.tree.map(lambda x, i=i: x[i : i + 1], prompt)
        request = make_request(jax.random.key(0), row, 16, make_sampling(1, 0.0))
        alone.append(run(Params(params), row, request).tokens[0])
    for gamma in 4, 5:
        assert 8 * (gamma + 1) <= few_rows.MOST_FLOAT32
        decoder = Decoder(model, autoregressive.build(model, gamma))
        texts = write_greedy(decoder, Params(params, drafts), prompt, new=16)
        np.testing.assert_array_equal(texts.tokens, np.stack(alone))
