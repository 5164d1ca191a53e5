"""A lock on a folder, so that one process at a time works in it."""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

NAME = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks a folder, against processes of all machines that see the same files and
    locks.

    The lock disappears with its process, however that ends. A folder that cannot be
    written is not locked. Raises ValueError at once where another process holds the
    lock, and names it."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = lock_file(path)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        yield
        return
    try:
        os.ftruncate(descriptor, 0)
        os.write(
            descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode()
        )
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def lock_file(path: Path) -> int:
    """Locks a file for this process and returns its open descriptor.

    Raises ValueError as `lock_folder`."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode("utf-8", "replace")
            os.close(descriptor)
            raise ValueError(
                f"{path.parent} is in use by {holder or 'another process'}: wait until"
                " it ends, or name another folder"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        # The process that held the lock before may have removed the file meanwhile.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)
