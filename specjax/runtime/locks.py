"""A folder that one process at a time works in."""

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
def alone(folder: Path) -> Iterator[None]:
    """Within, no other process is within of this folder, on machines that see the same
    files and locks. However the process ends, its lock is gone with it; one that cannot
    write there has none. Raises ValueError, at once, where another is there, and says
    which."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = lock(path)
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


def lock(path: Path) -> int:
    """Locks a file for this process and returns it open. Raises as `alone`."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode("utf-8", "replace")
            os.close(descriptor)
            raise ValueError(
                f"{path.parent} is being worked on by {holder or 'another process'}:"
                " wait for its end, or name another folder"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        # Who had it before may have taken the file away meanwhile.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)
