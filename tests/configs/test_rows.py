"""Rows of a gin file are chosen by name, and a mistake in a row is one line that names
it."""

import re
from pathlib import Path

import pytest

from experiments import run
from specjax import configs
from specjax.configs import RowFile
from specjax.measure import jsonl

ROW = """include 'gin_configs/runs/table1.gin'
GAMMA = 2
ALPHA = 0.6
"""
GRID = """include 'gin_configs/runs/table1.gin'
GAMMA = 2
ROWS = {
    'slow': {'ALPHA': 0.6},
    # Another gamma than the others.
    'fast': {'ALPHA': 0.8, 'GAMMA': 5},
}
"""
ALPHA_ROW = """include 'gin_configs/runs/alpha.gin'
include 'gin_configs/checkpoints/bundled.gin'
include 'gin_configs/drafters/ngrams.gin'
include 'gin_configs/tasks/examples.gin'
TARGET = %CODE_TARGET
DRAFT = %UNIGRAM
TASK = 'code'
TEMPERATURE = 1.0
GAMMA = 3
"""
SPEED_ROW = ALPHA_ROW.replace("runs/alpha", "runs/walltime").replace("GAMMA = 3", "")


def write_file(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "row.gin"
    path.write_text(text, encoding)
    return path


def speeds(folder) -> dict[str, float]:
    records = jsonl.read(folder / "table.jsonl")
    return {record["row"]: record["measured"]["speed"] for record in records}


def test_rows_of_a_file_are_measured_in_order_or_by_name(tmp_path, capsys):
    (tmp_path / "table").mkdir()
    path = write_file(tmp_path / "table", GRID)
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
    """A row does not know the numbers that other rows set."""
    twice = "'GAMMA': %TWICE, 'TWICE': 5"
    text = f"{GRID}TWICE = %GAMMA\n".replace("'GAMMA': 5", twice)
    slow, fast = configs.rows(
        RowFile(write_file(tmp_path, text.replace("TWICE = ", "#")))
    )
    assert set(configs.build(slow).own) == {"GAMMA", "ALPHA"}
    assert set(configs.build(fast).own) == {"GAMMA", "ALPHA", "TWICE"}
    assert "TWICE" not in configs.build(slow).config
    assert "ROWS" not in configs.read(fast)[0]


@pytest.mark.parametrize(
    ("old", "new", "flags", "message"),
    [
        ("", "", ["--rows", "fats"], "no row fats: did you mean fast"),
        ("fast", "slow", [], r"line 6: 'slow' is set twice"),
        ("'GAMMA':", "'ALPHA':", [], r"line 6: 'ALPHA' is set twice"),
        ("'GAMMA'", "'GAMA'", [], r"reads GAMA \(\S+, row fast\): did you mean GAMMA"),
        ("'GAMMA'", "'a.b'", [], "row fast sets 'a.b': set macros only"),
        ("{'ALPHA': 0.6}", "0.6", [], "'slow': 0.6 is not a row: write ROWS = {"),
        (GRID[GRID.index("ROWS") :], "ROWS = {}", [], "ROWS names no row"),
        ("ROWS", "ROWS = {'a': {}}\nROWS", [], "ROWS is set twice"),
    ],
)
def test_a_mistake_is_one_line(old, new, flags, message, tmp_path, capsys):
    path = write_file(tmp_path, GRID.replace(old, new))
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as stopped:
        run.main(["--out", str(out), str(path), "--gin.ALPHA=0.6", *flags])
    line = (capsys.readouterr().err.splitlines() or [str(stopped.value)])[-1]
    line = line if flags else str(stopped.value)
    assert re.search(message, line) and "\n" not in line
    assert flags or line.startswith(f"error: {path}")


def test_a_row_is_named_where_there_are_several(tmp_path):
    path = write_file(tmp_path, ROW)
    assert configs.rows(RowFile(path)) == [RowFile(path, row="row")]
    path = write_file(tmp_path, GRID)
    with pytest.raises(
        configs.ConfigError, match=r"2 rows: name one as \S+row\.gin:ROW"
    ):
        run.build(path)
    other = tmp_path / "other.gin"
    other.write_text(f"include '{path}'")
    with pytest.raises(configs.ConfigError, match="it includes a file with ROWS"):
        run.build(other)
    other.write_text(GRID)
    with pytest.raises(configs.ConfigError, match=r"row slow is in .*row\.gin too"):
        configs.all_rows([RowFile(path), RowFile(other)])


# A line that a row has more, and what is said of it.
MORE = {
    "decoding.Protocol.tokns = 5": "tokns",
    "TASK = 'poems'": "choose one of code",
    "VERIFIER = 'hope'": "choose one of block",
    "PRODUCTS = 'Thin'": "choose one of thin, xla",
    "TOP_P = 1.5": r"TOP_P must be in \(0, 1\]",
    "GAMMA = 2.5": "GAMMA must be a whole number; got 2.5",
    "TASK = 5": "TASK must be a text in quotes; got 5",
    "READ = 'code'": "READ must be a Callable, by %NAME",
    "SEED = -1": "SEED must be a whole number from 0 to",
}
TIMED = {
    "GAMMAS = (0, '1')": r"GAMMAS must be \(VALUE, VALUE\), each a wh",
    "ENDS = 1": "ENDS must be True or False; got 1",
}
# What stands in a row, what in its place, and what is said of that.
OTHER = [
    ("DRAFT = %UNIGRAM", "", "REQUIRED"),
    ("TEMPERATURE", "TEMPRATURE", "did you mean TEMPERATURE"),
    ("%CODE_TARGET", "%CODE_9N", "CODE_9N"),
    ("s/bundled", "s/code_8m", "code_8m"),
    ("%CODE_TARGET", "%UNIGRAM", "only drafts"),
    ("runs/alpha", "runs/pair", "nothing reads"),
    ("%UNIGRAM", "'hope'", "a draft may also be copying"),
    ("%CODE_TARGET", "'code_target'", "TARGET must be a Pretrained, by %NAME"),
    ("1.0", "'1.0'", "TEMPERATURE must be a number; got '1.0'"),
    ("1.0", "%WARM", "nothing sets WARM"),
    ("1.0", "%TEMPERATURE", "= %TEMPERATURE names itself"),
    ("GAMMA = 3", "GAMMA 3", "line 9: not a gin binding"),
    ("GAMMA = 3", "GAMMA = 3\nimport no_such", "needs no_such"),
]
MISTAKES = [(f"{ALPHA_ROW}{line}", said) for line, said in MORE.items()]
MISTAKES += [(f"{SPEED_ROW}{line}", said) for line, said in TIMED.items()]
MISTAKES += [(ALPHA_ROW.replace(old, new), said) for old, new, said in OTHER]
MISTAKES += [
    ("GAMMA = 2", "nothing reads GAMMA"),
    ("", "include one of the files in gin_configs/ru"),
]


def test_a_mistake_is_named_with_its_file_in_one_line(tmp_path):
    for text, message in MISTAKES:
        assert text != ALPHA_ROW
        path = write_file(tmp_path, text)
        with pytest.raises(run.RowError, match=message) as error:
            run.run([path], tmp_path)
        assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
        assert isinstance(error.value.__cause__, ValueError | OSError)
    assert not list(tmp_path.glob("*.jsonl"))


def test_logits_that_are_no_law_are_one_line(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise FloatingPointError("row 0: the target's logits are not finite")

    path = write_file(tmp_path, ROW)
    monkeypatch.setattr(run.loop, "measure", fail)
    with pytest.raises(SystemExit, match=r"^error: .*row\.gin: row 0: the target's"):
        run.main([str(path), "--out", str(tmp_path)])


def test_filters_of_a_row_reach_what_decodes(tmp_path):
    for text in ALPHA_ROW, SPEED_ROW:
        built = run.build(write_file(tmp_path, text), ["TOP_K = 3", "TOP_P = 0.5"])
        setting = built.row.measurement.run.args[2]
        cuts = {name: x for name, x in setting.decode.truncation().items() if x}
        assert cuts == {"top_k": 3, "top_p": 0.5}


def test_a_file_is_utf8_and_does_not_include_itself(tmp_path):
    for encoding in ("utf-8", "utf-8-sig"):
        path = write_file(tmp_path, f"# größer\r\n{ROW}", encoding)
        assert run.build(path).table == tmp_path.name
    other = tmp_path / "other.gin"
    other.write_text(f"include '{path}'\n")
    for text, encoding, message in (
        (ROW, "utf-16", r"row\.gin is UTF-16: save it as UTF-8"),
        (f"\n\n# größer\n{ROW}", "latin1", r"row\.gin, line 3, is not UTF-8"),
        (f"include '{other}'", "ascii", r"row\.gin includes other\.gin includes row"),
    ):
        with pytest.raises(configs.ConfigError, match=message) as error:
            run.build(write_file(tmp_path, text, encoding))
        assert "\n" not in str(error.value)


TYPED = {
    "TOKNS=500": "nothing reads TOKNS .*did you mean TOKENS",
    "tokens=500": "did you mean TOKENS",
    # Each scope has one of its own, which is what is read.
    "sides.model.dtype='bfloat16'": r"did you mean \w+/sides\.model\.dtype",
    "decoding.Protocol.nope=1": "nope",
    "VERIFIER=block": "in quotes",
    "nope": "NAME = VALUE",
}


def test_what_nothing_reads_is_refused_before_any_compute(tmp_path):
    path = str(write_file(tmp_path, ALPHA_ROW))
    for typed, message in TYPED.items():
        for flag in ([f"--gin.{typed}"], ["--set", typed]):
            with pytest.raises(SystemExit, match=message) as error:
                run.main(["--out", str(tmp_path), path, *flag])
            assert "\n" not in str(error.value)
    with pytest.raises(SystemExit, match=r"nowhere\.gin"):
        run.main(["--out", str(tmp_path), "nowhere.gin"])
    assert not list(tmp_path.glob("*.jsonl"))
