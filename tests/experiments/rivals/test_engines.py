"""The bench: one pair of models for every engine, checks that stop it, kept records."""

import os
import re
import shutil
import subprocess

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import catalogue
from experiments.report.bench import outcome
from experiments.rivals import __main__ as bench
from experiments.rivals import (
    agreement,
    comparisons,
    ours,
    place,
    ratios,
    rows,
    t5x,
    weights,
)
from specjax.measure import jsonl
from specjax.models import t5

pytestmark = pytest.mark.slow

GOALS = catalogue.named("bench").lines

SETTING = place.EngineSetting(
    "tiny", 4, inputs=6, new_tokens=12, texts=3, rounds=2, pause=0, threads=1
)
PAIR = weights.SIZES["tiny"]
VOCAB = PAIR.target.config.vocab


@pytest.fixture(scope="module")
def where(tmp_path_factory) -> place.Place:
    return place.place(SETTING, tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def own(where) -> place.Reference:
    return place.reference(where)


@pytest.fixture(scope="module")
def huggingface():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from experiments.rivals import huggingface

    return huggingface


@pytest.fixture(scope="module")
def ctranslate2(huggingface):
    pytest.importorskip("ctranslate2")
    from experiments.rivals import ctranslate2

    return ctranslate2


@pytest.fixture(scope="module")
def broken(where, tmp_path_factory):
    """The target's folder with one number of it changed."""
    folder = tmp_path_factory.mktemp("broken") / "target"
    shutil.copytree(where.target, folder)
    arrays = load_file(folder / "model.safetensors")
    arrays["decoder.final_layer_norm.weight"][0] = 30.0
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_misplaced_ids_set_how_often_the_draft_is_right(where, own):
    alphas = []
    for share in (0.0, 0.5):
        side = PAIR.draft._replace(misplaced=share)
        params = weights.build(side, 0, 1)
        draft = own.model._replace(model=t5.build(side.config), params=params)
        run = ours.decoder(own.model, where.inputs, 12, 3, draft, 4)
        alphas.append(comparisons.accepted(run(), own.texts.size)["alpha"])
    assert alphas[0] > 0.7 > 0.5 > alphas[1]


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
        place.place(SETTING._replace(**change), tmp_path)
    assert not list(tmp_path.iterdir())


def test_our_texts_are_of_the_length_asked_for_and_special_to_none(own):
    assert own.texts.shape == (3, 12) and own.texts.min() >= weights.SPECIAL
    assert len({tuple(row) for row in own.texts}) > 1  # the inputs matter
    assert own.law.shape == (3, 12) and (own.law < 0).all()


def test_texts_may_differ_where_two_tokens_tie():
    texts = np.array([[1, 2, 3], [4, 5, 1]])
    others = np.array([[1, 2, 3], [4, 0, 2]])  # what follows a tie is free

    def check(written, margin):
        """Where the law has id 0 behind the text's token by `margin`."""
        law = np.full((*texts.shape, 6), -9.0)
        np.put_along_axis(law, texts[..., None], -1.0, axis=2)
        law[..., 0] = -1.0 - margin
        return agreement.check_texts("x", written, texts, law)

    assert check(texts, 1.0) == 2 and check(others, 1e-4) == 1
    with pytest.raises(ValueError, match=r"text 1 of x has token 0 at 1 where .* 5"):
        check(others, 0.1)
    with pytest.raises(ValueError, match=r"wrote texts \(2, 2\)"):
        check(others[:, :2], 1.0)
    assert agreement.same_prefix(others, texts) == pytest.approx(4 / 6)


def test_likelihoods_may_differ_by_rounding_alone():
    ours_ = np.array([[-1.0, -2.0]])
    assert agreement.check_law("x", ours_ + 1e-5, ours_) == pytest.approx(1e-5)
    for wrong in (ours_ + 0.01, ours_ * np.nan):
        with pytest.raises(ValueError, match="the weights or the model differ"):
            agreement.check_law("x", wrong, ours_)


@pytest.mark.parametrize("batch", [1, 3])
def test_everyone_writes_the_same_texts(where, own, huggingface, ctranslate2, batch):
    asked = where.inputs, 12, batch
    model = huggingface.load(where.target, 1)
    texts = huggingface.decoder(model, *asked)()
    np.testing.assert_array_equal(texts, own.texts)
    for kind in ("float32", "int8"):
        model = ctranslate2.load(where.target, VOCAB, 1, kind)
        texts = ctranslate2.decoder(model, *asked)()
        assert texts.shape == own.texts.shape
        share = agreement.same_prefix(texts, own.texts)
        assert share == 1 if kind == "float32" else share > 0.5


def test_one_changed_number_is_noticed(where, own, huggingface, broken):
    model = huggingface.load(broken, 1)
    scored = huggingface.likelihood(model, where.inputs, own.texts)
    with pytest.raises(ValueError, match="huggingface and specjax give the same text"):
        agreement.check_law("huggingface", scored, own.law)
    texts = huggingface.decoder(model, where.inputs, 12, 3)()
    with pytest.raises(ValueError, match="do not decode the same model greedily"):
        place.compare(where, own, "huggingface", texts)


@pytest.mark.usefixtures("ctranslate2")
def test_one_changed_number_stops_the_row(where, huggingface, broken, monkeypatch):
    load = huggingface.load
    monkeypatch.setattr(huggingface, "load", lambda path, threads: load(broken, 1))
    monkeypatch.setattr(comparisons, "timed", None)  # nothing may be timed
    with pytest.raises(ValueError, match="more than rounding"):
        comparisons.plain(where, 1)


def test_ctranslate2_notices_a_changed_number_too(where, own, ctranslate2, broken):
    model = ctranslate2.load(broken, VOCAB, 1, "float32")
    scored = ctranslate2.likelihood(model, where.inputs, own.texts)
    with pytest.raises(ValueError, match="more than rounding"):
        agreement.check_law("ctranslate2", scored, own.law)


def test_assisted_generation_drafts_as_we_do(where, own, huggingface):
    """As many target calls as ours, at the same gamma and at no other."""
    target, draft = (huggingface.load(p, 1) for p in (where.target, where.draft))
    mine, calls = ours.load(where.draft, VOCAB), {}
    for gamma in (1, 4):
        assisted = huggingface.decoder(target, where.inputs, 12, 1, draft, gamma)
        np.testing.assert_array_equal(assisted(), own.texts)
        outputs = ours.decoder(own.model, where.inputs, 12, 1, mine, gamma)()
        np.testing.assert_array_equal(ours.texts(outputs, 12), own.texts)
        calls[gamma] = ours.counts(outputs).calls
        assert huggingface.calls(target, assisted) == calls[gamma]
    assert calls[4] < calls[1] < 36
    batched = huggingface.decoder(target, where.inputs, 12, 3, draft, 4)
    assert "batch_size = 1" in comparisons.refusal(batched)
    assert comparisons.refusal(lambda: None) is None


def test_programs_idle_before_their_turn_and_ratios_point_one_way():
    ran = []
    programs = {name: lambda name=name: ran.append(name) for name in "ab"}
    seconds = ratios.measure(programs, 3, 0.0, "test")
    assert "".join(ran) == "ab" * 4 and set(seconds) == set("ab")
    by_hand = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4.0, 6.0, 9.0])}
    ratio = ratios.over(by_hand, "a", "b", "over_b")
    assert ratio["over_b"] == 3
    assert ratio["over_b_ci"][0] <= 3 <= ratio["over_b_ci"][1]
    assert ratios.over(by_hand, "b", "a", "x")["x"] == pytest.approx(1 / 3)
    assert ratios.milliseconds(by_hand, 4)["ms_a"] == 500


