"""Files that are written completely or not at all, and the error of a failed write."""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, or a full quota

FULL_IN_WORDS = "No space", "too large", "quota"


def write_whole(path: Path, content: bytes | Iterable[bytes | str]) -> None:
    """Writes a file as `write_with` does. content: bytes, or a sequence of bytes or
    texts."""
    parts = [content] if isinstance(content, bytes) else content

    def write(file: BinaryIO) -> None:
        for part in parts:
            file.write(part if isinstance(part, bytes) else part.encode())

    write_with(path, write)


def write_with(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Writes a file that appears once all of it is on the disk; an earlier file stays
    until then.

    Args:
      path: the file; its folder is made where it does not exist. A device or a pipe
        is written to directly.
      write: writes the content to the open file that it receives.

    Raises:
      OSError: as `name_path`.
    """

    def fill(place: Path) -> None:
        with place.open("wb") as file:
            write(file)
            file.flush()
            sync(file.fileno())

    with name_path(path):
        if path.exists() and not path.is_file():
            return fill(path)
        file = path.resolve()  # a link stays one
        part = file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}.part")
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fill(part)
            part.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def sync(descriptor: int) -> None:
    """Waits until the data is on the disk, if the file supports it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a device
            raise


@contextlib.contextmanager
def name_path(path: Path) -> Iterator[None]:
    """Turns an OSError in the `with` block into one line that names the path and the
    fix.

    Python's own error does not name the path once a file is open."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from None


def write_error(path: Path | str, error: Exception) -> OSError:
    """Returns the error of a file that cannot be written, in one line.

    error: that of Python, or of tensorstore or safetensors, which have no number."""
    reason = str(error).split(" [os_error")[0].rpartition(": ")[2]
    reason = getattr(error, "strerror", None) or reason
    number = getattr(error, "errno", None)
    full = number in FULL or any(words in reason for words in FULL_IN_WORDS)
    advice = "free some space there" if full else "check its folder"
    result = OSError(f"{path} cannot be written ({reason}): {advice}, and try again")
    result.errno = number
    return result
