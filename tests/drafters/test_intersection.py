"""A draft with another tokenizer reads a text correctly, stops where it has no room,
and drafts the right ids."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import probs
from specjax.drafters import intersection, tree
from specjax.inputs import make_prompt, make_sampling
from specjax.types import Draft, Drafter, State
from specjax.verifiers import recursive, token
from tests.support import tiny
from tests.support.drafted import Drafted, build_whole_text_logits, drafts_by_step
from tests.support.drafter_cases import (
    BY_NAME,
    build_strings,
    make_spelling,
    other_ids,
    vocab,
)

CASE = BY_NAME["intersection"]
PROMPT = make_prompt([[1, 3, 3, 4, 5, 6, 9], [7], [3, 4, 3, 4]])
PARENT = (-1, -1, 0, 0, 2)


def build_tree(world, gamma: int):
    """Builds a tree that the same draft model drafts."""
    model = intersection.in_target_vocab(world.draft, vocab(world), 2)
    return intersection.limit_to_room(tree.build(model, PARENT), world.draft, 2)


def drafts(make, world, rule=None) -> list[Drafted]:
    """Returns the drafts after none to four steps."""
    rule = rule or (recursive.verifier if make is build_tree else CASE.verifier)
    decoder = CASE._replace(drafter=make).decoder(world, 4, rule)
    return drafts_by_step(decoder, CASE.params(world), PROMPT, steps=4)


SHORT = tiny.transformers()
SHORT = SHORT._replace(draft=SHORT.draft._replace(slots=18))
short_of_room = functools.cache(lambda make: drafts(make, SHORT))
MAKES = other_ids, pytest.param(build_tree, marks=pytest.mark.slow)


@pytest.mark.parametrize("make", MAKES)
def test_its_law_is_that_of_the_text_in_its_own_ids(make):
    """The reference is the draft's law for the whole text and path, over the common
    ids, without a cache."""
    world, known = tiny.transformers(), make_spelling(tiny.transformers())
    several = (x for x in short_of_room(make) if np.count_nonzero(x.draft.num) > 1)
    *_, now = several  # the last, where two rows or more have room
    live = np.flatnonzero(now.draft.num)
    parent = range(-1, 3) if make is other_ids else PARENT
    texts = []
    for row in live:
        paths = {-1: now.texts()[row]}
        for node, above in enumerate(parent):
            text = [*known.head]
            for i in paths[above]:
                text += known.pieces[i, : known.num[i]].tolist()
            texts.append(text)
            paths[node] = [*paths[above], int(now.draft.tokens[row, node])]
    prompt, count = make_prompt(texts), len(texts)
    logits = np.asarray(
        build_whole_text_logits(world.draft)(world.draft_weights, prompt.tokens)
    )
    z = np.full((count, vocab(world)), -np.inf, np.float32)
    z[:, known.ids] = logits[np.arange(count), prompt.length - 1][:, known.own]
    wanted = probs.dense(probs.standardize(jnp.asarray(z), make_sampling(count, 1.0)))
    got = np.asarray(probs.dense(now.draft.law))[live].reshape(z.shape)
    np.testing.assert_allclose(got, wanted, atol=2e-5)
    assert np.abs(np.diff(got, axis=0)).max() > 0.1  # laws that differ by path


@pytest.mark.parametrize("make", MAKES)
def test_where_its_own_ids_have_no_room_it_drafts_nothing(make):
    known, silent = make_spelling(SHORT), ([], [])
    for now in short_of_room(make):
        for row, text in enumerate(now.texts()):
            size = known.head.size + int(known.num[text].sum())
            fits = size + len(now.draft.tokens[row]) <= 19
            assert (now.draft.num[row] > 0) == fits
            silent[fits].append(row)
    assert all(map(len, silent))


def test_a_draft_has_room_for_its_stretch_and_its_own_slots():
    """The target has 5 slots and the stretch is 2, so that the draft has 10 ids, or as
    many slots as it has itself."""
    gamma, rows = 4, jnp.arange(2)
    ends = jnp.zeros((2, 6), jnp.int32).at[:, 3].set(jnp.array([7, 8]))
    state = State(None, jnp.full(2, 3), None, None, None)

    def draft(*asked):
        num = jnp.full(rows.size, gamma)
        return Draft(None, num, None), intersection.TargetVocabCache(None, ends)

    for slots, num in ((None, [4, 0]), (9, [0, 0]), (11, [4, 0])):
        model = SHORT.draft._replace(slots=slots)
        held = intersection.limit_to_room(Drafter(None, draft, gamma), model, 2)
        assert held.draft(None, None, None, state)[0].num.tolist() == num


def test_tokens_are_cut_at_the_longest_pieces():
    draft = [None, b"a", b"b", b"ab", b"c", b"abc", b"a"]  # the second "a" is the piece
    target = [None, b"ab", b"abab", b"x", b"bxc", b"a", None, b"a" * 10, None]
    names = ["<s>", *[None] * 5, "<ab>", None, None]
    known = intersection.spelling(target, draft, same={0: 0}, names=names, head=[4])
    read = [row[:n].tolist() for row, n in zip(known.pieces, known.num, strict=True)]
    assert read == [[0], [3], [3, 3], [0], [2, 4], [6], [3], [6] * 8, [0]]
    assert known.ids.tolist() == [0, 1, 5] and known.own.tolist() == [0, 3, 6]
    assert known.head.tolist() == [4] and known.stretch == 2


def unlimited_drafter(world, gamma: int):
    """Returns a drafter that proposes any of its ids, as if they were the target's."""
    return build_strings(
        world, gamma, lambda behind, said: (said, np.full(len(said), gamma))
    )


def kept_whole(key, start, gamma: int, vocab: int) -> token.Noise:
    return token.Noise(jnp.zeros((start.size, gamma)), jnp.full((start.size, 2), 0.5))


def test_it_says_its_likeliest_ids_of_the_whole_text():
    """The reference is computed from the whole text in the draft's own ids, without a
    cache."""
    world, known = tiny.transformers(), make_spelling(tiny.transformers())
    *_, now = drafts(
        unlimited_drafter, world, token.verifier._replace(noise=kept_whole)
    )
    assert now.state.length.tolist() == [7 + 5 * 4, 1 + 5 * 4, 4 + 5 * 4]
    texts, at = [], []
    for written, drafted in zip(now.texts(), now.draft.tokens.tolist(), strict=True):
        text = [*known.head]
        for i in written:
            text += known.pieces[i, : known.num[i]].tolist()
        texts.append([*text, *drafted])
        at.append(len(text) - 1 + np.arange(len(drafted)))
    logits = build_whole_text_logits(world.draft)(
        world.draft_weights, make_prompt(texts).tokens
    )
    said = np.take_along_axis(np.argmax(logits, axis=-1), np.array(at), 1)
    assert said.tolist() == now.draft.tokens.tolist()
    assert len({*said.ravel().tolist()}) > 2 and now.draft.num.tolist() == [4, 4, 4]
