"""What the kernels of a program are like, and how many of its launches are captured.

A program is named `module:function`, or `module:function:[...]` with what it takes as
JSON; it gives (what to compile, its arguments). Of every kernel: registers, spilled
bytes and shared memory as ptxas reports them, instructions in PTX, the widest load from
global memory in bytes (those of copy engines are not seen). PTX is written by XLA,
Triton and Mosaic GPU alike.
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
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax

from experiments.gpu.aot import compilers, hlo

ROOT = Path(__file__).resolve().parents[3]
HERE = "here"  # the GPU of this machine, on which the program then runs
ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*\(.*?\n\{(.*?)\n\}", re.S)
LOAD = re.compile(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)\s")
USED = re.compile(
    r"entry function '(\S+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers([^\n]*)",
    re.S,
)
THUNK = re.compile(r"^(\s*)\d+: k(\w+)\s+\[[^\]]*\]\s*(\S*)")
GRAPH = "CommandBuffer"
NO_LAUNCH = GRAPH, "While", "Conditional", "Sequential"  # thunks that hold others


class Kernel(NamedTuple):
    """One kernel of a program. registers, spills, shared: None without ptxas."""

    name: str
    instructions: int
    widest_load: int
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None


class Report(NamedTuple):
    """kernels; launches: of the thunk sequence, loops' once, and how many of those are
    captured in CUDA graphs; counted: the same launches as `hlo` counts them."""

    kernels: list[Kernel]
    launches: int
    captured: int
    counted: int


class Thunk(NamedTuple):
    """One entry of XLA's list of what a program does. name: of its HLO instruction.
    captured: whether it lies in a CUDA graph."""

    kind: str
    name: str
    captured: bool


def inspect(named: str, device: str = "h200", seconds: int | None = None) -> Report:
    """Compiles in a process of its own, as what is dumped is a setting of a process.

    named: "module:function" or "module:function:[...]", also of the working folder.
    device: HERE, or one of `compilers.DEVICES`. Raises ValueError where wheels are
    missing, RuntimeError with the child's words if it fails or takes longer than
    `seconds`.
    """
    if device != HERE:
        compilers.check(device)
    with tempfile.TemporaryDirectory() as folder:
        counted, kernels = _child(named, device, Path(folder), seconds), []
        for path in sorted(Path(folder).rglob("*.ptx")):
            ptx = path.read_text("utf-8")
            if ".entry" in ptx:  # XLA writes empty ones too
                kernels += read(ptx, _ptxas(path, ptx))
        return Report(kernels, *launches(Path(folder)), counted)


def _child(named: str, device: str, folder: Path, seconds: int | None) -> int:
    seen = [os.getcwd(), str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, seen)),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {dumping(folder)}",
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


def compiled(named: str, device: str) -> hlo.Sequence:
    """What the child does: compiles, and where the device is here runs."""
    module, name, values = f"{named}:[]".split(":", 2)
    values = json.loads(values.removesuffix(":[]"))
    function, arguments = getattr(importlib.import_module(module), name)(*values)

    def inspected(*arguments):
        return function(*arguments)

    if device != HERE:
        return compilers.compile(inspected, arguments, device).program
    program = jax.jit(inspected).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    return hlo.read(program.as_text())


def dumping(folder: Path) -> str:
    """Returns the flags of XLA by which a process dumps what it compiles."""
    return f"--xla_dump_to={folder} --xla_dump_emitter_re=.*"


def launches(folder: Path) -> tuple[int, int]:
    """`thunks` of what XLA dumped of the program. Raises RuntimeError if it did not."""
    return thunks(thunk_text(folder, "jit_inspected"))


def thunk_text(folder: Path, module: str) -> str:
    """Returns the last list of thunks that XLA dumped of a module, by its name. Raises
    RuntimeError if it dumped none."""
    for kind in ("thunk_sequence_after*", "thunk_sequence"):
        files = sorted(folder.glob(f"*{module}*{kind}.txt"))
        if files:
            return files[-1].read_text("utf-8")
    raise RuntimeError("XLA dumped no list of thunks")


def thunks(text: str) -> tuple[int, int]:
    """Launches in a thunk sequence, and how many of them lie in a command buffer."""
    each = [thunk for thunk in listed(text) if thunk.kind not in NO_LAUNCH]
    return len(each), sum(thunk.captured for thunk in each)


def listed(text: str) -> Iterator[Thunk]:
    """Yields the entries of a thunk sequence, those inside of others after them."""
    inside: int | None = None
    for match in filter(None, map(THUNK.match, text.splitlines())):
        depth, kind = len(match[1]), match[2]
        inside = None if inside is not None and depth <= inside else inside
        yield Thunk(kind, match[3], inside is not None)
        if kind == GRAPH:
            inside = depth


def read(ptx: str, report: str | None) -> list[Kernel]:
    """The kernels of a PTX file; report: what `ptxas -v` said of it."""
    used = {fields[0]: fields[1:] for fields in USED.findall(report or "")}
    kernels = []
    for name, body in ENTRY.findall(ptx):
        lines = (line.strip() for line in body.splitlines())
        count = sum(line.endswith(";") and not line.startswith(".") for line in lines)
        widths = [int(n or 1) * int(bits) // 8 for n, bits in LOAD.findall(body)]
        sizes = ()
        if name in used:
            stores, loads, registers, rest = used[name]
            shared = re.search(r"(\d+) bytes smem", rest)
            spills = int(stores) + int(loads)
            sizes = int(registers), spills, int(shared[1]) if shared else 0
        kernels.append(Kernel(name, count, max(widths, default=0), *sizes))
    return kernels


def _ptxas(path: Path, ptx: str) -> str | None:
    """What ptxas, on PATH or of NVIDIA's wheel, says of a file; None without one."""
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
    print(sum(1 for _ in hlo.everything(compiled(*sys.argv[1:]))))
