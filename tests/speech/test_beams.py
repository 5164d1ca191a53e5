"""Beam search decodes windows: with one beam the text is the greedy one, and drafts
change nothing."""

import functools

import numpy as np
import pytest

from specjax.beam.settings import BeamConfig
from specjax.decode_config import DecodeConfig
from specjax.speech import beams, decoding
from specjax.speech.pair import load_pair
from specjax.speech.sequential import Options
from tests.support import slow
from tests.support.speech_folders import TARGET

HOW = DecodeConfig(gamma=0)  # texts end at the same place


@pytest.fixture(scope="module")
def heard(names):
    """Three windows, and the prompts of a pair."""
    pair = load_pair(names["target"], None)
    shape = 3, TARGET.frames, TARGET.bands
    frames = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    previous = [], [3, 7], [9]
    context = Options(context=TARGET.positions)
    prompts = [context.prompt(pair.tokens, "en", before) for before in previous]
    return frames, prompts


def decode_and_count(decode, heard, temperatures=(0.0, 0.0, 0.0)):
    """Returns what was decoded, and the counts of the calls."""
    batches = []
    decoded = decode(batches.append)(*heard, np.array(temperatures, np.float32))
    return decoded, batches


def build_search(pair, config: BeamConfig, **options):
    return lambda seen: beams.build(pair, HOW, config, on_batch=seen, **options)


@pytest.mark.parametrize(
    "draft",
    [None, *slow.mark_slow_after(0, ["draft", "apart", "few"])],
)
def test_one_beam_is_the_greedy_text(names, heard, draft):
    pair = load_pair(names["target"], draft and names[draft])
    greedy = functools.partial(decoding.build, pair, HOW)
    wanted, _ = decode_and_count(lambda seen: greedy(on_batch=seen), heard)
    got, (spent,) = decode_and_count(build_search(pair, BeamConfig(1, 2)), heard)
    assert [*map(list, got.tokens)] == [*map(list, wanted.tokens)]
    np.testing.assert_allclose(got.logprob, wanted.logprob, atol=1e-4)
    np.testing.assert_allclose(got.no_speech, wanted.no_speech, atol=1e-5)
    assert spent.calls <= spent.steps == spent.tokens
    assert (draft is None) == (spent.calls == spent.steps)


def test_drafts_change_no_text_of_several_beams(names, heard):
    alone = load_pair(names["target"], None)
    wanted, (plain,) = decode_and_count(build_search(alone, BeamConfig(3)), heard)
    pair = load_pair(names["target"], names["draft"])
    got, (spent,) = decode_and_count(build_search(pair, BeamConfig(3)), heard)
    assert got.tokens == wanted.tokens
    np.testing.assert_allclose(got.logprob, wanted.logprob, atol=1e-4)
    assert spent.steps == plain.steps == plain.calls > spent.calls
    assert all(pair.tokens.end not in text for text in got.tokens)


def test_windows_that_are_not_greedy_are_drawn(names, heard):
    pair, heat = load_pair(names["target"], names["draft"]), (0.0, 0.8, 0.0)
    drawn = functools.partial(decoding.build, pair, HOW, states=True)
    got, batches = decode_and_count(
        build_search(pair, BeamConfig(1, 2), states=True), heard, heat
    )
    wanted, _ = decode_and_count(lambda seen: drawn(on_batch=seen), heard, heat)
    assert sorted(batch.windows for batch in batches) == [1, 2]
    assert [*map(list, got.tokens)] == [*map(list, wanted.tokens)]
    np.testing.assert_allclose(got.states, wanted.states[:3], atol=1e-5)
