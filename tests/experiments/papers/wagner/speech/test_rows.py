"""Rows of speech: every file builds, and what a row measures is what it says."""

import re

import numpy as np
import pytest

from experiments import run
from experiments.papers.wagner.methods import of_text
from experiments.papers.wagner.speech import (
    methods,
    rows,
    side_by_side,
    table,
    utterances,
)
from experiments.papers.wagner.speech.hearing import Outcome
from specjax import configs, verifiers
from specjax.configs import RowFile
from specjax.measure import jsonl
from specjax.speech import logmel
from specjax.speech.decoding import Spent
from specjax.verifiers import token
from tests.support import speech_folders

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
pytest.importorskip("tokenizers")
CONFIGS = run.ROOT / "gin_configs"
ROWS = sorted(CONFIGS.glob("speech_*/*.gin"))
TEXTS = "open the door", "turn left"


@pytest.fixture(scope="module")
def over(tmp_path_factory) -> str:
    """A file to read after a row: tiny weights, and two recordings."""
    place = tmp_path_factory.mktemp("rows")
    names = speech_folders.folders(place)
    lines = ["\t".join(utterances.HEAD)]
    for number, text in enumerate(TEXTS):
        name = f"{number}.wav"
        sound.write(place / name, speech_folders.sound(2.0, number), logmel.RATE)
        lines.append("\t".join([name, "x", "2.0", text, "test"]))
    (place / utterances.TABLE).write_text("\n".join(lines) + "\n")
    written = ["from __gin__ import dynamic_registration"]
    written += ["from specjax import sides", f"FOLDER = '{place}'"]
    for file in ("whisper", "speech_trained", "speech_bundled"):
        text = (CONFIGS / f"checkpoints/{file}.gin").read_text()
        written.append(f"include 'gin_configs/checkpoints/{file}.gin'")
        for scope in re.findall(r"^(\w+)/sides\.model\.name", text, re.MULTILINE):
            side = "draft" if re.search("distil|draft|turbo", scope) else "target"
            written.append(f"{scope}/sides.model.name = '{names[side]}'")
    path = place / "over.gin"
    path.write_text("\n".join([*written, "DTYPE = 'float32'", "GAMMAS = (3,)"]))
    return str(path)


