"""What a person wrote wrongly is named, in one line, before anything is measured."""

import pytest

from experiments import run
from specjax import configs
from tests.configs.rows import ALPHA_ROW, ROW, SPEED_ROW, written

# A line that a row has more, and what is said of it.
MORE = {
    "decoding.Protocol.tokns = 5": "tokns",
    "TASK = 'poems'": "choose one of code",
    "VERIFIER = 'hope'": "choose one of block",
    "POLICY = 'hope'": "choose one of none",
    "PRODUCTS = 'Thin'": "choose one of thin, xla",
    "TOP_P = 1.5": r"top_p must be in \(0, 1\]",
    "GAMMA = 2.5": "GAMMA must be a whole number; got 2.5",
    "TASK = 5": "TASK must be a text in quotes; got 5",
    "READ = 'code'": "READ must be a Callable, by %NAME",
    "BATCH = 0": "BATCH must be a whole number, at least 1 and",
    "SEED = -1": "SEED must be a whole number, at least 0 and",
}
TIMED = {
    "GAMMAS = (0, '1')": r"GAMMAS must be \(VALUE, VALUE\), each a wh",
    "GAMMAS = (0, -1)": r"at most 1000; got \(0, -1\)",
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
    ("%CODE_TARGET", "'code_target'", "TARGET must be a Side, by %NAME"),
    ("1.0", "'1.0'", "TEMPERATURE must be a number; got '1.0'"),
    ("1.0", "True", "TEMPERATURE must be a number; got True"),
    ("1.0", "%WARM", "nothing sets WARM"),
    ("1.0", "%TEMPERATURE", "= %TEMPERATURE names itself"),
    ("GAMMA = 3", "GAMMA 3", "line 9: not a binding"),
    ("GAMMA = 3", "GAMMA = 3\nimport no_such", "needs no_such"),
]
MISTAKES = [(f"{ALPHA_ROW}{line}", said) for line, said in MORE.items()]
MISTAKES += [(f"{SPEED_ROW}{line}", said) for line, said in TIMED.items()]
MISTAKES += [(ALPHA_ROW.replace(old, new), said) for old, new, said in OTHER]
MISTAKES += [
    ("GAMMA = 2", "nothing reads GAMMA"),
    ("", "include one of gin_configs/ru"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[x for _, x in MISTAKES])
def test_a_mistake_is_named_with_its_file_in_one_line(text, message, tmp_path):
    assert text != ALPHA_ROW
    path = written(tmp_path, text)
    with pytest.raises(run.RowError, match=message) as error:
        run.run([path], tmp_path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    assert isinstance(error.value.__cause__, ValueError | OSError)
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("text", [ALPHA_ROW, SPEED_ROW], ids=["alpha", "walltime"])
def test_filters_of_a_row_reach_what_decodes(text, tmp_path):
    built = run.build(written(tmp_path, text), ["TOP_K = 3", "TOP_P = 0.5"])
    setting = built.row.measurement.run.args[2]
    assert (setting.top_k, setting.top_p, setting.min_p) == (3, 0.5, None)


def test_a_file_is_utf8_and_does_not_include_itself(tmp_path):
    for encoding in ("utf-8", "utf-8-sig"):
        path = written(tmp_path, f"# größer\r\n{ROW}", encoding)
        assert run.build(path).table == tmp_path.name
    other = tmp_path / "other.gin"
    other.write_text(f"include '{path}'\n")
    for text, encoding, message in (
        (ROW, "utf-16", r"row\.gin is UTF-16: save it as UTF-8"),
        (f"\n\n# größer\n{ROW}", "latin1", r"row\.gin, line 3, is not UTF-8"),
        (f"include '{other}'", "ascii", r"row\.gin includes other\.gin includes row"),
    ):
        with pytest.raises(configs.ConfigError, match=message) as error:
            run.build(written(tmp_path, text, encoding))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("TOKNS=500", "nothing reads TOKNS .*did you mean TOKENS"),
        ("tokens=500", "did you mean TOKENS"),
        ("METRIC='bleu'", "nothing reads METRIC"),
        # Each scope has one of its own, which is what is read.
        ("sides.model.dtype='bfloat16'", r"did you mean \w+/sides\.model\.dtype"),
        ("decoding.Protocol.nope=1", "nope"),
        ("VERIFIER=block", "in quotes"),
        ("nope", "NAME = VALUE"),
    ],
)
def test_what_nothing_reads_is_refused_before_any_compute(typed, message, tmp_path):
    path = str(written(tmp_path, ALPHA_ROW))
    for flag in ([f"--gin.{typed}"], ["--set", typed]):
        with pytest.raises(SystemExit, match=message) as error:
            run.main(["--out", str(tmp_path), path, *flag])
        assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere\.gin"):
        run.main(["--out", str(tmp_path), "nowhere.gin"])
