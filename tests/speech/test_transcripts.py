"""Recordings become transcripts, with random Whispers of windows of 3 s and with the
bundled one."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import zoo
from specjax.models import whisper
from specjax.speech import audio, decoding, logmel, rules, transcripts
from specjax.speech import pair as pairs
from specjax.speech.sequential import Decoded, cut_window
from specjax.speech.transcripts import transcribe
from specjax.types import Features
from tests.support import slow, speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


GREEDY = {"temperatures": (0.0,), "language": "en"}
TIMES = 4.5, 2.0  # seconds of recordings
# `test_reduced_vocab.py` has the law of the last.
KINDS = slow.mark_slow_after(1, ["draft", "apart", "few"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two recordings, and between them a file that is none."""
    place = tmp_path_factory.mktemp("recordings")
    paths = [place / name for name in ("a.wav", "bad.wav", "b.wav")]
    for seed, (path, seconds) in enumerate(zip(paths[::2], TIMES, strict=True)):
        sound.write(path, speech_folders.sound(seconds, seed), logmel.RATE)
    paths[1].write_bytes(b"no sound")
    return paths


@pytest.fixture(scope="module")
def alone(names, files):
    return transcribe(names["target"], None, files, batch=1, **GREEDY)


@pytest.fixture(scope="module")
def logits_of(names, files):
    """Text -> logits [T, V] by the target of the last recording, without a cache."""
    target = pairs.load_pair(names["target"], None).target
    frames = logmel.recording_frames(
        audio.blocks(files[2]), speech_folders.TARGET.bands
    )
    heard = Features(jnp.asarray(cut_window(frames, 0, 300)[None]))
    run = jax.jit(functools.partial(whisper.logits, target.config))

    def logits(ids: list[int]):
        row = np.zeros((1, target.config.positions), np.int32)
        row[0, : len(ids)] = ids  # what is behind is not seen
        return np.asarray(run(target.params, heard, row))[0, : len(ids)]

    return logits


def segment_parts(result) -> list:
    return [[part[:5] for part in each.segments] for each in result.transcripts]


@pytest.mark.parametrize("kind", KINDS)
def test_the_greedy_text_is_the_targets_own(names, files, alone, kind):
    pair = pairs.load_pair(names["target"], names[kind])
    assert pair.shared == (kind != "apart")
    drafted = transcribe(pair, None, files, batch=1, **GREEDY)
    assert segment_parts(drafted) == segment_parts(alone) and any(segment_parts(alone))
    assert drafted.tokens == alone.tokens == alone.calls
    assert drafted.calls < alone.calls and 0 < drafted.alpha < 1
    for ours, other in zip(drafted.transcripts, alone.transcripts, strict=True):
        for a, b in zip(ours.segments, other.segments, strict=True):
            assert abs(a.logprob - b.logprob) < 1e-4
            assert abs(a.no_speech - b.no_speech) < 1e-5
    good, bad, later = alone.transcripts
    assert "no sound that libsndfile can read" in bad.problem and not bad.segments
    assert good.problem is later.problem is None and good.text and later.text
    assert [round(x.seconds, 1) for x in (good, later)] == [*TIMES]


def test_how_sure_a_text_is_follows_from_the_models_own_logits(names, alone, logits_of):
    """These are computed from whole texts, without a cache, a loop or drafts."""
    pair = pairs.load_pair(names["target"], None)
    once = alone.transcripts[2].segments[0]
    tokens, config = pair.tokens, pair.target.config
    head = [tokens.start, tokens.languages["en"], tokens.tasks["transcribe"]]
    ids, total = list(head), 0.0
    ruled = rules.build(tokens, pair.limits, config.vocab)

    @jax.jit
    def logits_after(row, length, logits):
        return ruled.apply(ruled.begin(row, length[None]), logits[None])[0]

    for _ in range(config.positions - len(head) - 5):  # gamma + 1 = 5
        row = np.zeros((1, config.positions), np.int32)
        row[0, : len(ids)] = ids
        law = np.float64(logits_after(row, jnp.int32(len(ids)), logits_of(ids)[-1]))
        ids.append(int(law.argmax()))
        total -= np.log(np.exp(law - law.max()).sum())
        if ids[-1] == tokens.end:
            break
    assert set(once.tokens) <= {*ids}
    assert abs(once.logprob - total / len(ids[len(head) :])) < 1e-4
    first = logits_of(head)[:1]
    assert abs(once.no_speech - float(rules.no_speech(tokens, first)[0])) < 1e-5


