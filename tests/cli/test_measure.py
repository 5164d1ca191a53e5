"""`specjax measure` from its flags to a record that `specjax compare` reads."""

import numpy as np
import pytest

from specjax import sides, zoo
from specjax.cli import compare, measure
from specjax.measure import costs, forecast, jsonl, texts, walltime
from tests.support import tiny

FAST = "--gammas 2 --tokens 6 --texts 2 --rounds 1".split()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two small models of the bundled vocabulary, each alone in a folder."""
    folder, config = tmp_path_factory.mktemp("pair"), tiny.TARGET._replace(vocab=8192)
    for name, seed in (("target", 0), ("draft", 1)):
        (folder / name).mkdir()
        path = folder / name / f"{name}.safetensors"
        zoo.save(path, config, tiny.weights(config, seed))
    (folder / "prompts.jsonl").write_text('{"prompt": "def f("}\n\n{"prompt": "x ="}\n')
    return folder


def flags(pair, *more):
    named = ["--target", str(pair / "target"), "--draft", str(pair / "draft")]
    return [*named, "--data", str(pair / "prompts.jsonl"), *FAST, *more]


def set_by(*words):
    parsed = measure.make_parser().parse_args(["--data", "a.jsonl", *words])
    setting = measure.make_setting(measure.chosen_effort(parsed))
    return setting.gammas, setting.texts, setting.rounds, setting.new_tokens


def test_a_brief_measurement_is_the_default_and_flags_go_before_either():
    assert set_by() == ((0, 3, 6), 8, 2, 64)
    assert set_by("--thorough") == ((0, 1, 2, 3, 5, 8), 16, 5, 96)
    own = "--gammas 4 --texts 6 --rounds 3 --tokens 7".split()
    assert set_by(*own) == set_by(*own, "--thorough") == ((0, 4), 6, 3, 7)
    assert set_by("--batch", "3")[1] == 6 and set_by("--batch", "16")[1] == 32


def test_help_shows_every_default():
    parser = measure.make_parser()
    optional = [flag for flag in parser._actions if not flag.required]
    texts = {flag.dest: flag.help % vars(flag) for flag in optional}
    assert [name for name, text in texts.items() if "default" not in text] == ["help"]


@pytest.mark.slow
def test_it_measures_prints_and_appends(pair, tmp_path, capsys):
    out = tmp_path / "new" / "a.jsonl"
    for _ in range(2):
        assert measure.main(flags(pair, "--out", str(out), "--name", "tiny")) == 0
    printed = capsys.readouterr()
    for word in ("MiB", "minutes", "Writing texts", "Scoring", "Compiling, then"):
        assert word in printed.err
    assert "Estimating alpha at gamma = " in printed.err
    for word in (
        "rao_blackwell",
        "implied_alpha",
        "best: ",
        "exact law",
        "overhead",
        "same? ",
    ):
        assert word in printed.out
    first, second = jsonl.read(out)
    assert first["row"] == second["row"] == "tiny" and first["table"] == "measure"
    measured = first["measured"]
    assert measured["gamma"] == [0, 2] and set(measured["estimates"]) >= {
        "counts",
        "chen_r",
    }
    assert measured["alpha"] == second["measured"]["alpha"]
    assert "data" in first["provenance"]["config"]
    assert compare.main([str(out), str(out)]) == 0
    assert "tiny" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_is_counted_and_refused_where_it_is_not_free(pair, monkeypatch):
    """By hand: weights, two caches of keys and values, tokens and cursors, laws."""
    target, draft = (sides.model(str(pair / name)) for name in ("target", "draft"))
    setting = walltime.WalltimeSetting(0.0, batch=1, texts=1, others=1)
    (batch, *_), _ = walltime.batches(texts.Prompts([[1, 2, 3]]), setting)
    slots, gamma, vocab = 20, 3, 8192
    counted = forecast.memory(costs.Pair(target, draft, slots), gamma, batch.prompt)
    config = tiny.TARGET
    weights = 2 * 4 * (2 * vocab * config.dim + 2 * 2 * config.dim * (2 * 16 + 32))
    cache = 2 * 4 * config.num_layers * 2 * slots * config.dim
    laws = 3 * 4 * (gamma + 1) * vocab
    assert counted == pytest.approx(weights + cache + laws, abs=4 * (slots + 4))
    setting = setting._replace(gammas=(0, gamma), new_tokens=slots - 4 - gamma)
    prompts = texts.Prompts([[1, 2, 3]])
    told = walltime.prepare(target, draft, prompts, setting), prompts, setting
    for free in (None, int(counted - weights)):
        monkeypatch.setattr(forecast, "available", lambda on, free=free: (free, "it"))
        forecast.check(*told)
    monkeypatch.setattr(forecast, "available", lambda on: (free - 1, "it"))
    with pytest.raises(ValueError, match=r"GB of it, .* take a smaller batch"):
        forecast.check(*told)


@pytest.mark.slow
def test_logits_that_are_no_law_are_told_before_the_timing(pair):
    both = [sides.model(str(pair / name)) for name in ("target", "draft")]
    read = texts.Prompts([[1, 2, 3], [4, 5]])
    setting = walltime.WalltimeSetting(0.0, texts=2, new_tokens=4)
    for at, name in enumerate(("target", "draft")):
        ruined, params = list(both), both[at].params
        params = params | {"readout": params["readout"] * np.nan}
        ruined[at] = both[at]._replace(params=params)
        told = f"row 0, the step that writes token 0 of its text: the {name}'s"
        with pytest.raises(FloatingPointError, match=told):
            measure.scored(*ruined, read, setting, sides.reference())
