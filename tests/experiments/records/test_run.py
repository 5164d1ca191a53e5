"""Every gin file builds, mistakes are named, and a stopped run goes on where it was."""

import re
import signal
import subprocess
import sys
import time

import gin
import pytest

from experiments import catalogue, run
from experiments.tasks import examples
from specjax import configs, zoo
from specjax.cli import run as commands
from specjax.configs import RowFile, unread
from specjax.drafters import ngram
from specjax.measure import jsonl
from specjax.measure.row import Measurement, TableRow
from tests.support import decoder_files, tiny, tiny_t5

CONFIGS = run.ROOT / "gin_configs"
SHARED = ("runs", "models", "checkpoints", "drafters", "verifiers", "policies")
SHARED += ("tasks", "faults")
ROWS = sorted(p for p in CONFIGS.glob("*/*.gin") if p.parent.name not in SHARED)
SPEECH = [p for p in ROWS if p.parent.name in ("speech_data", "speech_paper")]
CLOSED_FORM = [path for path in ROWS if path.parent.name in ("table1", "figure3")]
# Of decoders that are not here: tests/experiments/gpu/paper_size/test_decoder_rows.py.
DECODERS = [p for p in ROWS if p.parent.name in decoder_files.FOLDERS]
DECODERS += [p for p in ROWS if p.stem.startswith("lamda_")]
PAPER_SIZE = [p for p in ROWS if p.parent.name.endswith("_paper")]
PAPER_SIZE = [p for p in PAPER_SIZE if p not in (*DECODERS, *SPEECH)]
WITH_DATA = [path for path in ROWS if path.parent.name == "quality_data"]
OF_DIALOGUES = ("table2_data", "table3_data", "kinds_data")
DIALOGUES = [p for p in ROWS if p.parent.name in OF_DIALOGUES]
ABSENT = (*PAPER_SIZE, *WITH_DATA, *DECODERS, *DIALOGUES, *SPEECH)
HERE = [path for path in ROWS if path not in ABSENT]
FAMILIES = [p for p in CONFIGS.glob("checkpoints/*.gin") if "XXL = " in p.read_text()]


def name(path):
    return f"{path.parent.name}/{path.stem}"


def test_a_row_is_includes_and_macros():
    for path in ROWS:
        text = path.read_text()
        assert not re.search(r"^(from|import) ", text, re.MULTILINE), path
        assert not [it for it in unread.statements(gin, text, "") if it.parameter]


@pytest.mark.parametrize("path", HERE, ids=name)
def test_every_row_builds(path):
    built = run.build(path)
    assert (built.table, built.name) == (path.parent.name, path.stem)
    assert callable(built.row.measurement.run)
    assert "row.TableRow.measurement" in built.config


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> dict[str, str]:
    """Files to read after a row: tiny weights, or data too, for what is not here."""
    folder = tmp_path_factory.mktemp("pair")
    gpt, small = tiny.TARGET._replace(vocab=512), tiny_t5.SMALL._replace(vocab=512)
    zoo.save(folder / "gpt.safetensors", gpt, tiny.weights(gpt, 0))
    zoo.save(folder / "t5.safetensors", small, tiny_t5.weights(small, 0))
    zoo.save_ngrams(folder / "counts.safetensors", ngram.fit([[1, 300, 2]], 512))
    pairs = examples.Examples([[5, 6, 1]] * 4, [[7, 1]] * 4, ["a"] * 4, ["b"] * 4)
    about = examples.About("wmt_ende", "test", "", 1, "", None, False, None, [])
    examples.write(folder / "task.npz", pairs, about)
    lines = ["from __gin__ import dynamic_registration"]
    lines += ["from specjax.measure import players"]
    for path in (*CONFIGS.glob("checkpoints/*.gin"), *CONFIGS.glob("drafters/*.gin")):
        for key in re.findall(r"^(\S+) = '\S*/\S*'$", path.read_text(), re.MULTILINE):
            kind = "counts" if "ngram" in key else key[:3].removesuffix("_")
            kind = "gpt" if kind == "gpt" else "counts" if kind == "counts" else "t5"
            lines.append(f"{key} = '{folder / kind}.safetensors'")
    weights, data = folder / "weights.gin", folder / "data.gin"
    weights.write_text("\n".join(lines))
    data.write_text(f"include '{weights}'\nTASK = '{folder / 'task.npz'}'\n")
    return {"weights": str(weights), "data": str(data)}


