"""The seconds from a command to its first text, in processes of their own.

A cold process finds no compiled programs on disk; a warm one finds those that a cold
one left. The files of the weights are in the memory of the system in both. Numbers, for
`cold` and `warm`, each the median of the rounds:

- `*_total`: seconds from the start of the process to its first text;
- `*_import`: of these, of Python and of imports;
- `*_read`: of reading the target's weights;
- `*_program`: of opening the draft, tracing, lowering and compiling: the time of the
  first text less that of the same text again;
- `*_xla`: of these, of XLA, which compiles, or reads what it compiled before;
- `*_text`: of the text itself, written again;
- `*_low`, `*_high`: the least and the greatest total of the rounds.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import numpy as np

from experiments.starts import child
from specjax import checkpoints, drafts, pretrained
from specjax.keys import root_key
from specjax.measure.row import Measurement
from specjax.models import llama
from specjax.runtime import compilation_cache, progress

PROMPT = "def add("
HEAD, MLP = 64, 3  # features of a head; features of an MLP, in those of the model


class StartSetting(NamedTuple):
    """The setting of a row of the table of starts.

    rounds: pairs of a cold and a warm process. new_tokens: the number of new tokens of
    the text. layers, dim: sizes of the target of `row_of_a_folder`.
    """

    rounds: int = 3
    new_tokens: int = 64
    layers: int = 15
    dim: int = 768

    def check(self) -> None:
        """Raises ValueError for a setting that measures nothing."""
        if min(self) < 1:
            raise ValueError("rounds, new_tokens, layers and dim must be at least 1")


def row_of_a_pair(target: str, draft: str, *, setting: StartSetting) -> Measurement:
    """Returns the measurement of a pair by its names.

    Raises:
        ValueError: there is no such pair, or the setting measures nothing.
    """
    setting.check()
    model, files = drafts.check_names(target, draft, "float32")
    files = *pretrained.files_of(model), *files
    run = partial(measure_pair, target, draft, setting)
    return Measurement(run, __name__, files, model.dtype, 0)


def row_of_a_folder(
    tokenizer: str, draft: str, *, setting: StartSetting
) -> Measurement:
    """Returns the measurement of a folder of Hugging Face, which is written for it.

    Its weights are random numbers, and its texts have no meaning.

    Args:
        tokenizer: the bundled model whose tokenizer the folder has.
        draft: a draft that needs no model.
        setting: the setting of the row, with the sizes of the target.

    Raises:
        ValueError: there is no such model, or the setting measures nothing.
    """
    setting.check()
    model = pretrained.describe(tokenizer)
    run = partial(measure_folder, model, draft, setting)
    return Measurement(run, __name__, (model.tokenizer_file,), "float32", 0)


def row_of_a_command(words: tuple[str, ...], *, setting: StartSetting) -> Measurement:
    """Returns the measurement of `python -m WORDS`, until its first line is printed."""
    setting.check()
    run = partial(measure_command, tuple(words), setting)
    return Measurement(run, __name__, (), "float32", 0)


def measure_pair(target: str, draft: str, setting: StartSetting) -> dict:
    """Returns every number of a pair as a plain value."""
    module = [child.__name__, target, draft, PROMPT, str(setting.new_tokens)]
    found = time_in_turns(partial(time_stages, module), setting.rounds)
    size = sum(x.size for x in jax.tree.leaves(pretrained.load(target).params))
    return {"target": Path(target).name, "draft": draft, "parameters": size, **found}


def measure_folder(
    model: checkpoints.Pretrained, draft: str, setting: StartSetting
) -> dict:
    """Writes a folder and returns every number of it as a plain value."""
    heads = max(setting.dim // HEAD, 1)
    config = llama.Config(
        vocab=model.vocab,
        dim=setting.dim,
        mlp_dim=MLP * setting.dim,
        num_layers=setting.layers,
        num_heads=heads,
        key_heads=heads,
        head_width=HEAD,
    )
    params = nn.meta.unbox(llama.init_params(root_key(0), config))
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "folder"
        checkpoints.save(folder, (config, params))
        name = f"tokenizer{model.tokenizer_file.suffix}"
        shutil.copy(model.tokenizer_file, folder / name)
        return measure_pair(str(folder), draft, setting)


def measure_command(words: tuple[str, ...], setting: StartSetting) -> dict:
    """Returns every number of a command as a plain value."""
    found = time_in_turns(partial(time_first_line, list(words)), setting.rounds)
    return {"command": " ".join(words), **found}


def time_in_turns(run: Callable[[dict], dict[str, float]], rounds: int) -> dict:
    """Returns the medians of cold and warm processes, which follow each other.

    run: (the environment of the process) -> its seconds by name, `total` among them.
    """
    every: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in progress.track(range(rounds), "cold and warm"):
        with empty_cache() as environment:
            for each in every.values():
                each.append(run(environment))
    numbers: dict = {"rounds": rounds}
    for how, times in every.items():
        for name in times[0]:
            numbers[f"{how}_{name}"] = float(np.median([it[name] for it in times]))
        totals = [it["total"] for it in times]
        numbers |= {f"{how}_low": min(totals), f"{how}_high": max(totals)}
    return numbers


@contextlib.contextmanager
def empty_cache() -> Iterator[dict]:
    """Yields the environment of a process whose cache of programs is a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        own = {compilation_cache.VARIABLE: folder}
        ours = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        yield ours | own


def time_stages(module: list[str], environment: dict) -> dict[str, float]:
    """Runs the child and returns the seconds of its stages.

    Raises:
        RuntimeError: the child failed.
    """
    begin = time.time()
    command = [sys.executable, "-m", *module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the process that was timed failed: {done.stderr[-2000:]}")
    at = json.loads(done.stdout.splitlines()[-1])
    text = at["again"] - at["first"]
    return {
        "total": at["first"] - begin,
        "import": at["imported"] - begin,
        "read": at["read"] - at["imported"],
        "program": at["first"] - at["read"] - text,
        "xla": at["xla"],
        "text": text,
    }


def time_first_line(words: list[str], environment: dict) -> dict[str, float]:
    """Runs a command and returns the seconds to its first printed line.

    Raises:
        RuntimeError: the command failed or printed nothing.
    """
    begin = time.time()
    command = [sys.executable, "-m", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        first = process.stdout.readline()
        total = time.time() - begin
        process.stdout.read()
    if process.returncode or not first:
        raise RuntimeError(f"the command failed: {' '.join(words)}")
    return {"total": total}
