"""Thin products on processors that may not be there: compiled across, and emulated."""

import platform
import shutil
import subprocess
from pathlib import Path

import jax
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


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_a_row_does_not_depend_on_how_many_there_are(name, tmp_path):
    compiler, options, emulator = PROCESSORS[name]
    if not emulator and platform.machine() != "x86_64":
        pytest.skip("no x86-64 processor")
    for program in (compiler, *emulator):
        if not shutil.which(program):
            pytest.skip(f"no {program} on PATH")
    flags = [flag for flag in library.FLAGS if flag not in (library.NATIVE, "-shared")]
    folders = jax.ffi.include_dir(), str(library.SOURCE.parent)
    source, binary = Path(__file__).with_name("rows.cc"), tmp_path / "rows"
    command = [compiler, *flags, *options, *(f"-I{folder}" for folder in folders)]
    subprocess.run([*command, str(source), "-o", str(binary)], check=True)
    run = subprocess.run([*emulator, str(binary)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "0 wrong\n")