def tiny_row(path, stand_ins, *bindings) -> RowFile:
    named = re.findall(r"include '(gin_configs/tasks/.+)'", path.read_text())
    data = any("runs/data" in (run.ROOT / task).read_text() for task in named)
    return RowFile(path, (stand_ins["data" if data else "weights"],), bindings)


@pytest.mark.parametrize("path", [*PAPER_SIZE, *WITH_DATA], ids=name)
def test_every_row_of_what_is_not_here_builds(path, stand_ins):
    built = configs.build(tiny_row(path, stand_ins))
    assert (built.row.scale == "paper") == (path in PAPER_SIZE)
    names = {file.name for file in built.row.measurement.inputs}
    if path in PAPER_SIZE:
        assert len(names & {"gpt.safetensors", "t5.safetensors"}) == 1
    text = path.read_text()
    bundled = "tasks/openings.gin" in text or "tasks/unconditional.gin" in text
    assert ("task.npz" in names) != bundled


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.stem)
def test_every_family_can_take_the_place_of_another(family, stand_ins):
    """As the head of a row says: its file is read after the row."""
    file = tiny_row(CONFIGS / "table3_paper/ende_t5_small_t1.gin", stand_ins)
    built = configs.build(file._replace(over=(str(family), *file.over)))
    wanted = re.search(r"^XXL = @(\w+)/", family.read_text(), re.MULTILINE)[1]
    assert f"XXL = @{wanted}/" in built.config


@pytest.mark.parametrize("temperature", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_row_runs_from_its_file_to_its_record(temperature, stand_ins, tmp_path):
    path = CONFIGS / f"table3_paper/gpt_small_t{temperature}.gin"
    small = "TOKENS = 8", "BATCH = 2", "NEW_TOKENS = 6"
    run.measure([tiny_row(path, stand_ins, *small)], tmp_path)
    (record,) = jsonl.read(tmp_path / "table3_paper.jsonl")
    # The same weights on both sides.
    assert record["measured"]["alpha"] == pytest.approx(1, abs=1e-4)
    assert record["published"] == {"alpha": [0.88, 0.89][temperature]}
    assert "NEW_TOKENS = 6" in record["provenance"]["config"]


def test_absent_weights_name_the_command_that_makes_them(tmp_path):
    path = CONFIGS / "table3_paper/gpt_small_t1.gin"
    absent = f"gpt_97m/players.model.name = '{tmp_path}/97m.safetensors'"
    made_by = r"experiments\.training\.paper_pair"
    with pytest.raises(run.RowError, match=made_by) as error:
        run.run([path], tmp_path, [absent])
    assert str(path) in str(error.value)


def written(folder, text):
    path = folder / "row.gin"
    path.write_text(text)
    return path


ROW = CLOSED_FORM[-1].read_text()
ALPHA_ROW = (CONFIGS / "table3/gpt_unigram_t1.gin").read_text()
WARM = ALPHA_ROW[ALPHA_ROW.index("include") :]
SPEED_ROW = ALPHA_ROW.replace("runs/alpha", "runs/walltime").replace("GAMMA = 3", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ALPHA_ROW.replace("DRAFT = %UNIGRAM", ""), "REQUIRED"),
        (ALPHA_ROW.replace("TEMPERATURE = 1.0", ""), "REQUIRED"),
        (ALPHA_ROW.replace("TEMPERATURE", "TEMPRATURE"), "did you mean TEMPERATURE"),
        (ALPHA_ROW + "decoding.Protocol.tokns = 5", "tokns"),
        (ALPHA_ROW.replace("%CODE_TARGET", "%CODE_9N"), "CODE_9N"),
        (ALPHA_ROW.replace("s/code_target", "s/code_8m"), "code_8m"),
        (
            ALPHA_ROW.replace("TARGET = %CODE_TARGET", "TARGET = %UNIGRAM"),
            "only drafts",
        ),
        (ALPHA_ROW.replace("runs/alpha.gin", "runs/pair.gin"), "nothing reads"),
        (ALPHA_ROW + "TASK = 'poems'", "choose one of code"),
        (ALPHA_ROW + "VERIFIER = 'hope'", "choose one of block"),
        (ALPHA_ROW + "POLICY = 'hope'", "choose one of none"),
        (ALPHA_ROW.replace("%UNIGRAM", "'hope'"), "a draft may also be copying"),
        (
            ALPHA_ROW.replace("%CODE_TARGET", "'code_target'"),
            "TARGET must be a Player, by %NAME",
        ),
        (ALPHA_ROW + "TOP_P = 1.5", r"top_p must be in \(0, 1\]"),
        (ALPHA_ROW + "TOP_K = '40'", "TOP_K must be a whole number"),
        (ALPHA_ROW + "PRODUCTS = 'Thin'", "choose one of thin, xla"),
        (ROW.replace("GAMMA = 2", ""), "GAMMA"),
        (ROW.replace("GAMMA = 2", "GAMMA 2"), "line 8: not a binding"),
        (ROW.replace("GAMMA = 2", "GAMMA = 2\nimport no_such"), "needs no_such"),
        ("GAMMA = 2", "nothing reads GAMMA"),
        (WARM.replace("1.0", "'1.0'"), "TEMPERATURE must be a number; got '1.0'"),
        (WARM.replace("1.0", "True"), "TEMPERATURE must be a number; got True"),
        (WARM.replace("1.0", "%WARM"), "nothing sets WARM"),
        (WARM.replace("1.0", "%TEMPERATURE"), "= %TEMPERATURE names itself"),
        (ALPHA_ROW + "GAMMA = 2.5", "GAMMA must be a whole number; got 2.5"),
        (ALPHA_ROW + "TASK = 5", "TASK must be a text in quotes; got 5"),
        (ALPHA_ROW + "READ = 'code'", "READ must be a Callable, by %NAME"),
        (ALPHA_ROW + "BATCH = 0", "BATCH must be a whole number, at least 1 and"),
        (ALPHA_ROW + "SEED = -1", "SEED must be a whole number, at least 0 and"),
        (
            SPEED_ROW + "GAMMAS = (0, '1')",
            r"GAMMAS must be \(VALUE, VALUE\), each a wh",
        ),
        (SPEED_ROW + "GAMMAS = (0, -1)", "at most 1000; got \\(0, -1\\)"),
        (SPEED_ROW + "ENDS = 1", "ENDS must be True or False; got 1"),
        ("", "include one of gin_configs/runs/"),
    ],
)
def test_a_mistake_is_named_with_its_file_in_one_line(text, message, tmp_path):
    assert text not in (ROW, ALPHA_ROW)
    path = written(tmp_path, text)
    with pytest.raises(run.RowError, match=message) as error:
        run.run([path], tmp_path)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    assert isinstance(error.value.__cause__, ValueError | OSError)
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("name", ["table3/gpt_small_t1", "table2/small_t1_b1"])
def test_filters_of_a_row_reach_what_decodes(name):
    typed = "TOP_K = 3", "TOP_P = 0.5"
    built = configs.build(RowFile(CONFIGS / f"{name}.gin", bindings=typed))
    setting = built.row.measurement.run.args[2]
    assert (setting.top_k, setting.top_p, setting.min_p) == (3, 0.5, None)


def test_a_file_is_utf8_and_does_not_include_itself(tmp_path):
    path, other = written(tmp_path, ""), tmp_path / "other.gin"
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(f"# größer\r\n{ROW}", encoding)
        assert run.build(path).table == tmp_path.name
    other.write_text(f"include '{path}'\n")
    for text, encoding, message in (
        (ROW, "utf-16", r"row\.gin is UTF-16: save it as UTF-8"),
        (f"\n\n# größer\n{ROW}", "latin1", r"row\.gin, line 3, is not UTF-8"),
        (f"include '{other}'", "ascii", r"row\.gin includes other\.gin includes row"),
    ):
        path.write_text(text, encoding)
        with pytest.raises(configs.ConfigError, match=message) as error:
            run.build(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("TOKNS=500", "nothing reads TOKNS .*did you mean TOKENS"),
        ("tokens=500", "did you mean TOKENS"),
        ("METRIC='bleu'", "nothing reads METRIC"),
        # Its scope has one of its own, which is what is read.
        (
            "players.model.dtype='bfloat16'",
            "did you mean code_target/players.model.dtype",
        ),
        ("decoding.Protocol.nope=1", "nope"),
        ("VERIFIER=block", "in quotes"),
        ("nope", "NAME = VALUE"),
    ],
)
def test_what_nothing_reads_is_refused_before_any_compute(typed, message, tmp_path):
    path = str(CONFIGS / "table3/gpt_unigram_t1.gin")
    for flag in ([f"--gin.{typed}"], ["--set", typed]):
        with pytest.raises(SystemExit, match=message) as error:
            run.main(["--out", str(tmp_path), path, *flag])
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_the_flags_are_those_of_t5x(tmp_path):
    """A row anywhere, what it includes elsewhere, a file on top, bindings last."""
    shared, mine = tmp_path / "shared", tmp_path / "my_rows"
    for folder in (shared, mine):
        folder.mkdir()
    (shared / "size.gin").write_text("GAMMA = 5\nUNUSED = 1\n")
    (mine / "on_top.gin").write_text("ALPHA = 0.7\nUNUSED = 2\n")
    row = mine / "mine.gin"
    row.write_text("include 'gin_configs/runs/table1.gin'\ninclude 'size.gin'\n")
    flags = ["--out", str(tmp_path), "--gin_search_paths", f"/nowhere,{shared}"]
    flags += ["--gin_file", str(row), "--gin_file", str(mine / "on_top.gin")]
    run.main(flags)
    run.main([*flags, "--gin.GAMMA=2", "--set", "ALPHA = 0.6"])
    (first,) = jsonl.read(tmp_path / "my_rows.jsonl.replaced")
    (second,) = jsonl.read(tmp_path / "my_rows.jsonl")
    assert (first["table"], first["row"]) == ("my_rows", "mine")
    assert second["measured"]["speed"] == pytest.approx(1.96)
    assert first["measured"]["speed"] == pytest.approx((1 - 0.7**6) / 0.3)


def test_any_draft_goes_with_any_rule_and_any_policy(tmp_path):
    parts = ["runs/audit", "checkpoints/code_small", "tasks/code", "policies/adaptive"]
    for draft in (
        "bigram",
        "copying:longest=2",
        "random",
        "early_exit:1",
        "code_small",
    ):
        for rule in sorted(path.stem for path in (CONFIGS / "verifiers").glob("*.gin")):
            files = [*parts, f"verifiers/{rule}"]
            text = "".join(f"include 'gin_configs/{file}.gin'\n" for file in files)
            text += f"TARGET = %CODE_SMALL\nDRAFT = '{draft}'\n"
            measurement = run.build(written(tmp_path, text)).row.measurement
            protocol = measurement.run.args[2]
            assert protocol.rule.partition(":")[0] == rule
            assert protocol.policy == "adaptive"


