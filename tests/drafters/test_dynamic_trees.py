"""Trees that differ from text to text are those that a plain description gives.

Axes: B rows, G nodes, V vocabulary.
"""

import jax
import numpy as np
import pytest

from specjax import generate, probs
from specjax.drafters import best_first, forked, grown, tree
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Params
from specjax.verifiers import recursive, recursive_replaced
from tests.support import tiny
from tests.support.drafted import (
    SLOTS,
    Drafted,
    build_whole_text_logits,
    draft_twice,
    drafts_by_step,
)
from tests.support.drafter_cases import BY_NAME

PROMPT = make_prompt([[1, 2, 3, 4, 5], [7], [3, 4, 3, 4]])
BATCH, NODES, FLOORS, LONGEST = 3, 7, (0.3, 0.25, 0.1), 3
WRITTEN = 12, 6, 20, 2  # LONGEST tokens and one
WORLD = tiny.transformers()
PARAMS = Params(WORLD.draft_weights, WORLD.draft_weights)
LOGITS = build_whole_text_logits(WORLD.draft)


def draft_after_step(drafter) -> Drafted:
    """Returns a draft after a step that commits as many tokens as possible."""
    decoder = Decoder(WORLD.draft, drafter, recursive.verifier)
    return draft_twice(decoder, PARAMS, PROMPT, written=WRITTEN)[1]


def list_rows(now: Drafted):
    """Returns the tokens, the parents and the text of each row."""
    rows = now.draft.tokens.tolist(), now.draft.parent.tolist(), now.texts()
    return zip(*rows, strict=True)


def law_after(text: list, path: list) -> np.ndarray:
    """Returns the draft's own law of the next token, computed without a cache."""
    tokens = np.zeros((1, SLOTS), np.int32)
    tokens[0, : len(text) + len(path)] = text + path
    logits = LOGITS(WORLD.draft_weights, tokens)[0, len(text) + len(path) - 1]
    return np.asarray(jax.nn.softmax(logits))


def mix_with_floors(shares: list) -> list:
    return [f + (1 - f) * s for f, s in zip(FLOORS, shares, strict=False)]


@pytest.mark.parametrize("floors", [(), FLOORS])
def test_the_best_of_what_a_beam_extends(floors):
    """With no floor, paths are compared by their probabilities alone."""
    drafter = best_first.build(
        WORLD.draft, NODES, width=2, longest=LONGEST, floors=floors
    )
    for tokens, parents, text in list_rows(draft_after_step(drafter)):
        beam, every = [((), 1.0)], []
        for _ in range(LONGEST):
            level = []
            for path, score in beam:
                q = law_after(text, list(path))
                x, y = np.argsort(-q, kind="stable")[:2]
                a, b = q[x], q[y] / (1 - q[x])
                if floors:
                    a, b = mix_with_floors([a, b])
                level += [((*path, x), score * a), ((*path, y), score * (1 - a) * b)]
            beam = sorted(level, key=lambda pair: -pair[1])[:2]
            every += level
        wanted = sorted(every, key=lambda pair: -pair[1])[:NODES]
        paths = []
        for token, above in zip(tokens, parents, strict=True):
            paths.append((*(paths[above] if above >= 0 else ()), token))
        assert paths == [path for path, _ in wanted]


def build_best_first(model):
    return best_first.build(model, NODES, width=2, longest=LONGEST)


def build_fixed_tree(model):
    return tree.build(model, (-1, -1, 0, 1, 2))


@pytest.mark.parametrize("make", [build_best_first, build_fixed_tree])
def test_a_tree_takes_a_call_for_each_token_of_its_longest_path(make):
    """Another call would give the same draft."""
    calls = []

    def apply(*asked):
        calls.append(asked)
        return WORLD.draft.apply(*asked)

    drafter = make(WORLD.draft._replace(apply=apply))
    decoder = Decoder(WORLD.draft, drafter, recursive.verifier)
    request = make_request(jax.random.key(3), PROMPT, 24, make_sampling(BATCH, 1.0))

    def draft_tokens():
        state = generate.prefill(decoder, PARAMS, PROMPT, SLOTS)
        calls.clear()
        return drafter.draft(request.key, PARAMS.draft, request, state)[0].tokens

    jax.eval_shape(draft_tokens)
    assert len(calls) == LONGEST


def estimate_kept(reach: float, drawn: list, q: np.ndarray, path: list) -> float:
    """Returns the estimated probability that the next child of a place is kept, given
    what was drawn there before."""
    if len(drawn) == len(FLOORS) or len(path) == LONGEST:
        return -1
    left, floor = np.delete(q, drawn), FLOORS[len(drawn)]
    return reach * (floor + (1 - floor) * (left**2).sum() / left.sum() ** 2)


def test_a_place_is_chosen_by_what_was_drawn_before():
    """Each node carries the draft's own law after its parent's path."""
    shapes, now = (
        set(),
        draft_after_step(grown.build(WORLD.draft, NODES, FLOORS, LONGEST)),
    )
    laws = np.asarray(jax.jit(probs.dense)(now.draft.law))
    for law, (tokens, parents, text) in zip(laws, list_rows(now), strict=True):
        places, paths = {-1: [1.0, [], law_after(text, [])]}, {-1: []}
        for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            values = {row: estimate_kept(*places[row], paths[row]) for row in places}
            assert values[parent] == pytest.approx(max(values.values()), rel=1e-3)
            reach, drawn, q = places[parent]
            np.testing.assert_allclose(law[node], q, atol=2e-5)
            share, floor = q[token] / np.delete(q, drawn).sum(), FLOORS[len(drawn)]
            chance = floor + (1 - floor) * share
            places[parent] = [reach * (1 - chance), [*drawn, token], q]
            paths[node] = [*paths[parent], token]
            places[node] = [reach * chance, [], law_after(text, paths[node])]
            assert token not in drawn
        shapes.add(tuple(parents))
    assert len(shapes) > 1


def test_a_copy_lies_beside_the_chain_where_there_is_one():
    drafter = forked.build(WORLD.draft, 5, 2, longest=2)
    decoder = Decoder(WORLD.target, drafter, recursive_replaced.verifier)
    draft = drafts_by_step(decoder, BY_NAME["tree"].params(WORLD), PROMPT, steps=0)[
        0
    ].draft
    assert draft.parent.tolist() == [[-1, 0, 1, -1, 3]] * BATCH
    assert draft.num.tolist() == [3, 3, 5] and draft.tokens[2, 3:].tolist() == [3, 4]
    q = np.asarray(probs.dense(draft.law)).sum(-1)
    np.testing.assert_allclose(q, [[1, 1, 1, 0, 0]] * BATCH, atol=1e-5)


def test_there_are_no_more_nodes_than_a_tree_has_places():
    assert best_first.build(WORLD.draft, 9, width=2, longest=2).gamma == 6
    assert grown.build(WORLD.draft, 9, (0.5, 0.5), 2).gamma == 6
    assert grown.build(WORLD.draft, 9, (0.5,), 2).gamma == 2
