"""Compiled programs are kept on disk, so that the next process does not wait for them.

They are JAX's persistent cache, in a folder of the user's own. A program for a CPU uses
the instructions of the processor that compiled it: each kind of processor has a folder.
Commands turn the cache on, and `generate_text`, `stream_text` and `transcribe`; what is
compiled later in the process is then kept too. Whoever gave JAX a folder keeps it.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import time
from pathlib import Path

import jax

from specjax.native.cache_folder import cache_folder
from specjax.native.library import processor

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
    """Has JAX keep what this process compiles, unless JAX was given a folder or told to
    keep nothing, or there is no folder to write to."""
    config = jax.config.values
    if config["jax_compilation_cache_dir"] is not None:
        return
    if not config["jax_enable_compilation_cache"]:
        return
    folder = ready(os.environ.get(VARIABLE, ""))
    if folder is None:
        return
    for (name, unset), ours in ((LEAST_TIME, SHORTEST), (MOST_BYTES, MOST)):
        if config[name] == unset:
            jax.config.update(name, ours)
    jax.config.update("jax_compilation_cache_dir", str(folder))


@functools.cache
def ready(variable: str) -> Path | None:
    """Returns the folder, which this user can write to; None where there is none, or
    none is wanted. variable: what `VARIABLE` says, "" is the user's cache folder."""
    if variable.lower() in OFF:
        return None
    kind = hashlib.sha256(processor().encode()).hexdigest()[:16]
    folder = (Path(variable) if variable else cache_folder() / "programs") / kind
    try:
        import filelock  # by which JAX keeps to a size

        # Programs are run: nobody else may write here.
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
    """Raises KeyError where the system has no name of a folder's user or group, as in
    some containers: JAX reads a program's size by etils, which looks both up, and says
    of every program that it cannot be kept."""
    with contextlib.suppress(NotImplementedError):  # Windows has no such names
        folder.owner()
        folder.group()


def remove_torn(folder: Path) -> None:
    """Removes programs whose writing was cut off, by a full disk or an end of the
    process: JAX writes the time beside a program once it is whole."""
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("cache") + "atime").exists():
            program.unlink(missing_ok=True)


def remove_unused(folder: Path) -> None:
    """Removes folders beside this one that were not used for long."""
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - other.stat().st_mtime > UNUSED
            ours = KIND.fullmatch(other.name) and (other / LOCK).exists()
            if old and ours:
                shutil.rmtree(other)
