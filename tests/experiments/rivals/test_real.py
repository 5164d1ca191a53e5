"""Many engines decode with real weights: child processes answer, and our arithmetic on
their answers is right."""

import json
import sys
from functools import partial

import numpy as np
import pytest

from experiments.rivals import (
    agreement,
    bench,
    calls,
    children,
    exports,
    journal,
    language,
    padding,
    ratios,
    real,
    turns,
)
from specjax import pretrained
from specjax.checkpoints import published
from specjax.measure import jsonl, row
from specjax.prompts import Prompts
from specjax.runtime import console

ENGINE = """
import os
from pathlib import Path

def load(base, calls=None, **others):
    print("a banner, as engines print them")

    def power(x):
        if calls is not None:
            with Path(calls).open("a") as file:
                file.write(f"{base}^{x} ")
        if x < 0:
            raise ValueError("\\nno negative numbers\\n")
        if x > 90:
            os._exit(9)
        return base**x

    return {"plain": power}
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "an_engine.py").write_text(ENGINE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{bench.ROOT}")
    return "an_engine:load"


def collect(asked, groups, warm, *, rounds=1, kept=None):
    """Runs the turns of engines, with a journal in memory by default."""
    kept = journal.memory_journal("") if kept is None else kept
    options = dict(rounds=rounds, pause=0.0, label="a row", journal=kept)
    return turns.collect(asked, groups, warm, **options)


def test_a_child_answers_and_says_what_it_cannot_do(engine, capfd):
    power = children.start(engine, {"base": 2}, threads=1)
    call = power.ask("plain", 5)
    assert power.programs == ("plain",) and call.value == 32 and 0 <= call.seconds < 1
    assert 1 < call.peak_mb < 500  # of a bare interpreter, not of this process
    with pytest.raises(children.Refused, match=r"^no negative numbers$"):
        power.ask("plain", -1)
    asked = {"an_engine": partial(power.ask, "plain")}
    taken = collect(asked, [(1,), (2,)], [(0,)], rounds=3)
    assert taken.values == {"an_engine": [2, 4]} and not taken.refusals
    assert taken.seconds["an_engine"].shape == (3, 2) and taken.peak_mb["an_engine"] > 1
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "a row: an_engine, first calls, not timed" and len(said) == 7
    assert said[-1].startswith("a row: round 3 of 3, an_engine, 2 of 2: ")
    taken = collect(asked, [(1,)], [(-1,)])
    assert taken.refusals == {"an_engine": "no negative numbers"}
    taken = collect(asked, [(1,), (-1,)], [(1,)], rounds=2)
    assert taken == ({}, {}, {"an_engine": "no negative numbers"}, {})
    power.process.kill()
    with pytest.raises(children.Refused, match="its process ended with code"):
        power.ask("plain", 1)
    power.close()


def test_a_stop_loses_no_call_and_every_engine_keeps_its_turns(engine, tmp_path):
    """A run that one engine stops in the middle of a round, by ending all, is
    continued."""
    log, groups = tmp_path / "calls", [(1,), (2,)]

    def row(last: int, rounds: int = 2):
        started = {
            name: children.start(engine, {"base": base, "calls": str(log)}, threads=1)
            for name, base in (("a", 2), ("b", 3))
        }
        kept = journal.open_journal(tmp_path, "a_row", {"config": "same"})
        if kept.recorded:
            return kept, None

        def stop_at_last(name: str, x: int):
            if len(kept.calls) == last:
                raise KeyboardInterrupt
            return started[name].ask("plain", x)

        asked = {name: partial(stop_at_last, name) for name in started}
        try:
            return kept, collect(asked, groups, [(0,)], rounds=rounds, kept=kept)
        finally:
            for child in started.values():
                child.close()

    with pytest.raises(KeyboardInterrupt):
        row(last=5)
    assert log.read_text().split() == "2^0 3^0 2^1 2^2 3^1 3^2 2^1".split()
    log.unlink()
    kept, taken = row(last=8)
    assert log.read_text().split() == "2^0 3^0 2^2 3^1 3^2".split()
    assert taken.values == {"a": [2, 4], "b": [3, 9]} and kept.sittings == {1, 2}
    assert all((taken.seconds[name] > 0).all() for name in "ab")
    kept.mark_recorded()
    assert row(last=0)[0].recorded
    kept.remove()
    assert [*tmp_path.glob("bench*")] == []


def test_calls_of_other_settings_are_set_aside(tmp_path, capsys):
    first = journal.open_journal(tmp_path, "a_row", {"config": "gamma = 2"})
    first.add(journal.Place("a", 0, 0), journal.Call(1.0, [5], 7.5))
    same = journal.open_journal(tmp_path, "a_row", {"config": "gamma = 2"})
    assert same.calls == {("a", 0, 0): (1.0, [5], 7.5)} and same.sitting == 2
    assert not journal.open_journal(tmp_path, "a_row", {"config": "gamma = 3"}).calls
    assert "calls of other settings, files or versions" in capsys.readouterr().out
    assert (tmp_path / "bench.jsonl.a_row.replaced").exists()


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
    # Twelve rounds of two texts say no more of other texts than one round.
    one = np.array([[4.0, 9.0]]), np.array([2, 4])
    again = np.repeat(one[0], 12, axis=0), one[1]
    for slower in (one, again):
        ratio = ratios.token_speed_ratio(slower, fast, "over_x")
        assert ratio["over_x_se"] == pytest.approx(1 / 3)
    rounds = np.array([[1.0], [1.1], [0.9]]), np.array([3])
    ratio = ratios.token_speed_ratio(rounds, rounds, "over_x")
    assert ratio["over_x"] == 1 and ratio["over_x_se"] == 0
    single = np.array([[1.0]]), np.array([3])
    assert ratios.token_speed_ratio(single, single, "x")["x_ci"] is None


def test_prompts_are_cut_to_a_length_and_padded_on_the_left():
    every = Prompts([[1, 2], [3]])
    assert language.repeat_to_length(every, 7) == [1, 2, 3, 1, 2, 3, 1]
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
            language.check(setting)


def test_an_engine_is_beside_ours_of_the_same_way_and_arithmetic():
    assert exports.program_name("x", "float32", "plain") == "x"
    assert exports.program_name("x", "q4_1", "lookup") == "x_q4_1_lookup"
    assert exports.our_program("x", "q4_1", "lookup") == "specjax_int8_lookup"
    assert exports.our_program("x", "float32", "plain") == "specjax"


def test_a_folder_is_complete_or_not_there(tmp_path):
    def fail_to_convert(path):
        path.mkdir()
        raise ImportError("no converter")

    with pytest.raises(children.Refused, match="no converter"):
        exports.make_once(tmp_path / "made", fail_to_convert)
    assert not (tmp_path / "made").exists()
    made = exports.make_once(tmp_path / "made", lambda path: path.mkdir())
    assert exports.make_once(made, fail_to_convert) == made
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
    made = exports.format_folder(tmp_path, "a", weights)
    weights.write_bytes(b"2")
    assert not bench.is_recorded(tmp_path, ["a"], setting=setting, measurement=measured)
    assert exports.format_folder(tmp_path, "a", weights) != made


def test_settings_that_measure_nothing_are_refused_before_anything(tmp_path):
    argv = ["--questions", str(tmp_path / "none.jsonl"), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match=r"^error: --texts 0: it must be at least 1$"):
        real.main([*argv, "--texts", "0"])
    with pytest.raises(SystemExit, match="No such file"):
        real.main([*argv, "--texts", "2"])


STAND_IN = """
def language(path, kind, room, gamma, ends, threads):
    if kind == "int8":
        raise RuntimeError("a traceback\\nno arithmetic of eight bits")

    def plain(prompts, new_tokens):
        return [[7] * new_tokens for _ in prompts]

    def lookup(prompts, new_tokens):
        if len(prompts) > 1:
            raise TypeError("one text at a time")
        return plain(prompts, new_tokens)

    return {"plain": plain, "lookup": lookup}
