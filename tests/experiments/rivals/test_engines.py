"""The benchmark gives every engine the same pair of models, stops where checks fail,
and keeps its records."""

import importlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import catalogue
from experiments.rivals import __main__ as command_line
from experiments.rivals import (
    agreement,
    bench,
    comparisons,
    journal,
    ours,
    ratios,
    weights,
)
from specjax.measure import jsonl
from specjax.models import t5

pytestmark = pytest.mark.slow

GOALS = [x for x in catalogue.find_table("bench").lines if x.row.startswith("small_")]

SETTING = comparisons.EngineSetting(
    "tiny", 4, inputs=6, new_tokens=12, texts=3, rounds=2, pause=0, threads=1
)
PAIR = weights.SIZES["tiny"]
VOCAB = PAIR.target.config.vocab


@pytest.fixture(scope="module")
def where(tmp_path_factory) -> comparisons.Place:
    return comparisons.write_weights(SETTING, tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def own(where) -> comparisons.Reference:
    return comparisons.reference(where)


@pytest.fixture(scope="module")
def huggingface():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return importlib.import_module("experiments.rivals.huggingface")


@pytest.fixture(scope="module")
def ctranslate2(huggingface):
    pytest.importorskip("ctranslate2")
    return importlib.import_module("experiments.rivals.ctranslate2")


@pytest.fixture(scope="module")
def broken(where, tmp_path_factory):
    """The target's folder with one number of it changed."""
    folder = tmp_path_factory.mktemp("broken") / "target"
    shutil.copytree(where.target, folder)
    arrays = load_file(folder / "model.safetensors")
    arrays["decoder.final_layer_norm.weight"][0] = 30.0
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


# Weights that are made for the bench.


def test_sizes_are_those_of_t5_small():
    target, draft = (t5.num_params(side.config) for side in weights.SIZES["small"])
    assert target == 60_506_624  # as published, see tests of the T5 model
    assert draft == 11_898_112


@pytest.mark.parametrize("change", [{"tied": False}, {"gated": True}, {"mlp_dim": 31}])
def test_a_model_that_cannot_turn_is_refused(change):
    side = PAIR.draft._replace(config=PAIR.draft.config._replace(**change))
    with pytest.raises(ValueError, match="the rotation needs a tied embedding"):
        weights.build(side, 0, 1)


def test_misplaced_ids_set_how_often_the_draft_is_right(where, own):
    alphas = []
    for share in (0.0, 0.5):
        side = PAIR.draft._replace(misplaced=share)
        params = weights.build(side, 0, 1)
        draft = own.model._replace(model=t5.build(side.config), params=params)
        run = ours.decoder(
            own.model, where.inputs, new_tokens=12, batch=3, draft=draft, gamma=4
        )
        alphas.append(comparisons.acceptance(run(), own.texts.size)["alpha"])
    assert alphas[0] > 0.7 > 0.5 > alphas[1]


# The engines.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "huge"}, "size must be one of small, tiny; got 'huge'"),
        ({"rounds": 1}, "rounds and new_tokens at least 2"),
        ({"gamma": 0}, "gamma, inputs, texts and threads must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        comparisons.write_weights(SETTING._replace(**change), tmp_path)


def test_texts_may_differ_where_two_tokens_tie():
    texts = np.array([[1, 2, 3], [4, 5, 1]])
    others = np.array([[1, 2, 3], [4, 0, 2]])  # what follows a tie is free

    def check(written, margin):
        """Checks texts where the law prefers id 0 to the text's token by `margin`."""
        law = np.full((*texts.shape, 6), -9.0)
        np.put_along_axis(law, texts[..., None], -1.0, axis=2)
        law[..., 0] = -1.0 - margin
        return agreement.check_texts("x", written, ours=texts, law=law)

    assert check(texts, 1.0) == 2 and check(others, 1e-4) == 1
    with pytest.raises(ValueError, match=r"text 1 of x has token 0 at 1 where .* 5"):
        check(others, 0.1)
    with pytest.raises(ValueError, match=r"wrote texts \(2, 2\)"):
        check(others[:, :2], 1.0)


def test_one_changed_number_is_noticed(where, own, broken, monkeypatch):
    changed = ours.load(broken, VOCAB)
    texts = ours.texts(
        ours.decoder(changed, where.inputs, new_tokens=12, batch=3)(), 12
    )
    with pytest.raises(ValueError, match="do not decode the same model greedily"):
        comparisons.compare(where, own, engine="changed", texts=texts)
    assert agreement.check_law("x", own.law + 1e-5, own.law) < 2e-5
    law = ours.likelihood(changed, where.inputs, own.texts)
    for wrong in (law, own.law * np.nan):
        with pytest.raises(ValueError, match="the weights or the model differ"):
            agreement.check_law("x", wrong, own.law)


@pytest.mark.parametrize("engine", ["huggingface", "ctranslate2"])
def test_one_changed_number_of_another_stops_the_row(
    where, broken, engine, monkeypatch, request
):
    module = request.getfixturevalue(engine)
    request.getfixturevalue("ctranslate2")
    load = module.load
    monkeypatch.setattr(module, "load", lambda path, *rest: load(broken, *rest))
    monkeypatch.setattr(comparisons, "time_ratios", None)  # nothing may be timed
    with pytest.raises(ValueError, match="more than rounding"):
        comparisons.measure_greedy(where, 1, journal.memory_journal("a"))


def test_programs_idle_before_their_turn_and_ratios_point_one_way():
    ran = []
    programs = {name: lambda name=name: ran.append(name) for name in "ab"}
    kept = journal.memory_journal("a")
    taken = ratios.measure(programs, rounds=3, pause=0.0, label="test", kept=kept)
    assert "".join(ran) == "ab" * 4 and set(taken.seconds) == set("ab")
    by_hand = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4.0, 6.0, 9.0])}
    ratio = ratios.speed_ratio(by_hand, fast="a", slow="b", name="over_b")
    assert ratio["over_b_ci"][0] <= ratio["over_b"] == 3 <= ratio["over_b_ci"][1]
    assert ratios.milliseconds(by_hand, 4)["ms_a"] == 500


