"""Compiles thin products for this machine, once, and gives their functions to XLA.

Each library is kept in `native` of `cache_folder()`, by the source, the compiler and
its options, the processor and jaxlib. Its name ends in a digest of what it holds, so
that a damaged one is made again and never run. Nothing is downloaded. Any compiler of
C++17 serves: `$CXX`, those on PATH, or `pip install ziglang`.
"""

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

from specjax.runtime.cache_folder import cache_folder
from specjax.runtime.processor import fingerprint

SOURCE = Path(__file__).with_name("thin.cc")
FUNCTIONS = "thin_float32", "thin_bfloat16"
FUNCTIONS += "thin_float32_transposed", "thin_bfloat16_transposed"
INT8_SOURCE = SOURCE.with_name("thin_int8.cc")  # which includes the other
INT8_FUNCTIONS = "thin_int8", "thin_int8_transposed", "thin_int8_dynamic_transposed"
ON_PATH = "c++", "g++", "clang++"
NATIVE = (
    "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
)
# Tuned for Zen, GCC rounds the product of a lone sum before it is added, and of several
# sums it does not: a row would depend on how many there are. Clang passes over it.
ALL_FUSED = "--param=avoid-fma-max-bits=0"
FLAGS = ("-std=c++17", "-O3", NATIVE, "-ffp-contract=fast", ALL_FUSED)
FLAGS += ("-fPIC", "-shared", "-w")
REMEDY = "install a C++ compiler, such as g++, or: pip install ziglang"
ELSEWHERE = "name another folder with SPECJAX_CACHE"
TOO_LONG = 300  # seconds to compile for
DIGITS = 16  # of a digest


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
    try:
        command = compiler()
    except ValueError as error:
        return Library(f"CXX={os.environ['CXX']!r} is no command ({error}): mend it")
    if command is None:
        return Library(f"no C++ compiler was found: {REMEDY}")
    try:
        place = place_of(command, sources)
        path = whole(place) or compile_to(command, place, sources[0])
    except Exception as error:
        why = f"{shlex.join(command)} made no library ({summary(error)})"
        return Library(f"{why}: {remedy(error)}")
    try:
        return Library(None, register(path, functions))
    except Exception as error:
        why = f"{path} cannot be loaded ({summary(error)})"
        return Library(f"{why}: remove it, or {ELSEWHERE}")


def sources(*dtypes: str) -> tuple[Path, ...]:
    """What multiplies weights of these dtypes."""
    eight = any(dtype.startswith("int8") for dtype in dtypes)
    return (SOURCE, INT8_SOURCE) if eight else (SOURCE,)


def problem() -> str | None:
    """Why there is no compiled product here, in one line; None if there is one."""
    return loaded().problem


def compiler() -> list[str] | None:
    """The command of a C++ compiler, the user's own first."""
    if own := shlex.split(os.environ.get("CXX", "")):
        return own
    for name in ON_PATH:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    return None


def place_of(command: list[str], sources: Sequence[Path]) -> Path:
    """How the library begins its name that this compiler makes of these sources."""
    answer = ran([*command, "--version"], timeout=60)
    compiler = command, answer.stdout.splitlines()[:1]
    by = compiler, FLAGS, fingerprint(), version("jaxlib")
    text = b"".join(source.read_bytes() for source in sources)
    digest = hashlib.sha256(text + repr(by).encode()).hexdigest()
    return cache_folder() / "native" / f"{sources[0].stem}-{digest[:DIGITS]}"


def ran(command: list[str], timeout: float) -> subprocess.CompletedProcess:
    """Its output is read whatever its encoding. Raises SubprocessError if it fails."""
    text = dict(text=True, encoding="utf-8", errors="replace")
    return subprocess.run(
        command, capture_output=True, timeout=timeout, check=True, **text
    )


def whole(place: Path) -> Path | None:
    """The library there that holds what its name says; others are removed."""
    for path in sorted(place.parent.glob(f"{place.name}-*.so")):
        if path == named(place, path):
            return path
        path.unlink(missing_ok=True)
    return None


def named(place: Path, library: Path) -> Path:
    """What a library there is called, by what it holds."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    return place.with_name(f"{place.name}-{digest[:DIGITS]}.so")


def compile_to(command: list[str], place: Path, source: Path) -> Path:
    """Whole or not at all: several processes may compile at once."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        output = Path(folder) / place.name
        command = [*command, *FLAGS, f"-I{jax.ffi.include_dir()}", str(source)]
        ran([*command, "-o", str(output)], TOO_LONG)
        return output.replace(named(place, output))


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


def remedy(error: Exception) -> str:
    """Of a folder that cannot be written no compiler is at fault; of one that was left
    empty it is."""
    lacks = not isinstance(error, OSError) or isinstance(error, FileNotFoundError)
    return REMEDY if lacks or str(cache_folder()) not in str(error) else ELSEWHERE
