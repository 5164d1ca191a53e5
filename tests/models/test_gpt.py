"""Learned positions, which only GPT has, limit its texts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive, tree
from specjax.models import gpt
from specjax.step import Decoder
from specjax.types import Params
from specjax.verifiers import recursive, token
from tests.support import slow, tiny
from tests.support.model_cases import compile_call

LEARNED, POSITIONS, KNOWN, GAMMA = tiny.TARGET._replace(learned=True), 16, 9, 3


@pytest.mark.parametrize(
    ("build", "rule", "counts"),
    slow.mark_slow_after(
        1,
        [
            (partial(autoregressive.build, gamma=GAMMA), token.verifier, [6, 5]),
            (partial(tree.build, parent=(-1, 0, 1)), recursive.verifier, [6, 3]),
        ],
    ),
    ids=["chain", "tree"],
)
def test_texts_are_written_to_the_last_position_by_drafts_that_know_fewer(
    build, rule, counts
):
    """The draft is the target with fewer positions: it is right up to its last
    position. A tree is drafted completely or not at all."""
    target = gpt.build(LEARNED._replace(positions=POSITIONS))
    assert (gpt.build(tiny.TARGET).slots, target.slots) == (None, POSITIONS)
    draft = gpt.build(LEARNED._replace(positions=KNOWN))
    params = tiny.weights(LEARNED._replace(positions=POSITIONS), 1)
    cut = params | {"positions": params["positions"][:KNOWN]}
    prompt = inputs.make_prompt([[3, 1], [4, 1, 5, 9]])
    sampling = inputs.make_sampling(2, 0.0)
    request = inputs.make_request(jax.random.key(0), prompt, 1, sampling)
    request = request._replace(limit=jnp.full(2, POSITIONS))
    decoder = Decoder(target, build(draft), rule)
    slots = POSITIONS + GAMMA + 1
    inputs.check(decoder, slots, Params(params, cut), prompt, request)
    run = jax.jit(generate.build_loop(decoder, slots))
    output = jax.device_get(run(Params(params, cut), prompt, request))
    text = output.tokens[:, :POSITIONS]
    logits, _ = compile_call(target)(params, text, np.zeros(2, np.int32), None)
    tiny.check_greedy(output, prompt.length, logits, least=3)
    # Every draft is kept: one that reads the last known position is the last.
    drafted, accepted = output.counts.drafted, output.counts.accepted
    assert drafted.tolist() == accepted.tolist() == counts
