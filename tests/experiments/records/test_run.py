"""Every row builds, mistakes are named, and a stopped run continues where it was."""

import functools
import json
import re
import signal
import subprocess
import sys
import time
from itertools import product

import gin
import pytest

from experiments import run
from experiments.records import records
from specjax import configs, pretrained, zoo
from specjax.checkpoints import published
from specjax.cli import sweep
from specjax.configs import RowFile, unread
from specjax.configs import run as loop
from specjax.measure import jsonl, provenance
from specjax.measure.row import Measurement, TableRow
from tests.configs.test_rows import ALPHA_ROW, GRID, ROW, write_file
from tests.experiments.papers import test_decoders
from tests.support import prepared_texts, text_folders

CONFIGS = records.CONFIGS
PARTS = {"runs", "models", "checkpoints", "drafters", "tasks", "faults"}
TABLES = {path.name for path in CONFIGS.iterdir()} - PARTS
ALL = {f"{it}/{name}": row for it in TABLES for name, row in records.rows(it).items()}
# Built by tests of their own, which ask more of them.
OTHERS = {*test_decoders.TABLES, "speech_data", "speech_paper", "launches"}
OTHERS |= {"microscope", "spec_bench", "model_free_speed", "spec_bench_gpu"}
OTHERS |= {
    "trees_questions",
    "policies_data",
    "beams_data",
    "masks_data",
    "heads_data",
    "real_pair",
}
ABSENT = {"table2_paper", "table3_paper", "table5_paper", "quality_data"}
FAMILIES = [p for p in CONFIGS.glob("checkpoints/*.gin") if "XXL = " in p.read_text()]
CLOSED_FORMS = [CONFIGS / "table1/table1.gin", CONFIGS / "figure3/figure3.gin"]


@pytest.fixture(autouse=True, scope="module")
def weights_read_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "load", functools.cache(pretrained.load))
        yield


def test_a_row_is_not_measured_into_results_by_what_no_commit_holds(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(provenance, "HOME", tmp_path)
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "a", "dirty": True})
    for command in (run.run, sweep_into):
        with pytest.raises((run.RowError, SystemExit)):
            command([CLOSED_FORMS[0]], tmp_path / "results")
    assert not any(tmp_path.glob("results/*.jsonl"))
    run.run([CLOSED_FORMS[0]], tmp_path / "elsewhere")
    (record, *_) = jsonl.read(tmp_path / "elsewhere" / "table1.jsonl")
    assert record["provenance"]["device"]["processor"]["cores"] >= 1


def sweep_into(files, out):
    sweep.main([*map(str, files), "--out", str(out)])


def test_a_row_is_includes_and_macros():
    for path in {row.path for row in ALL.values()}:
        text = path.read_text()
        assert not re.search(r"^(from|import) ", text, re.MULTILINE), path
        assert not [it for it in unread.statements(gin, text, "") if it.parameter]
        assert f"gin_configs/{path.parent.name}/{path.name}" in text


@pytest.mark.parametrize("table", sorted(TABLES - OTHERS - ABSENT))
def test_every_row_builds(table):
    fetched = published.path("smollm2") is not None
    for name, row in records.rows(table).items():
        if not fetched and "specjax fetch smollm2" in row.path.read_text():
            continue
        built = configs.build(row)
        assert (built.table, built.name) == (table, name)
        assert callable(built.row.measurement.run)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> tuple[str, str]:
    """Files to read after a row: bundled weights for those not here; and data too."""
    folder = tmp_path_factory.mktemp("pair")
    task = prepared_texts.write(
        folder / "task.npz", [[5, 6, 1]] * 4, targets=[[7, 1]] * 4
    )
    lines = [
        "from __gin__ import dynamic_registration",
        "from specjax.measure import sides",
    ]
    for path in (*CONFIGS.glob("checkpoints/*.gin"), *CONFIGS.glob("drafters/*.gin")):
        for key in re.findall(r"^(\S+) = '\S*/\S*'$", path.read_text(), re.MULTILINE):
            code = "code_small" if key.startswith("gpt") else "t5_small"
            counts = "bigram" if key.startswith("news") else "t5_bigram"
            name = counts if "ngram" in key else code
            lines.append(f"{key} = '{zoo.FOLDER / name}.safetensors'")
    weights, data = folder / "weights.gin", folder / "data.gin"
    weights.write_text("\n".join(lines))
    data.write_text(f"include '{weights}'\nTASK = '{task}'\n")
    return str(weights), str(data)


def tiny_row(name, stand_ins) -> RowFile:
    row = ALL[name]
    return row._replace(over=(stand_ins["'runs/data/" in row.path.read_text()],))


@pytest.mark.parametrize("table", sorted(ABSENT))
def test_every_row_of_what_is_not_here_builds(table, stand_ins):
    paper = table.endswith("_paper")
    for name in records.rows(table):
        if name.startswith("lamda_"):  # of decoders
            continue
        built = configs.build(tiny_row(f"{table}/{name}", stand_ins))
        assert (built.row.scale == "paper") == paper
        names = {file.name for file in built.row.measurement.inputs}
        assert len(names & {"code_small.safetensors", "t5_small.safetensors"}) == paper
        assert ("task.npz" in names) == (not name.startswith("gpt_"))