"""


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """specjax and another engine, neither of which computes anything."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{bench.ROOT}")
    start = children.start

    def start_stand_in(loader, options, threads):
        return start("stand_in:language", options, threads)

    def fail(exports):
        raise OSError("no space\nleft")

    monkeypatch.setattr(children, "start", start_stand_in)
    monkeypatch.setattr(bench, "begin", lambda threads: None)
    monkeypatch.setattr(calls, "measure", lambda *_: {"gammas": [4]})
    engines = {
        "specjax": exports.Engine("ours", {"float32": exports.original_file}),
        "other": exports.Engine(
            "x", {"float32": exports.original_file, "int8": exports.original_file}
        ),
        "broken": exports.Engine("x", {"float32": fail}),
    }
    monkeypatch.setattr(language, "ENGINES", engines)
    model = pretrained.load("code_small")._replace(files=(tmp_path / "stand_in.py",))
    monkeypatch.setattr(language.pretrained, "load", lambda *_: model)
    monkeypatch.setattr(language, "inputs", lambda *_: ())
    file = tmp_path / "questions.jsonl"
    file.write_text('{"prompt": "def f("}\n{"prompt": "x = "}\n')
    argv = f"--questions {file} --out {tmp_path} --work {tmp_path} --texts 2".split()
    return [*argv, "--new_tokens", "3", "--prefill", "4", "--pause", "0"]


