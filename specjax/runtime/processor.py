"""The processor of this machine, for which programs are compiled and on which numbers
are measured.

Two machines of two cores can differ twofold in speed under one name such as "cpu, 2
cores", so every record holds the model and the instruction sets too."""

import contextlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# What decides which matrix products a compiler or a library can use, as Linux names it.
INSTRUCTION_SETS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme"),
)


@cache
def describe() -> dict:
    """Returns the processor of this machine.

    Returns:
      {"model": its name, "cores": the number that this process may use,
        "instruction_sets": those of `INSTRUCTION_SETS` that it has}. An unknown name
        is replaced by the architecture's, and unknown instruction sets by an empty
        list.
    """
    fields = read_cpuinfo()
    model = fields.get("model name") or brand_of_mac() or platform.processor()
    words = f"{fields.get('flags', '')} {fields.get('Features', '')}".split()
    return {
        "model": model or platform.machine(),
        "cores": usable_cores(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in words],
    }


def usable_cores() -> int | None:
    """Returns the number of cores that this process may use, which a container may
    limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def read_cpuinfo(path: Path = CPUINFO) -> dict[str, str]:
    """Returns the fields of the first processor in a file of /proc/cpuinfo's format.

    They are empty where there is no such file."""
    try:
        lines = path.read_text("utf-8", "replace").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def brand_of_mac() -> str:
    """Returns the name of the processor on macOS; "" elsewhere."""
    if platform.system() != "Darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def fingerprint(path: Path = CPUINFO) -> str:
    """Returns the name of this machine's processor together with all its instruction
    sets.

    Code that is compiled for one fingerprint may not run on another."""
    with contextlib.suppress(OSError):
        lines = path.read_text("utf-8", "replace").splitlines()
        names = "model name", "flags", "Features", "CPU part"
        kept = {line for line in lines if line.partition(":")[0].strip() in names}
        if kept:
            return "\n".join(sorted(kept))
    return f"{platform.machine()} {platform.processor()}"
