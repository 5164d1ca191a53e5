"""The recipes work as a reader would paste them, with stand-ins for everything that is
remote."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from experiments import catalogue
from specjax import configs
from specjax.cli import decode, measure

yaml = pytest.importorskip("yaml")
ROOT = catalogue.ROOT
LAUNCH = ROOT / "experiments/launch"
PAGE = (ROOT / "docs/guides/recipes.md").read_text("utf-8")
BLOCK = re.compile(r"^## ([^\n]+)\n.*?^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
RECIPES = dict(BLOCK.findall(PAGE))
# Each says its name and its arguments, and does nothing; `sbatch` begins the job.
SAYS = 'echo "${0##*/} $*" >>"$ASKED"\n'
FAR = {
    "gcloud": SAYS
    + 'case "$*" in *describe*) [ -e made ] && echo 10.0.0.1;; *create*) touch made;;'
    + " esac",
    "kubectl": SAYS + 'case "$*" in *"-f -") cat >"$ASKED.manifest";; esac',
    "docker": SAYS,
    "scontrol": SAYS,
    "sbatch": SAYS + 'bash "$@"',
    "srun": SAYS,
}
NEAR = {"python": SAYS, "python3": "exit 0", "specjax": SAYS}


@pytest.fixture
def paste(tmp_path):
    """Runs a recipe in a checkout that has `mine`, and returns what it asked for."""
    there = tmp_path / "checkout"
    shutil.copytree(LAUNCH, there / "experiments/launch")
    (there / "mine").mkdir()
    for folder, programs in ((tmp_path / "bin", FAR), (there / ".venv/bin", NEAR)):
        folder.mkdir(parents=True)
        for name, text in programs.items():
            (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
            (folder / name).chmod(0o755)
    (tmp_path / "asked").touch()
    own = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    own |= {"ASKED": str(tmp_path / "asked")}
    for command in (["init", "-q"], ["add", "experiments"], ["commit", "-qm", "a"]):
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *name, *command], cwd=there, env=own, check=True)

    def run(title: str) -> list[str]:
        script = f"set -e\n{RECIPES[title]}"
        how = dict(cwd=there, env=own, capture_output=True, text=True)
        done = subprocess.run(["bash", "-c", script], **how)
        assert done.returncode == 0, done.stderr
        return Path(own["ASKED"]).read_text().splitlines()

    return run


def check_arguments(line: str) -> None:
    """Reads the arguments of a specjax command as the command does."""
    _, command, *arguments = shlex.split(line)
    parser = {"decode": decode, "measure": measure}[command].make_parser()
    parser.parse_args(arguments)


def test_the_page_has_a_recipe_for_each_kind_of_machine():
    assert [*RECIPES] == [
        "Eight GPUs in one machine",
        "A TPU v5e-8",
        "Slurm",
        "GKE",
    ]


def test_the_row_file_is_one_that_can_be_measured(tmp_path, monkeypatch):
    (text,) = re.findall(r"^```\n(include .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "pair.gin").write_text(text.replace("mine/target", "code_target"))
    file = configs.RowFile(tmp_path / "pair.gin", (), ("DRAFT = 'code_small'",))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def f("}\n' * 64)
    file = file._replace(bindings=(*file.bindings, f"TASK = '{prompts}'"))
    assert configs.build(file).row.scale == "laptop"


def test_eight_gpus(paste):
    asked = paste("Eight GPUs in one machine")
    specjax = [line for line in asked if line.startswith("specjax ")]
    for line in specjax:
        check_arguments(line)
    assert "--mesh data=8,model=1" in specjax[0] and "--batch 8" in specjax[0]
    assert "--workers 8 --gpus 1" in specjax[1]
    (row,) = (line for line in asked if "experiments.run" in line)
    assert row.endswith("mine/pair.gin --gin.MESH='data=8,model=1'")
    assert any(line.endswith(".[cuda,experiments]") for line in asked)


def test_a_tpu(paste):
    asked = paste("A TPU v5e-8")
    tpu = "gcloud compute tpus tpu-vm"
    made = f"{tpu} create specjax-v5e --accelerator-type v5litepod-8 --version"
    assert f"{made} v2-alpha-tpuv5-lite --zone us-west4-a" in asked
    copied = f"{tpu} scp --recurse mine specjax-v5e:specjax/ --worker=all"
    assert f"{copied} --zone us-west4-a" in asked
    (run,) = (line for line in asked if "experiments.run" in line)
    assert asked.index(f"{copied} --zone us-west4-a") < asked.index(run)
    assert run.endswith(
        "records mine/pair.gin --gin.MESH=\\'data=8\\,model=1\\' --zone us-west4-a"
    )
    back = f"{tpu} scp --recurse specjax-v5e:specjax/records/* runs/tpu/"
    assert f"{back} --zone us-west4-a" in asked
    assert asked[-1] == f"{tpu} delete specjax-v5e --zone us-west4-a --quiet"


def test_slurm(paste):
    asked = paste("Slurm")
    (job,) = (line for line in asked if line.startswith("srun "))
    run = "experiments.run --out runs/hosts --gin.MESH='data=16,model=1'"
    assert f"{run} --gin.BATCH=16 mine/pair.gin --distributed" in job
    (line,) = (line for line in asked if line.startswith("specjax "))
    check_arguments(line)
    assert "--on slurm --workers 16 --gpus 1" in line


def test_gke(paste, tmp_path):
    asked = paste("GKE")
    image = "us-central1-docker.pkg.dev/my-project/images/specjax:cuda"
    assert f"docker push {image}" in asked
    verbs = [line.split()[1] for line in asked if line.startswith("kubectl")]
    assert verbs == "apply wait cp delete apply wait apply wait cp delete".split()
    job = yaml.safe_load((tmp_path / "asked.manifest").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == image
    check_arguments(shlex.join(container["args"]))
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    told = container["args"]
    assert int(told[told.index("--workers") + 1]) == gpus == 8
    claim, files = yaml.safe_load_all((LAUNCH / "gke_files.yaml").read_text())
    name = claim["metadata"]["name"]
    for each in (pod, files["spec"]):
        (volume,) = each["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == name
        mounts = each["containers"][0]["volumeMounts"]
        assert mounts == [{"name": volume["name"], "mountPath": "/kept"}]
    waited = [line for line in asked if line.startswith("kubectl wait")]
    assert waited[0].split()[3] == f"pod/{files['metadata']['name']}"
    assert waited[1].split()[3] == f"job/{job['metadata']['name']}"
    assert json.dumps(told).count("/kept/mine/") == 3
