"""Rows of decoders that are not here build, with tiny files in the places of theirs."""

import pytest

from experiments import catalogue
from specjax import configs
from tests.support import decoder_files, gin_rows

ROWS = gin_rows.every(*decoder_files.FOLDERS)
ROWS |= {name: x for name, x in gin_rows.every("table3_paper").items() if "/la" in name}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_files.write(tmp_path_factory.mktemp("decoders"))


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_a_decoder_builds(name, folder):
    built = configs.build(decoder_files.over(folder, ROWS[name]))
    paper = built.table.endswith("_paper")
    assert built.row.scale == ("paper" if paper else "laptop")
    names = {file.name for file in built.row.measurement.inputs}
    assert "model.safetensors" in names
    assert built.name == "turing_gpt2" or any(x.endswith(".jsonl") for x in names)


def test_every_row_of_a_decoder_has_lines_that_say_what_it_needs():
    lines = [line for table in catalogue.tables() for line in table.lines]
    needs = {(line.folder, line.row): line.needs for line in lines}
    assert all(needs[row.table, row.row] for row in ROWS.values())