FLAGS = "--size tiny --inputs 6 --new_tokens 12 --texts 3 --rounds 2 --pause 0"
FLAGS += " --threads 1"


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "begin", lambda threads: None)

    def run(*more):
        command_line.main([*FLAGS.split(), "--out", str(tmp_path), *more])
        return jsonl.read(tmp_path / "bench.jsonl")

    return run


def test_a_row_is_kept_until_asked_for_again(command):
    (record,) = command("--rows", "target_call_b1")
    assert record["row"] == "tiny_target_call_b1" and record["table"] == "bench"
    origin, measured = record["provenance"], record["measured"]
    assert {*command_line.EXTRA} <= {*origin["versions"]} and "gamma = 3" in origin[
        "config"
    ]
    ratio = measured["ms_call_4"] / measured["ms_call_1"]
    assert measured["v"] == pytest.approx(ratio)
    assert command("--rows", "target_call_b1") == [record]
    assert command("--rows", "target_call_b1", "--again") != [record]
    (other,) = command("--rows", "target_call_b1", "--gamma", "2")
    assert "gamma = 2" in other["provenance"]["config"]
    with pytest.raises(SystemExit, match="no row plain_b9; known are plain_b1, "):
        command("--rows", "plain_b9")


@pytest.mark.usefixtures("ctranslate2")
def test_every_row_has_what_the_goals_name(command):
    by_row = {record["row"]: record["measured"] for record in command()}
    for goal in GOALS:
        name = goal.row.replace("b8", "b3").replace("small", "tiny")
        low, high = by_row[name][f"{goal.quantity}_ci"]
        assert 0 < low <= by_row[name][goal.quantity] * (1 + 1e-9)
        assert by_row[name][goal.quantity] <= high * (1 + 1e-9)
    refusals = by_row["tiny_speculative_b3"]["refusals"]
    assert "batch_size = 1" in refusals["huggingface"]
    calls = by_row["tiny_speculative_b1"]["calls"]
    assert calls["huggingface"] == calls["specjax"] < 36
    same = by_row["tiny_plain_b1"]["same_texts"]
    assert same == {"specjax": 3, "huggingface": 3, "ctranslate2": 3}
