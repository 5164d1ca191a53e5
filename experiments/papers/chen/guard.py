"""Starts a program of `sandbox`: refuses actions outside its folder, then runs it.

`python guard.py PROGRAM LIMIT ...`, the limits in the order of `sandbox.Limits`. It
reads a nonce, and writes it when the program has reached its end. The program cannot
remove an audit hook (PEP 578), as this one, and cannot raise the limits again. It needs
POSIX.
"""

import os
import resource
import sys

MIB = 2**20

# What Python tells an audit hook before it does it, as it begins.
REFUSED = ("socket.", "subprocess.", "ctypes.", "resource.", "pty.", "mmap.__new__")
REFUSED += ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill")
REFUSED += ("os.putenv", "os.chown", "os.chmod", "os.setxattr", "signal.pthread_kill")
REFUSED += ("ftplib.", "http.", "smtplib.", "urllib.", "webbrowser.", "shutil.chown")
WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Those that name paths which they change.
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink")
CHANGES += ("os.truncate", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copy")


def guard(folder: str):
    """Returns an audit hook for a program that may write only in `folder`."""
    inside = os.path.realpath(folder) + os.sep
    realpath, fsdecode = os.path.realpath, os.fsdecode

    def is_outside(path) -> bool:
        if isinstance(path, int) or path is None:
            return False
        return not (realpath(fsdecode(path)) + os.sep).startswith(inside)

    def hook(event: str, arguments: tuple) -> None:
        if event.startswith(REFUSED):
            raise PermissionError(f"not in the sandbox: {event}")
        if event == "open":
            path, _, flags = arguments
            if (flags or 0) & WRITE and is_outside(path):
                raise PermissionError(f"not in the sandbox: writing {path}")
        if event.startswith(CHANGES):
            paths = [x for x in arguments if isinstance(x, str | bytes | os.PathLike)]
            if any(map(is_outside, paths)):
                raise PermissionError(f"not in the sandbox: {event} of {paths[0]}")

    return hook


def restrict(seconds: float, memory: float, size: float, files: float) -> None:
    """Limits this process: seconds of CPU time, MiB of memory and of files, open
    files."""
    limits = {resource.RLIMIT_CPU: int(seconds) + 1, resource.RLIMIT_CORE: 0}
    limits |= {
        resource.RLIMIT_AS: int(memory) * MIB,
        resource.RLIMIT_NOFILE: int(files),
    }
    limits[resource.RLIMIT_FSIZE] = int(size) * MIB
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def main(path: str, *limits: str) -> None:
    nonce = sys.stdin.read()
    with open(path, encoding="utf-8") as file:
        source = file.read()
    write, out = os.write, os.dup(1)
    sys.argv = [path]
    code = compile(source, "program.py", "exec")
    restrict(*map(float, limits))
    sys.addaudithook(guard(os.getcwd()))
    exec(code, {"__name__": "__main__"})
    sys.stdout.flush()
    write(out, b"\n" + nonce.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
