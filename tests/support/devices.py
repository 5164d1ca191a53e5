"""Child processes with one CPU device or several."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def ran(*command: str, devices: int = 1, **environment: str) -> str:
    """What Python prints that is called so, at the root of the repository."""
    count = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | count | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def told(module: str, *arguments: str) -> Any:
    """What a module of the tests prints on eight devices, as JSON."""
    return json.loads(ran("-m", module, *arguments, devices=8))
