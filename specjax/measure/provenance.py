"""The origin of a number, and whether its row has the same settings today.

A record of counts is valid until a change moves what is counted; tests/golden detects
such changes, and GOLDENS is raised when one is accepted. A record of times is a dated
snapshot. Both report when their row's settings or inputs have changed since.
"""

import ast
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from specjax.measure.row import Measurement, conditions

# Raised by whoever moves a golden on purpose, with one line of CHANGELOG.md.
GOLDENS = 1
HOME = Path(__file__).resolve().parents[2]


def describe(
    measurement: Measurement,
    config: str,
    seconds: float,
    typed: Iterable[str] = (),
    *,
    digests: Mapping[str, str] | None = None,
) -> dict:
    """Returns settings, files, versions, commit, device and date of a measurement.

    digests: the `inputs` as they were before the measurement; None, as they are now.
    """
    return {
        **commit(),
        **conditions(measurement.dtype, measurement.seed, seconds),
        "goldens": GOLDENS,
        "config": config,
        "typed": list(typed),
        "module": measurement.module,
        "inputs": inputs(measurement.inputs) if digests is None else dict(digests),
    }


def inputs(paths: Iterable[Path]) -> dict[str, str]:
    """Returns the sha256 of each file by its label."""
    return {label: digest(path) for label, path in labels(paths).items()}


def labels(paths: Iterable[Path]) -> dict[str, Path]:
    """Returns files by label: the path relative to the project, or else the file name.

    Names of files outside the project are preceded by as many folders as are needed to
    tell them apart.
    """
    every = {path.resolve(): Path(os.path.abspath(path)) for path in paths}
    outside = [path for at, path in every.items() if not at.is_relative_to(HOME)]
    found = {}
    for at, path in every.items():
        label, size = Path(path.name), 1
        if at.is_relative_to(HOME):
            label = at.relative_to(HOME)
        else:
            while sum(other.parts[-size:] == label.parts for other in outside) > 1:
                size += 1
                label = Path(*path.parts[-size:])
        found[label.as_posix()] = at
    return found


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_inputs(origin: Mapping, digest: Callable[[Path], str] = digest) -> list:
    """Returns the inputs of a record whose files have another content today."""
    recorded = origin.get("inputs") or {}
    here = ((name, HOME / name, was) for name, was in recorded.items())
    return [name for name, path, was in here if path.is_file() and digest(path) != was]


def settings(config: str) -> dict[str, str]:
    """Returns the value that each NAME = VALUE line of a gin config sets, by name."""
    found, name = {}, None
    for line in config.splitlines():
        head, sign, value = line.partition(" = ")
        if line[:1].isspace() and name:  # gin breaks long values
            found[name] += line.strip()
        elif sign and not line.startswith("#"):
            name = shorten(head)
            found[name] = value.removesuffix("\\").strip()
        else:
            name = None
    return {name: normalize(value) for name, value in found.items()}


def shorten(name: str) -> str:
    """Returns scope/package.module.name.parameter shortened to scope/name.parameter."""
    scope, slash, selector = name.rpartition("/")
    return scope + slash + ".".join(selector.split(".")[-2:])


def normalize(value: str) -> str:
    """Returns a value in one spelling: literals as in Python, references shortened."""
    try:
        return repr(ast.literal_eval(value))
    except (SyntaxError, ValueError):
        scope, slash, selector = value.rpartition("/")
        mark = selector[: len(selector) - len(selector.lstrip("@%"))]
        last = selector.lstrip("@%").rpartition(".")[2]
        return scope + slash + mark + last


def changed_settings(
    recorded_config: str, current_config: str, own: Iterable[str]
) -> list[str]:
    """Returns the names that two configs set differently.

    own: names that the row's own file sets. A new name in the files that it includes is
    taken to describe what was always so. A value that became a macro counts as that
    macro's value.
    """
    was, now = settings(recorded_config), settings(current_config)
    own = set(map(shorten, own))

    def differs(name: str, value: str) -> bool:
        old = was[name]
        return old != value and resolve_macro(was, old) != resolve_macro(now, value)

    return sorted(
        name
        for name, value in now.items()
        if (differs(name, value) if name in was else name in own)
    )


def resolve_macro(found: dict[str, str], value: str) -> str:
    """Returns a value, or, where it names a macro, the value of the macro."""
    return found.get(value[1:], value) if value.startswith("%") else value


def check_clean(out: Path) -> None:
    """Raises ValueError where a measurement made now may not enter the folder `out`.

    Raises:
      ValueError: `out` is the results of this checkout, or of a further run of them
        (results/runs/NAME), and files other than results differ from its commit, so
        that no commit would name what was measured.
    """
    results, out = HOME / "results", out.resolve()
    kept = out == results or out.is_relative_to(results / "runs")
    if kept and commit()["dirty"]:
        raise ValueError(
            "the checkout has changes that no commit holds, and results/ takes records"
            " of commits alone: commit or stash them, or write elsewhere with --out"
        )


@cache
def commit() -> dict:
    """Returns the commit, and whether files other than results differ from it.

    Both are None outside of a git checkout.
    """
    changed = ["status", "--porcelain", "--", ".", ":(exclude)results"]
    try:
        head, status = (git(*command) for command in (["rev-parse", "HEAD"], changed))
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
    return {"commit": head.strip(), "dirty": bool(status.strip())}


def git(*arguments: str) -> str:
    """Returns the output of a git command in the checkout that contains the package."""
    if not (HOME / ".git").exists():
        raise FileNotFoundError(HOME / ".git")
    command = ["git", "-C", str(HOME), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout
