"""Which sources made a number: one hash, so that a table can say it is out of date.

It covers the measuring module, every module of this repository that it imports, however
indirectly, and the files that it reads.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("specjax", "experiments", "pallas_kernels")


def of(module: str, inputs: Mapping[str, str]) -> str:
    """The sha256 of a module's sources and of its inputs, digests by name."""
    whole = hashlib.sha256()
    for path in sources(module):
        whole.update(f"{path.relative_to(ROOT).as_posix()} {digest(path)}\n".encode())
    for name, value in sorted(inputs.items()):
        whole.update(f"{name} {value}\n".encode())
    return whole.hexdigest()


def rule(name: str) -> tuple[Path, ...]:
    """The files of a rule that is chosen by its name, which no import line shows."""
    return () if name == "token" else tuple(sources(f"specjax.verifiers.{name}"))


def today(provenance: Mapping) -> str:
    """The fingerprint that a record would get now.

    An input that is not here, such as the weights of another machine, counts as it was.
    """
    inputs = {
        name: digest(ROOT / name) if (ROOT / name).is_file() else recorded
        for name, recorded in provenance["inputs"].items()
    }
    return of(provenance["module"], inputs)


def inputs_of(paths: tuple[Path, ...]) -> dict[str, str]:
    """Digests by path within the repository, or by bare name outside of it."""
    named = {}
    for path in map(Path.resolve, paths):
        inside = path.is_relative_to(ROOT)
        named[path.relative_to(ROOT).as_posix() if inside else path.name] = digest(path)
    return named


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sources(module: str) -> list[Path]:
    """The files of a module and of all that it imports from this repository, sorted."""
    waiting, found = [module], set()
    while waiting:
        path = locate(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += imports(path)
    return sorted(found)


def locate(module: str) -> Path | None:
    """The file of a module of this repository; None for a name that is no module."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def imports(path: Path) -> Iterator[str]:
    """Every name that a file imports, and the packages around it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [node.module, *members]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:i]) for i in range(1, len(parts) + 1))
