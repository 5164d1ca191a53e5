"""Recordings to transcripts by a pair of random Whispers, with a window of 3 s."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import verifiers
from specjax.models import whisper
from specjax.speech import audio, decoding, logmel, rules
from specjax.speech import pair as pairs
from specjax.speech.sequential import Decoded, window_of
from specjax.speech.transcripts import transcribe
from specjax.types import Features
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")
GREEDY = {"temperatures": (0.0,), "language": "en"}
TIMES = 4.5, 2.0  # seconds of recordings
KINDS = "draft", "apart"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("speech")


@pytest.fixture(scope="module")
def names(place):
    return speech_folders.folders(place)


@pytest.fixture(scope="module")
def files(place):
    """Two recordings, and between them a file that is none."""
    paths = [place / name for name in ("a.wav", "bad.wav", "b.wav")]
    for seed, (path, seconds) in enumerate(zip(paths[::2], TIMES, strict=True)):
        sound.write(path, speech_folders.sound(seconds, seed), logmel.RATE)
    paths[1].write_bytes(b"no sound")
    return paths


@pytest.fixture(scope="module")
def alone(names, files):
    return transcribe(names["target"], None, files, batch=1, **GREEDY)


def heard_of(file) -> Features:
    """A recording's first window."""
    frames = logmel.whole(audio.blocks(file), speech_folders.TARGET.bands)
    return Features(jnp.asarray(window_of(frames, 0, 300)[None]))


@pytest.fixture(scope="module")
def logits_of(names, files):
    """Text -> logits [T, V] by the target of the last recording, without a cache."""
    target, heard = pairs.opened(names["target"], None).target, heard_of(files[2])
    run = jax.jit(functools.partial(whisper.logits, target.config))

    def logits(ids: list[int]):
        row = np.zeros((1, target.config.positions), np.int32)
        row[0, : len(ids)] = ids  # what is behind is not seen
        return np.asarray(run(target.params, heard, row))[0, : len(ids)]

    return logits


