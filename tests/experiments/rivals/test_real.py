"""Real weights by many engines: children that answer, and our arithmetic on it."""

import json

import numpy as np
import pytest

from experiments.rivals import (
    agreement,
    bench,
    calls,
    children,
    exports,
    language,
    padding,
    ratios,
    real,
)
from specjax.checkpoints import published
from specjax.measure import row
from specjax.prompts import Prompts

ENGINE = """
def load(base):
    print("a banner, as engines print them")

    def power(x):
        if x < 0:
            raise ValueError("\\nno negative numbers\\n")
        return base**x

    return {"plain": power}
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "an_engine.py").write_text(ENGINE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{bench.ROOT}")
    return "an_engine:load"


def test_a_child_answers_and_says_what_it_cannot_do(engine):
    power = children.start(engine, {"base": 2}, threads=1)
    seconds, value = power.ask("plain", 5)
    assert power.programs == ("plain",) and value == 32 and 0 <= seconds < 1
    with pytest.raises(children.Refused, match=r"^no negative numbers$"):
        power.ask("plain", -1)
    asked = {"an_engine": (power, "plain")}
    taken = children.collect(asked, [(1,), (2,)], [(0,)], rounds=3, pause=0.0, label="")
    assert taken.values == {"an_engine": [2, 4]} and not taken.refusals
    assert taken.seconds["an_engine"].shape == (3, 2)
    taken = children.collect(asked, [(1,)], [(-1,)], rounds=1, pause=0.0, label="")
    assert taken.refusals == {"an_engine": "no negative numbers"}
    taken = children.collect(
        asked, [(1,), (-1,)], [(1,)], rounds=2, pause=0.0, label=""
    )
    assert taken == ({}, {}, {"an_engine": "no negative numbers"})
    power.process.kill()
    with pytest.raises(children.Refused, match="its process ended with code"):
        power.ask("plain", 1)
    power.close()


def test_an_engine_that_is_not_installed_is_one_clear_line(engine):
    for module, message in (
        ("no_engine:load", "No module named"),
        (engine, "argument"),
    ):
        with pytest.raises(children.Refused, match=message):
            children.start(module, {"other": 1}, threads=1)


def test_texts_end_alike_whoever_gives_the_end():
    said = {"a": [[[5, 6, 2]], [[7, 8, 9]]], "b": [[[5, 6]], [[7, 8, 9, 4]]]}
    same = language.texts(said, ends=[2], most=3)
    assert same["a"] == same["b"] == [[5, 6, 2], [7, 8, 9]]
    assert language.lengths(same, batch=2)["a"].tolist() == [6]
    others, ours = ([5, 6, 1, 9], [5, 6]), [[5, 6, 2, 9]] * 2
    assert agreement.same_prefix(others, ours) == 0.5


def test_ratios_are_of_seconds_a_token():
    slow = np.array([[4.0, 8.0], [4.0, 8.0]]), np.array([2, 4])
    fast = np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([3, 3])
    ratio = ratios.token_speed_ratio(slow, fast, "over_x")
    assert ratio["over_x"] == pytest.approx(6) and ratio["over_x_se"] < 1e-9


def test_prompts_are_cut_to_a_length_and_padded_on_the_left():
    every = Prompts([[1, 2], [3]])
    assert language.at_length(every, 7) == [1, 2, 3, 1, 2, 3, 1]
    ids, mask = padding.pad_left([[1, 2], [3]], pad=9)
    assert ids.tolist() == [[1, 2], [9, 3]] and mask.tolist() == [[1, 1], [0, 1]]
    ids, mask = padding.pad_right([[1, 2], [3]], pad=9)
    assert ids.tolist() == [[1, 2], [3, 9]] and mask.tolist() == [[1, 1], [1, 0]]


def test_questions_are_taken_a_task_after_another(tmp_path):
    tasks = ["writing"] * 2 + ["qa"] * 2
    lines = [{"category": x, "turns": [f"{x} {i}"]} for i, x in enumerate(tasks)]
    assert language.first_turn(lines[0])["messages"][0]["content"] == "writing 0"
    assert language.first_turn({"prompt": "a", "id": 1}) == {"prompt": "a"}


def test_engines_that_are_none_are_refused():
    for engines in ("specjax,vllm", "openvino"):
        setting = language.LanguageSetting(engines=engines)
        with pytest.raises(ValueError, match="engines must be some of specjax, "):
            language.open_all(setting, None, ends=[2], stack=None)


def test_an_engine_is_beside_ours_of_the_same_way_and_arithmetic():
    assert exports.program_name("x", "float32", "plain") == "x"
    assert exports.program_name("x", "q4_1", "lookup") == "x_q4_1_lookup"
    assert exports.our_program("x", "q4_1", "lookup") == "specjax_int8_lookup"
    assert exports.our_program("x", "float32", "plain") == "specjax"


def test_a_folder_is_complete_or_not_there(tmp_path):
    def half(path):
        path.mkdir()
        raise ImportError("no converter")

    with pytest.raises(children.Refused, match="no converter"):
        exports.make_once(tmp_path / "made", half)
    assert not (tmp_path / "made").exists()
    made = exports.make_once(tmp_path / "made", lambda path: path.mkdir())
    assert exports.make_once(made, half) == made
    with pytest.raises(children.Refused, match=r"python3: no such thing"):
        exports.run(["python3", "-c", "import sys; sys.exit('no such thing')"])


def test_rows_are_kept_of_the_same_files_alone(tmp_path):
    weights, setting = tmp_path / "a.gguf", language.LanguageSetting(texts=8)
    weights.write_bytes(b"1")
    measured = row.Measurement(dict, "m", (weights,))
    assert not bench.is_recorded(tmp_path, ["a"], setting=setting, measurement=measured)
    bench.add_record(tmp_path, "a", {}, origin=(measured, setting, 1.0), versions={})
    assert bench.is_recorded(tmp_path, ["a"], setting=setting, measurement=measured)
    assert not bench.is_recorded(
        tmp_path, ["a", "b"], setting=setting, measurement=measured
    )
    assert not bench.is_recorded(
        tmp_path, ["a"], setting=setting._replace(gamma=3), measurement=measured
    )
    made = exports.place(tmp_path, "a", weights)
    weights.write_bytes(b"2")
    assert not bench.is_recorded(tmp_path, ["a"], setting=setting, measurement=measured)
    assert exports.place(tmp_path, "a", weights) != made


def test_fewer_texts_than_a_batch_are_refused_before_anything(tmp_path):
    argv = ["--questions", str(tmp_path / "none.jsonl"), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="--texts 2 are fewer than --batch 8: ask for"):
        real.main([*argv, "--texts", "2"])


@pytest.mark.slow
def test_transformers_writes_what_we_write(tmp_path):
    """A row from end to end, of weights that `specjax fetch` got."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if published.path("smollm2") is None:
        pytest.skip("specjax fetch smollm2 gets it")
    lines = [{"category": "qa", "turns": [x]} for x in ("Why is snow white?", "2 + 2?")]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    setting = language.LanguageSetting(texts=2, new_tokens=6, batch=2, prefill=8)
    setting = setting._replace(rounds=1, pause=0.0, engines="specjax,transformers")
    rows = dict(
        language.measure(
            setting, file, work=tmp_path / "work", texts_to=tmp_path / "texts"
        )
    )
    assert [*rows] == language.rows(setting)
    same = rows["smollm2_b1"]["same_texts"]
    explained = rows["smollm2_b1"]["explained"].get("transformers", "0 of 0")
    assert same["transformers"] + int(explained.split()[0]) == 2
    assert "batch_size = 1" in rows["smollm2_b2"]["refusals"]["transformers_lookup"]
    assert rows["smollm2_prefill"]["ms_transformers"] > 0
    assert (tmp_path / "texts/smollm2_b1_transformers.jsonl").exists()


def test_calls_of_several_tokens_are_timed_against_one_in_each_arithmetic(monkeypatch):
    monkeypatch.setattr(calls.timing, "LOOPS", 1)
    monkeypatch.setattr(calls, "ROUNDS", 2)
    monkeypatch.setattr(calls, "DTYPES", ("float32",))
    monkeypatch.setattr(calls, "GAMMAS", (4,))
    found = calls.measure("code_small", [1, 5, 9], new_tokens=4)
    assert {k for k in found if k[:2] == "v_"} == {"v_4_float32", "v_4_float32_ci"}
    assert (
        ratios.ratio_of_medians(np.array([3.0, 3.0, 90.0]), np.array([2.0, 2.0, 1.0]))
        == 1.5
    )
