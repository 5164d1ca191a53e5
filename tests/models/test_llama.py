"""Decoders of Llama's kind compute the papers' arithmetic and keep the cache of a
window."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import llama
from specjax.models.llama import Config
from specjax.types import Prompt
from tests.support import tiny_llama
from tests.support.model_cases import GEMMA2, IDS, ZERO, assert_close, compile_call
from tests.support.tiny_llama import PORTION, WINDOW

GEMMA = Config(29, 16, 24, 1, 4, 2, 6, style="gemma", tied=True, eps=1e-2)
LONG = 19  # tokens: rings of 6 slots wrap three times
TEXTS = np.random.default_rng(1).integers(0, IDS, (2, LONG))

# Of the first three ids after the last token of each text: as a second implementation
# computed them, of numpy and in float64. `checkpoints/test_parity_models.py` compares
# with transformers.
RECORDED = [
    (tiny_llama.LLAMA, [[-1.396, -1.6586, 2.7382], [-5.529, -2.7615, -2.3744]]),
    (tiny_llama.QWEN3, [[5.1288, 2.6117, 2.0409], [-1.4974, 0.5182, -5.9766]]),
    (tiny_llama.GEMMA2, [[-0.7913, 2.507, -0.7173], [-2.241, 0.5303, 0.2978]]),
    (tiny_llama.GEMMA3, [[0.8348, -0.5109, 5.1533], [2.2595, 3.2055, -0.1721]]),
    (GEMMA, [[0.0304, -1.0762, 3.6829], [1.6963, 0.5404, 3.1678]]),
]


@pytest.mark.parametrize(("config", "recorded"), RECORDED)
def test_logits_are_those_of_the_papers(config, recorded):
    params, run = tiny_llama.weights(config, 11), compile_call(llama.build(config))
    logits, _ = run(params, TEXTS, jnp.zeros(2, jnp.int32), None)
    assert_close(logits[:, -1, :3], recorded, 2e-4)


def make_prompt(tokens) -> Prompt:
    batch, width = tokens.shape
    return Prompt(jnp.array(tokens), jnp.full(batch, width, jnp.int32))


@pytest.mark.parametrize(("slots", "ring"), [(5, 5), (6, 6), (30, WINDOW + PORTION)])
def test_a_local_layer_keeps_its_window_and_a_portion(slots, ring):
    cache = GEMMA2.world().target.init(None, make_prompt(TEXTS), slots)
    lengths = [(x.keys.shape[3], x.values.shape[2]) for x in cache]
    assert lengths == [(ring, ring), (slots, slots)]
    (layer,) = GEMMA2.build(GEMMA2.small).init(None, make_prompt(TEXTS), slots)
    assert layer.values.shape == (2, 2, ring, 6)


def test_rejected_tokens_leave_no_trace_in_a_ring():
    """The ring wraps several times; calls longer than a portion are computed in
    several."""
    model, params, zero = GEMMA2.world().target, GEMMA2.world().target_weights, ZERO[:2]
    cache, logits, start = model.init(params, make_prompt(TEXTS), LONG + PORTION), [], 0
    whole, _ = GEMMA2.call(TEXTS, zero, None)
    assert_close(GEMMA2.call(TEXTS, zero, cache)[0], whole)
    for width in itertools.cycle((3, 1, 4, 2)):
        wrong = (TEXTS[:, :1] + 1 + np.arange(PORTION)) % IDS
        _, cache = GEMMA2.call(wrong, zero + start, cache)
        right = TEXTS[:, start : start + width]
        now, cache = GEMMA2.call(right, zero + start, cache)
        logits.append(now)
        start += width
        if start >= LONG:
            break
    assert_close(np.concatenate(logits, axis=1), whole)
    at_once = llama.build(GEMMA2.config)  # in portions of more than a ring has
    with pytest.raises(ValueError, match="a ring of 6 slots cannot take 19 tokens"):
        at_once.apply(params, TEXTS, zero, cache)
