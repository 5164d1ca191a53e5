"""A side under a filter: its law is of the likeliest ids alone."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.wagner import filtered
from specjax.bench import players
from specjax.models import llama
from specjax.types import Prompt, Sampling
from tests.support import tiny_llama


def test_a_filter_keeps_the_likeliest():
    config = tiny_llama.LLAMA
    model = llama.build(config)
    target = players.of_model("target", model, tiny_llama.weights(config, 0))
    side = filtered.top(target, 5)
    tokens = jnp.asarray([[1, 3, 4]])
    prompt, sampling = Prompt(tokens, jnp.asarray([3])), Sampling(jnp.ones(1))
    plain, cut = (
        np.asarray(it.law(it.params, prompt, sampling).logits) for it in (target, side)
    )
    kept = np.argsort(-plain, axis=-1)[..., :5]
    wanted = np.full_like(plain, -np.inf)
    np.put_along_axis(wanted, kept, np.take_along_axis(plain, kept, -1), -1)
    np.testing.assert_array_equal(cut, wanted)
    assert side.name != target.name  # by which its texts are kept
    with pytest.raises(ValueError, match="set TOP_K; got 0"):
        filtered.top(target, 0)