@pytest.mark.parametrize(
    "path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_row_builds(path, over):
    built = configs.build(RowFile(path, (over,), ()))
    assert (built.table, built.name) == (path.parent.name, path.stem)
    paper = path.parent.name == "speech_paper"
    assert (built.row.scale == "paper") == paper
    files = {file.name for file in built.row.measurement.inputs}
    assert {"0.wav", utterances.TABLE, "model.safetensors", "methods.py"} <= files
    assert (built.row.measurement.run.func is rows.measure_speed) == (
        "speed" in path.stem
    )


FEW = [
    methods.Method("greedy_alone", None, None, 0.0),
    methods.Method("greedy_exact", "token", None, 0.0),
    methods.Method("exact", "token"),
    methods.Method("always", methods.KEPT),
]


def test_rows_run_from_their_files_to_their_tables(over, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "of_errors", lambda *_: FEW)
    names = "digits", "digits_speed", "digits_time"
    files = [CONFIGS / f"speech_data/{name}.gin" for name in names]
    small = "BATCHES = (2,)", "ROUNDS = 1", "BATCH = 2", "LANGUAGE = 'en'"
    run.measure([RowFile(path, (over,), small) for path in files], tmp_path)
    by_row = {r["row"]: r for r in jsonl.read(tmp_path / "speech_data.jsonl")}
    errors, speed, times = (by_row[name]["measured"] for name in names)
    assert errors["wer_greedy_alone"] == errors["wer_greedy_exact"] > 0
    assert errors["words"] == 5 and errors["tokens_per_call_greedy_alone"] == 1
    assert errors["alpha_always"] == 1 > errors["alpha_exact"] > 0
    assert speed["same_texts_b2"] == 2
    assert speed["speedup_b2"] > 0 and speed["shared_encoder"]
    for end in ("", "_top50"):
        base, exact = (times[f"us_{m}{end}_g3"] for m in ("baseline", "exact"))
        saved = times[f"step_reduction_exact{end}_g3"]
        assert base > 0 and saved == pytest.approx(100 * (1 - exact / base))
        assert times[f"peak_kib_exact{end}_g3"] > 0
    wide = side_by_side.wider({"speech_data": by_row})
    shown = {title: lines for title, _, lines in wide}
    of_methods, of_batches, of_steps = shown.values()
    assert len(of_steps) == len(times["guarantees"]) == 8
    assert [line[0] for line in of_methods] == [m.name.replace("_", " ") for m in FEW]
    assert [(line[0], line[-1]) for line in of_batches] == [("2", "2 of 2")]


def counted(*kept_of: tuple[int, int]) -> dict:
    spent = [Spent(1, 5, 9, kept, tested, 0.0) for kept, tested in kept_of]
    return rows.counted(Outcome([], spent), "x")


def test_the_share_kept_has_the_error_of_a_ratio_over_batches():
    told = counted((4, 10), (6, 10), (8, 10))
    assert told["alpha_x"] == pytest.approx(0.6)
    assert told["tokens_per_call_x"] == pytest.approx(1.8)
    # Of batches that tested alike it is the error of the mean of their shares.
    shares = np.array([0.4, 0.6, 0.8])
    assert told["alpha_se_x"] == pytest.approx(np.std(shares, ddof=1) / np.sqrt(3))
    # Of others a large batch counts for more: .6 of 40, beyond which are +2, -1, -1.
    told = counted((8, 10), (5, 10), (11, 20))
    assert told["alpha_x"] == pytest.approx(0.6)
    assert told["alpha_se_x"] == pytest.approx(np.sqrt(6 * 3 / 2) / 40)
    assert counted((4, 10))["alpha_se_x"] is None
    assert counted((0, 0), (0, 0)) == {"tokens_per_call_x": pytest.approx(1.8)}


def test_a_line_is_of_a_quantity_that_its_row_measures():
    measured = {f"wer_{name}" for name in table.METHODS}
    measured |= {f"alpha_{name}" for name in table.METHODS}
    measured |= {line.quantity for line in table.recording()}  # test_recording.py
    scaled = {f"wer_{method.name}" for method in methods.of_errors(table.SCALES)}
    steps = [method.name for method in of_text(1e3, token.verifier, None)]
    ends = [f"{name}_g{gamma}" for name in steps for gamma in (1, 3, 5, 10, 15)]
    timed = {f"{key}_{end}" for key in ("us", "step_reduction") for end in ends}
    for line in table.speech().lines:
        assert (CONFIGS / line.folder / f"{line.row}.gin").is_file()
        known = scaled if line.row.endswith("_scale") else measured
        known = timed if line.row.endswith("_time") else known
        assert line.quantity in known or line.quantity.startswith("speedup_b")


def test_methods_are_named_by_their_scales():
    assert [methods.spelled(scale) for scale in (1e1, 1e3, 1e5)] == [
        "sigmoid_1e1",
        "sigmoid_1e3",
        "sigmoid_1e5",
    ]


def test_both_rules_by_sigmoids_are_named_apart():
    both = methods.of_errors((1e3, 1e4), ("sigmoid", "sigmoid_released"))
    rules = {method.name: method.rule for method in both}
    assert len(rules) == len(both) == 16
    assert rules["sigmoid_1e3_top50"] == "sigmoid:1000"
    assert rules["sigmoid_released_1e4"] == "sigmoid_released:10000"
    for rule in filter(None, rules.values()):
        assert verifiers.named(rule).guarantee


BAD = [
    ("file\tspeaker\n0.wav\tx\n", "line 2: want 5 fields"),
    ("\t".join(utterances.HEAD) + "\n", "no recording of the split 'test'"),
    ("\t".join(utterances.HEAD) + "\na.wav\tx\t1\tw\ttest\n", "names a.wav, which"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_table_that_is_none_is_named(tmp_path, text, message):
    (tmp_path / utterances.TABLE).write_text(text)
    with pytest.raises(ValueError, match=message):
        utterances.read(tmp_path, "test")


def test_a_share_of_recordings_is_drawn_by_a_seed(tmp_path):
    lines = ["\t".join(utterances.HEAD)]
    for i in range(20):
        (tmp_path / f"{i}.wav").touch()
        lines.append(f"{i}.wav\tx\t1\tw{i}\ttest")
    (tmp_path / utterances.TABLE).write_text("\n".join(lines))
    some = utterances.read(tmp_path, "test", 0.25, 1)
    assert len(some.files) == 5 and some == utterances.read(tmp_path, "test", 0.25, 1)
    assert some != utterances.read(tmp_path, "test", 0.25, 2)
    with pytest.raises(ValueError, match="put recordings there"):
        utterances.read(tmp_path / "absent")
