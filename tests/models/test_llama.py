"""Decoders of Llama's kind: the papers' arithmetic, published sizes, and rings.

That they decode as every model does is in `test_models.py`.
Axes: B rows, T tokens.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive, early_exit
from specjax.models import llama
from specjax.models.llama import Config, Rotation, frequencies
from specjax.step import Decoder
from specjax.types import Params, Prompt
from tests.support import tiny_llama
from tests.support.model_cases import GEMMA2, GEMMA3, IDS, LLAMA, QWEN3, close, compiled
from tests.support.tiny import World
from tests.support.tiny_llama import PORTION, STRETCHED, WINDOW, logits_by_hand

KINDS = LLAMA, QWEN3, GEMMA2, GEMMA3
GEMMA = Config(29, 16, 24, 1, 4, 2, 6, style="gemma", tied=True, eps=1e-2)
LONG = 19  # tokens: rings of 6 slots wrap three times
TEXTS = np.random.default_rng(1).integers(0, IDS, (2, LONG))

# Arithmetic.


@pytest.mark.parametrize(
    "config",
    [*(case.config for case in KINDS), GEMMA],
    ids=[*(case.name for case in KINDS), "gemma"],
)
def test_logits_are_those_of_the_papers(config):
    params = tiny_llama.weights(config, 11)
    run = compiled(llama.build(config))
    logits, _ = run(params, TEXTS, jnp.zeros(2, jnp.int32), None)
    by_hand = [logits_by_hand(config, params, text) for text in TEXTS.tolist()]
    close(logits, by_hand, 1e-4)
    assert np.std(by_hand) > 1


def test_frequencies_of_long_texts():
    """Fast turns as they were, slow ones slower, and some in between."""
    width, base, stretch = 32, STRETCHED.base, STRETCHED.stretch
    plain = [base ** (-2 * k / width) for k in range(width // 2)]
    expected = [tiny_llama.stretched(stretch, each) for each in plain]
    np.testing.assert_allclose(frequencies(STRETCHED, width), expected, rtol=1e-6)
    share = np.divide(expected, plain) * stretch.factor
    assert share.max() == stretch.factor and share.min() == 1
    assert ((1 < share) & (share < stretch.factor)).sum() >= 3
    slower = frequencies(Rotation(base, slower=8.0), width)
    np.testing.assert_allclose(slower, np.divide(plain, 8), rtol=1e-6)


SIZES = {
    "Llama 2 7B": (Config(32000, 4096, 11008, 32, 32, 32, 128), 6_738_415_616),
    "Mistral 7B": (Config(32000, 4096, 14336, 32, 32, 8, 128), 7_241_732_096),
    "Qwen 2.5 0.5B": (
        Config(151936, 896, 4864, 24, 14, 2, 64, "qwen2", tied=True, biased=True),
        494_032_768,
    ),
    "Qwen 3 0.6B": (
        Config(151936, 1024, 3072, 28, 16, 8, 128, "qwen3", tied=True),
        596_049_920,
    ),
    "Gemma 2 2B": (
        Config(256000, 2304, 9216, 26, 8, 4, 256, "gemma2", tied=True),
        2_614_341_888,
    ),
}


@pytest.mark.parametrize(("config", "count"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(config, count):
    """Of one layer and the rest: layers are alike."""
    shallow = llama.abstract_params(config._replace(num_layers=1))
    layer = sum(leaf.size for leaf in jax.tree.leaves(shallow["layers_0"]))
    rest = llama.num_params(config._replace(num_layers=1)) - layer
    assert rest + config.num_layers * layer == count


# Rings.


def prompt_of(tokens) -> Prompt:
    batch, width = tokens.shape
    return Prompt(jnp.array(tokens), jnp.full(batch, width, jnp.int32))


@pytest.mark.parametrize(("slots", "ring"), [(5, 5), (6, 6), (30, WINDOW + PORTION)])
def test_a_local_layer_keeps_its_window_and_a_portion(slots, ring):
    cache = GEMMA2.world().target.init(None, prompt_of(TEXTS), slots)
    lengths = [(x.keys.shape[3], x.values.shape[2]) for x in cache]
    assert lengths == [(ring, ring), (slots, slots)]
    (layer,) = GEMMA2.build(GEMMA2.small).init(None, prompt_of(TEXTS), slots)
    assert layer.values.shape == (2, 2, ring, 6)


@pytest.mark.parametrize(
    ("case", "widths"),
    [(GEMMA2, (3, 1, 4, 2)), (GEMMA3, (4,))],
    ids=["gemma2", "gemma3"],
)
def test_rejected_tokens_leave_no_trace_in_a_ring(case, widths):
    """Calls of a portion at most, each after tokens that are taken back: the logits are
    those of the text alone, as often as the ring wraps."""
    params, run = case.world().target_weights, compiled(case.world().target)
    zero, logits, start, turn = np.zeros(2, np.int32), [], 0, 0
    cache = case.world().target.init(params, prompt_of(TEXTS), LONG + PORTION)
    while start < LONG:
        wrong = (TEXTS[:, :1] + 1 + np.arange(PORTION)) % IDS
        _, cache = run(params, wrong, zero + start, cache)
        width = min(widths[turn % len(widths)], LONG - start)
        right = TEXTS[:, start : start + width]
        now, cache = run(params, right, zero + start, cache)
        logits.append(now)
        start, turn = start + width, turn + 1
    whole, _ = run(params, TEXTS, zero, None)
    close(np.concatenate(logits, axis=1), whole)


def test_a_call_longer_than_a_ring_is_worked_off_in_portions():
    case = GEMMA2
    params, run = case.world().target_weights, compiled(case.world().target)
    start = jnp.zeros(2, jnp.int32)
    cache = case.world().target.init(params, prompt_of(TEXTS), LONG)
    logits, _ = run(params, TEXTS, start, cache)
    close(logits, run(params, TEXTS, start, None)[0])
    at_once = compiled(llama.build(case.config))  # in portions of more than a ring has
    with pytest.raises(ValueError, match="a ring of 6 slots cannot take 19 tokens"):
        at_once(params, TEXTS, start, cache)


# Whole texts.

NEW, GAMMA = 14, 3
PROMPT = inputs.make_prompt([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8], [9, 7, 9, 3, 2]])
SLOTS = PROMPT.tokens.shape[1] + NEW + GAMMA + 1


def greedy(decoder: Decoder, params: Params) -> generate.Output:
    sampling = inputs.make_sampling(len(PROMPT.tokens), 0.0)
    request = inputs.make_request(jax.random.key(0), PROMPT, NEW, sampling)
    run = jax.jit(generate.build_loop(decoder, SLOTS))
    return run(params, PROMPT, request)


def alone(world: World) -> tuple[Decoder, Params]:
    return Decoder(world.target), Params(world.target_weights)


def drafted(world: World) -> tuple[Decoder, Params]:
    drafter = autoregressive.build(world.draft, GAMMA)
    params = Params(world.target_weights, world.draft_weights)
    return Decoder(world.target, drafter), params


def early(world: World) -> tuple[Decoder, Params]:
    drafter = early_exit.build(world.shallow, world.cut, GAMMA)
    params = Params(world.target_weights, world.target_weights)
    return Decoder(world.target, drafter), params


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (GEMMA2, alone),
        (GEMMA2, drafted),
        (GEMMA3, early),
        (LLAMA, early),
        (QWEN3, drafted),
    ],
    ids=lambda each: getattr(each, "__name__", None) or each.name,
)
def test_greedy_texts_are_the_argmax_of_a_full_recomputation(case, parts):
    """Prompts of several portions and of part of one."""
    world = case.world()
    output = greedy(*parts(world))
    logits, _ = compiled(world.target)(
        world.target_weights,
        output.tokens,
        np.zeros(len(output.tokens), np.int32),
        None,
    )
    for row, length in enumerate(np.asarray(PROMPT.length)):
        best = np.argmax(logits[row], axis=-1)[length - 1 : length + NEW - 1]
        text = output.tokens[row, length : length + NEW]
        np.testing.assert_array_equal(text, best)
        assert np.unique(best).size >= 6  # no row only repeats
    if parts is not alone:  # some drafts are kept and some are not
        accepted, tested = output.counts.accepted.sum(), output.counts.tested.sum()
        assert 0 < accepted < tested
