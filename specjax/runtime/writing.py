"""Files that are written whole or not at all, and what is said of a full disk."""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, or none for this person

FULL_IN_WORDS = "No space", "too large", "quota"


def whole(path: Path, content: bytes | Iterable[bytes | str]) -> None:
    """Writes a file as `save` does. content: its bytes, or its parts, bytes or text."""
    parts = [content] if isinstance(content, bytes) else content

    def write(file: BinaryIO) -> None:
        for part in parts:
            file.write(part if isinstance(part, bytes) else part.encode())

    save(path, write)


def save(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Writes a file that is there once all of it is on the disk; until then the one
    that was there before stays.

    Args:
      path: the file; its folder is made where it is not there. A device or a pipe is
        written to as it is.
      write: writes its content to the open file that it is given.

    Raises:
      OSError: as `naming`.
    """

    def fill(place: Path) -> None:
        with place.open("wb") as file:
            write(file)
            file.flush()
            synced(file.fileno())

    with naming(path):
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


def synced(descriptor: int) -> None:
    """Waits until what was written is on the disk, where the file is one that can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a device
            raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raises the OSError of what is written within as one line that names the path and
    what to do: Python's own names no path once a file is open."""
    try:
        yield
    except OSError as error:
        raise unwritten(path, error) from None


def unwritten(path: Path | str, error: Exception) -> OSError:
    """Returns the error of a file that cannot be written, in one line. error: Python's,
    tensorstore's or safetensors', which have no number."""
    reason = str(error).split(" [os_error")[0].rpartition(": ")[2]
    reason = getattr(error, "strerror", None) or reason
    number = getattr(error, "errno", None)
    full = number in FULL or any(words in reason for words in FULL_IN_WORDS)
    advice = "free some space there" if full else "look at its folder"
    said = OSError(f"{path} cannot be written ({reason}): {advice}, and go on")
    said.errno = number
    return said
