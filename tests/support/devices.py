"""A module of the tests in a process of its own, on eight devices of a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EIGHT = "--xla_force_host_platform_device_count=8"


def told(module: str, *arguments: str) -> Any:
    """What the module prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": EIGHT},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
