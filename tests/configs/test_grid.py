"""Rows of one file: told from each other, picked by name, and their mistakes."""

import re

import pytest

from experiments import run
from specjax import configs
from specjax.configs import RowFile
from specjax.measure import jsonl
from tests.configs.rows import GRID, ROW, written


def speeds(folder) -> dict[str, float]:
    records = jsonl.read(folder / "table.jsonl")
    return {record["row"]: record["measured"]["speed"] for record in records}


def test_rows_of_a_file_are_measured_in_order_or_by_name(tmp_path, capsys):
    (tmp_path / "table").mkdir()
    path = written(tmp_path / "table", GRID)
    every, one, other = (tmp_path / name for name in "abc")
    run.main(["--out", str(every), str(path)])
    assert list(speeds(every)) == ["slow", "fast"]
    assert speeds(every) == pytest.approx({"slow": 1.96, "fast": 3.68928})
    run.main(["--out", str(one), f"{path}:fast"])
    run.main(["--out", str(other), str(path), "--rows", "fast", "--gin.GAMMA=2"])
    assert speeds(one) == pytest.approx({"fast": 3.68928})
    assert speeds(other) == pytest.approx({"fast": 2.44})  # what is typed comes last
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run.main([str(path), "--list"])
    assert capsys.readouterr().out == f"{path}:slow\n{path}:fast\n"


def test_a_row_owns_what_its_file_and_itself_set(tmp_path):
    """Of a number that another row sets it knows nothing."""
    text = f"{GRID}TWICE = %GAMMA\n".replace(
        "'GAMMA': 5", "'GAMMA': %TWICE, 'TWICE': 5"
    )
    slow, fast = configs.rows(RowFile(written(tmp_path, text.replace("TWICE = ", "#"))))
    assert set(configs.build(slow).own) == {"GAMMA", "ALPHA"}
    assert set(configs.build(fast).own) == {"GAMMA", "ALPHA", "TWICE"}
    assert "TWICE" not in configs.build(slow).config
    assert "ROWS" not in configs.read(fast)[0]


def test_a_file_without_rows_is_one_of_its_own_name(tmp_path):
    path = written(tmp_path, ROW)
    assert configs.rows(RowFile(path)) == [RowFile(path, row="row")]
    assert run.build(path).name == "row" and str(RowFile(path, row="row")) == str(path)


@pytest.mark.parametrize(
    ("old", "new", "flags", "message"),
    [
        ("", "", ["--rows", "fats"], "no row fats: did you mean fast"),
        ("fast", "slow", [], r"line 6: 'slow' is there twice"),
        ("'GAMMA':", "'ALPHA':", [], r"line 6: 'ALPHA' is there twice"),
        ("'GAMMA'", "'GAMA'", [], r"reads GAMA \(\S+, row fast\): did you mean GAMMA"),
        ("GAMMA =", "GAMA =", [], r"reads GAMA \(\S+n\): did you mean GAMMA"),
        ("'GAMMA'", "'a.b'", [], "row fast sets 'a.b': rows set macros only"),
        ("{'ALPHA': 0.6}", "0.6", [], "'slow': 0.6 is no row: write ROWS = {"),
        (GRID[GRID.index("ROWS") :], "ROWS = {}", [], "ROWS names no row"),
        ("ROWS", "ROWS = {'a': {}}\nROWS", [], "ROWS is set twice"),
    ],
)
def test_a_mistake_is_one_line(old, new, flags, message, tmp_path, capsys):
    path = written(tmp_path, GRID.replace(old, new))
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as stopped:
        run.main(["--out", str(out), str(path), "--gin.ALPHA=0.6", *flags])
    line = (capsys.readouterr().err.splitlines() or [str(stopped.value)])[-1]
    line = line if flags else str(stopped.value)
    assert re.search(message, line) and "\n" not in line
    assert flags or line.startswith(f"error: {path}")


def test_a_row_is_named_where_there_are_several(tmp_path):
    path = written(tmp_path, GRID)
    with pytest.raises(configs.ConfigError, match=r"2 rows: name one, \S+row\.gin:ROW"):
        run.build(path)
    other = tmp_path / "other.gin"
    other.write_text(f"include '{path}'")
    with pytest.raises(configs.ConfigError, match="it includes a file with ROWS"):
        run.build(other)
    other.write_text(GRID)
    with pytest.raises(configs.ConfigError, match=r"row slow is in .*row\.gin too"):
        configs.every([RowFile(path), RowFile(other)])
