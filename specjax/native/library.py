"""Compiles the native operations for this machine once, and registers them with XLA.

The library is stored in `native` of `cache_folder()`, under a name that depends on the
source, the compiler and its options, the processor and jaxlib. The name ends in a
digest of the content, so that a damaged library is compiled again and never run.
Nothing is downloaded. Any C++17 compiler will do: `$CXX`, one on PATH, or `pip install
ziglang`.
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
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax

from specjax.runtime.cache_folder import cache_folder
from specjax.runtime.processor import fingerprint

FOLDER = Path(__file__).parent
# Compiled side by side; what takes longest begins first.
UNITS = tuple(
    FOLDER / f"{name}.cc"
    for name in (
        "handlers",
        "products_float",
        "products_int8",
        "rows_attention",
        "rows",
        "laws",
        "threefry",
        "team",
    )
)
FUNCTIONS = "thin_float32", "thin_bfloat16"
FUNCTIONS += "thin_float32_transposed", "thin_bfloat16_transposed"
FUNCTIONS += "thin_int8", "thin_int8_transposed", "thin_int8_dynamic_transposed"
FUNCTIONS += "rows_across", "rows_attention"
FUNCTIONS += "rows_feed_forward", "rows_norm", "rows_products"
FUNCTIONS += "rows_keep", "rows_take"
FUNCTIONS += "laws_standardize", "laws_sample", "laws_residual"
FUNCTIONS += "laws_block", "laws_traverse"
FUNCTIONS += "laws_distinct", "keys_fold", "keys_uniform", "keys_gumbel"
ON_PATH = "c++", "g++", "clang++"
NATIVE = (
    "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
)
# Tuned for Zen, GCC rounds a product before it is added to a lone sum, but not before
# it is added to one of several sums: a row would depend on the number of rows. Clang
# ignores this option.
ALL_FUSED = "--param=avoid-fma-max-bits=0"
FLAGS = ("-std=c++17", "-O3", NATIVE, "-ffp-contract=fast", ALL_FUSED)
FLAGS += ("-fPIC", "-w")
REMEDY = "install a C++ compiler, such as g++, or: pip install ziglang"
ELSEWHERE = "name another folder with SPECJAX_CACHE"
TOO_LONG = 300  # seconds until a compilation is given up
DIGITS = 16  # the digest's length in a name


class Library(NamedTuple):
    """A compiled library, or the reason why there is none.

    problem: why there are no compiled products here, in one line with a remedy; None if
      there is one.
    most_rows: the most rows of a product.
    """

    problem: str | None
    most_rows: int = 0


@functools.cache
def compiled_library() -> Library:
    """Returns the library of thin products and of operations on few rows.

    The first call of a process loads it, and compiles it if need be: some seconds, more
    with `ziglang`, once per machine.
    """
    if sys.platform not in ("linux", "darwin"):
        return Library(f"thin products are not made for {sys.platform}")
    try:
        command = compiler()
    except ValueError as error:
        return Library(f"CXX={os.environ['CXX']!r} is not a command ({error})")
    if command is None:
        return Library(f"no C++ compiler was found: {REMEDY}")
    try:
        place = library_prefix(command)
        path = find_intact(place) or compile_to(command, place)
    except Exception as error:
        why = f"{shlex.join(command)} compiled no library ({summary(error)})"
        return Library(f"{why}: {suggest_remedy(error)}")
    try:
        return Library(None, register(path))
    except Exception as error:
        why = f"{path} cannot be loaded ({summary(error)})"
        return Library(f"{why}: remove it, or {ELSEWHERE}")


def sources() -> tuple[Path, ...]:
    """Returns the source files of the library: its units, and what they include."""
    return tuple(dict.fromkeys((*UNITS, *sorted(FOLDER.glob("*.[ch]*")))))


def problem() -> str | None:
    """Returns why the compiled products are not available here, None if they are."""
    return compiled_library().problem


def compiler() -> list[str] | None:
    """Returns the command of a C++ compiler; the user's own comes first."""
    if own := shlex.split(os.environ.get("CXX", "")):
        return own
    for name in ON_PATH:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    return None


def library_prefix(command: list[str]) -> Path:
    """Returns the beginning of the library's path, which depends on the compiler."""
    answer = run_command([*command, "--version"], timeout=60)
    compiler = command, answer.stdout.splitlines()[:1]
    by = compiler, FLAGS, fingerprint(), version("jaxlib")
    text = b"".join(source.read_bytes() for source in sources())
    digest = hashlib.sha256(text + repr(by).encode()).hexdigest()
    return cache_folder() / "native" / f"operations-{digest[:DIGITS]}"


def run_command(command: list[str], timeout: float) -> subprocess.CompletedProcess:
    """Runs a command and returns its output, decoded leniently.

    Raises SubprocessError if it fails.
    """
    return subprocess.run(
        command,
        capture_output=True,
        timeout=timeout,
        check=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def find_intact(place: Path) -> Path | None:
    """Returns the library whose name matches its content; deletes others."""
    for path in sorted(place.parent.glob(f"{place.name}-*.so")):
        if path == content_path(place, path):
            return path
        path.unlink(missing_ok=True)
    return None


def content_path(place: Path, library: Path) -> Path:
    """Returns the path that a library must have, given its content."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    return place.with_name(f"{place.name}-{digest[:DIGITS]}.so")


def compile_to(command: list[str], place: Path) -> Path:
    """Compiles the library. It appears complete or not at all, even where several
    processes compile it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        objects = compile_units(command, Path(folder))
        output = Path(folder) / place.name
        link = [*command, *FLAGS, "-shared", *map(str, objects)]
        run_command([*link, "-o", str(output)], TOO_LONG)
        return output.replace(content_path(place, output))


def compile_units(command: list[str], folder: Path) -> list[Path]:
    """Compiles each source file to an object file in a folder, as many at a time as
    there are processors."""

    def compile_one(unit: Path) -> Path:
        output = folder / f"{unit.stem}.o"
        headers = f"-I{jax.ffi.include_dir()}"
        options = [*FLAGS, headers, "-c", str(unit), "-o", str(output)]
        run_command([*command, *options], TOO_LONG)
        return output

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, UNITS))


@functools.cache  # XLA accepts a name only once
def register(path: Path) -> int:
    """Registers the library's functions with XLA; returns the most rows that a product
    may have."""
    compiled = ctypes.cdll.LoadLibrary(str(path))
    for name in FUNCTIONS:
        handler = jax.ffi.pycapsule(getattr(compiled, name))
        jax.ffi.register_ffi_target(f"specjax_{name}", handler, platform="cpu")
    return compiled.thin_most_rows()


def summary(error: Exception) -> str:
    """Returns the line of a compiler's output that states the error, or the error."""
    output = getattr(error, "stderr", None) or ""
    if isinstance(output, bytes):  # of a command that took too long
        output = output.decode(errors="replace")
    lines = [line for line in output.splitlines() if "error: " in line]
    return (lines or [str(error)])[0].strip()[:200]


def suggest_remedy(error: Exception) -> str:
    """Returns what to do about an error.

    If the cache folder cannot be written, the remedy is another folder; otherwise, and
    if the compiler left the folder empty, it is another compiler.
    """
    lacks = not isinstance(error, OSError) or isinstance(error, FileNotFoundError)
    return REMEDY if lacks or str(cache_folder()) not in str(error) else ELSEWHERE
