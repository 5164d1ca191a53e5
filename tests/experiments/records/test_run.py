"""Every gin file builds, mistakes are named, and a stopped run goes on where it was."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments import catalogue, fingerprint, run
from experiments.tasks import examples
from specjax import zoo
from specjax.bench import jsonl
from specjax.drafters import ngram
from tests import tiny, tiny_t5

CONFIGS = run.ROOT / "gin_configs"
SHARED = ("models", "drafters", "families")
ROWS = sorted(p for p in CONFIGS.glob("*/*.gin") if p.parent.name not in SHARED)
CLOSED_FORM = [path for path in ROWS if path.parent.name in ("table1", "figure3")]
PAPER_SIZE = [path for path in ROWS if path.parent.name.endswith("_paper")]
WITH_DATA = [path for path in ROWS if path.parent.name == "quality_data"]
FAMILIES = sorted((CONFIGS / "families").glob("*.gin"))


def name(path):
    return f"{path.parent.name}/{path.stem}"


HERE = [p for p in ROWS if p not in (*PAPER_SIZE, *WITH_DATA)]


@pytest.mark.parametrize("path", HERE, ids=name)
def test_every_row_builds(path):
    built = run.build(path)
    assert (built.table, built.name) == (path.parent.name, path.stem)
    assert callable(built.row.measurement.run)
    assert "row.Row.measurement" in built.config


class StandIns(NamedTuple):
    """Tiny files in the place of what a row needs and the repository has not."""

    gpt: Path
    counts: Path
    t5: Path
    t5_counts: Path
    task: Path


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> StandIns:
    folder = tmp_path_factory.mktemp("pair")
    names = ("gpt", "counts", "t5", "t5_counts")
    made = [folder / f"{name}.safetensors" for name in names]
    gpt, small = tiny.TARGET._replace(vocab=512), tiny_t5.SMALL._replace(vocab=512)
    zoo.save(made[0], gpt, tiny.weights(gpt, 0))
    zoo.save(made[2], small, tiny_t5.weights(small, 0))
    for counts in (made[1], made[3]):
        zoo.save_ngrams(counts, ngram.fit([[1, 300, 2]], 512))
    pairs = examples.Examples([[5, 6, 1]] * 4, [[7, 1]] * 4, ["a"] * 4, ["b"] * 4)
    about = examples.About("wmt_ende", "test", "", 1, "", None, False, None, [])
    examples.write(folder / "task.npz", pairs, about)
    return StandIns(*made, folder / "task.npz")


def for_row(path, stand_ins) -> list[str]:
    """Bindings for what the row and its includes name, and no others: gin refuses them.

    Bundled models stay what they are.
    """
    found = []
    for text in [path.read_text(), *included(path)]:
        for who, kind, value in re.findall(
            r"^(\w+)/players\.(\w+)\.name = '(.+)'$", text, re.MULTILINE
        ):
            if "/" in value:
                whose = stand_in(who, kind)
                found.append(
                    f"{who}/players.{kind}.name = '{getattr(stand_ins, whose)}'"
                )
        task = r"^(\S*(?:task|TASK)) = 'runs/data/.+'$"
        for key in re.findall(task, text, re.MULTILINE):
            found.append(f"{key} = '{stand_ins.task}'")
    return found


def included(path) -> list[str]:
    names = re.findall(r"^include '(.+)'$", path.read_text(), re.MULTILINE)
    return [(run.ROOT / name).read_text() for name in names]


def stand_in(who: str, kind: str) -> str:
    if kind == "model":
        return "gpt" if who.startswith("gpt") else "t5"
    return "t5_counts" if who.startswith("paper_t5") else "counts"


def test_a_stand_in_is_for_every_absent_file(stand_ins):
    path = CONFIGS / "table2_paper/ende_t5_small_t0.gin"
    bound = for_row(path, stand_ins)
    assert f"rows.build.task = '{stand_ins.task}'" in bound
    assert sum("players.model.name" in line for line in bound) == 4
    assert for_row(CONFIGS / "table3/ende_small_t0.gin", stand_ins) == []


@pytest.mark.parametrize("path", PAPER_SIZE, ids=name)
def test_every_row_of_the_papers_size_builds(path, stand_ins):
    built = run.build(path, for_row(path, stand_ins))
    assert built.row.scale == "paper"
    assert len(built.row.measurement.inputs) >= 2


@pytest.mark.parametrize("path", WITH_DATA, ids=name)
def test_every_row_on_other_data_builds(path, stand_ins):
    built = run.build(path, for_row(path, stand_ins))
    assert stand_ins.task in built.row.measurement.inputs


@pytest.mark.parametrize("family", FAMILIES, ids=lambda path: path.stem)
def test_every_family_can_take_the_place_of_another(family, stand_ins):
    """As the head of a row says: its include is read last."""
    path = CONFIGS / "table3_paper/ende_t5_small_t1.gin"
    include = f"include 'gin_configs/families/{family.name}'"
    mine = [line for line in for_row(family, stand_ins) if "/players" in line]
    built = run.build(path, [*for_row(path, stand_ins), include, *mine])
    assert stand_ins.t5 in built.row.measurement.inputs
    wanted = re.search(r"^XXL = @(\w+)/", family.read_text(), re.MULTILINE)[1]
    assert f"XXL = @{wanted}/" in built.config


@pytest.mark.parametrize("temperature", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_row_runs_from_its_file_to_its_record(temperature, stand_ins, tmp_path):
    path = CONFIGS / f"table3_paper/gpt_small_t{temperature}.gin"
    small = ["TOKENS = 8", "decoding.Protocol.batch = 2"]
    small += ["decoding.Protocol.new_tokens = 6", *for_row(path, stand_ins)]
    run.run([path], tmp_path, small)
    (record,) = jsonl.read(tmp_path / "table3_paper.jsonl")
    # The same weights on both sides.
    assert record["measured"]["alpha"] == pytest.approx(1, abs=1e-4)
    assert record["published"] == {"alpha": [0.88, 0.89][temperature]}
    assert "decoding.Protocol.new_tokens = 6" in record["provenance"]["config"]


def test_absent_weights_name_the_command_that_makes_them(tmp_path):
    path = CONFIGS / "table3_paper/gpt_small_t1.gin"
    absent = f"gpt_97m/players.model.name = '{tmp_path}/97m.safetensors'"
    with pytest.raises(run.RowError, match=r"experiments\.gpu\.paper_pair") as error:
        run.run([path], tmp_path, [absent])
    assert str(path) in str(error.value)


def written(folder, text):
    path = folder / "row.gin"
    path.write_text(text)
    return path


ROW = CLOSED_FORM[-1].read_text()
ALPHA_ROW = (CONFIGS / "table3/gpt_unigram_t1.gin").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ALPHA_ROW.replace("DRAFT = %UNIGRAM", ""), "REQUIRED"),
        (ALPHA_ROW.replace("decoding.Protocol.temperature = 1.0", ""), "REQUIRED"),
        (
            ALPHA_ROW.replace("Protocol.temperature", "Protocol.temprature"),
            "temprature",
        ),
        (ALPHA_ROW.replace("%CODE_9M", "%CODE_9N"), "CODE_9N"),
        (ALPHA_ROW.replace("models/code_9m", "models/code_8m"), "code_8m"),
        (ALPHA_ROW.replace("TARGET = %CODE_9M", "TARGET = %UNIGRAM"), "only drafts"),
        (ROW.replace("analytic.table1.alpha", "analytic.table1.alfa"), "alfa"),
        (ROW.replace("@analytic.table1()", "@analytic.table9()"), "table9"),
        (ROW.replace("row.Row.scale", "# row.Row.scale"), "scale"),
        (ROW.replace("analytic.table1.gamma = 2", ""), "gamma"),
    ],
)
def test_a_mistake_is_named_with_its_file(text, message, tmp_path):
    assert text not in (ROW, ALPHA_ROW)
    path = written(tmp_path, text)
    with pytest.raises(run.RowError, match=message) as error:
        run.run([path], tmp_path)
    assert str(error.value).startswith(f"{path}: ")
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_mistake_is_one_line_for_a_person(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"nowhere\.gin"):
        run.main(["--out", str(tmp_path), "nowhere.gin"])


def test_a_row_is_kept_until_its_config_or_its_sources_change(tmp_path, monkeypatch):
    path, out = CLOSED_FORM[-1], tmp_path / "table1.jsonl"
    run.run([path], tmp_path)
    run.run([path, path], tmp_path)
    assert len(jsonl.read(out)) == 1
    run.run([path], tmp_path, ["analytic.table1.gamma = 4"])
    assert [one["measured"]["speed"] for one in jsonl.read(out)] == [2.71, 4.0951]
    monkeypatch.setattr(fingerprint, "digest", lambda path: "changed")
    run.run([path], tmp_path)
    assert len(jsonl.read(out)) == 3


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job's may be ignored
from experiments import run
from specjax.bench import jsonl
measure = run.measure
def slow(built, out):
    done = measure(built, out)
    time.sleep(0.6)
    return done
run.measure = slow
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
    said = runner.communicate()[1]
    before = rows_in(tmp_path)
    assert 2 <= len(before) < len(files)
    if how is signal.SIGINT:
        assert runner.returncode == 130 and "goes on" in said

    run.run(CLOSED_FORM, tmp_path)
    after = rows_in(tmp_path)
    assert sorted(after) == sorted(map(name, CLOSED_FORM))  # none lost, none repeated
    assert set(before) <= set(after)


def rows_in(folder) -> list[str]:
    found = [one for path in folder.glob("*.jsonl") for one in jsonl.read(path)]
    return [f"{one['table']}/{one['row']}" for one in found]


def test_heads_and_catalogue_agree():
    """What a file says that the paper printed is what the tables print."""
    for path in ROWS:
        published = catalogue.published(path.parent.name, path.stem) or {}
        head = path.read_text().partition("from __gin__")[0]
        for quantity, value in published.items():
            said = re.search(
                rf"\b{quantity} (?:= )?([\d.]*\d)", head.split("Paper:")[1]
            )
            assert float(said[1]) == value, path
        assert f"gin_configs/{name(path)}.gin" in head
