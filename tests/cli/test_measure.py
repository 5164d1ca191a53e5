"""`specjax measure` turns its flags into a record that `specjax compare` reads."""

import numpy as np
import pytest

from specjax import drafts
from specjax.cli import by_gamma, measure
from specjax.decode_config import change
from specjax.measure import costs, forecast, texts, walltime
from tests.support import text_folders, tiny
from tests.support.settings import make

CONFIG = tiny.TARGET._replace(vocab=8192)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Of the bundled vocabulary."""
    loaded = text_folders.code_pair(tmp_path_factory.mktemp("pair"), CONFIG)
    return drafts.pair(*loaded)


def settings_from_flags(*words):
    parsed = measure.make_parser().parse_args(["--data", "a.jsonl", *words])
    setting = measure.make_setting(measure.with_defaults(parsed))
    return setting.gammas, setting.texts, setting.rounds, setting.decode.new_tokens


def test_a_brief_measurement_is_the_default_and_flags_go_before_either():
    assert settings_from_flags() == ((0, 3, 6), 8, 2, 64)
    assert settings_from_flags("--thorough") == ((0, 1, 2, 3, 5, 8), 16, 5, 96)
    own = "--gammas 4 --texts 6 --rounds 3 --tokens 7".split()
    assert (
        settings_from_flags(*own)
        == settings_from_flags(*own, "--thorough")
        == ((0, 4), 6, 3, 7)
    )
    assert (
        settings_from_flags("--batch", "3")[1] == 6
        and settings_from_flags("--batch", "16")[1] == 32
    )


@pytest.mark.slow
def test_memory_is_counted_and_refused_where_it_is_not_free(pair, monkeypatch):
    """The expected numbers are computed by hand: weights, two caches of keys and
    values, tokens and cursors, laws."""
    target, draft = pair
    setting = make(walltime.WalltimeSetting, texts=1, others=1)
    (batch, *_), _ = walltime.batches(texts.Prompts([[1, 2, 3]]), setting)
    slots, gamma, vocab, config = 20, 3, 8192, CONFIG
    counted = costs.memory(costs.Pair(target, draft, slots), gamma, batch.prompt)
    weights = 2 * 4 * (2 * vocab * config.dim + 2 * 2 * config.dim * (2 * 16 + 32))
    cache = 2 * 4 * config.num_layers * 2 * slots * config.dim
    laws = 3 * 4 * (gamma + 1) * vocab
    assert counted == pytest.approx(weights + cache + laws, abs=4 * (slots + 4))
    setting = change(setting, gammas=(0, gamma), new_tokens=slots - 4 - gamma)
    prompts = texts.Prompts([[1, 2, 3]])
    told = walltime.prepare(target, draft, prompts, setting), prompts, setting
    for free in (None, int(counted - weights)):
        monkeypatch.setattr(forecast, "available", lambda on, free=free: (free, "it"))
        forecast.check(*told)
    monkeypatch.setattr(forecast, "available", lambda on: (free - 1, "it"))
    with pytest.raises(ValueError, match=r"GB of it, .* take a smaller batch"):
        forecast.check(*told)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1])
def test_logits_that_are_no_law_are_told_before_the_timing(pair, at):
    both, params = [*pair], pair[at].params
    ruined = params | {"readout": params["readout"] * np.nan}
    both[at] = both[at]._replace(params=ruined)
    setting = make(walltime.WalltimeSetting, texts=2, new_tokens=4)
    told = f"row 0, the step that writes token 0 .*: the {('target', 'draft')[at]}'s"
    with pytest.raises(FloatingPointError, match=told):
        read = texts.Prompts([[1, 2, 3], [4, 5]])
        case = walltime.prepare(*both, read, setting)
        by_gamma.score_texts(case, read, setting)
