"""Native operations run on processors that may be absent: they are cross-compiled and
emulated. Those that nothing emulates are only compiled where they are absent."""

import platform
import re
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
    "avxvnni": ("g++", ["-march=x86-64-v3", "-mavxvnni"], []),
    "avx512f": ("g++", ["-march=x86-64-v3", "-mavx512f"], []),
    "avx512bw": ("g++", ["-march=x86-64-v4"], []),
    "avx512vnni": ("g++", ["-march=x86-64-v4", "-mavx512vnni"], []),
    "native": ("g++", [library.NATIVE], []),
    "aarch64": ("aarch64-linux-gnu-g++", ["-static"], ["qemu-aarch64-static"]),
}
# What Linux calls that which not all processors have.
NEEDS = {
    "avxvnni": ["avx_vnni"],
    "avx512f": ["avx512f"],
    "avx512bw": ["avx512bw", "avx512dq", "avx512vl"],
    "avx512vnni": ["avx512bw", "avx512dq", "avx512vl", "avx512_vnni"],
}

# The instructions that widen weights and multiply levels, each with its vectors.
WIDEN = "vpmovzxwd", "vpmovsxbd", "vpmovsxbw"
INSTRUCTIONS = {
    "x86-64-v3": ("ymm", *WIDEN, "vpmaddwd"),
    "avxvnni": ("ymm", *WIDEN, "vpdpwssd"),
    "avx512f": ("zmm", "vpmovzxwd", "vpmovsxbd"),
    "avx512bw": ("zmm", *WIDEN, "vpmaddwd"),
    "avx512vnni": ("zmm", *WIDEN, "vpdpwssd"),
}

# What is tested by which program here; all but what XLA calls.
OPERATIONS = [unit for unit in library.UNITS if unit.stem != "handlers"]
PRODUCTS = [unit for unit in OPERATIONS if unit.stem.startswith("products")]
PROGRAMS = {"products": PRODUCTS, "operations": OPERATIONS}


def has(name: str) -> bool:
    """Returns whether this processor has what a processor of this name has."""
    information = Path("/proc/cpuinfo")
    flags = information.read_text().split() if information.exists() else []
    return {*NEEDS.get(name, ())} <= {*flags}


def compile_for(name, files, options, output):
    """Compiles files for a processor, or skips the test where nothing can."""
    compiler, of_processor, emulator = PROCESSORS[name]
    if not emulator and platform.machine() != "x86_64":
        pytest.skip("no x86-64 processor")
    for needed in (compiler, *emulator):
        if not shutil.which(needed):
            pytest.skip(f"no {needed} on PATH")
    flags = [flag for flag in library.FLAGS if flag != library.NATIVE]
    command = [compiler, *flags, *of_processor, *options, f"-I{library.FOLDER}"]
    subprocess.run([*command, *map(str, files), "-o", str(output)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", PROCESSORS)
def test_a_row_does_not_depend_on_the_call(name, program, tmp_path):
    source, binary = Path(__file__).with_name(f"{program}.cc"), tmp_path / program
    compile_for(name, (source, *PROGRAMS[program]), ["-pthread"], binary)
    if not has(name):
        pytest.skip(f"compiled, but this processor has no {name}")
    run = subprocess.run(
        [*PROCESSORS[name][2], str(binary)], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, "0 wrong\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_weights_are_widened_by_one_instruction(name, tmp_path):
    """The expressions that other processors have would also give the right numbers."""
    texts = []
    for unit in PRODUCTS:
        output = tmp_path / f"{unit.stem}.s"
        compile_for(name, [unit], ["-S"], output)
        texts.append(output.read_text())
    vectors, *instructions = INSTRUCTIONS[name]
    found = re.findall(rf"[\t ](\w+)\t.*%{vectors}\d+\n", "".join(texts))
    assert {*instructions} <= {*found}
