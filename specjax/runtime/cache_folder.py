"""The folder in which one run keeps what the next need not make again."""

import os
import stat
import tempfile
from pathlib import Path

NOWHERE = Path(os.devnull) / "specjax"  # in which nothing can be kept


def cache_folder() -> Path:
    """`$SPECJAX_CACHE`, or else `specjax` in `$XDG_CACHE_HOME` or in `~/.cache`. Where
    no home is known, or where it cannot be written, it is a folder of this user's alone
    among the temporary ones. None but that is made here."""
    if own := os.environ.get("SPECJAX_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "specjax"
    home = Path(os.path.expanduser("~"))  # which stays "~" where there is none
    folder = home / ".cache" / "specjax"
    return folder if home.is_absolute() and writable(folder) else temporary()


def writable(folder: Path) -> bool:
    """Whether the folder is there, or can be made."""
    places = (folder, *folder.parents)
    nearest = next(path for path in places if os.path.exists(path))
    allowed = nearest == folder or os.access(nearest, os.W_OK | os.X_OK)
    return os.path.isdir(nearest) and allowed


def temporary() -> Path:
    """The same each time, unless another user could write there: it holds programs."""
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