def test_a_row_of_questions_is_of_its_task(tmp_path):
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    tasks = dict.fromkeys(name[:-3] for name in records.rows("spec_bench"))
    lines = [{"category": name, "turns": ["def add("]} for name in tasks]
    lines[0] |= {"category": "writing"}  # of MT-bench
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    target = text_folders.gpt2(tmp_path / "gpt2")
    named = {"TARGET_NAME": target, "DRAFT": "copying", "TASK": tmp_path / "data.jsonl"}
    bindings = [f"{name} = '{value}'" for name, value in named.items()]
    for table, name in product(
        ("spec_bench", "spec_bench_gpu"), records.rows("spec_bench")
    ):
        built = configs.build(records.row(table, name, bindings))
        _, prompts, setting = built.row.measurement.run.args
        assert [it.id for it in prompts.questions] == [[*tasks].index(name[:-3])]
        assert setting.decode.temperature == float(name[-1]) and setting.ends
    for name, row in records.rows("model_free_speed").items():
        if row.path.stem != "smollm2":
            assert configs.build(row).name == name
            continue
        built = configs.build(records.row("model_free_speed", name, bindings[::2]))
        _, prompts, setting = built.row.measurement.run.args
        assert [it.id for it in prompts.questions] == [
            [*tasks].index(name.split("_")[1])
        ]


def test_every_family_can_take_the_place_of_another(stand_ins):
    """The head of a row says so: the file of the other family is read after the row."""
    assert len(FAMILIES) > 1
    for family in FAMILIES:
        file = tiny_row("table3_paper/ende_t5_small_t1", stand_ins)
        built = configs.build(file._replace(over=(str(family), *file.over)))
        wanted = re.search(r"^XXL = @(\w+)/", family.read_text(), re.MULTILINE)[1]
        assert f"XXL = @{wanted}/" in built.config


def test_absent_weights_name_the_command_that_makes_them(tmp_path):
    absent = f"gpt_97m/sides.model.name = '{tmp_path}/97m.safetensors'"
    row = records.row("table3_paper", "gpt_small_t1", [absent])
    made_by = r"gpt\.gin:gpt_small_t1: .*experiments\.training\.paper_pair"
    with pytest.raises(run.RowError, match=made_by):
        run.measure([row], tmp_path)


def test_the_flags_are_those_of_t5x(tmp_path):
    """A row may be anywhere, its includes elsewhere, a file is read on top, and
    bindings are read last."""
    shared, mine = tmp_path / "shared", tmp_path / "my_rows"
    shared.mkdir()
    (shared / "size.gin").write_text("GAMMA = 5\nUNUSED = 1\n")
    mine.mkdir()
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
    path = write_file(tmp_path, f"{ALPHA_ROW}{macro} = '{own.stem}:mine'\n")
    measurement = run.build(path).row.measurement
    protocol = measurement.run.args[2]
    assert f"{own.stem}:mine" in (protocol.decode.rule, protocol.decode.policy)
    assert own in measurement.inputs


def test_rows_that_share_get_what_those_before_them_kept(tmp_path, monkeypatch):
    def count(kept):
        kept["rows"] = kept.get("rows", 0) + 1
        return dict(kept)

    def build(file):
        row = TableRow(Measurement(count, __name__, shares=True), "laptop")
        return configs.BuiltRow("t", file.row, row, "")

    monkeypatch.setattr(loop.configs, "build", build)
    found = loop.run([RowFile(write_file(tmp_path, GRID))], tmp_path)
    assert [record["measured"] for record in found] == [{"rows": 1}, {"rows": 2}]


def test_a_row_is_kept_until_it_is_set_up_otherwise_or_asked_for(tmp_path):
    """The record that a new one replaces is kept beside it."""
    path, out = write_file(tmp_path, ROW), tmp_path / f"{tmp_path.name}.jsonl"

    def speeds(end=""):
        read = jsonl.read(tmp_path / f"{out.name}{end}")
        return [it["measured"]["speed"] for it in read]

    run.run([path], tmp_path)
    first = out.read_text()
    run.run([path, path], tmp_path)
    assert out.read_text() == first
    run.run([path], tmp_path, ["GAMMA = 4"])
    assert speeds() == [2.3056] and speeds(".replaced") == [1.96]
    run.measure([RowFile(path, (), ("GAMMA = 4",))], tmp_path, again=True)
    assert speeds() == [2.3056] and speeds(".replaced") == [1.96, 2.3056]


SLOW = """
import sys, time
from experiments import run
from specjax.checkpoints import published
from specjax.configs import RowFile, unread
from specjax.configs import run as loop
measure = loop.measure
def slow(*row, **options):
    done = measure(*row, **options)
    time.sleep(0.6)
    return done
loop.measure = slow
run.main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_a_stopped_run_goes_on(how, tmp_path):
    files = list(map(str, CLOSED_FORMS))
    command = [sys.executable, "-c", SLOW, "--out", str(tmp_path), *files]
    runner = subprocess.Popen(command, cwd=run.ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(row_names(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    runner.send_signal(how)
    errors = runner.communicate()[1]
    before = row_names(tmp_path)
    wanted = [name for name in ALL if name.startswith(("table1/", "figure3/"))]
    assert 2 <= len(before) < len(wanted)
    if how is signal.SIGTERM:
        assert runner.returncode == 143 and "start the same command again" in errors

    run.run(CLOSED_FORMS, tmp_path)
    after = row_names(tmp_path)
    assert sorted(after) == sorted(wanted)  # none lost, none repeated
    assert set(before) <= set(after)


def row_names(folder) -> list[str]:
    found = [it for path in folder.glob("*.jsonl") for it in jsonl.read(path)]
    return [f"{record['table']}/{record['row']}" for record in found]
