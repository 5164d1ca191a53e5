"""The loop is one program: what a step commits, what is traced, and the stream of its
texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import build_step, commit, measure
from specjax.types import Draft, Request, State, Verdict
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME

GAMMA, NEW, SLOTS = 2, 24, 36
PROMPT = make_prompt([[1, 2, 3], [0]])


def make_test_request(
    prompt=PROMPT, temperature: float = 1.0, seed: int = 0
) -> Request:
    sampling = make_sampling(2, temperature)
    return make_request(jax.random.key(seed), prompt, NEW, sampling)


def test_a_step_commits_up_to_an_end_of_text_and_to_the_limit():
    """The test has no loop, which an error here could make endless."""
    verdicts = [[7, 1, 2, 3], [1, 7, 2, 7], [1, 2, 3, 7], [1, 2, 3, 4], [1, 2, 3, 4]]
    start, limit = jnp.full(5, 2), jnp.array([9, 9, 9, 9, 4])
    request = Request(None, None, start, limit, jnp.full(5, 7))
    state = State(jnp.full((5, 9), 5), start, None, None, None)
    verdict = Verdict(jnp.full(5, 3), jnp.array(verdicts), None)
    tokens, length = commit(request, state, verdict)
    assert length.tolist() == [3, 4, 6, 6, 4]
    assert tokens[:, 2:6].tolist() == verdicts


def test_what_a_step_did_is_counted_to_the_end_of_its_row():
    """Drafts are kept completely, rejected, empty, after the end of a row, or cut by
    its limit."""
    start, limit = jnp.full(5, 2), jnp.array([9, 9, 9, 2, 4])
    request = Request(None, None, start, limit, jnp.full(5, 7))
    state = State(jnp.full((5, 9), 5), start, None, None, None)
    tokens, chance = jnp.arange(15).reshape(5, 3), jnp.full((5, 3), 0.5)
    draft = Draft(tokens, jnp.array([3, 3, 0, 3, 3]), None)
    verdict = Verdict(jnp.array([3, 1, 0, 3, 3]), None, chance)
    emitted = jnp.array([4, 2, 1, 0, 2])
    info = measure(request, state, draft, verdict, state.length + emitted)
    assert info.drafted.tolist() == [3, 3, 0, 0, 3]
    assert info.accepted.tolist() == [3, 1, 0, 0, 2]
    assert info.tested.tolist() == [3, 2, 0, 0, 2]
    assert info.emitted.tolist() == emitted.tolist()
    assert info.full.tolist() == [True, False, False, False, True]
    assert info.accept_prob[:, 0].tolist() == [0.5, 0.5, 0.5, 0.0, 0.5]
    np.testing.assert_array_equal(info.tokens, tokens)


def test_what_a_step_did_with_a_tree_is_counted_by_levels():
    """A tree is rejected below node 2, at the leaf 1, and where a budget left node 2
    without children."""
    start = jnp.full(3, 2)
    request = Request(None, None, start, jnp.full(3, 9), jnp.full(3, 7))
    state = State(jnp.full((3, 9), 5), start, None, None, None)
    parent = jnp.tile(jnp.array([-1, -1, 0, 0, 2]), (3, 1))
    nodes, rows = jnp.tile(jnp.arange(5), (3, 1)), [[0, 2], [1, 1], [0, 2]]
    draft = Draft(nodes, jnp.array([5, 5, 4]), None, parent)
    path, n = nodes.at[:, :2].set(jnp.array(rows)), jnp.array([2, 1, 2])
    verdict = Verdict(n, None, nodes / 8, path)
    info = measure(request, state, draft, verdict, state.length + n + 1)
    assert info.tested.tolist() == [3, 1, 2]
    assert info.full.tolist() == [False, True, True]
    assert info.drafted.tolist() == [5, 5, 4] and info.accepted.tolist() == [2, 1, 2]
    order = [[0, 2, 1, 3, 4], [1, 0, 2, 3, 4], [0, 2, 1, 3, 4]]
    assert info.tokens.tolist() == order
    np.testing.assert_array_equal(info.accept_prob, np.array(order) / 8)


def test_what_a_drafter_observes_is_the_last_token_its_draft_and_the_laws_after():
    world, case = tiny.tables(), BY_NAME["autoregressive"]
    decoder, params = case.decoder(world, GAMMA), case.params(world)
    noting = decoder.drafter._replace(observe=lambda params, cache, kept: kept)
    step = build_step(*decoder._replace(drafter=noting))
    state = generate.prefill(decoder, params, PROMPT, SLOTS)
    after, info = jax.jit(step)(params, make_test_request(), state)
    tokens, law, num, count, start, features = after.draft_cache
    assert start.tolist() == [2, 0] and features is None
    assert tokens[:, 0].tolist() == [3, 0] and num.tolist() == [GAMMA] * 2
    np.testing.assert_array_equal(tokens[:, 1:], info.tokens)
    np.testing.assert_array_equal(count, info.accepted)
    np.testing.assert_allclose(law.logits, params.target[tokens], rtol=1e-6)


def test_one_trace_a_shape():
    world, case, calls = tiny.tables(), BY_NAME["autoregressive"], []

    def apply(params, tokens, start, cache):
        calls.append(tokens.shape)
        return world.target.apply(params, tokens, start, cache)

    counted = world._replace(target=world.target._replace(apply=apply))
    decoder = case.decoder(counted, GAMMA)
    run, params = generate.build(decoder, SLOTS), case.params(world)
    run(params, PROMPT, make_test_request())
    traced = len(calls)
    assert set(calls) == {(2, 3), (2, GAMMA + 1)}
    other = make_prompt([[2, 2], [3, 1, 1]])
    run(params, other, make_test_request(other, 0.0, 1))
    assert len(calls) == traced
    wider = make_prompt([[2, 2, 1, 0], [3]])
    run(params, wider, make_test_request(wider, 0.0, 1))
    assert len(calls) > traced  # the count does count


def test_the_loop_asks_nothing_of_the_host_and_a_stream_says_the_same():
    world, case = tiny.tables(), BY_NAME["adaptive"]
    decoder = case.decoder(world, GAMMA)
    arguments = case.params(world), PROMPT, make_test_request()
    program = jax.jit(generate.build_loop(decoder, SLOTS)).lower(*arguments).compile()
    with jax.transfer_guard("disallow"):
        output = jax.block_until_ready(program(*arguments))
        with pytest.raises(Exception, match=r"[Dd]isallowed host-to-device"):
            jnp.add(PROMPT.length, np.ones(2, np.int32))
    text = program.as_text()
    assert "while" in text
    assert not any(word in text for word in ("callback", "infeed", "outfeed"))

    emitted, turns = np.zeros(2, int), tiny.bound()
    for state, info in generate.build_stream(decoder, SLOTS)(*arguments):
        next(turns)
        emitted += np.asarray(info.emitted)
        tokens, length = np.array(state.tokens), np.array(state.length)
        np.testing.assert_array_equal(length, PROMPT.length + emitted)
    np.testing.assert_array_equal(length, output.length)
    written = np.arange(SLOTS) < length[:, None]
    np.testing.assert_array_equal(np.where(written, tokens, 0), output.tokens)


def test_log_probabilities_are_of_the_targets_logits_at_temperature_1():
    """They are computed on request: the loop sums them, and a stream has one per
    token."""
    world, case = tiny.tables(), BY_NAME["adaptive"]
    decoder, params = case.decoder(world, GAMMA), case.params(world)
    arguments = params, PROMPT, make_test_request(temperature=0.5)
    assert generate.build(decoder, SLOTS)(*arguments).logprob is None
    decoder = decoder._replace(logprobs=True)
    output = generate.build(decoder, SLOTS)(*arguments)
    log_p = np.asarray(jax.nn.log_softmax(params.target))  # a row for each last token
    each, turns = [[], []], tiny.bound()
    for _, info in generate.build_stream(decoder, SLOTS)(*arguments):
        next(turns)
        for row, values, count in zip(each, info.logprob, info.emitted, strict=True):
            row += values[: int(count)].tolist()
            assert not np.any(values[int(count) :])
    for row, total, ids, *span in zip(
        each, output.logprob, output.tokens, PROMPT.length, output.length, strict=True
    ):
        places = range(*map(int, span))
        wanted = [log_p[ids[at - 1], ids[at]] for at in places]
        np.testing.assert_allclose(row, wanted, atol=1e-5)
        np.testing.assert_allclose(total, sum(wanted), rtol=1e-5)
