"""The automaton allows what the rules allow for whole texts, and no more.

Axes: B rows, T tokens, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.speech import rules, tokens
from specjax.speech.limits import Limits
from tests.support.tiny_whisper import EARLIER, PROMPT, TOKENS, VOCAB

LIMITS = Limits(suppressed=(1, 7, 22, 28), at_first=(5, 20), first_time=4)
FIRST, END = TOKENS.first_time, TOKENS.end
ROWS, MOST, WIDTH = 300, 12, 24


def texts(rng: np.random.Generator) -> list[list[int]]:
    """Returns beginnings of texts of all lengths, half of whose tokens are times that
    seldom decrease; some have special tokens in them, which only suppression
    excludes."""
    rows = []
    for number in range(ROWS):
        own, time = [], FIRST
        for _ in range(number % MOST):
            time = min(VOCAB - 1, time + int(rng.integers(0, 4)))
            other = rng.integers(0, FIRST if own and own[-1] < END else END)
            own.append(int(rng.choice([time, time, other])))
        rows.append(own)
    return rows


def pad_rows(rows):
    """Returns [B, T] with other tokens after each row, and the lengths [B]."""
    full = [(row + [35, 3, 35] + [3] * WIDTH)[:WIDTH] for row in rows]
    return np.array(full, np.int32), np.array([len(row) for row in rows], np.int32)


def forbidden_tokens(state, first_time=LIMITS.first_time) -> np.ndarray:
    run = functools.partial(rules.forbidden, TOKENS, first_time, vocab=VOCAB)
    return np.asarray(jax.jit(run)(state))


def allowed_ids(own: list[int]) -> set[int]:
    """Returns what may follow, before logits are used, by a rule about whole texts."""
    times = [token for token in own if token >= FIRST]
    ids = set(range(VOCAB)) - {*LIMITS.suppressed, TOKENS.no_timestamps}
    if not own:
        early = FIRST + LIMITS.first_time
        return {i for i in ids if FIRST <= i <= early} - {*LIMITS.at_first}
    if own[-1] < FIRST:  # within a segment: any text, or a later time
        return {i for i in ids if i < FIRST or i > max(times[-1:], default=0)}
    if len(own) == 1 or own[-2] >= FIRST:  # a segment begins
        return {i for i in ids if i < FIRST}
    return {i for i in ids if i >= max(END, own[-1]) or END <= i < FIRST}


@pytest.fixture(scope="module")
def built():
    ruled = rules.build(TOKENS, LIMITS, VOCAB)
    return ruled._replace(advance=jax.jit(ruled.advance), apply=jax.jit(ruled.apply))


@pytest.fixture(scope="module")
def beginnings():
    return texts(np.random.default_rng(0))


def test_the_mask_is_what_the_rules_say_of_the_text(built, beginnings):
    state = built.begin(*pad_rows([[*PROMPT, *own] for own in beginnings]))
    never = np.zeros(VOCAB, bool)
    never[list(LIMITS.suppressed)] = True
    mask = forbidden_tokens(state) | never
    for own, row in zip(beginnings, mask, strict=True):
        wrong = {*np.flatnonzero(~row)} ^ allowed_ids(own)
        assert wrong <= ({*LIMITS.at_first} if not own else set())
    for leaf in state._fields:  # a state that forgets is noticed
        wrong = state._replace(**{leaf: np.zeros_like(state.last)})
        assert (forbidden_tokens(wrong) | never != mask).any(), leaf


def test_a_longer_beginning_is_a_shorter_one_advanced(built, beginnings):
    own = [31, 3, 35, 35, 4]  # without a prompt all is a row's own
    state, other = (built.begin(*pad_rows([head + own])) for head in ([], PROMPT))
    jax.tree.map(np.testing.assert_array_equal, state, other)
    for prompt in (PROMPT, EARLIER + PROMPT, [TOKENS.start]):
        whole = built.begin(*pad_rows([[*prompt, *own] for own in beginnings]))
        state = built.begin(*pad_rows([prompt] * ROWS))
        for at in range(MOST):
            token = [own[at] if at < len(own) else 0 for own in beginnings]
            going = np.array([at < len(own) for own in beginnings])
            later = built.advance(state, np.array(token, np.int32))
            state = jax.tree.map(functools.partial(np.where, going), later, state)
        assert all(leaf.dtype == jnp.int32 for leaf in whole)
        jax.tree.map(np.testing.assert_array_equal, whole, state)


def test_words_behind_the_times_are_text(monkeypatch):
    """A fine-tuned model may have them: here the last five ids are words."""
    monkeypatch.setattr(tokens, "STEPS", 25)
    words, special = {*range(20), *range(56, VOCAB)}, {*range(20, 30)}
    follow = {
        (): {*range(30, 56)},
        (31,): words,
        (31, 57): words | {*range(32, 56)},
        (31, 57, 58, 40): {*range(40, 56)},
        (31, 57, 40, 40): words,
    }
    built = rules.build(TOKENS, Limits(), VOCAB)
    state = built.begin(*pad_rows([[*PROMPT, *own] for own in follow]))
    mask = forbidden_tokens(state, None)
    assert [{*np.flatnonzero(~row)} - special for row in mask] == [*follow.values()]
    later = built.advance(state, np.full(5, 57, np.int32))
    np.testing.assert_array_equal(later.last, [0] * 5)
    np.testing.assert_array_equal(later.time, [-1, 31, 31, 40, 40])
    likely = jnp.zeros(VOCAB).at[57].set(jnp.log(26.5))  # than 26 times together
    assert np.isfinite(rules.prefer_times(TOKENS, likely)).all()


def test_likely_timestamps_must_follow(built):
    state = built.begin(*pad_rows([[*PROMPT, 30, 4]]))
    logits = jnp.zeros((1, VOCAB)).at[0, 3].set(jnp.log(28.5))  # 30 times are left
    ruled = np.asarray(built.apply(state, logits))[0]
    assert np.isneginf(ruled[:FIRST]).all() and np.isfinite(ruled[31:]).all()
    likelier = built.apply(state, logits.at[0, 3].set(jnp.log(30.5)))
    assert np.isfinite(np.asarray(likelier)[0, [0, 2, 3, END, 31]]).all()


def test_apply_takes_any_leading_axes_and_leaves_the_rest_as_it_was(built, beginnings):
    state = built.begin(*pad_rows([[*PROMPT, *own] for own in beginnings]))
    logits = np.random.default_rng(0).normal(0, 4, (ROWS, VOCAB)).astype(np.float32)
    flat = np.asarray(built.apply(state, logits))
    kept = np.isfinite(flat)
    assert kept.any(1).all()
    np.testing.assert_array_equal(flat[kept], np.asarray(logits)[kept])
    folded = jax.tree.map(lambda leaf: leaf.reshape(30, 10), state)
    both = built.apply(folded, logits.reshape(30, 10, VOCAB))
    np.testing.assert_array_equal(both.reshape(ROWS, VOCAB), flat)


def test_without_timestamps_only_what_is_suppressed_counts():
    plain = rules.build(TOKENS, LIMITS, VOCAB, timestamps=False)
    state = plain.begin(*pad_rows([[*PROMPT, 29], [*PROMPT, 29, 4]]))
    ruled = np.isneginf(plain.apply(state, jnp.zeros((2, VOCAB))))
    assert {*np.flatnonzero(ruled[0])} == {*LIMITS.suppressed, *LIMITS.at_first}
    assert {*np.flatnonzero(ruled[1])} == {*LIMITS.suppressed}


def test_what_does_not_fit_the_vocabulary_is_told(built):
    state, wide = built.begin(*pad_rows([PROMPT])), jnp.zeros((1, 62))
    for ask, told in (
        (lambda: rules.build(TOKENS, Limits((61,)), VOCAB), r"\[61\] are not in 0"),
        (lambda: rules.build(TOKENS, Limits(), FIRST), "without timestamps"),
        (lambda: built.apply(state, wide), "logits of 62"),
    ):
        with pytest.raises(ValueError, match=told):
            ask()


def test_logits_at_the_start_tell_the_language_and_silence():
    logits = jnp.zeros((2, VOCAB)).at[0, 23].set(3.0).at[1, 28].set(4.0)
    logits = logits.at[:, 5].set(9.0)  # text is not a language
    assert rules.language(TOKENS, logits) == ["de", "en"]
    chance = np.exp(4) / (np.exp(4) + np.exp(9) + VOCAB - 2)
    assert float(rules.no_speech(TOKENS, logits)[1]) == pytest.approx(chance, rel=1e-5)
    with pytest.raises(ValueError, match="English only"):
        rules.language(TOKENS._replace(languages={}), logits)
