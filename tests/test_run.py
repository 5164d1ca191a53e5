"""Every gin file builds, mistakes are named, and a stopped run goes on where it was."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import catalogue, fingerprint, run
from specjax import zoo
from specjax.bench import jsonl
from specjax.drafters import ngram
from tests import tiny

CONFIGS = run.ROOT / "gin_configs"
SHARED = ("models", "drafters")
ROWS = sorted(p for p in CONFIGS.glob("*/*.gin") if p.parent.name not in SHARED)
CLOSED_FORM = [path for path in ROWS if path.parent.name in ("table1", "figure3")]
PAPER_SIZE = [path for path in ROWS if path.parent.name.endswith("_paper")]


def name(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", [p for p in ROWS if p not in PAPER_SIZE], ids=name)
def test_every_row_builds(path):
    built = run.build(path)
    assert (built.table, built.name) == (path.parent.name, path.stem)
    assert callable(built.row.measurement.run)
    assert "row.Row.measurement" in built.config


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> list[str]:
    """Bindings that put tiny weights in the place of the paper's pair."""
    folder = tmp_path_factory.mktemp("pair")
    config = tiny.TARGET._replace(vocab=512)
    for size in ("97m", "6m"):
        zoo.save(folder / f"{size}.safetensors", config, tiny.weights(config, 0))
    zoo.save_ngrams(folder / "bigram.safetensors", ngram.fit([[1, 300, 2]], 512))
    weights = ("gpt_97m/players.model", "97m"), ("gpt_6m/players.model", "6m")
    counts = [
        (f"news_{kind}/players.ngram", "bigram") for kind in ("unigram", "bigram")
    ]
    return [f"{who}.name = '{folder / file}.safetensors'" for who, file in weights], [
        f"{who}.name = '{folder / file}.safetensors'" for who, file in counts
    ]


def for_row(path, stand_ins):
    """Only the bindings of what the row includes: gin refuses the others."""
    text = path.read_text()
    included = {Path(found).stem for found in re.findall(r"include '(.+)'", text)}
    every = [binding for kind in stand_ins for binding in kind]
    return [binding for binding in every if binding.split("/")[0] in included]


@pytest.mark.parametrize("path", PAPER_SIZE, ids=name)
def test_every_row_of_the_papers_size_builds(path, stand_ins):
    built = run.build(path, for_row(path, stand_ins))
    assert built.row.scale == "paper"
    assert len(built.row.measurement.inputs) >= 2


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


@pytest.mark.parametrize("path", PAPER_SIZE[:1], ids=name)
def test_absent_weights_name_the_command_that_makes_them(path, tmp_path):
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
import sys, time
from experiments import run
from specjax.bench import jsonl
measure = run.measure
def slow(built, out):
    done = measure(built, out)
    time.sleep(0.2)
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