@pytest.mark.parametrize(
    ("macro", "source"),
    [
        ("VERIFIER", "from specjax.verifiers.token import verifier as mine"),
        ("POLICY", "from specjax.policies import heuristic\nmine = heuristic(3)"),
    ],
)
def test_what_is_ones_own_is_an_input_of_a_row(macro, source, tmp_path, monkeypatch):
    own = tmp_path / f"my_{macro.lower()}.py"
    own.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"{own.stem}:mine"
    path = written(tmp_path, f"{ALPHA_ROW}{macro} = '{name}'\n")
    measurement = run.build(path).row.measurement
    protocol = measurement.run.args[2]
    assert name in (protocol.rule, protocol.policy) and own in measurement.inputs


def test_rows_that_share_get_what_those_before_them_kept(tmp_path, monkeypatch):
    def count(kept):
        kept["rows"] = kept.get("rows", 0) + 1
        return dict(kept)

    row = TableRow(Measurement(count, __name__, shares=True), "laptop")

    def build(file):
        return configs.Built("t", file.path.stem, row, "")

    monkeypatch.setattr(commands.configs, "build", build)
    files = [RowFile(tmp_path / name) for name in ("a.gin", "b.gin")]
    records = commands.run(files, tmp_path)
    assert [record["measured"] for record in records] == [{"rows": 1}, {"rows": 2}]


def test_a_mistake_is_one_line_for_a_person(tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere\.gin"):
        run.main(["--out", str(tmp_path), "nowhere.gin"])


def test_a_row_is_kept_until_it_is_set_up_otherwise_or_asked_for(tmp_path):
    """What a new record replaces lies beside it."""
    path, out = CLOSED_FORM[-1], tmp_path / "table1.jsonl"

    def speeds(name=out.name):
        return [it["measured"]["speed"] for it in jsonl.read(tmp_path / name)]

    run.run([path], tmp_path)
    first = out.read_text()
    run.run([path, path], tmp_path)
    assert out.read_text() == first
    run.run([path], tmp_path, ["GAMMA = 4"])
    replaced = "table1.jsonl.replaced"
    assert speeds() == [4.0951] and speeds(replaced) == [2.71]
    run.measure([RowFile(path, (), ("GAMMA = 4",))], tmp_path, again=True)
    assert speeds() == [4.0951] and speeds(replaced) == [2.71, 4.0951]


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job's may be ignored
from experiments import run
from specjax.cli import run as commands
measure = commands.measure
def slow(*row):
    done = measure(*row)
    time.sleep(0.6)
    return done
commands.measure = slow
run.main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda s: s.name)
def test_a_stopped_run_goes_on(how, tmp_path):
    files = list(map(str, CLOSED_FORM))
    command = [sys.executable, "-c", SLOW, "--out", str(tmp_path), *files]
    runner = subprocess.Popen(command, cwd=run.ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(rows_in(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    runner.send_signal(how)
    errors = runner.communicate()[1]
    before = rows_in(tmp_path)
    assert 2 <= len(before) < len(files)
    if how is signal.SIGINT:
        assert runner.returncode == 130 and "goes on" in errors

    run.run(CLOSED_FORM, tmp_path)
    after = rows_in(tmp_path)
    assert sorted(after) == sorted(map(name, CLOSED_FORM))  # none lost, none repeated
    assert set(before) <= set(after)


def rows_in(folder) -> list[str]:
    records = [it for path in folder.glob("*.jsonl") for it in jsonl.read(path)]
    return [f"{record['table']}/{record['row']}" for record in records]


def test_heads_and_catalogue_agree():
    """What a file says that the paper printed is what the tables print."""
    for path in ROWS:
        published = catalogue.published(path.parent.name, path.stem) or {}
        head = path.read_text().partition("\ninclude")[0]
        for quantity, value in published.items():
            pattern = rf"\b{quantity} (?:= )?(-?[\d.]*\d)"
            number = re.search(pattern, head.split("Paper:")[1])[1]
            assert float(number) == value, path
        assert f"gin_configs/{name(path)}.gin" in head
