"""Describes the device of this machine, so that programs can be compiled for it
elsewhere.

    python -m experiments.gpu.aot.device FOLDER

Writes FOLDER/device.json and, where JAX provides it, FOLDER/target_config.txtpb, the
description of the device that XLA's compiler needs (`experiments.gpu.aot`).
"""

import argparse
import json
import subprocess
from pathlib import Path

import jax

from specjax.measure.row import machine

ASKED = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem"]
COMMAND = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.aot.device")
    parser.add_argument("folder", type=Path)
    folder, device = parser.parse_args(arguments).folder, jax.devices()[0]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=30)
        driver = " ".join((done.stdout or done.stderr).split())
    except (OSError, subprocess.TimeoutExpired) as error:
        driver = f"not known: {error}"
    try:
        from jax._src.lib import xla_client  # no public name yet

        topology = xla_client.get_topology_for_devices(jax.devices())
        text = str(topology.target_config)
        (folder / "target_config.txtpb").write_text(text, "utf-8")
        status = "written"
    except Exception as error:  # how it fails differs by platform and release
        status = f"not reported by {device.platform}: {error}"
    record = {
        **machine(),
        "compute_capability": getattr(device, "compute_capability", None),
        "bytes_limit": (device.memory_stats() or {}).get("bytes_limit"),
        "driver": driver,
        "target_config": status,
    }
    (folder / "device.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
