"""Compiles `thin.cc` for this machine, once, and gives its functions to XLA.

The library is kept in `$SPECJAX_CACHE/native`, `$XDG_CACHE_HOME/specjax/native` or
`~/.cache/specjax/native`, by the source, the compiler and its options, the processor
and jaxlib. Nothing is downloaded. Any compiler of C++17 serves: `$CXX`, those on PATH,
or `pip install ziglang`.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax

SOURCE = Path(__file__).with_name("thin.cc")
FUNCTIONS = "thin_float32", "thin_bfloat16"
FUNCTIONS += "thin_float32_transposed", "thin_bfloat16_transposed"
ON_PATH = "c++", "g++", "clang++"
NATIVE = (
    "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
)
FLAGS = ("-std=c++17", "-O3", NATIVE, "-ffp-contract=fast", "-fPIC", "-shared", "-w")
REMEDY = "install a C++ compiler, such as g++, or: pip install ziglang"
TOO_LONG = 300  # seconds to compile for


class Library(NamedTuple):
    """problem: why there is no compiled product here, in one line that names the
    remedy; None if there is one. most_rows: how many a product may have, then."""

    problem: str | None
    most_rows: int = 0


@functools.cache
def loaded() -> Library:
    """What the first call of a process loads, and compiles if need be: some seconds, or
    a minute with `ziglang`, once for a machine."""
    if sys.platform not in ("linux", "darwin"):
        return Library(f"thin products are not made for {sys.platform}")
    command = compiler()
    if command is None:
        return Library(f"no C++ compiler was found: {REMEDY}")
    try:
        path = place(command)
        if not path.exists():
            compile_to(command, path)
        return Library(None, register(path))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        why = f"{shlex.join(command)} made no library ({summary(error)}): {REMEDY}"
        return Library(why)


def problem() -> str | None:
    """Why there is no compiled product here, in one line; None if there is one."""
    return loaded().problem


def compiler() -> list[str] | None:
    """The command of a C++ compiler, the user's own first."""
    if own := os.environ.get("CXX"):
        return shlex.split(own)
    for name in ON_PATH:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    return None


def place(command: list[str]) -> Path:
    """Where the library lies that this compiler makes of this source, here."""
    answer = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    compiler = command, answer.stdout.splitlines()[:1]
    by = compiler, FLAGS, processor(), version("jaxlib")
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(by).encode()).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("SPECJAX_CACHE") or Path(base) / "specjax"
    return Path(folder) / "native" / f"thin-{digest[:16]}.so"


def processor() -> str:
    """What the code is compiled for: the processor's name and what it can do."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = "model name", "flags", "Features", "CPU part"
        kept = {line for line in lines if line.partition(":")[0].strip() in names}
        if kept:
            return "\n".join(sorted(kept))
    return f"{platform.machine()} {platform.processor()}"


def compile_to(command: list[str], path: Path) -> None:
    """Whole or not at all: several processes may compile at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / path.name
        command = [*command, *FLAGS, f"-I{jax.ffi.include_dir()}", str(SOURCE)]
        command += ["-o", str(output)]
        options = dict(capture_output=True, text=True, timeout=TOO_LONG, check=True)
        subprocess.run(command, **options)
        output.replace(path)


@functools.cache  # XLA takes a name once
def register(path: Path) -> int:
    """Gives its functions to XLA; returns the most rows that they multiply."""
    compiled = ctypes.cdll.LoadLibrary(str(path))
    for name in FUNCTIONS:
        handler = jax.ffi.pycapsule(getattr(compiled, name))
        jax.ffi.register_ffi_target(f"specjax_{name}", handler, platform="cpu")
    return compiled.thin_most_rows()


def summary(error: Exception) -> str:
    """The line of a compiler's output that says what is wrong, or the error's own."""
    output = getattr(error, "stderr", None) or ""
    lines = [line for line in output.splitlines() if "error: " in line]
    return (lines or [str(error)])[0].strip()[:200]