def test_readouts_are_repeated_on_features_that_change(own):
    shape = (1, 3, own.model.config.dim)
    features = np.random.default_rng(0).standard_normal(shape, np.float32)
    wanted = [own.model.model.readout(own.model.params, features)]
    for _ in range(2):
        turned = features + 1e-3 * wanted[-1][..., : shape[-1]]
        wanted.append(own.model.model.readout(own.model.params, turned))
    last = ours.readouts(own.model, 2, loops=3)()
    np.testing.assert_allclose(last, wanted[2], atol=1e-5)
    assert np.abs(last - wanted[0]).max() > 1e-4


def test_without_t5x_its_rows_are_not_there(where, monkeypatch):
    for here in (True, False):
        monkeypatch.setattr(t5x, "importable", lambda here=here: here)
        assert ("t5x_b1" in rows.rows(where)) == here


def test_t5x_is_named_by_its_sources(tmp_path, monkeypatch):
    """The digest of what is imported, or the commit of the checkout that it lies in."""
    (tmp_path / "t5x").mkdir()
    (tmp_path / "t5x/__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = t5x.version()
    assert re.fullmatch(r"sources of sha256 [0-9a-f]{64}", first)
    (tmp_path / "t5x/__init__.py").write_text("x = 2\n")
    assert t5x.version() != first
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    assert re.fullmatch(r"commit [0-9a-f]{40}", t5x.version())


def test_t5x_writes_our_texts(where, own):
    pytest.importorskip("t5x")
    pytest.importorskip("seqio")
    for batch in (1, 3):
        program = t5x.decoder(own.model, where.inputs, 12, batch)
        texts = np.concatenate(jax.device_get(program()))
        assert place.compare(where, own, "t5x", texts) == 3


FLAGS = (
    "--size tiny --inputs 6 --new_tokens 12 --texts 3 --rounds 2 --pause 0 --threads 1"
)


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "hold", lambda threads: None)
    monkeypatch.setattr(bench.compilation, "keep", lambda: None)

    def run(*more):
        bench.main([*FLAGS.split(), "--out", str(tmp_path), *more])
        return jsonl.read(tmp_path / "bench.jsonl")

    return run


