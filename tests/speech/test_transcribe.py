"""Sequential transcription, with a decoder that hears words painted into features.

A frame holds the id of the word that is spoken in it. The decoder writes every word
with its times, but for one that the window's end cuts. Axes: B rows, T frames, M bands.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from specjax.speech import logmel
from specjax.speech import sequential as module
from specjax.speech.segments import Thresholds
from specjax.speech.sequential import Decoded, Options, transcribe
from tests.support.small_speech import PROMPT, TOKENS

AT, WORDS = TOKENS.first_time, range(1, 20)
SILENCE, LOOP, LOST = 17, 18, 19  # words that the decoder has trouble with
WIDE = 3000


@pytest.fixture(autouse=True)
def painted(monkeypatch, request):
    """Silence is no word."""
    if "sound" not in request.fixturenames:
        monkeypatch.setattr(module.logmel, "silence", lambda frames: 0.0)


@pytest.fixture
def sound() -> np.ndarray:
    return np.float32(0.1 * np.random.default_rng(0).standard_normal(32_000))


def paint(words: list[tuple[int, int, int]], length: int) -> np.ndarray:
    """Features [T, 1] of (begin, end, word) in steps of 0.02 s."""
    frames = np.zeros((length, 1), np.float32)
    for begin, end, word in words:
        frames[2 * begin : 2 * end] = word
    return frames


def spoken(seed: int, length: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    words, at = [], int(rng.integers(0, 40))
    while (end := at + int(rng.integers(50, 400))) < length // 2 - 2:
        words.append((at, end, int(rng.choice(range(1, 17)))))
        at = end + int(rng.integers(1, 60))
    return words


def read(ids) -> str:
    texts = {LOOP: " no no" * 40}
    return "".join(texts.get(i, f" w{i}") for i in ids)


def written(window: np.ndarray) -> list[int]:
    sound = window[:, 0].astype(int)
    edges = np.flatnonzero(np.diff(sound, prepend=0, append=0))
    ids = []
    for begin, end in pairwise(edges):
        if sound[begin]:
            ids += [AT + begin // 2, int(sound[begin])]
            ids += [AT + end // 2] if end < WIDE else []
    return ids


def hear(log=None):
    """A decoder; what it was asked goes to `log`."""

    def decode(features, prompts, temperatures):
        if log is not None:
            log.append((len(features), prompts, temperatures.tolist()))
        heard = [written(window) for window in features]
        logprob, no_speech = [], []
        for ids, heat in zip(heard, temperatures, strict=True):
            lost = (LOST in ids and heat < 0.7) or SILENCE in ids
            logprob.append(-2.0 if lost else -0.1)
            no_speech.append(0.9 if SILENCE in ids else 0.0)
        return Decoded(heard, logprob, no_speech)

    return decode


def gathered(recordings, asked=Options(), batch=8, log=None, **more):  # noqa: B008
    """(begin, end, text) of each recording, in order."""
    lists = [[] for _ in recordings]
    for told in transcribe(recordings, hear(log), TOKENS, read, asked, batch, **more):
        lists[told.recording] += told.segments
    return [[(x.start, x.end, x.text) for x in segments] for segments in lists]


def expected(words):
    return [
        (pytest.approx(0.02 * a), pytest.approx(0.02 * b), f" w{w}")
        for a, b, w in words
    ]


LENGTHS = [2500, 12_000, 3000, 7001, 20_000]
SPOKEN = [spoken(seed, length) for seed, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_every_word_is_heard_once_at_its_time(batch):
    recordings = [paint(*pair) for pair in zip(SPOKEN, LENGTHS, strict=True)]
    log = []
    heard = gathered(recordings, batch=batch, log=log)
    assert heard == [expected(words) for words in SPOKEN]
    assert max(rows for rows, *_ in log) == min(batch, len(LENGTHS))


def test_recordings_are_taken_when_a_row_is_free():
    taken = []

    def arriving():
        for number, pair in enumerate(zip(SPOKEN, LENGTHS, strict=True)):
            taken.append(number)
            yield paint(*pair)

    news = transcribe(arriving(), hear(), TOKENS, read, batch=2)
    assert taken == [] and next(news).recording == 0 and taken == [0, 1]
    *_, last = news
    assert last.seconds == last.total == pytest.approx(LENGTHS[last.recording] / 100)


def test_the_text_before_is_context():
    log = []
    gathered([paint(SPOKEN[1], LENGTHS[1])], log=log)
    past = log[1][1][0]
    assert past[0] == TOKENS.previous and past[-3:] == PROMPT
    assert past[1:4] == [AT + SPOKEN[1][0][0], SPOKEN[1][0][2], AT + SPOKEN[1][0][1]]
    log.clear()
    gathered([paint(SPOKEN[1], LENGTHS[1])], Options(condition=False), log=log)
    assert all(prompts == [PROMPT] for _, prompts, _ in log)
    log.clear()
    gathered([paint(SPOKEN[1], LENGTHS[1])], Options(initial=(5, 6)), log=log)
    assert log[0][1] == [[TOKENS.previous, 5, 6, *PROMPT]]
    assert log[1][1][0][1:3] == [5, 6]


def test_a_bad_window_is_decoded_again_while_others_go_on():
    bad = paint([(0, 100, LOST), (1500, 1700, 3)], 6000)
    good = paint([(0, 100, 4), (1500, 2100, 5)], 6000)
    log = []
    heard = gathered([bad, good], log=log)
    assert heard[0] == expected([(0, 100, LOST), (1500, 1700, 3)])
    assert heard[1] == expected([(0, 100, 4), (1500, 2100, 5)])
    heats = [temperatures for *_, temperatures in log]
    np.testing.assert_allclose(heats[0], [0, 0])
    np.testing.assert_allclose(heats[1], [0.2, 0])
    # The good one has ended; the bad one alone gets as warm as it must, then cools.
    rest = [row[0] for row in heats[2:]]
    np.testing.assert_allclose(rest, [0.4, 0.6, 0.8, 0], rtol=1e-6)
    # What was written at 0.8 is no context.
    assert log[-1][1] == [PROMPT]


@pytest.mark.parametrize(("heat", "context"), [(0.5, True), (0.6, False)])
def test_a_text_of_half_the_temperature_is_still_context(heat, context):
    log, asked = [], Options(thresholds=Thresholds(temperatures=(heat,)))
    gathered([paint([(0, 100, 4), (1500, 2100, 5)], 6000)], asked, log=log)
    assert [prompts != [PROMPT] for _, prompts, _ in log] == [False, context]


def test_the_last_temperature_is_kept_and_silence_skipped():
    looping = paint([(0, 50, LOOP)], 900)
    log = []
    (heard,) = gathered([looping], Options(thresholds=Thresholds()), log=log)
    assert len(log) == 6 and [text for *_, text in heard] == [" no no" * 40]
    quiet = paint([(0, 50, SILENCE), (1500, 1650, 2)], 6000)
    log.clear()
    assert gathered([quiet], log=log) == [expected([(1500, 1650, 2)])]
    assert len(log) == 2 and not any(heats[0] for *_, heats in log)


def test_a_language_is_heard_once_for_each_recording():
    heard, log = [], []

    def detect(window):
        heard.append(window.shape)
        return "de" if window.max() > 6 else "en"

    recordings = [paint([(0, 9, 2)], 4000), paint([(0, 9, 7)], 4000)]
    gathered(recordings, log=log, detect=detect)
    assert heard == [(3000, 1)] * 2
    assert [prompt[-2] for prompt in log[0][1]] == [22, 23]
    gathered(recordings, Options(language="en"), detect=detect)
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"language": "fr"}, "no language"),
        ({"task": "sing"}, "no task"),
        ({"thresholds": Thresholds(logprob=math.inf)}, "not all finite"),
    ],
)
def test_what_the_model_lacks_is_told_before_anything_is_heard(changed, line):
    with pytest.raises(ValueError, match=line):
        transcribe(iter(()), None, TOKENS, read, Options(**changed))
    with pytest.raises(ValueError, match="batch is 0"):
        transcribe(iter(()), None, TOKENS, read, batch=0)


def test_nothing_is_nothing():
    assert list(module.transcribe([], hear(), TOKENS, read)) == []
    (told,) = transcribe([np.zeros((700, 1))], hear(), TOKENS, read)
    assert told[:4] == (0, [], 7.0, 7.0)


def test_a_segment_without_an_end_ends_with_its_recording():
    def decode(features, prompts, temperatures):
        return Decoded([[AT, 3]] * len(features), [-0.1], [0.0])

    ends = [
        [segment.end for segment in told.segments]
        for told in transcribe([np.ones((3700, 1))], decode, TOKENS, read)
    ]
    assert ends == [[30.0], [37.0]]


def test_no_time_is_behind_the_recording():
    """A text is kept where the model puts it into the silence behind the sound."""
    written = [AT, 3, AT + 1000, AT + 1000, 4, AT + 1200]

    def decode(features, prompts, temperatures):
        return Decoded([written], [-0.1], [0.0])

    (told,) = transcribe([np.ones((700, 1))], decode, TOKENS, read)
    assert [x[:3] for x in told.segments] == [(0, 7, " w3"), (7, 7, " w4")]


def test_a_recording_of_one_window_ends_in_silence(sound):
    frames = logmel.whole([sound])
    window, edge = module.window_of(frames, 0, WIDE), len(frames)
    expected = logmel.features(sound)
    np.testing.assert_allclose(window[edge + 2 :], expected[edge + 2 :], atol=1e-5)
    np.testing.assert_allclose(window[: edge - 2], expected[: edge - 2], atol=1e-5)
    longer = np.concatenate([frames] * 20)
    assert not module.window_of(longer, WIDE, WIDE)[len(longer) - WIDE :].any()
