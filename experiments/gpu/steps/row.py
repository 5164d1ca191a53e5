"""A step of a small pair under flags of XLA, in a separate process.

Flags are read when a process first uses JAX, and a crash ends a process: so each row
runs in its own process, and a crash is recorded as the row's result; `--again` measures
the row again.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax

from experiments.gpu.aot import compilers
from experiments.gpu.aot.launches import check_vocabularies
from experiments.gpu.steps import log
from specjax import decode_config
from specjax.decode_config import DecodeConfig, record_fields
from specjax.measure.row import Measurement
from specjax.models import t5

PARTS = {"steps": "experiments.gpu.steps.loops", "token": "experiments.gpu.steps.token"}
TRIPS = "known", "device"
ROOT = Path(__file__).resolve().parents[3]
QUANTITIES = {
    "steps": ("token_ms", "step_ms", "prefill_ms", "syncs", "captured"),
    "token": ("kernels", "kernels_us", "token_us", "gaps_us"),
}
NO_NUMBER = "failed"
LENGTH = 400  # characters of an error that are kept
WRONG = re.compile(r"^\S*(Error|Exception)\b|^[EF]\d{4} |Unknown flag|Check failed")


# Of the settings, as records have them.
RECORDED = "gamma", "temperature", "new_tokens", "kernels", "seed"


class StepSetting(NamedTuple):
    """The setting of a row that times the steps of a pair.

    Attributes:
        part: one of PARTS, which is measured.
        decode: the settings of the texts.
        flags: XLA_FLAGS of the process.
        trips: the trip count of the draft's loop, "known" at compilation, or decided by
            the "device" after each token.
        logged: a source file of XLA whose messages (VLOG 3) are counted, or ""; writing
            them takes time.
        alpha: at which acceptance is simulated.
        input_tokens: the number of tokens of the encoder's input.
        texts: the number of decoded texts.
        loops: drafts in a program that times one.
        seconds: that the process may take.
    """

    part: str = "steps"
    decode: DecodeConfig = DecodeConfig(gamma=7)
    flags: str = ""
    trips: str = "known"
    logged: str = ""
    alpha: float = 0.75
    input_tokens: int = 64
    texts: int = 4
    loops: int = 32
    rounds: int = 5
    seconds: int = 120


def to_json(target: t5.Config, draft: t5.Config, setting: StepSetting) -> str:
    """Returns what the process of a row must measure, as text that `from_json`
    reads."""
    fields = setting._asdict() | {"decode": dataclasses.asdict(setting.decode)}
    return json.dumps([target._asdict(), draft._asdict(), fields])


def from_json(text: str) -> tuple[t5.Config, t5.Config, StepSetting]:
    """Returns the target, the draft and the setting that `to_json` wrote."""
    target, draft, fields = json.loads(text)
    setting = StepSetting(**fields | {"decode": DecodeConfig(**fields["decode"])})
    return t5.Config(**target), t5.Config(**draft), setting


def build(target: t5.Config, draft: t5.Config, setting: StepSetting) -> Measurement:
    """Returns the measurement of a row. Raises ValueError for a meaningless setting, or
    a pair with two vocabularies."""
    check_vocabularies(target, draft)
    for name, known in (("part", tuple(PARTS)), ("trips", TRIPS)):
        if getattr(setting, name) not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}")
    if setting.decode.gamma < 2:
        raise ValueError(
            f"gamma must be at least 2, for a loop; got {setting.decode.gamma}"
        )
    if not 0 <= setting.alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1]; got {setting.alpha}")
    decode_config.check(setting.decode)
    for name in ("input_tokens", "texts", "loops", "rounds", "seconds"):
        if getattr(setting, name) < 1:
            raise ValueError(f"{name} must be at least 1")
    run = partial(measure, target, draft, setting)
    return Measurement(run, __name__, (), draft.dtype, setting.decode.seed)


def measure(target: t5.Config, draft: t5.Config, setting: StepSetting) -> dict:
    """Returns what the process measured, or its error in words, so that the next rows
    still run."""
    record = record_fields(setting, RECORDED) | {
        "draft": draft._asdict(),
        "target": target._asdict(),
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = run(target, draft, setting, Path(folder))
        except RuntimeError as error:
            words = " ".join(str(error).split())
            found = dict.fromkeys(QUANTITIES[setting.part], NO_NUMBER)
            found["error"] = words
    return record | found


def run(
    target: t5.Config, draft: t5.Config, setting: StepSetting, folder: Path
) -> dict:
    """Returns the last line that the process prints, and the counts of its messages.

    Raises RuntimeError, with its last words, if it fails or takes too long.
    """
    asked = to_json(target, draft, setting)
    command = [sys.executable, "-m", PARTS[setting.part], asked, str(folder)]
    errors = folder / "stderr"
    try:
        with errors.open("w") as written:
            done = subprocess.run(
                command,
                env=os.environ | environment(setting, folder),
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
                timeout=setting.seconds,
            )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took longer than {setting.seconds} s") from None
    said = errors.read_text("utf-8", "replace")
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {last_words(said)}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found | ({"messages": log.count_messages(said)} if setting.logged else {})


def environment(setting: StepSetting, folder: Path) -> dict[str, str]:
    """Returns the variables that the process has in addition to those of this one."""
    seen = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    flags = [os.environ.get("XLA_FLAGS", ""), setting.flags]
    if setting.part == "steps" and jax.devices()[0].platform == "gpu":
        flags += [compilers.dump_flags(folder)]  # a CPU's compiler may crash by it
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, seen)),
        "XLA_FLAGS": " ".join(filter(None, flags)),
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # what is cached is not dumped
    }
    # Beside this process, which has the device too.
    own |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if setting.logged:
        own |= {"TF_CPP_VMODULE": f"{setting.logged}=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
    return own


def last_words(text: str) -> str:
    """Returns the last lines of a log that say what was wrong, or else its first
    line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if WRONG.search(line)]
    return " / ".join(telling[-2:] or lines[:2])[:LENGTH]
