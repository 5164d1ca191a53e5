"""What the device is, for whoever compiles for it without one.

    python -m experiments.gpu.aot.device FOLDER

Writes FOLDER/device.json and, where JAX tells it, FOLDER/target_config.txtpb, the
description of the device that XLA's compiler needs (`experiments.gpu.aot`).
"""

import argparse
import json
import subprocess
from pathlib import Path

import jax

from specjax.measure.machine import machine

ASKED = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem"]


def described() -> dict:
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    memory = (device.memory_stats() or {}).get("bytes_limit")
    return {
        **machine(),
        "compute_capability": capability,
        "bytes_limit": memory,
        "driver": driver(),
    }


def driver() -> str:
    command = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not told: {error}"
    return " ".join((done.stdout or done.stderr).split())


def target() -> tuple[str | None, str]:
    """The target config as text, or None, and what happened."""
    try:
        from jax._src.lib import xla_client  # no public name yet

        topology = xla_client.get_topology_for_devices(jax.devices())
        return str(topology.target_config), "written"
    except Exception as error:  # how it fails differs by platform and release
        return None, f"not told by {jax.devices()[0].platform}: {error}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.aot.device")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    text, status = target()
    if text is not None:
        (folder / "target_config.txtpb").write_text(text, "utf-8")
    record = described() | {"target_config": status}
    (folder / "device.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
