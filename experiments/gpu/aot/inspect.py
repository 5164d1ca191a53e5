"""The properties of a program's kernels, and the number of its launches in CUDA graphs.

A program is named `module:function`, or `module:function:[...]` with its arguments as
JSON; the function returns (the function to compile, its arguments). Every kernel has
registers, spilled bytes and shared memory as ptxas reports them, instructions in PTX,
and the widest load from global memory in bytes (loads of copy engines are not seen).
XLA, Triton and Mosaic GPU all write PTX.
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax

from experiments.gpu.aot import compilers, graphs, hlo

ROOT = Path(__file__).resolve().parents[3]
HERE = "here"  # the GPU of this machine, on which the program then runs
ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*\(.*?\n\{(.*?)\n\}", re.S)
LOAD = re.compile(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)\s")
USED = re.compile(
    r"entry function '(\S+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers([^\n]*)",
    re.S,
)


class Kernel(NamedTuple):
    """A kernel of a program; registers, spills and shared are None without ptxas."""

    name: str
    instructions: int
    widest_load: int
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None


class Report(NamedTuple):
    """The report on a program.

    Attributes:
        launches: the number of launches of the thunk sequence, those of loops once.
        captured: how many of the launches are in CUDA graphs.
        counted: the same launches as `hlo` counts them.
    """

    kernels: list[Kernel]
    launches: int
    captured: int
    counted: int


def inspect(
    function_name: str, device: str = "h200", seconds: int | None = None
) -> Report:
    """Compiles in a separate process, because XLA's dump is a setting of a whole
    process.

    function_name: "module:function" or "module:function:[...]", also of the working
    folder.
    device: HERE, or one of `compilers.DEVICES`. Raises ValueError where wheels are
    missing, RuntimeError with the child's words if it fails or takes longer than
    `seconds`.
    """
    if device != HERE:
        compilers.check(device)
    with tempfile.TemporaryDirectory() as folder:
        counted, kernels = _child(function_name, device, Path(folder), seconds), []
        for path in sorted(Path(folder).rglob("*.ptx")):
            ptx = path.read_text("utf-8")
            if ".entry" in ptx:  # XLA writes empty ones too
                kernels += read(ptx, _ptxas(path, ptx))
        return Report(kernels, *launches(Path(folder)), counted)


def _child(named: str, device: str, folder: Path, seconds: int | None) -> int:
    seen = [os.getcwd(), str(ROOT), os.environ.get("PYTHONPATH", "")]
    flags = compilers.dump_flags(folder)
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, seen)),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}",
        "MOSAIC_GPU_DUMP_TO": str(folder),
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # what is cached is not dumped
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    own |= {} if device == HERE else {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", __name__, named, device]
    options = {"capture_output": True, "text": True, "timeout": seconds}
    try:
        done = subprocess.run(command, env=os.environ | own, **options)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took longer than {seconds} s") from None
    if done.returncode:
        raise RuntimeError(f"{named} did not compile:\n{done.stderr[-4000:]}")
    return int(done.stdout.split()[-1])


def compile_and_run(function_name: str, device: str) -> hlo.Sequence:
    """Compiles the program in the child process, and runs it if the device is
    present.
    """
    module, name, values = f"{function_name}:[]".split(":", 2)
    values = json.loads(values.removesuffix(":[]"))
    function, arguments = getattr(importlib.import_module(module), name)(*values)

    def inspected(*arguments):  # `launches` finds XLA's dump by this name
        return function(*arguments)

    if device != HERE:
        dumped = Path(os.environ["MOSAIC_GPU_DUMP_TO"])
        return compilers.compile(
            inspected, arguments, device=device, dump_folder=dumped
        ).program
    program = jax.jit(inspected).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    return hlo.read(program.as_text())


def launches(folder: Path) -> tuple[int, int]:
    """Returns the launches of the program that XLA dumped, and how many of them are in
    a graph.

    Raises:
        RuntimeError: XLA did not dump it.
    """
    text = compilers.thunk_list(folder, "jit_inspected")
    inside = [it for _, it in graphs.all_launches(graphs.read(text))]
    return len(inside), sum(inside)


def read(ptx: str, report: str | None) -> list[Kernel]:
    """Returns the kernels of a PTX file.

    Args:
        report: the output of `ptxas -v` for it.
    """
    used = {fields[0]: fields[1:] for fields in USED.findall(report or "")}
    kernels = []
    for name, body in ENTRY.findall(ptx):
        lines = (line.strip() for line in body.splitlines())
        count = sum(line.endswith(";") and not line.startswith(".") for line in lines)
        widths = [int(n or 1) * int(bits) // 8 for n, bits in LOAD.findall(body)]
        registers = spills = shared = None
        if name in used:
            stores, loads, registers, rest = used[name]
            found = re.search(r"(\d+) bytes smem", rest)
            registers, spills = int(registers), int(stores) + int(loads)
            shared = int(found[1]) if found else 0
        kernels.append(
            Kernel(
                name,
                instructions=count,
                widest_load=max(widths, default=0),
                registers=registers,
                spills=spills,
                shared=shared,
            )
        )
    return kernels


def _ptxas(path: Path, ptx: str) -> str | None:
    """Returns the report of ptxas on a file; ptxas is on PATH or in NVIDIA's wheel.
    None without ptxas.
    """
    binary = shutil.which("ptxas")
    with contextlib.suppress(metadata.PackageNotFoundError):
        files = metadata.files("nvidia-cuda-nvcc") or []
        wheel = [str(file.locate()) for file in files if file.name == "ptxas"]
        binary = binary or next(iter(wheel), None)
    if binary is None:
        return None
    target = re.search(r"\.target\s+(\w+)", ptx)[1]
    command = [binary, "-v", f"-arch={target}", str(path), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr + done.stdout


if __name__ == "__main__":
    print(sum(1 for _ in hlo.all_kernels(compile_and_run(*sys.argv[1:]))))
