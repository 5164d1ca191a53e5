"""Rows of decoders that are not here build, with tiny files in the places of theirs."""

import pytest

from experiments import catalogue, run
from specjax import configs
from specjax.configs import RowFile
from tests.support import decoder_files

CONFIGS = run.ROOT / "gin_configs"
ROWS = [p for name in decoder_files.FOLDERS for p in CONFIGS.glob(f"{name}/*.gin")]
ROWS += CONFIGS.glob("table3_paper/lamda_*.gin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_files.write(tmp_path_factory.mktemp("decoders"))


@pytest.mark.parametrize(
    "path", sorted(ROWS), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_every_row_of_a_decoder_builds(path, folder):
    over = decoder_files.over(folder, path, CONFIGS)
    built = configs.build(RowFile(path, (over,), ()))
    paper = path.parent.name.endswith("_paper")
    assert built.row.scale == ("paper" if paper else "laptop")
    names = {file.name for file in built.row.measurement.inputs}
    assert "model.safetensors" in names
    assert path.stem == "turing_gpt2" or any(x.endswith(".jsonl") for x in names)


def test_every_row_of_a_decoder_has_lines_that_say_what_it_needs():
    lines = [line for table in catalogue.tables() for line in table.lines]
    needs = {(line.folder, line.row): line.needs for line in lines}
    for path in ROWS:
        assert needs[path.parent.name, path.stem], path
