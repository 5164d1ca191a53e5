"""Scripts and manifests that start jobs: as their own checkers want them, and what they
do where a machine is taken away."""

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

ROOT = catalogue.ROOT
LAUNCH = ROOT / "experiments/launch"


def stubs(folder: Path, **scripts: str) -> dict[str, str]:
    """Programs of these names, first on PATH."""
    folder.mkdir()
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
    """An entrypoint would take a command for its own arguments."""
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
    """By its stages' script, or by `srun` on several hosts."""
    waits = WAITS.format(tmp_path, f'echo "$0 $*" >{tmp_path}/asked\n')
    own = stubs(tmp_path / "bin", srun=waits, scontrol=f'echo "$@" >>{tmp_path}/asked')
    stages = tmp_path / "experiments/gpu/run_all.sh"
    stages.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "bin/srun", stages)
    own |= {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
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


def test_rows_go_to_a_tpu_and_records_come_back(tmp_path):
    shutil.copytree(LAUNCH, tmp_path / "experiments/launch")
    said = f'printf "%s\\n" "$*" >>{tmp_path}/asked'
    own = stubs(tmp_path / "bin", gcloud=said, git=said)
    script = ["bash", tmp_path / "experiments/launch/tpu_vm.sh"]
    done = subprocess.run([*script, "vm", "zone"], env=own, capture_output=True)
    assert done.returncode == 2 and b"usage" in done.stderr
    subprocess.run([*script, "vm", "zone", "a.gin:b", "c d.gin"], env=own, check=True)
    asked = (tmp_path / "asked").read_text()
    assert "experiments.run --out records a.gin:b c\\ d.gin" in asked
    assert re.search(
        r"scp --recurse vm:specjax/records/\* runs/tpu/ --zone zone", asked
    )


@pytest.mark.slow
def test_what_a_launcher_costs_is_measured_and_no_text_is_lost():
    pytest.importorskip("submitit")
    found = cost.measure(2.0, tasks=1, at_once=2, prompts=8, block=2)
    assert found["blocks"] == 4 and found["killed"] == 2
    assert found["lost"] == found["twice"] == found["changed"] == 0
    assert 0 < found["share_hour"] < found["share_minute"] < found["share_second"] < 1
