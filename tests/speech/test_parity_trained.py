"""Trained weights give the texts and times of transformers' own `generate` on
recordings.

The bundled pair, written in Hugging Face's format: transformers reads its target from
there and the sound from the file, and decodes without a draft; ours decodes with one.
"""

from pathlib import Path

import pytest

import specjax
from specjax import zoo

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
soundfile = pytest.importorskip("soundfile")

import numpy as np  # noqa: E402

from experiments.training import zoo_speech  # noqa: E402
from experiments.training.voices import examples, sentences  # noqa: E402
from specjax.speech import logmel  # noqa: E402

torch.set_num_threads(1)
RECORDING = zoo.FOLDER / "speech" / "speech.flac"
MOST = 96  # tokens
SEEDS = 0, 1, 3, 4, 5  # of 2, two letters at one place are equally likely to 1e-3 nats


@pytest.fixture(scope="module")
def pair():
    return tuple(specjax.load(name) for name in zoo.SPEECH_MODELS)


@pytest.fixture(scope="module")
def reference(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "target"
    zoo_speech.export(folder, pair[0])
    read = transformers.WhisperForConditionalGeneration.from_pretrained
    return read(folder).eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    """The bundled recording, and other voices that nobody learnt from."""
    folder, written = tmp_path_factory.mktemp("sounds"), [RECORDING]
    for seed in SEEDS:
        rng = np.random.default_rng((9, seed))
        _, speech = examples.synthesise(rng, examples.WHOLE)
        written.append(folder / f"{seed}.wav")
        soundfile.write(written[-1], speech.samples, logmel.RATE, subtype="PCM_16")
    return written


def transformers_segments(
    model, file: Path, timestamps: bool
) -> list[tuple[float, float, str]]:
    """Returns the segments of a recording of one window, computed by transformers from
    samples to times."""
    samples, rate = soundfile.read(file, dtype="float32")
    extractor = transformers.WhisperFeatureExtractor(
        feature_size=examples.BANDS, chunk_length=round(examples.WHOLE.seconds)
    )
    features = extractor(samples, sampling_rate=rate, return_tensors="pt")
    told = model.generate(
        features.input_features,
        return_timestamps=timestamps,
        return_segments=True,
        do_sample=False,
        max_new_tokens=MOST,
    )
    return [
        (float(part["start"]), float(part["end"]), letters(part["tokens"].tolist()))
        for part in told["segments"][0]
    ]


def letters(ids: list[int]) -> str:
    return "".join(sentences.PIECES[i] for i in ids if i < sentences.END).strip()


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "drafted"])
def test_texts_are_those_of_transformers(pair, reference, files, draft):
    options = dict(timestamps=False, temperatures=[0.0], gamma=5)
    ours = specjax.transcribe(pair[0], pair[1] if draft else None, files, **options)
    wanted = [
        " ".join(text for *_, text in transformers_segments(reference, f, False))
        for f in files
    ]
    assert [transcript.text for transcript in ours.transcripts] == wanted
    assert all(wanted) and len(set(wanted)) == len(files)


def test_times_are_those_of_transformers(pair, reference, files):
    options = dict(timestamps=True, temperatures=[0.0], gamma=5)
    ours = specjax.transcribe(*pair, files, **options)
    for file, transcript in zip(files, ours.transcripts, strict=True):
        wanted = transformers_segments(reference, file, True)
        assert [segment.text.strip() for segment in transcript.segments] == [
            text for *_, text in wanted
        ]
        times = [(s.start, s.end) for s in transcript.segments]
        last = transcript.seconds  # theirs may end in the silence behind it
        within = [(begin, min(end, last)) for begin, end, _ in wanted]
        assert times == [pytest.approx(part, abs=1e-6) for part in within]
