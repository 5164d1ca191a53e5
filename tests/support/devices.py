"""Child processes with one CPU device or several."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def device_flags(devices: int) -> str:
    """Returns XLA's flags for a child process with this many devices; when a flag is
    set twice, the last one counts."""
    of_tests = os.environ.get("XLA_FLAGS", "")
    return f"{of_tests} --xla_force_host_platform_device_count={devices}".lstrip()


def run_python(*command: str, devices: int = 1, **environment: str) -> str:
    """Returns what Python prints with these arguments, in the root of the repository;
    it compiles as the tests do."""
    own = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": device_flags(devices)}
    own |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | own | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_module(module: str, *arguments: str) -> Any:
    """Returns what a module of the tests prints as JSON, run on eight devices."""
    return json.loads(run_python("-m", module, *arguments, devices=8))
