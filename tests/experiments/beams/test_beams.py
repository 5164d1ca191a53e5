"""Beam search with drafts, by width: numbers computed by hand, and rows of small
pairs."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.beams import measure, rows
from experiments.beams.measure import BeamSetting, SearchResult
from experiments.records import records
from specjax import beam, configs, zoo
from specjax.configs import RowFile
from specjax.measure import pairs
from specjax.models import gpt
from specjax.speech.pair import load_pair
from tests.support import speech_folders, text_folders

FOLDER = Path(__file__).parents[3] / "gin_configs"
SETTING = BeamSetting(widths=(1, 2), gamma=2, new_tokens=6, texts=3, rounds=2)
# Of two texts, seconds of each round, the first of which is not timed.
SECONDS = {False: [[9.0, 9.0], [2.0, 4.0], [2.0, 6.0]]}
SECONDS[True] = [[9.0, 9.0], [1.0, 2.0], [1.0, 2.0]]


def test_the_numbers_of_a_width_by_hand():
    asked = []

    def search(i, config, drafted):
        asked.append((i, config.width, config.drafted, drafted))
        turn = (len(asked) - 1) // 8
        calls = ((6, 4), (2, 4))[drafted][i]
        ids = [[i]] if i == 0 or not drafted else [[7]]
        return SearchResult(ids, calls, SECONDS[drafted][turn][i], encoding=0.5)

    got = measure.compare(search, SETTING, texts=2)
    # Ways of a width are side by side, texts one after the other.
    ways = [(1, 2, False), (1, 2, True), (2, 4, False), (2, 4, True)]
    assert asked == [(i, *way) for i in (0, 1) for way in ways] * 3
    assert (got["calls_2"], got["alone_2"], got["texts"]) == (6, 10, 2)
    assert got["differing_1"] == 1
    # Residuals of 2 - 0.6 * 6 and 4 - 0.6 * 4: -1.6 and 1.6, over 10.
    assert got["share_1"] == 0.6
    assert got["share_se_1"] == pytest.approx(np.sqrt(2 * 2 * 1.6**2) / 10)
    # Medians 2 and 5 alone, 1 and 2 with a draft.
    assert got["speed_1"] == pytest.approx(7 / 3)
    assert got["ms_alone_1"] == pytest.approx(1e3 * 6 / 10)
    assert got["ms_1"] == pytest.approx(1e3 * 2 / 6)


def test_a_row_of_texts(tmp_path):
    config = gpt.Config(8192, 16, 32, 1, 2)
    target, draft = text_folders.code_pair(tmp_path, config)
    file = tmp_path / "prompts.jsonl"
    texts = ["def add(", "class Stack of things:", "x = 1", "no text of the row"]
    file.write_text("".join(f'{{"prompt": "{text}"}}\n' for text in texts))
    setting = SETTING._replace(rounds=1)
    row = rows.text_row(
        target, draft, task=str(file), read=pairs.prompts, setting=setting
    )
    assert row.module == rows.__name__ and file in row.inputs
    got = row.run()
    assert got["texts"] == 3 and got["differing_1"] == got["differing_2"] == 0
    made = beam.generate_beams(target, None, texts[:3], width=2, new_tokens=6)
    assert got["alone_2"] == made.calls
    assert got["calls_2"] < got["alone_2"] and got["speed_2"] > 0


@pytest.mark.slow
def test_each_recording_is_searched_by_itself(tmp_path):
    pytest.importorskip("tokenizers")
    names = speech_folders.folders(tmp_path / "whispers")
    for name in ("b.flac", "a.flac"):
        shutil.copy(rows.BUNDLED, tmp_path / name)
    files = rows.recordings(str(tmp_path))
    assert [file.name for file in files] == ["a.flac", "b.flac"]
    search = rows.speech_search(load_pair(names["target"], names["draft"]), files)
    config = SETTING.search(2)
    plain, drafted = search(0, config, False), search(0, config, True)
    other = search(1, config, True)
    assert plain.ids == drafted.ids == other.ids
    assert drafted.calls == other.calls < plain.calls
    assert 0 < drafted.encoding < drafted.seconds


def test_what_cannot_be_searched(tmp_path):
    with pytest.raises(ValueError, match=r"^widths, times, gamma, texts and rounds mu"):
        measure.check_setting(SETTING._replace(widths=()))
    with pytest.raises(ValueError, match=r"^width must be a whole number, at least 1"):
        measure.check_setting(SETTING._replace(widths=(0,)))
    with pytest.raises(ValueError, match=r"^no file \*.flac in .*: put recordings th"):
        rows.recordings(str(tmp_path))
    assert rows.recordings("") == [zoo.FOLDER / "speech" / "speech.flac"]


def test_every_row_of_the_folders_is_built(tmp_path):
    files = sorted((FOLDER / "beams").glob("*.gin"))
    every = configs.all_rows([RowFile(file) for file in files])
    assert [row.row for row in every] == [
        "speech",
        "ende_small",
        "ende_large",
        "ende_large_wide",
    ]
    for row in every[:2]:
        built = configs.build(row).row
        assert built.measurement.module == rows.__name__ and built.kind == "time"
    shutil.copy(rows.BUNDLED, tmp_path / "a.flac")
    folder = [f"FOLDER = '{tmp_path}'"]
    words = configs.build(records.row("beams_data", "words", folder)).row
    assert tmp_path / "a.flac" in words.measurement.inputs
