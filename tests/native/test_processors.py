"""Native operations run on processors that may be absent: they are cross-compiled and
emulated."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from specjax.native import library

# What compiles, for what, and what runs it. `x86-64-v2` has no fused products.
PROCESSORS = {
    "x86-64-v2": ("g++", ["-march=x86-64-v2"], []),
    "x86-64-v3": ("g++", ["-march=x86-64-v3"], []),
    "zen": ("g++", ["-march=x86-64-v3", "-mtune=znver2"], []),
    "native": ("g++", [library.NATIVE], []),
    "aarch64": ("aarch64-linux-gnu-g++", ["-static"], ["qemu-aarch64-static"]),
}


# What is tested by which program here; all but what XLA calls.
OPERATIONS = [unit for unit in library.UNITS if unit.stem != "handlers"]
PRODUCTS = [unit for unit in OPERATIONS if unit.stem.startswith("products")]
PROGRAMS = {"products": PRODUCTS, "operations": OPERATIONS}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", PROCESSORS)
def test_a_row_does_not_depend_on_the_call(name, program, tmp_path):
    compiler, options, emulator = PROCESSORS[name]
    if not emulator and platform.machine() != "x86_64":
        pytest.skip("no x86-64 processor")
    for needed in (compiler, *emulator):
        if not shutil.which(needed):
            pytest.skip(f"no {needed} on PATH")
    flags = [flag for flag in library.FLAGS if flag != library.NATIVE]
    source, binary = Path(__file__).with_name(f"{program}.cc"), tmp_path / program
    command = [compiler, *flags, *options, f"-I{library.FOLDER}", "-pthread"]
    files = map(str, (source, *PROGRAMS[program]))
    subprocess.run([*command, *files, "-o", str(binary)], check=True)
    run = subprocess.run([*emulator, str(binary)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "0 wrong\n")
