"""Scripts and manifests that start jobs pass the checkers of their systems, and
continue after a machine is taken away; the GPU script skips stages that are done, runs
named ones, and stops at a failure."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import catalogue
from experiments.launch import cost
from experiments.records import records
from experiments.report import kernels

ROOT = catalogue.ROOT
LAUNCH = ROOT / "experiments/launch"


def stubs(folder: Path, **scripts: str) -> dict[str, str]:
    """Puts programs of these names first on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("shellcheck", [*LAUNCH.glob("*.sh"), *ROOT.glob("experiments/gpu/*.sh")]),
        ("hadolint", [LAUNCH / "Dockerfile"]),
    ],
)
def test_checkers_find_nothing(name, files):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not (checker := shutil.which(name, path=path)):
        pytest.skip(f"{name} is not installed")
    done = subprocess.run([checker, *files], capture_output=True, text=True)
    assert files and done.returncode == 0, done.stdout


def test_the_manifest_is_a_jobset_of_what_is_here():
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    schema = Path(__file__).with_name("jobset.schema.json")
    jsonschema.validate(manifest, json.loads(schema.read_text()))
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (ROOT / container["args"][0]).is_file()
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_image_runs_what_it_is_told_with_extras_that_there_are():
    """An entrypoint would take the command for its own arguments."""
    lines = (LAUNCH / "Dockerfile").read_text()
    assert "ENTRYPOINT" not in lines and " g++ " in lines
    extras = re.search(r"extra=(\S+) ", lines)[1].split(",")
    assert {"sweep", "gguf", "hf", "speech"} < {*extras}
    setup = (ROOT / "setup.py").read_text()
    assert all(f'"{extra}":' in setup for extra in extras)


WAITS = "trap 'echo told >>{0}/asked; exit 143' TERM\n{1}while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "asked", "begun"),
    [
        (["slurm.sh", "texts"], "run_all.sh", "texts"),
        (
            ["slurm_hosts.sh", "--gin.MESH='data=2'", "a.gin:b"],
            "experiments.run",
            "--gin.MESH='data=2' a.gin:b --distributed",
        ),
    ],
)
def test_a_job_of_slurms_is_told_and_goes_back_into_the_queue(
    script, asked, begun, tmp_path
):
    """The script of the stages gets the signal, or `srun` on several hosts."""
    waits = WAITS.format(tmp_path, f'echo "$0 $*" >{tmp_path}/asked\n')
    own = stubs(tmp_path / "bin", srun=waits, scontrol=f'echo "$@" >>{tmp_path}/asked')
    shutil.copytree(LAUNCH, tmp_path / "experiments/launch")
    stages = tmp_path / "experiments/gpu/run_all.sh"
    stages.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "bin/srun", stages)
    own |= {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    own |= {"PYTHON": sys.executable}
    job = subprocess.Popen(["bash", LAUNCH / script[0], *script[1:]], env=own)
    deadline = time.monotonic() + 30
    while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)  # the script has yet to note whom it tells
    job.send_signal(signal.SIGTERM)
    job.wait(30)
    first, *then = (tmp_path / "asked").read_text().splitlines()
    assert asked in first and first.endswith(begun)
    assert then == ["told", "requeue 7"]


# A Python that serves, and makes environments like itself; and one that does not.
SERVES = """echo "$*" >>{0}/asked
case "$*" in *venv*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;; esac"""
OLD = "echo 'is Python 3.10, and specjax needs 3.11' >&2; exit 1"
PYTHONS = "python3", "python3.11", "python3.12", "python3.13"


