"""Texts come step by step: their pieces, where they stop, and each token's
probability."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.models import gpt, penalties
from specjax.text import streaming
from specjax.text.streaming import cut_text
from specjax.types import TokenAutomaton
from tests.support import text_folders
from tests.support.drafted import build_whole_text_logits

PROMPTS = ["def add(", "class Stack:\n    "]
CODE = gpt.Config(8192, 16, 32, 1, 2)
ASKED = {"gamma": 3, "temperature": 1.0, "new_tokens": 12}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return text_folders.code_pair(tmp_path_factory.mktemp("code"), CODE)


def test_pieces_are_the_text_and_a_stop_cuts_it(pair):
    whole = specjax.generate_text(*pair, PROMPTS, **ASKED)
    assert whole.logprobs is None
    pieces = list(specjax.stream_text(*pair, PROMPTS, logprobs=True, **ASKED))
    texts = ["".join(it.text for it in pieces if it.index == i) for i in (0, 1)]
    assert texts == whole.texts and len(pieces) == whole.calls
    assert [it.ended for it in pieces if it.ended] == ["length"] * 2
    assert sum(len(it.tokens) for it in pieces) == whole.tokens
    ids = [[x for it in pieces if it.index == i for x in it.tokens] for i in (0, 1)]
    assert whole.ids == ids and whole.ended == ["length"] * 2
    tested = sum(it.drafted for it in pieces)
    assert sum(it.accepted for it in pieces) / tested == whole.alpha
    # Where one stops, the other goes on as it did.
    at = len(texts[0]) // 2
    stop = texts[0][at : at + 3]
    assert stop not in texts[1] and texts[0].find(stop) == at
    cut = specjax.generate_text(*pair, PROMPTS, stop=[stop, "\0"], **ASKED)
    assert cut.texts == [texts[0][:at], texts[1]] and cut.tokens < whole.tokens
    told = list(specjax.stream_text(*pair, PROMPTS, stop=[stop], **ASKED))
    assert "".join(it.text for it in told if it.index == 0) == texts[0][:at]
    assert [it.ended for it in told if it.ended and it.index == 0] == ["stop"]


def test_two_threads_write_what_one_does(pair):
    """They use one pair at the same time: in the loop, and in two streams."""
    asked = [ASKED | {"seed": seed} for seed in (0, 1)]
    alone = [specjax.generate_text(*pair, PROMPTS, **it).texts for it in asked]
    begin = threading.Barrier(4)

    def stream_texts(it: dict) -> list[str]:
        begin.wait()
        texts = ["", ""]
        for piece in specjax.stream_text(*pair, PROMPTS, **it):
            texts[piece.index] += piece.text
        return texts

    def generate_texts(it: dict) -> list[str]:
        begin.wait()
        return specjax.generate_text(*pair, PROMPTS, **it).texts

    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(do, it) for do in (stream_texts, generate_texts) for it in asked
        ]
        assert [job.result() for job in jobs] == 2 * alone
    assert alone[0] != alone[1]


def dictate(ids: list[int]) -> TokenAutomaton:
    """Returns rules under which every text consists of these ids."""

    def apply(state, logits):
        said = jnp.array(ids)[jnp.minimum(state, len(ids) - 1)]
        here = jnp.arange(logits.shape[-1]) == said[..., None]
        return jnp.where(here, 0.0, -jnp.inf)

    none = lambda tokens, length: jnp.zeros(length.shape, jnp.int32)  # noqa: E731
    return TokenAutomaton(none, lambda state, token: state + 1, apply)


def test_several_texts_come_in_whole_characters(pair):
    """A character may take several ids, and gamma may end within it."""
    text = "'\u6f22\U0001f642' # \u6f22"
    ids = pair[0].tokenizer.encode(text)[1:]  # without the start
    assert len(ids) > len(text)
    asked = dict(gamma=1, new_tokens=len(ids), rules=dictate(ids))
    pieces = [*specjax.stream_text(*pair, PROMPTS, **asked)]
    assert not any("\ufffd" in it.text for it in pieces)
    assert sum(it.text == "" for it in pieces) > 0 and len(pieces) > 4
    told = ["".join(it.text for it in pieces if it.index == i) for i in (0, 1)]
    assert told == specjax.generate_text(*pair, PROMPTS, **asked).texts
    assert [it.strip() for it in told] == [text, text]


def text_logits(target, ids: list[int]) -> np.ndarray:
    """Returns logits [T, V], computed without a cache."""
    logits = build_whole_text_logits(target.model)(
        target.params, np.array([ids], np.int32)
    )
    return np.asarray(logits[0], np.float64)


def test_logprobs_are_the_targets_own(pair):
    """They are computed from the raw logits at temperature 1, whatever law is
    sampled."""
    asked = ASKED | {"temperature": 0.0, "logprobs": True}
    target, out = pair[0], specjax.generate_text(*pair, PROMPTS[:1], **asked)
    pieces = list(specjax.stream_text(*pair, PROMPTS[:1], **asked))
    ids = [i for it in pieces for i in it.tokens]
    before = target.tokenizer.encode(PROMPTS[0])
    logits = text_logits(target, before + ids)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    rows = np.arange(len(before) - 1, len(logits) - 1)
    np.testing.assert_allclose(out.logprobs[0], log_p[rows, ids], atol=1e-5)


def test_a_draft_does_not_say_where_a_text_stops(pair):
    """With a draft of the same ids everything is one step, and without a draft each
    token is a step."""
    target = pair[0]
    ids = target.tokenizer.encode("return one two three")
    pieces = [streaming.continuation(target.tokenizer, ids, i, i + 1) for i in (1, 2)]
    stop = ["".join(pieces), pieces[0][-1:]]  # the latter is whole first
    asked = dict(gamma=8, rules=dictate(ids), logprobs=True, stop=stop)
    drafted = specjax.generate_text(target, target, ["def "], **asked)
    alone = specjax.generate_text(target, None, ["def "], **asked)
    assert drafted.calls == 1 < alone.calls
    assert (alone.texts, alone.ids, alone.ended) == drafted[:1] + drafted[6:8]
    assert drafted.ids == [ids[:2]] and drafted.ended == ["stop"]
    assert len(drafted.logprobs[0]) == len(alone.logprobs[0]) == 2


def test_special_tokens_are_stopped_at_by_their_ids(pair):
    """A text does not have their names, and strings are not searched for in them
    either."""
    target = pair[0]
    tokenizer = target.tokenizer
    start, end = target.start, target.ends[0]
    name, last = tokenizer.token(start), tokenizer.token(end)
    words = tokenizer.encode("return one two")[1:]
    before, ids = words[:2], [*words[:2], start, *words[2:], end]
    head, text = map(tokenizer.decode, (before, ids))
    behind = text.removeprefix(head)[0]
    asked = dict(gamma=3, rules=dictate(ids), new_tokens=len(ids))
    for stop, count, want, ended in (
        ([name], 3, head, "stop"),
        ([f"{head[-1]}{name}", "never"], 3, head[:-1], "stop"),
        ([f"{name}{behind}"], 4, head, "stop"),
        ([name[-1], f"{name}never"], len(ids), text, "end"),
        ([last], len(ids), text, "end"),
    ):
        for draft in (None, target):
            out = specjax.generate_text(target, draft, ["def"], stop=stop, **asked)
            assert out.texts[0].lstrip() == want, stop
            assert (out.ids, out.ended) == ([ids[:count]], [ended]), stop


@pytest.mark.parametrize(
    ("text", "ended", "stop", "want"),
    [
        ("a b", None, (), ("a b", None)),
        ("a \ufffd", None, (), ("a ", None)),
        ("a \ufffd", "length", (), ("a \ufffd", "length")),
        ("one\nt", None, ("\nt\n", "e\n"), ("on", "stop")),
        ("one\nt", None, ("\nt\n",), ("one", None)),
        ("one\nt", "end", ("\nt\n",), ("one\nt", "end")),
    ],
)
def test_what_may_yet_change_is_held_back(text, ended, stop, want):
    assert cut_text(text, ended, stop) == want


def penalize(logits, text, repetition, presence, frequency, last):
    """Computes the definition, id by id."""
    new = np.array(logits)
    for x in set(text[-last:]):
        count = text[-last:].count(x)
        new[x] = new[x] / repetition if new[x] > 0 else new[x] * repetition
        new[x] -= presence + frequency * count
    return new


@pytest.mark.parametrize("setting", [(1.3, 0.0, 0.0, 64), (1.0, 0.7, 0.4, 5)])
def test_a_penalised_text_is_its_changed_targets(pair, setting):
    """It is greedy, its draft is penalized too, and every token is the argmax by the
    definition; without the penalty the text is another one."""
    target = pair[0]
    asked = {"gamma": 3, "new_tokens": 12}
    plain = list(specjax.stream_text(*pair, PROMPTS[:1], **asked))
    rules = penalties.build(*setting)
    assert rules is penalties.build(*setting)  # one program serves both
    pieces = list(specjax.stream_text(*pair, PROMPTS[:1], rules=rules, **asked))
    ids = [i for it in pieces for i in it.tokens]
    assert ids != [i for it in plain for i in it.tokens]
    assert sum(it.accepted for it in pieces) > 0
    text = target.tokenizer.encode(PROMPTS[0])
    logits = text_logits(target, text + ids)
    for token in ids:
        row = logits[len(text) - 1]
        assert token == np.argmax(penalize(row, text, *setting))
        text = [*text, token]


def test_penalties_that_are_none_are_told():
    for bad in ({"repetition": 0.0}, {"last": 0}):
        with pytest.raises(ValueError, match="need repetition above 0"):
            penalties.build(**bad)
