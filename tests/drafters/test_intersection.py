"""A draft of another tokenizer: how it reads a text, and where it has no room."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, probs
from specjax.drafters import intersection, tree
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import build_step
from specjax.verifiers import recursive
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME, of_other_ids, spelled, vocab

CASE = BY_NAME["intersection"]
PROMPT = make_prompt([[1, 3, 3, 4, 5, 6, 9], [7], [3, 4, 3, 4]])
SLOTS, PARENT = 40, (-1, -1, 0, 0, 2)


def branching(world, gamma: int):
    """A tree, by the same draft."""
    model = intersection.told(world.draft, vocab(world), 2)
    return intersection.held(tree.build(model, PARENT), world.draft, 2)


def along(make, steps: int, world, rule=None):
    """The draft after none to so many steps, and the text that each follows."""
    rule = rule or (recursive.verifier if make is branching else CASE.verifier)
    decoder = CASE._replace(drafter=make).decoder(world, 4, rule)
    params = CASE.params(world)
    request = make_request(jax.random.key(3), PROMPT, 24, make_sampling(3, 1.0))
    state = jax.jit(lambda: generate.prefill(decoder, params, PROMPT, SLOTS))()
    step = jax.jit(build_step(*decoder))
    draw = jax.jit(
        lambda state: decoder.drafter.draft(request.key, params.draft, request, state)
    )
    for _ in range(steps):
        yield draw(state)[0], state
        state, _ = step(params, request, state)
    yield draw(state)[0], state


MAKES = of_other_ids, pytest.param(branching, marks=pytest.mark.slow)


@pytest.mark.parametrize("make", MAKES)
def test_its_law_is_that_of_the_text_in_its_own_ids(make):
    """As the draft computes it for the whole text and path, of the common ids, without
    a cache."""
    world, known = tiny.transformers(), spelled(tiny.transformers())
    *_, (draft, state) = along(make, 4, world)
    parent = range(-1, 3) if make is of_other_ids else PARENT
    texts, at = [], []
    for row in range(3):
        paths = {-1: state.tokens[row, : state.length[row]].tolist()}
        for node, above in enumerate(parent):
            text = [*known.head]
            for token in paths[above]:
                text += known.pieces[token, : known.count[token]].tolist()
            texts.append(text), at.append(len(text) - 1)
            paths[node] = [*paths[above], int(draft.tokens[row, node])]
    tokens = jnp.asarray(make_prompt(texts).tokens)

    @jax.jit
    def logits(params):
        zero = jnp.zeros(len(texts), jnp.int32)
        features, _ = world.draft.apply(params, tokens, zero, None)
        return world.draft.readout(params, features)[jnp.arange(len(at)), jnp.array(at)]

    z = np.full((len(texts), vocab(world)), -np.inf, np.float32)
    z[:, known.ids] = np.asarray(logits(world.draft_weights))[:, known.own]
    rows = make_sampling(len(at), 1.0)
    wanted = probs.dense(probs.standardize(jnp.asarray(z), rows))
    got = np.asarray(probs.dense(draft.law)).reshape(z.shape)
    np.testing.assert_allclose(got, wanted, atol=2e-5)
    assert np.abs(np.diff(got, axis=0)).max() > 0.1  # laws that differ by path


@pytest.mark.parametrize("make", MAKES)
def test_where_its_own_ids_have_no_room_it_drafts_nothing(make):
    world = tiny.transformers()
    short = world._replace(draft=world.draft._replace(slots=16))
    known = spelled(world)
    silent = [], []
    for draft, state in along(make, 4, short):
        for row in range(3):
            text = state.tokens[row, : state.length[row]]
            size = known.head.size + int(known.count[text].sum())
            fits = size + len(draft.tokens[row]) <= 17
            assert (draft.num[row] > 0) == fits
            silent[fits].append(row)
    assert all(map(len, silent))


def test_tokens_are_cut_at_the_longest_pieces():
    draft = [None, b"a", b"b", b"ab", b"c", b"abc", b"a"]  # the second "a" is the piece
    target = [None, b"ab", b"abab", b"x", b"bxc", b"a", None, b"a" * 10, None]
    names = ["<s>", *[None] * 5, "<ab>", None, None]
    known = intersection.spelling(target, draft, {0: 0}, names, [4])
    read = [row[:n].tolist() for row, n in zip(known.pieces, known.count, strict=True)]
    assert read == [[0], [3], [3, 3], [0], [2, 4], [6], [3], [6] * 8, [0]]
    assert known.ids.tolist() == [0, 1, 5] and known.own.tolist() == [0, 3, 6]
    assert known.head.tolist() == [4] and known.stretch == 2
