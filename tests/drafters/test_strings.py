"""A draft of another tokenizer that writes freely: what it says is its likeliest."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.inputs import make_prompt
from specjax.verifiers import token
from tests.drafters.test_intersection import along
from tests.support import tiny
from tests.support.drafter_cases import by_strings, spelled

STEPS = 4


def as_said(world, gamma: int):
    """Its ids as if they were the target's."""
    return by_strings(
        world, gamma, lambda behind, said: (said, np.full(len(said), gamma))
    )


def kept_whole(key, start, gamma: int, vocab: int) -> token.Noise:
    return token.Noise(jnp.zeros((start.size, gamma)), jnp.full((start.size, 2), 0.5))


def test_it_says_its_likeliest_ids_of_the_whole_text():
    """As the draft computes it in its own ids, without a cache."""
    world, known = tiny.transformers(), spelled(tiny.transformers())
    rule = token.verifier._replace(noise=kept_whole)
    *_, (draft, state) = along(as_said, STEPS, world, rule)
    assert state.length.tolist() == [7 + 5 * STEPS, 1 + 5 * STEPS, 4 + 5 * STEPS]
    texts, at = [], []
    for row in range(3):
        text = [*known.head]
        for i in state.tokens[row, : state.length[row]].tolist():
            text += known.pieces[i, : known.count[i]].tolist()
        texts.append([*text, *draft.tokens[row].tolist()])
        at.append(len(text) - 1 + np.arange(draft.tokens.shape[1]))
    tokens = jnp.asarray(make_prompt(texts).tokens)

    @jax.jit
    def best(params):
        features, _ = world.draft.apply(params, tokens, jnp.zeros(3, jnp.int32), None)
        return jnp.argmax(world.draft.readout(params, features), axis=-1)

    said = np.take_along_axis(np.asarray(best(world.draft_weights)), np.array(at), 1)
    assert said.tolist() == draft.tokens.tolist()
    assert len({*said.ravel().tolist()}) > 2 and draft.num.tolist() == [4, 4, 4]
