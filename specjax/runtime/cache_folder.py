"""The folder in which one run stores what later runs can reuse."""

import os
import stat
import tempfile
from pathlib import Path

NOWHERE = Path(os.devnull) / "specjax"  # in which nothing can be kept


def cache_folder() -> Path:
    """Returns the user's cache folder of this library.

    It is `$SPECJAX_CACHE`, or else `specjax` in `$XDG_CACHE_HOME` or in `~/.cache`.
    Where there is no home folder, or none can be made there, it is a folder among the
    temporary ones that belongs to this user. Only a temporary folder is created here.
    A folder that exists is used also where it is read-only, as in an image of a
    container: fetched models and compiled code are read from it, and nothing is added.
    """
    if own := os.environ.get("SPECJAX_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "specjax"
    home = Path(os.path.expanduser("~"))  # which stays "~" where there is none
    folder = home / ".cache" / "specjax"
    return folder if home.is_absolute() and can_exist(folder) else temporary_folder()


def can_exist(folder: Path) -> bool:
    """Returns whether the folder exists, writable or not, or can be created."""
    places = (folder, *folder.parents)
    nearest = next(path for path in places if os.path.exists(path))
    allowed = nearest == folder or os.access(nearest, os.W_OK | os.X_OK)
    return os.path.isdir(nearest) and allowed


def temporary_folder() -> Path:
    """Returns the same folder each time, unless another user could write there.

    It holds programs, which are run."""
    user = os.getuid() if hasattr(os, "getuid") else None
    try:
        folder = Path(tempfile.gettempdir()) / f"specjax-{user or 0}"
        folder.mkdir(mode=0o700, exist_ok=True)
        there = folder.lstat()
        owned = user is None or (there.st_uid, there.st_mode & 0o022) == (user, 0)
        if stat.S_ISDIR(there.st_mode) and owned:
            return folder
        return Path(tempfile.mkdtemp(prefix="specjax-"))
    except OSError:
        return NOWHERE