def words(result) -> list:
    return [
        [segment[:5] for segment in transcript.segments]
        for transcript in result.transcripts
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_greedy_text_is_the_targets_own(names, files, alone, kind):
    pair = pairs.opened(names["target"], names[kind])
    assert pair.shared == (kind == "draft")
    drafted = transcribe(pair, None, files, batch=1, **GREEDY)
    assert words(drafted) == words(alone) and any(words(alone))
    assert drafted.tokens == alone.tokens == alone.calls
    assert drafted.calls < alone.calls and 0 < drafted.alpha < 1
    for ours, other in zip(drafted.transcripts, alone.transcripts, strict=True):
        for a, b in zip(ours.segments, other.segments, strict=True):
            assert abs(a.logprob - b.logprob) < 1e-4
            assert abs(a.no_speech - b.no_speech) < 1e-5


def test_a_file_that_is_none_ends_alone(alone):
    good, bad, later = alone.transcripts
    assert "no sound that libsndfile reads" in bad.problem and not bad.segments
    assert good.problem is later.problem is None and good.text and later.text
    assert [round(x.seconds, 1) for x in (good, later)] == [*TIMES]


def test_how_sure_a_text_is_follows_from_the_models_own_logits(names, alone, logits_of):
    """By whole texts, without a cache, a loop or drafts."""
    pair = pairs.opened(names["target"], None)
    once = alone.transcripts[2].segments[0]
    tokens, config = pair.tokens, pair.target.config
    head = [tokens.start, tokens.languages["en"], tokens.tasks["transcribe"]]
    ids, total = list(head), 0.0
    ruled = rules.build(tokens, pair.limits, config.vocab)

    @jax.jit
    def after(row, length, logits):
        return ruled.apply(ruled.begin(row, length[None]), logits[None])[0]

    for _ in range(config.positions - len(head) - 5):  # gamma + 1 = 5
        row = np.zeros((1, config.positions), np.int32)
        row[0, : len(ids)] = ids
        law = np.asarray(
            after(row, jnp.int32(len(ids)), logits_of(ids)[-1]), np.float64
        )
        ids.append(int(law.argmax()))
        total -= np.log(np.exp(law - law.max()).sum())
        if ids[-1] == tokens.end:
            break
    assert set(once.tokens) <= {*ids}
    assert abs(once.logprob - total / len(ids[len(head) :])) < 1e-4
    first = logits_of(head)[:1]
    assert abs(once.no_speech - float(rules.no_speech(tokens, first)[0])) < 1e-5


def test_a_drawn_text_does_not_depend_on_the_rows_beside_it(names, files):
    pair = pairs.opened(names["target"], None)  # whose programs are there already
    drawn = dict(temperatures=(1.0,), language="en")
    both = transcribe(pair, None, files, **drawn)
    single = transcribe(pair, None, files[2:], **drawn)
    assert words(both)[2] == words(single)[0] != []
    other = transcribe(pair, None, files[2:], **drawn, seed=1)
    assert words(other) != words(single)


def test_chunks_of_all_recordings_share_batches(names, files):
    pair = pairs.opened(names["target"], None)
    ways = dict(chunked=True, **GREEDY)
    many, few = (transcribe(pair, None, files, batch=n, **ways) for n in (2, 1))
    assert words(many) == words(few)
    assert many.windows == few.windows == 3
    text = many.transcripts[0].segments
    assert len(text) == 1 and text[0].text and text[0].end == pytest.approx(TIMES[0])


def test_the_language_is_heard_where_none_is_named(names, files, logits_of):
    pair = pairs.opened(names["target"], None)
    result = transcribe(pair, None, files[2:], temperatures=(0.0,))
    wanted = rules.language(pair.tokens, logits_of([pair.tokens.start]))
    assert [result.transcripts[0].language] == wanted


@pytest.mark.parametrize("chunked", [False, True])
def test_the_language_is_the_one_that_a_target_was_tuned_for(
    names, files, chunked, monkeypatch
):
    prompts = []

    def decode(features, heads, temperatures):
        prompts.extend(heads)
        return Decoded([[3]] * len(heads), [0.0] * len(heads), [0.0] * len(heads))

    monkeypatch.setattr(decoding, "build", lambda *_: decode)
    pair = pairs.opened(names["target"], None)
    tuned = pair._replace(tokens=pair.tokens._replace(language="de", task="translate"))
    languages = []
    for language in (None, "English"):
        result = transcribe(tuned, None, files[2:], language=language, chunked=chunked)
        languages.append(result.transcripts[0].language)
    assert languages == ["de", "en"]
    assert [head[1:3] for head in prompts] == [[43, 44], [42, 44]]


def test_what_is_never_written_is_of_the_format_that_weights_are_in(names):
    """OpenAI's files have no lists, whatever lies beside them."""
    folder = Path(names["target"])
    target = pairs.opened(folder, None)
    assert target.limits.suppressed[0] == 1 and target.limits.at_first == (5, 40)
    model = target.target._replace(files=(folder / "small.pt",))
    limits = pairs.limits_of(model, folder, target.tokens, lambda text: [7, 8])
    assert limits.at_first == (7, 8, 40)
    draft = pairs.opened(names["draft"], None).target
    tuned = target.tokens._replace(language="de", task="translate")
    pairs.check(target.target, draft, tuned)  # the draft goes on in the target's


REFUSED = [
    (dict(batch=0), "batch is 0"),
    (dict(gamma=-1), "gamma must be"),
    (dict(gamma=40), "draft fewer tokens"),
    (dict(rule="hope"), "choose one of"),
    (dict(language="xx"), "no language 'xx'"),
    (dict(task="sing"), "no task 'sing'"),
    (dict(temperatures=()), "give one or more"),
    (dict(temperatures=(0.0, -1.0)), "none below 0"),
    (dict(kernels="hope"), "kernels must be one of"),
    (dict(chunked=True, timestamps=True), "leave one of both out"),
    (dict(chunked=True, batch=0), "batch is 0"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_settings_are_refused_before_a_file_is_read(names, settings, message):
    with pytest.raises(ValueError, match=message):
        transcribe(names["target"], None, ["absent.wav"], **settings)


def test_what_cannot_be_a_pair_is_refused(names):
    with pytest.raises(ValueError, match="code_small reads no speech: name a Whisper"):
        pairs.opened(names["target"], "code_small")
    assert verifiers.named("token").guarantee == "exact law"
