"""Every file of a row of speech builds, and a row measures what it says; words are
counted as Whisper's evaluation counts them, with a correct interval."""

import re
from pathlib import Path

import numpy as np
import pytest

from experiments import catalogue, run
from experiments.papers.wagner.methods import baseline_method, exact_method
from experiments.papers.wagner.speech import (
    methods,
    recording,
    rows,
    utterances,
    verification,
)
from experiments.papers.wagner.speech.hearing import Outcome
from experiments.records import records
from experiments.tasks import word_errors
from specjax import configs, pretrained, verifiers
from specjax.drafts import counts
from specjax.measure import jsonl
from specjax.speech import logmel
from specjax.speech.decoding import Spent
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")
ROWS = [*records.rows("speech_data").values(), *records.rows("speech_paper").values()]
TEXTS = "open the door", "turn left"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Folders of tiny weights, and two recordings of noise in a table."""
    place = tmp_path_factory.mktemp("rows")
    speech_folders.folders(place)
    lines = ["\t".join(utterances.HEAD)]
    for number, text in enumerate(TEXTS):
        name = f"{number}.wav"
        sound.write(place / name, speech_folders.sound(2.0, number), logmel.RATE)
        lines.append("\t".join([name, "x", "2.0", text, "test"]))
    (place / utterances.TABLE).write_text("\n".join(lines) + "\n")
    (place / "0.txt").write_text(f"{TEXTS[0]}\n")
    return place


@pytest.fixture(scope="module")
def over(place) -> str:
    """A file to read after a row."""
    written = ["from __gin__ import dynamic_registration"]
    written += ["from specjax.measure import sides", f"FOLDER = '{place}'"]
    for file in ("whisper", "speech_trained", "bundled", "fetched"):
        text = (records.CONFIGS / f"checkpoints/{file}.gin").read_text()
        written.append(f"include 'gin_configs/checkpoints/{file}.gin'")
        for scope in re.findall(r"^(\w+)/sides\.model\.name", text, re.MULTILINE):
            side = "draft" if re.search("distil|draft|turbo", scope) else "target"
            written.append(f"{scope}/sides.model.name = '{place / side}'")
    few = place / "few.gin"
    few.write_text(f"DRAFT = '{place / 'few.safetensors'}'\n")
    path = place / "over.gin"
    path.write_text("\n".join([*written, "DTYPE = 'float32'", "GAMMAS = (3,)"]))
    return str(path)


@pytest.mark.parametrize("file", ROWS, ids=lambda file: f"{file.table}/{file.row}")
def test_every_row_builds(file, place, over):
    drafts = [str(place / "few.gin")] if "whisper_" in file.row else []
    built = configs.build(file._replace(over=(over, *drafts)))
    assert (built.table, built.name) == (file.table, file.row)
    assert (built.row.scale == "paper") == (built.table == "speech_paper")
    files = {path.name for path in built.row.measurement.inputs}
    assert {"0.wav", utterances.TABLE, "model.safetensors", "methods.py"} <= files
    assert (built.row.measurement.run.func is rows.measure_speed) == (
        "speed" in file.row
    )


FEW = [
    methods.Method("greedy_alone", None, None, 0.0),
    methods.Method("greedy_exact", "token", None, 0.0),
    methods.Method("always", methods.KEPT, None, 0.0),
]


@pytest.mark.slow
def test_rows_run_from_their_files_to_their_tables(over, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "error_methods", lambda *_: FEW)
    timed = [baseline_method(50), exact_method(50)]
    monkeypatch.setattr(verification, "text_methods", lambda *_: timed)
    names = "digits", "digits_speed", "digits_time"
    small = "BATCHES = (2,)", "ROUNDS = 1", "BATCH = 2", "LANGUAGE = 'en'"
    files = [records.row("speech_data", name, small) for name in names]
    run.measure([file._replace(over=(over,)) for file in files], tmp_path)
    by_row = {r["row"]: r for r in jsonl.read(tmp_path / "speech_data.jsonl")}
    errors, speed, times = (by_row[name]["measured"] for name in names)
    assert errors["wer_greedy_alone"] == errors["wer_greedy_exact"] > 0
    assert errors["words"] == 5 and errors["tokens_per_call_greedy_alone"] == 1
    assert errors["alpha_always"] == 1 > errors["alpha_greedy_exact"] > 0
    assert speed["same_texts_b2"] == 2
    assert speed["speedup_b2"] > 0 and speed["shared_encoder"]
    saved = 1 - times["us_exact_top50_g3"] / times["us_baseline_top50_g3"]
    assert times["step_reduction_exact_top50_g3"] == pytest.approx(100 * saved)
    assert times["peak_kib_exact_top50_g3"] > 0
    assert len(times["guarantees"]) == 2


@pytest.mark.slow
def test_a_trace_is_the_text_of_the_target_alone(place):
    pair = [pretrained.load(str(place / name)) for name in ("target", "draft")]
    built = recording.build(*pair, gamma=3, tokens=12, recording=place / "0.wav")
    assert {place / "0.wav", place / "0.txt"} < {*built.inputs}
    it = built.run()
    emitted = [x for step in it["steps"] for x in step["accepted"] + step["added"]]
    assert it["same_text"] and len(emitted) == it["tokens"] == it["alone_calls"] > 2
    assert "".join(x for x in emitted if "<|" not in x).strip() == it["text"]
    assert 0 < it["calls_saved"] == it["alone_calls"] - len(it["steps"])
    assert any(step["rejected"] for step in it["steps"])
    assert it["prompt"] == "0.wav" and it["spoken"] == TEXTS[0]
    lines = catalogue.find_table("speech").lines
    asked = {line.quantity for line in lines if line.folder == "speech"}
    assert asked and asked < it.keys()
    for draft, tokens, file, message in (
        (counts.ngram(2), 12, "0.wav", "bigram reads no recordings: name a Whisper"),
        (pair[1], 12, "1.wav", r"write what is said in 1\.wav there"),
        (pair[1], 0, "0.wav", "tokens must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            recording.build(
                pair[0], draft, gamma=3, tokens=tokens, recording=place / file
            )


def test_the_share_kept_has_the_error_of_a_ratio_over_batches():
    """A large batch has more weight: 0.6 of 40 tokens were kept, and the batches differ
    from that by +2, -1 and -1."""

    def count_accepted(*kept_of: tuple[int, int]) -> dict:
        spent = [Spent(1, 5, 9, kept, tested, 0.0) for kept, tested in kept_of]
        return rows.acceptance_numbers(Outcome([], spent), "x")

    told = count_accepted((8, 10), (5, 10), (11, 20))
    error = pytest.approx(np.sqrt(6 * 3 / 2) / 40)
    assert told["alpha_x"] == pytest.approx(0.6) and told["alpha_se_x"] == error
    assert count_accepted((4, 10))["alpha_se_x"] is None
    assert count_accepted((0, 0), (0, 0)) == {"tokens_per_call_x": pytest.approx(1.8)}


def test_both_rules_by_sigmoids_are_named_apart():
    both = methods.error_methods((1e3, 1e4), ("sigmoid", "sigmoid_released"))
    rules = {method.name: method.rule for method in both}
    assert len(rules) == len(both) == 16
    assert rules["sigmoid_1e3_top50"] == "sigmoid:1000"
    assert rules["sigmoid_released_1e4"] == "sigmoid_released:10000"
    assert all(verifiers.find(rule).guarantee for rule in rules.values() if rule)


BAD = [
    ("file\tspeaker\n0.wav\tx\n", "line 2: want 5 fields"),
    ("\t".join(utterances.HEAD) + "\n", "no recording of the split 'test'"),
    ("\t".join(utterances.HEAD) + "\na.wav\tx\t1\tw\ttest\n", "names a.wav, which"),
    (None, "put recordings there"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_table_that_is_none_is_named(tmp_path, text, message):
    if text:
        (tmp_path / utterances.TABLE).write_text(text)
    with pytest.raises(ValueError, match=message):
        utterances.read(tmp_path, split="test")


def test_a_share_of_recordings_is_drawn_by_a_seed(place):
    drawn = [
        utterances.read(place, split="test", share=0.5, seed=seed) for seed in range(8)
    ]
    assert {it.files for it in drawn} == {(place / "0.wav",), (place / "1.wav",)}
    assert drawn[3] == utterances.read(place, split="test", share=0.5, seed=3)


# Word errors.


def test_one_word_of_each_kind_is_an_error():
    result = word_errors.score(
        ["the cat sat", "on the red mat", "and slept"],
        ["the dog sat", "on the mat", "and so slept"],
    )
    assert (result.errors, result.words, result.recordings) == (3, 9, 3)
    assert result.rate == pytest.approx(1 / 3)
    assert 0.25 <= result.low <= result.rate <= result.high <= 0.5
    # Spelling, case and points are forgiven, and invented words count.
    said = "Mr. Brown's colour isn't gray, it cost twenty dollars!"
    heard = "mister brown's color is not grey it cost $20"
    assert word_errors.score([said], [heard]).errors == 0
    plain = word_errors.score(["Eins, ZWEI!"], ["eins zwei"], language="de")
    assert (plain.errors, plain.words) == (0, 2)
    result = word_errors.score(["", "red mat"], ["thanks for watching", "red mat"])
    assert (result.errors, result.words, result.rate) == (3, 2, 1.5)
    assert word_errors.score(["red"], [""]).rate == 1


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        words = rng.integers(5, 30, 60)
        counts = np.stack([rng.binomial(words, 0.2), words], 1)
        low, high = word_errors.interval(counts, trial)
        covered += low <= 0.2 <= high
    assert 87 <= covered <= 99  # 95 % of a hundred, three standard errors


def test_what_cannot_be_scored_is_told():
    with pytest.raises(ValueError, match="1 references and 2 transcripts"):
        word_errors.score(["a"], ["a", "b"])
    for nothing in ([], [""], ["[music]"]):
        with pytest.raises(ValueError, match="no words"):
            word_errors.score(nothing, nothing)