def test_chunks_of_all_recordings_share_batches(names, files):
    pair = pairs.load_pair(names["target"], None)
    ways = dict(chunked=True, **GREEDY)
    many, few = (transcribe(pair, None, files, batch=n, **ways) for n in (2, 1))
    assert segment_parts(many) == segment_parts(few)
    assert many.windows == few.windows == 3
    text = many.transcripts[0].segments
    assert len(text) == 1 and text[0].text and text[0].end == pytest.approx(TIMES[0])


def test_a_drawn_text_does_not_depend_on_the_rows_beside_it(names, files):
    pair = pairs.load_pair(names["target"], None)  # whose programs are there already
    drawn = dict(temperatures=(1.0,), language="en", chunked=True)
    both = transcribe(pair, None, files[::-1], batch=2, **drawn)
    single, other = (transcribe(pair, None, files[2:], **drawn, seed=x) for x in (0, 1))
    assert segment_parts(both)[0] == segment_parts(single)[0] != []
    assert segment_parts(other) != segment_parts(single)


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_both_sides_go_on_from_a_prompt_in_the_parts_that_are_named(
    names, files, chunked
):
    """Drafts change no text and save calls; times count from the start of the file."""
    asked = dict(chunked=chunked, prompt="w7 w8 w9", clips=[(0, 1.5), (2.5, 9)])
    alone, drafted = (
        transcribe(
            pairs.load_pair(names["target"], draft), None, files, **asked, **GREEDY
        )
        for draft in (None, names["draft"])
    )
    assert (
        segment_parts(drafted) == segment_parts(alone) and drafted.calls < alone.calls
    )
    first, bad, short = alone.transcripts
    assert bad.problem and "the part from 2.5 s on lies after the end" in short.problem
    assert first.parts == ((0, 1.5), (2.5, 4.5)) and first.decoded == 3.5
    spoken = first.segments
    assert all(x.end <= 1.5 or x.start >= 2.5 for x in spoken)
    assert {x.start < 2 for x in spoken} == {True, False}
    asked["prompt"] = None
    bare = transcribe(names["target"], None, files[:1], **asked, **GREEDY)
    assert segment_parts(bare) != segment_parts(alone)[:1]


