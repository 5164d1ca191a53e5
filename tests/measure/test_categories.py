"""Questions are measured by category, from their turns to the files of other
benchmarks."""

import json
from functools import partial

import numpy as np
import pytest

from specjax import pretrained
from specjax.cli import measure
from specjax.measure import categories, jsonl, pairs, rows, specdec
from specjax.measure.walltime import WalltimeSetting
from specjax.prompts.questions import Chosen, Question
from tests.support import text_folders
from tests.support.settings import make

LINES = [
    {"question_id": 2, "category": "writing", "turns": ["def add(", "class"]},
    {"question_id": 1, "category": "rag", "turns": ["return a"]},
]
FLAGS = "--draft copying --gammas 2 --tokens 5 --rounds 1 --by task".split()


def turn(id: int, category: str, lengths: list[int], seconds: float) -> categories.Turn:
    """Returns a turn of gamma = 2 whose calls drafted as many tokens as possible; alone
    it took 1 s."""
    accepted = [n - 1 for n in lengths]
    tested = [min(n, 2) for n in lengths]
    ids = list(range(sum(lengths)))
    times = {"alone": [1.0, 1.0], "drafted": [seconds] * 2, "first": [0.1] * 2}
    counts = lengths, accepted, tested
    return categories.Turn(
        Question(id, category, "", 0, "?"),
        3,
        times,
        dict(alone=ids, drafted=ids),
        *counts,
    )


TURNS = [turn(7, "math", [3, 1, 2], 0.5), turn(8, "rag", [1, 1], 1.0)]


def test_numbers_are_those_counted_by_hand():
    row = categories.numbers(TURNS, gamma=2)
    assert row["tokens_per_call"] == 8 / 5 and row["lengths"] == {
        "1": 3,
        "2": 1,
        "3": 1,
    }
    assert row["joint"] == [2 / 5, 1 / 5] and row["conditional"] == [2 / 5, 1 / 2]
    assert row["alpha"] == 3 / 7
    assert row["tokens_per_second"] == {"alone": 4.0, "drafted": 7.0}  # of questions
    assert row["best_speedup"] == 7 / 4
    low, high = row["best_speedup_ci"]
    assert low < 7 / 4 < high
    alone = categories.numbers(TURNS[1:], gamma=2)
    assert alone["best_speedup_ci"] is None and alone["conditional"] == [0.0, None]


def test_other_benchmarks_read_what_is_written(tmp_path):
    specdec.prepare(tmp_path / "run")
    specdec.write(tmp_path / "run", TURNS, lambda ids: f"{len(ids)} ids", {"gamma": 2})
    read = {
        file.stem: [*map(json.loads, file.read_text().splitlines())]
        if file.suffix == ".jsonl"
        else json.loads(file.read_text())
        for file in (tmp_path / "run").iterdir()
    }
    (rates,), (times,) = read["acceptance_rate"], read["timing"]
    assert rates["Request_AL"] == {"7": {"0": 2.0}, "8": {"0": 1.0}}
    assert rates["Category_AL"] == {"math": 2.0, "rag": 1.0}
    assert rates["Average_AL"] == 1.5
    assert rates["Acceptance_Length_Histogram"] == {"1": 3, "2": 1, "3": 1}
    assert rates["Conditional_Acceptance_Rate"] == {"1": 1.0, "2": 0.4, "3": 0.5}
    assert rates["Joint_Acceptance_Rate"] == {"1": 1.0, "2": 0.4, "3": 0.2}
    assert times["Output TPS"] == 8 / 1.5 and times["TTFT Time"]["mean"] == "0.1000"
    assert times["Request Generation Step Time"]["max"] == "0.9000"
    first, _ = read["drafted"]
    assert first["choices"][0]["accept_lengths"] == [3, 1, 2]
    assert first["choices"][0]["decoding_steps"] == [3]
    assert read["alone"][0]["choices"][0]["accept_lengths"] == [1] * 6
    assert read["responses"][0]["choices"] == [{"index": 0, "turns": ["6 ids"]}]
    with pytest.raises(ValueError, match="has a run already"):
        specdec.prepare(tmp_path / "run")


@pytest.mark.slow
def test_every_turn_is_measured_and_its_record_is_compared(tmp_path, capsys):
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    target, data = text_folders.gpt2(tmp_path / "gpt2"), tmp_path / "a.jsonl"
    data.write_text("\n".join(map(json.dumps, LINES)))
    out = tmp_path / "out.jsonl"
    chosen = partial(pairs.questions, chosen=Chosen(task="rag"))
    both = pretrained.load(str(target)), "copying"
    setting = make(WalltimeSetting, gammas=(0, 2), new_tokens=5, rounds=1, ends=True)
    row = pairs.by_question(*both, setting, str(data), chosen).run()
    assert row["questions"] == [1] and row["group"] == "all" and row["turns"]
    alone, drafted = row["memory_mb"]
    assert alone < drafted == row["best_memory_mb"]
    named = ["--target", str(target), "--data", str(data), "--out", str(out)]
    assert measure.main([*named, *FLAGS, "--specdec", str(tmp_path / "run")]) == 0
    assert "mean accepted length" in capsys.readouterr().out
    found = rows.read(out)
    assert [*found] == [f"copying, {name}" for name in ("mt_bench", "rag", "all")]
    groups = [record["measured"] for record in jsonl.read(out)]
    assert [row["questions"] for row in groups] == [[2], [1], [2, 1]]
    for name in ("texts", "same_greedy_texts"):
        assert [row[name] for row in groups] == [2, 1, 3]
    told = [turn for row in groups[:2] for turn in row["turns"]]
    for each in told:  # what the calls gave is the text
        assert sum(each["lengths"]) == each["tokens"]["drafted"] <= 5
    assert groups[-1]["calls"] == sum(len(each["lengths"]) for each in told)
    assert np.diff([each["prompt"] for each in told[:2]]) > 0  # the answer is there
    made = json.loads((tmp_path / "run" / "configuration.json").read_text())
    assert made["draft_length"] == 2 and made["model_dir"] == str(target)
