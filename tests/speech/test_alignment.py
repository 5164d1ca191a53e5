"""Times of tokens come from the best path through the attention of certain heads."""

import functools
import itertools
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import whisper
from specjax.speech import alignment
from specjax.speech import pair as pairs
from specjax.speech.transcripts import transcribe
from tests.support import speech_folders, tiny_whisper
from tests.support.checkpoint_folders import reconfigure


def cheapest_cost(cost: np.ndarray) -> float:
    """Returns the cost of the cheapest path, found by trying every path."""
    before = cost[:-1], cost[:, :-1], cost[:-1, :-1]
    return cost[-1, -1] + min((cheapest_cost(x) for x in before if x.size), default=0.0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (4, 5), (5, 3)])
def test_the_path_is_the_cheapest_there_is(shape):
    """A path is described by the columns at which it enters rows."""
    for seed in range(5):
        cost = np.random.default_rng((seed, *shape)).standard_normal(shape)
        entered = alignment.cheapest_path(cost)
        assert entered[0] == 0 and (np.diff(entered) >= 0).all()
        best = np.inf
        ends = itertools.product(*(range(2) for _ in entered[1:]))
        for shared in ends:  # whether a row is left in the column of the next
            total, stop = 0.0, [*entered[1:], shape[1] - 1]
            for row, (begin, end) in enumerate(zip(entered, stop, strict=True)):
                last = end if row == len(entered) - 1 else end - 1 + shared[row]
                if last < begin:
                    total = np.inf
                total += cost[row, begin : last + 1].sum()
            best = min(best, total)
        assert best == pytest.approx(cheapest_cost(cost))


def test_tokens_begin_where_their_heads_begin_to_attend():
    """There are three heads, and the text begins with two tokens. Two places attract
    every token, and each token is sometimes drawn to a wrong place."""
    for seed in range(1, 5):
        rng, edges = np.random.default_rng(seed), [0, 30, 42, 90]
        scores = 0.3 * rng.standard_normal((3, 6, 120))
        for token, (begin, end) in enumerate(itertools.pairwise([*edges, 120])):
            scores[:, 1 + token, begin:end] = 6
        scores[:, rng.random((6, 120)) < 0.1] = 6
        scores[:, :, [*range(60, 64), *range(110, 114)]] += 6
        found = alignment.token_starts(scores.astype(np.float32), 2)
        assert np.abs(found - edges).max() <= 2


def test_scores_and_probabilities_are_those_of_the_whole_text():
    """They do not depend on what follows in the row."""
    config, params = tiny_whisper.TARGET, tiny_whisper.world().target_weights
    heads = ((1, 1), (0, 0))
    frames = tiny_whisper.sounds(2)
    encode, logits_of, listening = (
        jax.jit(functools.partial(each, config))
        for each in (whisper.encode, whisper.logits, whisper.features_and_scores)
    )
    states = encode(params, frames).states
    rng = np.random.default_rng(1)
    ids, text = rng.integers(0, 30, (2, 9)).astype(np.int32), np.arange(31) < 25
    ids[:, 1:] %= 25
    listen = alignment.program(config, heads)
    scores, likely = listen(params, states, ids, text)
    assert scores.shape == (2, 2, 9, config.states)
    logits = logits_of(params, frames, ids)
    law = jax.nn.softmax(jnp.where(text, logits, -jnp.inf))
    wanted = np.take_along_axis(np.asarray(law)[:, :-1], ids[:, 1:, None], 2)[..., 0]
    np.testing.assert_allclose(likely, wanted, rtol=1e-5)
    longer = np.concatenate([ids, np.full((2, 3), 7, np.int32)], 1)
    again, _ = listen(params, states, longer, text)
    np.testing.assert_allclose(again[:, :, :9], scores, rtol=1e-5, atol=1e-5)
    _, layers = listening(params, states, ids)
    np.testing.assert_allclose(layers[1][:, 1], scores[:, 0], rtol=1e-5, atol=1e-5)


def copy_with_heads(folder: str, place: Path, heads=None) -> Path:
    """Returns a copy of a model's folder whose files name these heads."""
    shutil.copytree(folder, place, dirs_exist_ok=True)
    reconfigure(place, "generation_config.json", alignment_heads=heads)
    return place


def test_heads_are_named_by_the_checkpoint(names, tmp_path):
    def heads(told=None):
        of = copy_with_heads(names["apart"], tmp_path, told)
        return alignment.heads(pairs.load_pair(of, None))

    with pytest.raises(ValueError, match=r"put a generation_config.json with its al"):
        heads()
    for bad in ([[1, 0]], [[0, 2]], [0, 1], [[0]], "ab"):  # one layer of two heads
        with pytest.raises(ValueError, match="a layer below 1 and a head below 2"):
            heads(bad)
    assert heads([[0, 1], [0, 0]]) == ((0, 1), (0, 0))
    pair = pairs.load_pair(copy_with_heads(names["apart"], tmp_path), None)
    (tmp_path / "config.json").write_text('{"alignment_heads": [[0, 1]]}')
    assert alignment.heads(pair) == ((0, 1),)


@pytest.mark.slow
def test_words_are_those_of_the_text_and_change_nothing(names, tmp_path):
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    files = [tmp_path / "a.wav", tmp_path / "b.wav"]
    for seed, file in enumerate(files):
        sound = speech_folders.sound(4.5 - 2 * seed, seed)
        soundfile.write(file, sound, 16_000)
    asked = dict(temperatures=(0.0,), language=["de", "en"], batch=2, gamma=2)
    target = copy_with_heads(names["target"], tmp_path / "target", [[0, 1], [1, 0]])
    pair = pairs.load_pair(target, names["draft"])
    asked["clips"] = [(0, 1.5), (1.5, 9)]
    plain = transcribe(pair, None, files, **asked)
    timed = transcribe(pair, None, files, words=True, **asked)
    assert (plain.tokens, plain.calls) == (timed.tokens, timed.calls)
    for before, after in zip(plain.transcripts, timed.transcripts, strict=True):
        assert after.segments and before.language == after.language
        for a, b in zip(before.segments, after.segments, strict=True):
            assert b._replace(words=None) == a and a.words is None
            assert "".join(word.text for word in b.words) == b.text
            times = [x for word in b.words for x in word[1:3]]
            last = 1.5 if b.start < 1.5 else after.seconds
            assert times == sorted(times) and times[-1] <= last + 1e-6
            assert all(0 < word.probability < 1 for word in b.words)
    asked["language"] = ["en", "de"]
    turned = transcribe(pair, None, files[::-1], words=True, **asked).transcripts
    for a, b in zip(turned[::-1], timed.transcripts, strict=True):  # in other rows
        assert [x.words for x in a.segments] == [x.words for x in b.segments]