@pytest.fixture
def launch(tmp_path):
    """Runs a script of a checkout with stand-ins alone; what they were asked."""
    shutil.copytree(LAUNCH, tmp_path / "experiments/launch")

    def run(name: str, *arguments: str, env=(), **scripts: str):
        (tmp_path / "asked").write_text("")
        scripts = {k: v.replace("{}", str(tmp_path)) for k, v in scripts.items()}
        own = stubs(tmp_path / "bin", **scripts) | {"HOME": str(tmp_path)}
        own |= {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        own = {k: v for k, v in own.items() if k != "PYTHON"} | dict(env)
        command = ["bash", tmp_path / "experiments/launch" / name, *arguments]
        how = dict(cwd=tmp_path, capture_output=True, text=True)
        done = subprocess.run(command, env=own, **how)
        return done, (tmp_path / "asked").read_text()

    return run


def test_a_script_takes_a_python_that_can_run_specjax(launch, tmp_path):
    """The checkout's own Python comes first; where there is none, the script prints one
    line."""
    old = dict.fromkeys(PYTHONS, OLD)
    done, asked = launch("slurm_hosts.sh", "a.gin", srun="exit 9", **old)
    assert done.returncode == 2 and not asked and done.stderr.count("\n") == 1
    assert "python3 is Python 3.10, and specjax needs 3.11: experiments/" in done.stderr
    stubs(tmp_path / ".venv/bin", python=SERVES.format(tmp_path))
    said = f'echo "srun $*" >>{tmp_path}/asked'
    done, asked = launch("slurm_hosts.sh", "a.gin", srun=said, **old)
    assert done.returncode == 0, done.stderr
    assert "srun --kill-on-bad-exit=1 .venv/bin/python -m experiments.run" in asked
    (tmp_path / "experiments/gpu").mkdir()
    stubs(tmp_path / "experiments/gpu", **{"run_all.sh": f"echo $PYTHON >{tmp_path}/a"})
    done, _ = launch("slurm.sh", "texts", **old)
    assert (tmp_path / "a").read_text() == ".venv/bin/python\n", done.stderr


def test_an_environment_is_made_of_a_new_python_and_a_broken_one_anew(launch, tmp_path):
    good, old = SERVES.format(tmp_path), dict.fromkeys(PYTHONS, OLD)
    install = "-m pip install --quiet --editable .[tpu,experiments]\n"
    broken = tmp_path / ".venv/bin"
    broken.mkdir(parents=True)  # as a venv without ensurepip leaves it
    fetched = f"echo 'mkdir -p $HOME/.local/bin; cp {tmp_path}/uv $HOME/.local/bin/uv'"
    stubs(tmp_path, uv=good)
    for scripts, taken in (
        (old | {"python3.12": good}, "-m venv .venv"),
        (old | {"curl": fetched}, "venv --quiet --seed --python 3.12 .venv"),
    ):
        done, asked = launch("environment.sh", "tpu,experiments", **scripts)
        assert done.returncode == 0, done.stderr
        assert taken in asked.splitlines() and asked.endswith(install)
        stubs(broken, python="exit 1")
    stubs(broken, python=good)  # which serves, and stays
    done, asked = launch("environment.sh", "tpu,experiments", **old)
    assert "venv" not in asked and asked.endswith(install), done.stderr
    done, _ = launch("environment.sh")
    assert done.returncode == 2 and "usage" in done.stderr


def test_xpk_gets_an_image_that_it_can_pull_and_a_folder_that_is_mounted(launch):
    said = 'echo "${0##*/} $*" >>{}/asked\n'
    arguments = "own", "zone", "pkg.dev/a/specjax:tpu", "a.gin:b"
    for stored, made in ("none", 1), ("NAME TYPE\nspecjax gcpfilestore", 0):
        run = launch("xpk.sh", *arguments, docker=said, xpk=f"{said}echo '{stored}'")
        assert run[0].returncode == 0, run[0].stderr
        asked = run[1].splitlines()
        assert asked[1] == "docker push pkg.dev/a/specjax:tpu"
        create = [x for x in asked if x.startswith("xpk storage create specjax ")]
        assert len(create) == made and all("--mount-point=/kept " in x for x in create)
        assert "--docker-image=pkg.dev/a/specjax:tpu --storage=specjax" in asked[-1]
        assert asked[-1].endswith("experiments.run --out /kept/results a.gin:b")
    assert launch("xpk.sh", "own")[0].returncode == 2


def test_rows_go_to_a_tpu_and_records_come_back(launch, tmp_path):
    """They go to every host of a slice, which is created where it is missing."""
    said = f'printf "%s\\n" "$*" >>{tmp_path}/asked\n'
    there = said + 'case "$*" in *describe*) echo "{}";; esac'
    absent = (
        said
        + f"""case "$*" in
      *create*) touch {tmp_path}/made;;
      *describe*) [ -e {tmp_path}/made ] && echo 10.0.0.1;; esac"""
    )
    arguments = "vm", "zone", "a.gin:b", "c d.gin"
    done, _ = launch("tpu_vm.sh", *arguments[:2], gcloud=said, git=said)
    assert done.returncode == 2 and "usage" in done.stderr
    run = "experiments.run --out records a.gin:b c\\ d.gin"
    for hosts, last in ("10.0.0.1", ""), ("10.0.0.1;10.0.0.2", " --distributed"):
        scripts = dict(gcloud=there.format(hosts), git=said)
        done, asked = launch("tpu_vm.sh", *arguments, **scripts)
        assert done.returncode == 0, done.stderr
        assert f"{run}{last} --zone zone\n" in asked
        assert "ssh vm --worker=all --command" in asked
        assert "vm:specjax.tar.gz --worker=all --zone zone" in asked
        assert "launch/environment.sh tpu,experiments\n" in asked
        assert "scp --recurse vm:specjax/records/* runs/tpu/ --zone zone" in asked
    scripts = dict(gcloud=absent, git=said)
    done, asked = launch("tpu_vm.sh", *arguments, **scripts)
    assert done.returncode == 2 and "create" not in asked
    assert "has no TPU VM vm: name its kind, such as TYPE=" in done.stderr
    kind = {"TYPE": "v5litepod-8"}
    done, asked = launch("tpu_vm.sh", *arguments, env=kind, **scripts)
    assert done.returncode == 0, done.stderr
    made = "--accelerator-type v5litepod-8 --version v2-alpha-tpuv5-lite --zone zone"
    assert f"create vm {made}\n" in asked and run in asked


@pytest.mark.slow
def test_what_a_launcher_costs_is_measured_and_no_text_is_lost():
    found = cost.measure(predicted=2.0, tasks=1, at_once=2, prompts=8, block=2)
    assert found["blocks"] == 4 and found["killed"] == 2
    assert found["lost"] == found["twice"] == found["changed"] == 0
    assert 0 < found["share_hour"] < found["share_minute"] < found["share_second"] < 1


# The GPU script.

ECHO = 'echo "$@"'
SCRIPT = ROOT / "experiments/gpu/run_all.sh"
ONCE = 7  # device, equality, default, sanitizer, capture, tune, pair
FETCHED = 13  # a model, and a row of each task of questions at each temperature


def run(folder: Path, python: str, *folders: str, **environment: str):
    """Runs the script. python: what a program does that replaces Python."""
    programs = {"compute-sanitizer": "", "stand_in": python}
    own = stubs(folder / "bin", **programs) | {"RUNS": str(folder / "runs")}
    own |= {"STAGES": "all"}
    own |= {"PYTHON": str(folder / "bin/stand_in"), **environment}
    folders = folders or (str(folder), str(folder / "results"))
    command = ["bash", str(SCRIPT), *folders]
    return subprocess.run(command, env=own, capture_output=True, text=True)


def started_commands(done) -> list[str]:
    """Returns the commands that were run, as `echo` shows them."""
    return [line for line in done.stdout.splitlines() if line.startswith("-m ")]


def outcomes(done) -> dict[str, str]:
    last = done.stdout.partition("== stages and outcomes")[2].splitlines()[1:]
    return dict(line.split(": ", 1) for line in last)


def test_every_row_has_a_stage_and_finished_ones_are_not_run_again(tmp_path):
    models = {"MODELS": str(tmp_path)}
    first = run(tmp_path, ECHO, **models)
    assert first.returncode == 0, first.stderr
    lines = "\n".join(started_commands(first))
    names = "kernels", "chip", "wagner_time", "wagner_text", "wagner_scale"
    rows = [row for name in names for row in records.rows(name).values()]
    for row in rows:
        place = row._replace(path=row.path.relative_to(ROOT))
        assert lines.count(f"{place}\n") == 1, row
    papers = (records.rows(name) for name in ("table2_paper", "table3_paper"))
    pairs = [name for rows in papers for name in rows if name.startswith("gpt_")]
    assert (
        len(started_commands(first)) == ONCE - 3 + len(rows) + len(pairs) + 2 + FETCHED
    )
    assert {outcome.split()[0] for outcome in outcomes(first).values()} == {"ok"}
    again = run(tmp_path, ECHO, **models)
    names = ("report.page", "gpu.kernels.default")
    wanted = [f"-m experiments.{name} {tmp_path / 'results'}" for name in names]
    assert started_commands(again) == wanted
    before = list(outcomes(again).values()).count("done before")
    assert before == len(outcomes(first)) - 1


def test_a_failed_stage_stops_and_alone_is_tried_again(tmp_path):
    first = "device", "equality.kernels.equality", "default"
    last, stages = "sanitizer.kernels.sanitizer", "device equality default sanitizer"
    broken = 'case "$*" in *sanitizer*) exit 3;; esac; echo "$@"'
    failed = run(tmp_path, broken, STAGES=f"{stages} capture")
    assert failed.returncode == 3
    assert list(outcomes(failed)) == [*first, last]
    assert outcomes(failed)[last].startswith("FAILED (3)")
    again = run(tmp_path, ECHO, STAGES=stages)
    assert again.returncode == 0
    assert [outcomes(again)[name] for name in first] == ["done before"] * 3
    assert outcomes(again)[last].startswith("ok")
    slow = run(tmp_path, "exec sleep 20", STAGES="capture", LIMIT="1")
    assert slow.returncode == 124
    assert any(told.startswith("stopped after") for told in outcomes(slow).values())


def test_stages_are_picked_by_name_and_what_cannot_run_leaves_no_mark(tmp_path):
    picked = run(tmp_path, ECHO, STAGES="table3")
    assert outcomes(picked)["pair"] == "not asked for"
    place = "gin_configs/table3_paper/gpt.gin:gpt_"
    assert [place in line for line in started_commands(picked)] == [True] * 6
    names = "pair", "table3", "table2"
    done = run(tmp_path, ECHO, "", str(tmp_path / "a"), STAGES=" ".join(names))
    assert done.returncode == 0 and not started_commands(done)
    told = {outcomes(done)[name] for name in names}
    assert told == {"skipped: no TEXT_FOLDER was named"}
    lacking = '[ "$1" = -c ] && exit 1; echo "$@"'
    done = run(tmp_path, lacking, STAGES="sanitizer torch", PATH="/usr/bin:/bin")
    assert done.returncode == 0 and not started_commands(done)
    assert outcomes(done)["sanitizer"].startswith("skipped: compute-sanitizer")
    assert outcomes(done)["torch"].startswith("skipped: ")
    again = run(tmp_path, ECHO, STAGES="sanitizer torch")
    assert "done before" not in again.stdout and len(started_commands(again)) == 20


def test_an_implementation_is_left_out_of_the_kernels_and_goals_are_told(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    shown = (ROOT / "results/kernels.md").read_text("utf-8")
    shown, count = re.subn(
        r"8 to 14 \| [^|]+ \| \w+ \|", "8 to 14 | 12 | met |", shown, count=1
    )
    assert count == 1
    (results / "kernels.md").write_text(shown, "utf-8")
    stages = "kernels torch page"
    done = run(tmp_path, ECHO, STAGES=stages, SKIP="triton mosaic_gpu")
    setting = "--set SKIP = ('triton', 'mosaic_gpu',)"
    for line in started_commands(done):
        assert (setting in line) == ("shapes.gin:b" in line), line
    goals = [line for line in done.stdout.splitlines() if line.startswith("goal ")]
    assert len(goals) == len(kernels.expectations()["goals"])
    assert goals[4] == "goal 3, time (<= 15): 12, met"


TEN = "device memory steps token chip updates verification".split()


def test_ten_minutes_are_rows_in_order_and_end_with_the_predictions(tmp_path):
    done = run(tmp_path, ECHO, STAGES="")
    assert done.returncode == 0, done.stderr
    assert list(outcomes(done)) == TEN
    lines = started_commands(done)
    assert lines[-1] == f"-m experiments.report.predicted {tmp_path / 'results'}"
    (steps,) = (line for line in lines if "steps.gin:default" in line)
    assert steps.count("chip_steps/steps.gin:") == 5
    (chip,) = (line for line in lines if "chip.gin" in line)
    assert "chip.gin:ende_small_t0" in chip and "GAMMAS = (%GAMMA,)" in chip
    again = run(tmp_path, ECHO, STAGES="")
    assert started_commands(again) == lines[-1:]
    assert set(outcomes(again).values()) == {"done before"}


def test_rows_are_picked_by_name_and_one_that_fails_does_not_stop_the_rest(tmp_path):
    broken = 'case "$*" in *skip_temp*) exit 3;; esac; echo "$@"'
    picked = {"STAGES": "", "ROWS": "skip_temp cnndm_base_t1 b8_g5_v128256_f32"}
    done = run(tmp_path, broken, **picked)
    assert done.returncode == 1 and len(started_commands(done)) == 3
    told = outcomes(done)
    assert told.pop("skip_temp").startswith("FAILED (3)")
    assert [*told] == ["cnndm_base_t1", "b8_g5_v128256_f32"]
    again = run(tmp_path, ECHO, **picked)
    assert again.returncode == 0
    assert any("skip_temp" in line for line in started_commands(again))
    assert list(outcomes(again).values()).count("done before") == 2
    unknown = run(tmp_path, ECHO, STAGES="", ROWS="device chips")
    assert unknown.returncode == 2 and not started_commands(unknown)
    assert "no row chips: ROWS may have device" in unknown.stderr
    part = run(tmp_path, ECHO, STAGES="", MINUTES="9.5")
    assert part.returncode == 2 and not started_commands(part)
    assert "MINUTES must be a whole number, at least 1; got 9.5" in part.stderr


def test_what_does_not_fit_into_the_minutes_is_left_for_the_next_run(tmp_path):
    done = run(tmp_path, ECHO, STAGES="", MINUTES="3")
    told = outcomes(done)
    left = [
        name for name, it in told.items() if it.startswith("left out: it needs 240")
    ]
    assert left == ["chip"] and told["steps"].startswith("ok")
    own = {"STAGES": "", "ROWS": "no_graphs", "LIMIT": "1"}
    slow = run(tmp_path, "exec sleep 20", str(tmp_path), str(tmp_path / "b"), **own)
    assert slow.returncode == 1 and outcomes(slow)["no_graphs"].startswith(
        "stopped after"
    )


def test_a_dry_run_of_ten_minutes_is_tiny(tmp_path):
    echo = 'echo "-m $JAX_PLATFORMS $*"'
    own = {"DRY": "1", "TMPDIR": str(tmp_path), "STAGES": ""}
    done = run(tmp_path, echo, "", "", **own)
    assert done.returncode == 0, done.stderr
    rows = [line for line in started_commands(done) if "experiments.run" in line]
    assert len(rows) == len(TEN) - 2 and "--out results" not in done.stdout
    for line in rows:
        small = "COPIED = 65536" if "memory" in line else "t5_1_1_small/t5.Config.vocab"
        assert small in line, line


def test_a_dry_run_is_one_small_row_of_everything_on_a_cpu(tmp_path):
    echo = 'echo "-m $JAX_PLATFORMS $*"'
    done = run(tmp_path, echo, "", "", DRY="1", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = started_commands(done)
    assert all(line.startswith("-m cpu ") for line in lines)
    rows = [line for line in lines if "experiments.run" in line]
    folders = {line.split("gin_configs/")[1].split("/")[0] for line in rows}
    names = {"kernels", "wagner_scale", "wagner_text", "wagner_time", "chip"}
    assert folders == names | {"table3_paper", "table2_paper"} and len(rows) == 11
    assert all(str(tmp_path) in line for line in rows)
    assert not any("--out results" in line for line in lines)
    (pair,) = (line for line in lines if "paper_pair --out" in line)
    assert "--tiny --steps 4 --text README.md" in pair and str(tmp_path) in pair
    for row in rows:  # by the kernels that are the default
        assert ("KERNELS = 'auto'" in row) == ("gin_configs/kernels" not in row)
    trial = next(line for line in rows if "shapes.gin:b1_g5_v32000_f32" in line)
    assert "--set DRY = True" in trial