def test_two_texts_are_a_row_of_two_and_a_failure_is_a_line(stand_ins, tmp_path, capfd):
    """Whatever an engine raises is a reason in the record, and the other engines
    continue."""
    real.main(stand_ins)
    said = capfd.readouterr()
    by_row = {x["row"]: x["measured"] for x in jsonl.read(tmp_path / "bench.jsonl")}
    names = "b1", "b2", "prefill", "calls"
    assert [*by_row] == [f"smollm2_{name}" for name in names]
    one, two = by_row["smollm2_b1"], by_row["smollm2_b2"]
    why = {"broken": "OSError: left", "other_int8": "no arithmetic of eight bits"}
    assert one["refusals"] == why and one["sittings"] == 1
    lookup = {f"{x}_lookup": "TypeError: one text at a time" for x in ENGINES}
    assert two["refusals"] == why | lookup and "ms_other" in two
    assert one["same_texts"]["other"] == one["same_texts"]["other_lookup"] == 2
    assert one["peak_mb"].keys() == {"specjax", "other"} | lookup.keys()
    assert "smollm2: other_int8 gives no number: no arithmetic of eight" in said.err
    assert "Traceback" not in said.err and "MiB at most" in said.out
    assert not [*tmp_path.glob("bench.jsonl.*")]
    real.main(stand_ins)
    assert capfd.readouterr().out.count(": kept\n") == 4


ENGINES = "specjax", "other"


def test_a_stopped_command_continues_with_the_next_call(
    stand_ins, tmp_path, monkeypatch, capfd
):
    add, left = journal.Journal.add, [5]

    def add_some(self, place, call):
        add(self, place, call)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(journal.Journal, "add", add_some)
    monkeypatch.setattr(console, "leave", sys.exit)
    with pytest.raises(SystemExit) as end:
        real.main([*stand_ins, "--quick"])
    assert end.value.code == 130
    assert "every finished call is kept, and the same" in capfd.readouterr().err
    real.main([*stand_ins, "--quick"])
    assert "bench/smollm2_b1: 5 calls were measured before" in capfd.readouterr().out
    rows = {x["row"]: x["measured"] for x in jsonl.read(tmp_path / "bench.jsonl")}
    assert rows.keys() == {"smollm2_b1", "smollm2_prefill"}
    assert rows["smollm2_b1"]["sittings"] == 2 and 5 + left[0] < 0


@pytest.mark.slow
def test_transformers_writes_what_we_write(tmp_path):
    """A row is run from end to end with weights that `specjax fetch` downloads."""
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
            setting, file, work=tmp_path / "work", texts_folder=tmp_path / "texts"
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
