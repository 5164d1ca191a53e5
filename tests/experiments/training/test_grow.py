"""A grown model computes what the small one computed, for any weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.training import grow
from specjax.models import families, gpt, llama, t5, whisper
from specjax.training import forward
from tests.support import tiny, tiny_llama, tiny_t5

GPT = gpt.Config(29, 16, 32, num_layers=2, num_heads=2)
LARGE_GPT = gpt.Config(29, 48, 72, num_layers=5, num_heads=6)
LARGE_T5 = t5.Config(32, 32, 64, 2, 5, num_heads=4, head_width=8, pieces=29)
TOKENS = jnp.asarray(np.random.default_rng(0).integers(2, 29, (3, 7)))
LLAMA = llama.Config(29, 16, 24, 2, 4, 2, head_width=4)
LARGE_LLAMA = LLAMA._replace(dim=32, mlp_dim=36, num_layers=3, num_heads=8, key_heads=4)
LEARNED = {"learned": True, "positions": 9}
FRESH = {
    "gpt": (GPT._replace(**LEARNED), LARGE_GPT._replace(**LEARNED)),
    "llama": (LLAMA, LARGE_LLAMA),
    "t5": (tiny_t5.TARGET, LARGE_T5),
}


@functools.cache
def build_logits(config):
    """Returns a function (params) -> logits of TOKENS."""

    def logits(params):
        read = t5.Inputs(TOKENS[:, ::-1], jnp.asarray([7, 4, 1]))
        return forward.logits(config, params, TOKENS, read=read)

    return tiny_t5.quick_jit(logits)


@functools.cache
def spread_weights(name: str):
    """Returns weights whose logits spread over several nats, and these logits."""
    config = FRESH[name][0]
    if name == "t5":
        params = tiny_t5.weights(config, 0, 1.0)
    elif name == "llama":
        params = jax.tree.map(lambda x: x + 0.05, tiny_llama.weights(config, 0))
    else:
        params = jax.tree.map(lambda x: x + 0.05, tiny.weights(config, 0, 6.0))
    return params, build_logits(config)(params)


@pytest.mark.parametrize("name", FRESH)
def test_a_grown_model_computes_the_same(name):
    (config, large), (params, wanted) = FRESH[name], spread_weights(name)
    grown = grow.grow(config, params, large, noise=0.5)
    fresh = families.of(config).abstract_params(large)
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.shape, b.shape), grown, fresh)
    assert float(jnp.std(wanted)) > 0.5
    assert float(jnp.abs(build_logits(large)(grown) - wanted).max()) < 1e-4


def test_noise_parts_the_copies_and_its_seed_repeats():
    params, (config, large) = spread_weights("gpt")[0], FRESH["gpt"]
    copies = [
        grow.grow(config, params, large, noise=noise, seed=seed)["readout"]
        for noise, seed in ((0.0, 0), (0.3, 0), (0.3, 0), (0.3, 1))
    ]
    np.testing.assert_array_equal(copies[0][:16], copies[0][16:32])
    assert np.all(copies[1][:16] != copies[1][16:32])
    np.testing.assert_array_equal(copies[1], copies[2])
    assert np.any(copies[1] != copies[3])


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (GPT, {"dim": 40}, "whole number"),
        (GPT, {"num_heads": 3}, "head width"),
        (GPT, {"vocab": 30}, "keeps vocab: 29"),
        (GPT, {"num_layers": 1}, "nothing smaller: num_layers"),
        (GPT, {"mlp_dim": 24}, "nothing smaller: mlp_dim"),
        (GPT._replace(tied=True), {"tied": True}, "tied"),
        (LLAMA, {"key_heads": 2}, "heads share a key: 2"),
    ],
)
def test_sizes_that_cannot_compute_the_same_are_refused(config, change, message):
    large = LARGE_LLAMA if config is LLAMA else LARGE_GPT
    with pytest.raises(ValueError, match=message):
        grow.check(config, large._replace(**change))
    with pytest.raises(ValueError, match="within its family"):
        grow.check(config, LARGE_T5)


def test_a_whisper_of_more_decoder_layers_and_frames_begins_with_the_same_law():
    config = whisper.Config(29, 8, 16, 1, 1, 2, bands=4, frames=8, positions=9)
    large = config._replace(decoder_layers=2, frames=12)
    params = jax.jit(forward.fresh(config))(jax.random.key(0))
    grown = grow.grow(config, params, large)
    assert grown["encoder"]["positions"].shape == (large.states, 8)
    states = jax.random.normal(jax.random.key(1), (3, 4, 8))

    def loss(params):
        logits = forward.logits(large, params, TOKENS, read=states)
        return (logits**2).sum(), logits

    gradient, after = tiny_t5.quick_jit(jax.grad(loss, has_aux=True))(grown)
    plain = tiny_t5.quick_jit(functools.partial(forward.logits, config))
    before = plain(params, TOKENS, read=states)
    np.testing.assert_allclose(before, after, atol=1e-5)
    last = gradient["decoder"]["layers_1"]["mlp"]["out"]["kernel"]
    assert np.abs(last).max() > 0  # it can learn
    with pytest.raises(ValueError, match="in frames and in decoder layers alone"):
        grow.grow(config, params, large._replace(dim=16))
