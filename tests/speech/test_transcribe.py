"""Sequential transcription works with a decoder that hears words written into features.

A frame holds the id of the word that is spoken in it. The decoder writes every word
with its times, but for one that the window's end cuts. Axes: B rows, T frames, M bands.
"""

from itertools import pairwise

import numpy as np
import pytest

from specjax.speech import sequential as module
from specjax.speech.clips import Clip
from specjax.speech.segments import Thresholds
from specjax.speech.sequential import Decoded, Options, Recording, transcribe
from tests.support.tiny_whisper import PROMPT, TOKENS

AT, WORDS = TOKENS.first_time, range(1, 20)
SILENCE, LOOP, LOST = 17, 18, 19  # words that the decoder has trouble with
WIDE = 3000


@pytest.fixture(autouse=True)
def painted(monkeypatch):
    """Silence is not a word."""
    monkeypatch.setattr(module.logmel, "silence", lambda frames: 0.0)


def paint(words: list[tuple[int, int, int]], length: int) -> np.ndarray:
    """Returns features [T, 1] with words given as (begin, end, word), in steps of 0.02
    s."""
    frames = np.zeros((length, 1), np.float32)
    for begin, end, word in words:
        frames[2 * begin : 2 * end] = word
    return frames


def random_words(seed: int, length: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    words, at = [], int(rng.integers(0, 40))
    while (end := at + int(rng.integers(50, 400))) < length // 2 - 2:
        words.append((at, end, int(rng.choice(range(1, 17)))))
        at = end + int(rng.integers(1, 60))
    return words


def read(ids) -> str:
    texts = {LOOP: " no no" * 40}
    return "".join(texts.get(i, f" w{i}") for i in ids)


def write_window(window: np.ndarray) -> list[int]:
    sound = window[:, 0].astype(int)
    edges = np.flatnonzero(np.diff(sound, prepend=0, append=0))
    ids = []
    for begin, end in pairwise(edges):
        if sound[begin]:
            ids += [AT + begin // 2, int(sound[begin])]
            ids += [AT + end // 2] if end < WIDE else []
    return ids


def hear(log=None):
    """Returns a decoder that writes its requests to `log`."""

    def decode(features, prompts, temperatures):
        if log is not None:
            log.append((len(features), prompts, temperatures.tolist()))
        heard = [write_window(window) for window in features]
        logprob, no_speech = [], []
        for ids, heat in zip(heard, temperatures, strict=True):
            lost = (LOST in ids and heat < 0.7) or SILENCE in ids
            logprob.append(-2.0 if lost else -0.1)
            no_speech.append(0.9 if SILENCE in ids else 0.0)
        return Decoded(heard, logprob, no_speech)

    return decode


def gather_words(recordings, asked=Options(), batch=8, log=None, **more):  # noqa: B008
    """Returns (begin, end, text) of each recording, in order."""
    lists = [[] for _ in recordings]
    heard = (x if isinstance(x, Recording) else Recording(x) for x in recordings)
    for told in transcribe(heard, hear(log), TOKENS, read, asked, batch=batch, **more):
        lists[told.recording] += told.segments
    return [[(x.start, x.end, x.text) for x in segments] for segments in lists]


def expected_words(words):
    near = pytest.approx
    return [(near(0.02 * a), near(0.02 * b), f" w{w}") for a, b, w in words]


LENGTHS = [2500, 12_000, 3000, 7001, 20_000]
SPOKEN = [random_words(seed, length) for seed, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_every_word_is_heard_once_at_its_time(batch):
    recordings = [paint(*pair) for pair in zip(SPOKEN, LENGTHS, strict=True)]
    log = []
    heard = gather_words(recordings, batch=batch, log=log)
    assert heard == [expected_words(words) for words in SPOKEN]
    assert max(rows for rows, *_ in log) == min(batch, len(LENGTHS))


def test_the_text_before_is_context():
    """A text that was decoded at half the temperature is context too."""

    def prompts(asked, words=(SPOKEN[1], LENGTHS[1])):
        gather_words([paint(*words)], asked, log=(log := []))
        return [prompt for _, (prompt,), _ in log]

    (begin, end, word), *_ = SPOKEN[1]
    past = [TOKENS.previous, AT + begin, word, AT + end]
    second = prompts(Options())[1]
    assert second[:4] == past and second[-3:] == PROMPT
    assert {*map(tuple, prompts(Options(condition=False)))} == {tuple(PROMPT)}
    first, second, *_ = prompts(Options(initial=(5, 6)))
    assert first == [TOKENS.previous, 5, 6, *PROMPT] and second[1:3] == [5, 6]
    for heat, context in ((0.5, True), (0.6, False)):
        asked = Options(thresholds=Thresholds(temperatures=(heat,)))
        told = prompts(asked, ([(0, 100, 4), (1500, 2100, 5)], 6000))
        assert [prompt != PROMPT for prompt in told] == [False, context]


def test_parts_alone_are_decoded_and_a_language_is_of_its_file():
    """No word after a part is heard in its last window, and times count from the start
    of the file."""
    words = SPOKEN[4]
    between = [0.02 * ((a[1] + b[0]) // 2) for a, b in pairwise(words)]
    first, second = (between[1], between[6]), (between[9], between[30])
    sound, log = paint(words, LENGTHS[4]), []
    recording = Recording(sound, "de", (Clip(*first), Clip(*second)))
    heard, rest = gather_words([recording, Recording(sound[:3000], "en")], log=log)
    assert heard == expected_words([*words[2:7], *words[10:31]])
    assert [prompt[-2] for prompt in log[0][1]] == [23, 22] and rest
    whole = Recording(sound, None, (Clip(0, 0.01 * LENGTHS[4]),))
    assert gather_words([whole], log=(parted := [])) == gather_words(
        [sound], log=(plain := [])
    )
    assert parted == plain
    *_, last = transcribe([recording], hear(), TOKENS, read)
    assert last.seconds == last.total == 0.01 * LENGTHS[4]


def test_recordings_are_taken_when_a_row_is_free_and_a_language_heard_once_of_each():
    taken, heard = [], []

    def yield_recordings():
        for number, pair in enumerate(zip(SPOKEN, LENGTHS, strict=True)):
            taken.append(number)
            yield Recording(paint(*pair))

    def detect(window):
        heard.append(window.shape)
        return "de" if len(heard) == 1 else "en"

    log = []
    news = transcribe(
        yield_recordings(), hear(log), TOKENS, read, Options(), batch=2, detect=detect
    )
    assert taken == [] and next(news).recording == 0 and taken == [0, 1]
    *_, last = news
    assert last.seconds == last.total == pytest.approx(LENGTHS[last.recording] / 100)
    assert heard == [(WIDE, 1)] * len(LENGTHS)
    assert [prompt[-2] for prompt in log[0][1]] == [23, 22]


def test_a_segment_ends_with_its_recording():
    """The segment has no end of its own; a text that the model writes for the silence
    after the sound is kept."""

    def transcribe_ids(ids, length):
        def decode(features, prompts, temperatures):
            return Decoded([ids] * len(features), [-0.1], [0.0])

        return list(transcribe([Recording(np.ones((length, 1)))], decode, TOKENS, read))

    ends = [x.segments[0].end for x in transcribe_ids([AT, 3], 3700)]
    assert ends == [30.0, 37.0]
    (last,) = transcribe_ids([AT, 3, AT + 1000, AT + 1000, 4, AT + 1200], 700)
    assert [x[:3] for x in last.segments] == [(0, 7, " w3"), (7, 7, " w4")]
    (nothing,) = transcribe([Recording(np.zeros((700, 1)))], hear(), TOKENS, read)
    assert nothing[:4] == (0, [], 7.0, 7.0)


def test_words_are_found_in_windows_that_are_done():
    """The first row of a batch is decoded again, and a part has words of its own
    only."""
    bad = paint([(0, 100, LOST)], 2000)
    good = paint([(0, 100, 4), (1500, 2100, 5)], 6000)
    seen = []

    def align(states, windows):
        seen.append([(x.row, x.head, x.start, len(x.frames)) for x in windows])
        assert states == "states"
        return [[y._replace(words=()) for y in x.segments] for x in windows]

    def decode(*asked):
        return hear()(*asked)._replace(states="states")

    recordings = [Recording(bad, "en"), Recording(good, "de", (Clip(0, 50),))]
    news = [*transcribe(recordings, decode, TOKENS, read, align=align)]
    assert all(x.words == () for each in news for x in each.segments)
    head = [21, 23, 25, TOKENS.no_timestamps]
    assert seen[0] == [(1, head, 0.0, 3000)] and seen[1] == [(1, head, 30.0, 2000)]
    assert [len(each) for each in seen] == [1, 1, 0, 0, 1]
    assert seen[4] == [(0, [21, 22, 25, TOKENS.no_timestamps], 0.0, 2000)]


def test_a_bad_window_is_decoded_again_while_others_go_on():
    bad = paint([(0, 100, LOST), (1500, 1700, 3)], 6000)
    good = paint([(0, 100, 4), (1500, 2100, 5)], 6000)
    log = []
    heard = gather_words([bad, good], log=log)
    assert heard[0] == expected_words([(0, 100, LOST), (1500, 1700, 3)])
    assert heard[1] == expected_words([(0, 100, 4), (1500, 2100, 5)])
    heats = [temperatures for *_, temperatures in log]
    np.testing.assert_allclose(heats[0], [0, 0])
    np.testing.assert_allclose(heats[1], [0.2, 0])
    # The good one has ended; the bad one alone gets as warm as it must, then cools.
    rest = [row[0] for row in heats[2:]]
    np.testing.assert_allclose(rest, [0.4, 0.6, 0.8, 0], rtol=1e-6)
    # What was written at 0.8 is not context.
    assert log[-1][1] == [PROMPT]


def test_the_last_temperature_is_kept_and_silence_skipped():
    looping = paint([(0, 50, LOOP)], 900)
    log = []
    (heard,) = gather_words([looping], Options(thresholds=Thresholds()), log=log)
    assert len(log) == 6 and [text for *_, text in heard] == [" no no" * 40]
    quiet = paint([(0, 50, SILENCE), (1500, 1650, 2)], 6000)
    log.clear()
    assert gather_words([quiet], log=log) == [expected_words([(1500, 1650, 2)])]
    assert len(log) == 2 and not any(heats[0] for *_, heats in log)