def test_where_nobody_speaks_nothing_is_decoded(names, files, monkeypatch):
    pair = pairs.load_pair(names["target"], None)
    told, heard = [], []
    for speech in (4, 0):  # chunks, the first of the recording
        likely = lambda heard, speech=speech: len(heard) <= speech  # noqa: E731
        ears = speech_folders.Ears(logmel.RATE // 4, likely)
        monkeypatch.setattr(transcripts.voice, "detector", lambda ears=ears: ears)
        asked = dict(vad=True, on_progress=lambda *now: told.append(now), **GREEDY)
        heard.append(transcribe(pair, None, files[:1], **asked))
    (spoken,), (silent,) = (each.transcripts for each in heard)
    assert spoken.parts == ((0, 1.4),) and spoken.text
    assert max(x.end for x in spoken.segments) < 1.401
    assert silent.parts == silent.segments == () and silent.problem is None
    assert silent.notes == (f"{files[0]}: nobody speaks, so nothing was decoded",)
    assert heard[1].windows == 0 and told[-1] == (silent, None)
    named = dict(clips=[(0, 1.4)], **GREEDY)
    assert segment_parts(transcribe(pair, None, files[:1], **named)) == segment_parts(
        heard[0]
    )


@pytest.mark.parametrize("chunked", [False, True])
def test_the_language_is_named_or_tuned_for_or_heard(
    names, files, chunked, monkeypatch, logits_of
):
    prompts = []

    def decode(features, heads, temperatures):
        prompts.extend(heads)
        return Decoded([[3]] * len(heads), [0.0] * len(heads), [0.0] * len(heads))

    pair = pairs.load_pair(names["target"], None)
    tuned = pair._replace(tokens=pair.tokens._replace(language="de", task="translate"))
    (heard,) = rules.language(pair.tokens, logits_of([pair.tokens.start]))
    monkeypatch.setattr(decoding, "build", lambda *_, **__: decode)
    for target, language, wanted in (
        (tuned, None, "de"),
        (tuned, "English", "en"),
        (pair, None, heard),
    ):
        if target is pair and chunked:
            continue
        result = transcribe(target, None, files[2:], language=language, chunked=chunked)
        assert result.transcripts[0].language == wanted
    assert [head[1:3] for head in prompts[:2]] == [[43, 44], [42, 44]]


def test_what_is_never_written_is_of_the_format_that_weights_are_in(names):
    """OpenAI's files have no such lists, whatever files lie beside them."""
    folder = Path(names["target"])
    target = pairs.load_pair(folder, None)
    assert target.limits.suppressed[0] == 1 and target.limits.at_first == (5, 40)
    model = target.target._replace(files=(folder / "small.pt",))
    limits = pairs.limits_of(model, folder, target.tokens, lambda text: [7, 8])
    assert limits.at_first == (7, 8, 40)
    draft = pairs.load_pair(names["draft"], None).target
    tuned = target.tokens._replace(language="de", task="translate")
    pairs.check(target.target, draft, tuned)  # the draft goes on in the target's


REFUSED = [  # more of it by the command, see `tests/cli/test_transcribe.py`
    (dict(batch=0), "batch is 0"),
    (dict(gamma=-1), "gamma must be"),
    (dict(gamma=40), "draft fewer tokens"),
    (dict(rule="hope"), "choose one of"),
    (dict(language="xx"), "no language 'xx'"),
    (dict(task="sing"), "no task 'sing'"),
    (dict(kernels="hope"), "kernels must be one of"),
    (dict(chunked=True, timestamps=True), "leave one of them out"),
    (dict(chunked=True, batch=0), "batch is 0"),
    (dict(prompt=" "), "the prompt is empty"),
    (dict(prompt="w1 w2 <|de|>"), "reads the prompt as 'w1 w0'"),
    (
        dict(prompt=" w3" * 20),
        "has 20 tokens, and only the last 19 can be used, from 'w3 w3",
    ),
]


def test_what_cannot_be_is_refused_before_a_file_is_read(names):
    pair = pairs.load_pair(names["target"], None)
    for settings, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            transcribe(pair, None, ["absent.wav"], **settings)
    with pytest.raises(
        ValueError, match="code_small reads no recordings: name a Whisper"
    ):
        pairs.load_pair(names["target"], "code_small")


RECORDING = zoo.FOLDER / "speech" / "speech.flac"


@pytest.mark.slow
def test_it_writes_down_the_recording():
    """The greedy text is what was said, in half as many calls as it has tokens."""
    target, draft = (specjax.load(name) for name in zoo.SPEECH_MODELS)
    assert whisper.same_encoder(target.params, draft.params)
    together = specjax.transcribe(target, draft, [RECORDING], temperatures=[0.0])
    spoken = RECORDING.with_suffix(".txt").read_text().strip()
    assert together.transcripts[0].text == spoken
    assert together.calls < together.tokens / 2 and together.alpha > 0.8
    assert together.transcripts[0].segments[-1].end > 1


def test_what_was_held_out_is_in_the_recipe():
    recipe = json.loads((zoo.FOLDER / "speech_recipes.json").read_text())
    errors = recipe["held_out"]["word_errors"]
    assert errors["recordings"] >= 64 and errors["rate"] < 0.10
