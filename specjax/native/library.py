"""Compiles thin products for this machine, once, and gives their functions to XLA.

`thin.cc` multiplies by floats, `thin_int8.cc` by whole numbers of eight bits. Each is a
library, kept in `$SPECJAX_CACHE/native`, `$XDG_CACHE_HOME/specjax/native` or
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
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax

SOURCE = Path(__file__).with_name("thin.cc")
FUNCTIONS = "thin_float32", "thin_bfloat16"
FUNCTIONS += "thin_float32_transposed", "thin_bfloat16_transposed"
INT8_SOURCE = SOURCE.with_name("thin_int8.cc")  # which includes the other
INT8_FUNCTIONS = "thin_int8", "thin_int8_transposed"
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
    return load((SOURCE,), FUNCTIONS)


@functools.cache
def loaded_int8() -> Library:
    """`loaded`, of the products with whole numbers of eight bits."""
    return load((INT8_SOURCE, SOURCE), INT8_FUNCTIONS)


def load(sources: Sequence[Path], functions: Sequence[str]) -> Library:
    """The library of the first source, which may include the others."""
    if sys.platform not in ("linux", "darwin"):
        return Library(f"thin products are not made for {sys.platform}")
    command = compiler()
    if command is None:
        return Library(f"no C++ compiler was found: {REMEDY}")
    try:
        path = place(command, sources)
        if not path.exists():
            compile_to(command, path, sources[0])
        return Library(None, register(path, functions))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        why = f"{shlex.join(command)} made no library ({summary(error)}): {REMEDY}"
        return Library(why)


def sources(*dtypes: str) -> tuple[Path, ...]:
    """What multiplies weights of these dtypes."""
    return (SOURCE, INT8_SOURCE) if "int8" in dtypes else (SOURCE,)


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


def place(command: list[str], sources: Sequence[Path]) -> Path:
    """Where the library lies that this compiler makes of these sources, here."""
    answer = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    compiler = command, answer.stdout.splitlines()[:1]
    by = compiler, FLAGS, processor(), version("jaxlib")
    text = b"".join(source.read_bytes() for source in sources)
    digest = hashlib.sha256(text + repr(by).encode()).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("SPECJAX_CACHE") or Path(base) / "specjax"
    return Path(folder) / "native" / f"{sources[0].stem}-{digest[:16]}.so"


def processor() -> str:
    """What the code is compiled for: the processor's name and what it can do."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = "model name", "flags", "Features", "CPU part"
        kept = {line for line in lines if line.partition(":")[0].strip() in names}
        if kept:
            return "\n".join(sorted(kept))
    return f"{platform.machine()} {platform.processor()}"


def compile_to(command: list[str], path: Path, source: Path) -> None:
    """Whole or not at all: several processes may compile at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / path.name
        command = [*command, *FLAGS, f"-I{jax.ffi.include_dir()}", str(source)]
        command += ["-o", str(output)]
        options = dict(capture_output=True, text=True, timeout=TOO_LONG, check=True)
        subprocess.run(command, **options)
        output.replace(path)


@functools.cache  # XLA takes a name once
def register(path: Path, functions: Sequence[str]) -> int:
    """Gives its functions to XLA; returns the most rows that they multiply."""
    compiled = ctypes.cdll.LoadLibrary(str(path))
    for name in functions:
        handler = jax.ffi.pycapsule(getattr(compiled, name))
        jax.ffi.register_ffi_target(f"specjax_{name}", handler, platform="cpu")
    return compiled.thin_most_rows()


def summary(error: Exception) -> str:
    """The line of a compiler's output that says what is wrong, or the error's own."""
    output = getattr(error, "stderr", None) or ""
    lines = [line for line in output.splitlines() if "error: " in line]
    return (lines or [str(error)])[0].strip()[:200]