def test_a_row_is_kept_until_asked_for_again(command, capsys):
    (record,) = command("--rows", "target_call_b1")
    assert record["row"] == "tiny_target_call_b1" and record["table"] == "bench"
    origin, measured = record["provenance"], record["measured"]
    assert set(bench.EXTRA) <= set(origin["versions"]) and origin["dtype"] == "float32"
    assert origin["module"] == "experiments.rivals.rows"
    assert "gamma = 3" in origin["config"]
    ratio = measured["ms_call_4"] / measured["ms_call_1"]
    assert measured["v"] == pytest.approx(ratio)
    share = measured["ms_readout_4"] / measured["ms_call_4"]
    assert measured["share_4"] == pytest.approx(share)
    assert command("--rows", "target_call_b1") == [record]
    assert "bench/tiny_target_call_b1: kept" in capsys.readouterr().out
    (again,) = command("--rows", "target_call_b1", "--again")
    assert again["measured"] != measured
    (other,) = command("--rows", "target_call_b1", "--gamma", "2")
    assert "gamma = 2" in other["provenance"]["config"]
    with pytest.raises(SystemExit, match="no row plain_b9; known are plain_b1, "):
        command("--rows", "plain_b9")


def test_every_row_has_what_the_goals_name(command, capsys, huggingface, ctranslate2):
    by_row = {record["row"]: record["measured"] for record in command()}
    for goal in GOALS:
        name = goal.row.replace("b8", "b3").replace("small", "tiny")
        if "t5x" in name and not t5x.importable():
            assert name not in by_row
            continue
        measured = by_row[name]
        low, high = measured[f"{goal.quantity}_ci"]
        assert 0 < low <= measured[goal.quantity] * (1 + 1e-9)
        assert measured[goal.quantity] <= high * (1 + 1e-9)
        assert f"{goal.quantity}_se" in measured
    refusals = by_row["tiny_speculative_b3"]["refusals"]
    assert "batch_size = 1" in refusals["huggingface"]
    calls = by_row["tiny_speculative_b1"]["calls"]
    assert calls["huggingface"] == calls["specjax"] < 36
    same = by_row["tiny_plain_b1"]["same_texts"]
    assert same == {"specjax": 3, "huggingface": 3, "ctranslate2": 3}
    printed = capsys.readouterr().out
    assert "huggingface 3, specjax 3 of 3" in printed
    if not t5x.importable():
        assert "bench/tiny_t5x: not measured, it needs t5x, which is on no" in printed


def test_goals_are_met_or_missed_by_the_right_side():
    up, down = GOALS[0], next(line for line in GOALS if "most" in (line.goal or ""))
    for goal, value, state in (
        (up, 2.61, "met"),
        (up, 2.55, "within the interval"),
        (up, 2.39, "missed"),
        (down, 1.39, "met"),
        (down, 1.61, "missed"),
    ):
        ends = {f"{goal.quantity}_ci": (value - 0.1, value + 0.1)}
        origin = {"date": "2026-01-02T03:04:05", "commit": "0123456789ab"}
        record = {"measured": {goal.quantity: value} | ends, "provenance": origin}
        told = outcome(goal, record)
        assert (told["when"], told["was"]) == ("2026-01-02, 0123456", state)
    assert outcome(up, None)["when"] == "never"


def test_lines_of_the_catalogue_are_one_a_ratio():
    lines = GOALS
    assert len({(line.row, line.quantity) for line in lines}) == len(lines) == 17
    assert all(line.published is None for line in lines)
    assert all(bool(line.needs) == ("t5x" in line.row) for line in lines)


def test_the_process_is_held_to_its_cores(monkeypatch):
    held = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 5}, raising=False)
    record = lambda _, cores: held.append(cores)  # noqa: E731
    monkeypatch.setattr(os, "sched_setaffinity", record, raising=False)
    for threads in (2, 3, 8):
        bench.hold(threads)
    assert held == [[3, 5]]
