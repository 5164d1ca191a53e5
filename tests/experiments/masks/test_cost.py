"""The cost of masks in a step: numbers computed by hand, and a row of a small pair."""

from types import SimpleNamespace

import pytest

from experiments.masks import cost
from experiments.masks.cost import MaskSetting
from experiments.records import records
from specjax import configs
from specjax.decode_config import DecodeConfig
from specjax.measure import pairs
from specjax.models import gpt
from tests.support import text_folders


def test_the_numbers_by_hand():
    """Two texts take 2 and 4 steps, and the first round is not counted."""
    seconds = {"free": [9, 1, 2, 6], "table": [9, 2, 2, 2], "host": [9, 4, 9, 4]}
    rounds = [
        {
            (name, i): SimpleNamespace(
                seconds=each[turn] * (1 + i), calls=2 + 2 * i, ids=[i, name == "host"]
            )
            for name, each in seconds.items()
            for i in (0, 1)
        }
        for turn in range(4)
    ]
    got = cost.compare(rounds, 2)
    # Medians of 2, 2 and 4 a text, of twice as many for twice the steps.
    assert (got["ms"], got["ms_table"], got["ms_host"]) == (1000, 1000, 2000)
    assert (got["table"], got["host"], got["host_se"]) == (1, 2, 0)
    assert (got["differing_table"], got["differing_host"]) == (0, 2)


def test_a_row_of_a_small_pair(tmp_path):
    pytest.importorskip("outlines_core", reason="needs the extra constraints")
    pytest.importorskip("llguidance", reason="needs the extra constraints")
    pair = text_folders.code_pair(tmp_path, gpt.Config(8192, 16, 32, 1, 2))
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "def add("}\n{"prompt": "x ="}\n')
    decode = DecodeConfig(2, temperature=1.0, new_tokens=6)
    setting = MaskSetting(decode, texts=2, rounds=1)
    row = cost.row(*pair, task=str(file), read=pairs.prompts, setting=setting)
    assert row.module == cost.__name__ and file in row.inputs
    got = row.run()
    assert got["texts"] == 2 and min(got["ms"], got["table"], got["host"]) > 0
    assert 10 < got["masks"] < got["states"] and got["classes"] < got["vocab"] == 8192
    with pytest.raises(ValueError, match=r"^texts and rounds must be at least 1"):
        cost.row(
            *pair,
            task=str(file),
            read=pairs.prompts,
            setting=setting._replace(rounds=0),
        )


def test_the_rows_of_the_folders_are_built():
    bundled = ["TARGET_NAME = 'code_target'", "DRAFT = 'code_small'"]
    for row in (
        records.row("masks", "code_t0"),
        records.row("masks_data", "smollm2_t0", bundled),
    ):
        built = configs.build(row).row
        assert built.measurement.module == cost.__name__ and built.kind == "time"
