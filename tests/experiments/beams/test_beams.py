"""The calls of beam search by width: on small pairs, with a count by hand."""

from pathlib import Path

import pytest

from experiments.beams import measure
from experiments.beams.measure import BeamSetting, Searched
from specjax import beam, configs
from specjax.configs import RowFile
from specjax.measure import pairs
from specjax.models import gpt
from tests.support import text_folders

FOLDER = Path(__file__).parents[3] / "gin_configs" / "beams"
SETTING = BeamSetting(widths=(1, 2), gamma=2, new_tokens=6, texts=3, batch=2)


def test_both_searches_are_counted_and_compared():
    found = {False: Searched([[1], [2]], 10), True: Searched([[1], [3]], 6)}
    told = measure.compare(lambda config, drafted: found[drafted], SETTING)
    assert (told["calls_2"], told["alone_2"]) == (6, 10)
    assert told["share_1"] == 0.6 and told["differing_2"] == 1 and told["texts"] == 2
    asked = []
    measure.compare(lambda *it: asked.append(it) or found[True], SETTING)
    widths = [(config.width, config.drafted, drafted) for config, drafted in asked]
    assert widths == [(1, 2, False), (1, 2, True), (2, 4, False), (2, 4, True)]


def test_a_row_of_texts(tmp_path):
    config = gpt.Config(8192, 16, 32, 1, 2)
    target, draft = text_folders.code_pair(tmp_path, config)
    file = tmp_path / "prompts.jsonl"
    texts = ["def add(", "class Stack:", "x = 1", "no text of the row"]
    file.write_text("".join(f'{{"prompt": "{text}"}}\n' for text in texts))
    row = measure.text_row(
        target, draft, task=str(file), read=pairs.prompts, setting=SETTING
    )
    assert row.module == measure.__name__ and file in row.inputs
    told = row.run()
    assert told["texts"] == 3 and told["differing_1"] == told["differing_2"] == 0
    made = [
        beam.generate_beams(target, None, part, width=2, new_tokens=6)
        for part in (texts[:2], texts[2:3])
    ]
    assert told["alone_2"] == sum(each.calls for each in made)
    assert told["calls_2"] < told["alone_2"]


def test_settings_that_cannot_search():
    with pytest.raises(ValueError, match=r"^widths, times, gamma and batch must be at"):
        measure.check_setting(SETTING._replace(widths=()))
    with pytest.raises(ValueError, match=r"^width must be a whole number, at least 1"):
        measure.check_setting(SETTING._replace(widths=(0,)))


def test_every_row_of_the_folder_is_built():
    files = sorted(FOLDER.glob("*.gin"))
    rows = configs.all_rows([RowFile(file) for file in files])
    assert len(rows) == 5
    for row in rows:
        if row.row in ("ende_small", "speech"):
            built = configs.build(row).row
            assert built.measurement.module == measure.__name__
