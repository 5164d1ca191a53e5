"""The cache of compiled programs on disk, which saves the next process their
compilation.

It is JAX's persistent cache, in a folder of the user. A program for a CPU uses the
instructions of the processor that compiled it, so each kind of processor has a folder.
Commands turn the cache on, and so do `generate_text`, `stream_text` and `transcribe`;
programs that the process compiles later are then cached too. A folder that the user
gave to JAX is left as it is."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import time
from pathlib import Path

import jax

from specjax.runtime.cache_folder import cache_folder
from specjax.runtime.processor import fingerprint

VARIABLE = "SPECJAX_COMPILATION_CACHE"  # another folder, or one of OFF
OFF = "0", "off", "no", "false"
MOST = 2**29  # bytes; JAX then removes what was not used for longest
SHORTEST = 0.1  # seconds to compile for, below which a program is not kept
UNUSED = 90 * 24 * 3600  # seconds after which another processor's folder is removed
KIND = re.compile("[0-9a-f]{16}")  # a folder's name
LOCK = ".lockfile"  # JAX's
# Settings of JAX, as each is where nobody set it.
LEAST_TIME, MOST_BYTES = (
    ("jax_persistent_cache_min_compile_time_secs", 1.0),
    ("jax_compilation_cache_max_size", -1),
)


def turn_on() -> None:
    """Turns JAX's persistent cache on.

    It does nothing where JAX already has a folder, where its cache is disabled, or
    where there is no folder to write to."""
    config = jax.config.values
    if config["jax_compilation_cache_dir"] is not None:
        return
    if not config["jax_enable_compilation_cache"]:
        return
    folder = open_folder(os.environ.get(VARIABLE, ""))
    if folder is None:
        return
    for (name, unset), ours in ((LEAST_TIME, SHORTEST), (MOST_BYTES, MOST)):
        if config[name] == unset:
            jax.config.update(name, ours)
    jax.config.update("jax_compilation_cache_dir", str(folder))


@functools.cache
def open_folder(variable: str) -> Path | None:
    """Returns the cache folder, writable by this user; None where no folder is.

    variable: the value of `VARIABLE`; "" means the user's cache folder, and one of
    `OFF` means no cache."""
    if variable.lower() in OFF:
        return None
    kind = hashlib.sha256(fingerprint().encode()).hexdigest()[:16]
    folder = (Path(variable) if variable else cache_folder() / "programs") / kind
    try:
        import filelock  # by which JAX keeps to a size

        # The programs will be run, so no other user may write here.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner(folder)
        with filelock.FileLock(folder / LOCK, timeout=5):
            remove_torn(folder)
        os.utime(folder)
        remove_unused(folder)
    except (ImportError, OSError, NotImplementedError, KeyError):
        return None
    return folder


def check_owner(folder: Path) -> None:
    """Raises KeyError where the system has no name for a folder's user or group, as in
    some containers: JAX reads a program's size with etils, which looks both names up,
    and then reports of every program that it cannot be stored."""
    with contextlib.suppress(NotImplementedError):  # Windows has no such names
        folder.owner()
        folder.group()


def remove_torn(folder: Path) -> None:
    """Removes programs whose writing was interrupted, by a full disk or a killed
    process.

    JAX writes a file with the time beside each complete program."""
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("cache") + "atime").exists():
            program.unlink(missing_ok=True)


def remove_unused(folder: Path) -> None:
    """Removes folders beside this one that were not used for a long time."""
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - other.stat().st_mtime > UNUSED
            ours = KIND.fullmatch(other.name) and (other / LOCK).exists()
            if old and ours:
                shutil.rmtree(other)
