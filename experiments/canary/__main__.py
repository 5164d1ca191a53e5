"""The canary: `python -m experiments.canary [COMMIT | FILE.whl]` compares two versions.

Two processes time the bundled pair in turns. One uses the package of an earlier commit
(HEAD if none is named, which shows the effect of changes that are not committed) or of
a wheel; the other uses the package of this checkout. The comparison shows c, v and the
speed of both. It takes two minutes on two cores. A change beyond 10 % prints a warning
and ends with exit code 1.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from experiments.canary.side import GAMMA
from experiments.records import markup
from specjax.runtime import console, progress

ROOT = Path(__file__).resolve().parents[2]
SIDE = Path(__file__).with_name("side.py")
MOST, ROUNDS = 0.1, 5  # the change that is reported, and the rounds that this takes
PACKAGES = ("specjax", "pallas_kernels", "gin_configs")
HEAD = ["", "then", "now", "change"]


def main(arguments: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), times both versions and prints the
    comparison.
    """
    parser = console.Parser(prog="python -m experiments.canary")
    of_then = "a commit or a wheel; default %(default)s"
    parser.add_argument("then", nargs="?", default="HEAD", help=of_then)
    parser.add_argument("--seconds", type=float, default=100, help="%(default)s")
    names = ["code_target", "code_small"]
    parser.add_argument("--pair", nargs=2, default=names, metavar=("TARGET", "DRAFT"))
    flags = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, console.handle_stops():
        try:
            unpack(flags.then, Path(folder))
        except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile):
            parser.error(f"no commit and no wheel {flags.then}: git log names commits")
        with (
            start_process(Path(folder), flags.pair) as then,
            start_process(ROOT, flags.pair) as now,
        ):
            seconds = time_in_turns((then, now), flags.seconds)
    rows, warnings = compare(*seconds)
    print(markup.text_table(HEAD, rows), end="")
    print("\n".join(warnings) or f"no change beyond {MOST:.0%}")
    return int(bool(warnings))


def unpack(version: str, folder: Path) -> None:
    """Unpacks the packages of a wheel or of a commit into a folder that Python can
    import from.
    """
    packed = version
    if not version.endswith(".whl"):
        command = [
            "git",
            "-C",
            str(ROOT),
            "archive",
            "--format=zip",
            version,
            *PACKAGES,
        ]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        packed = io.BytesIO(subprocess.run(command, check=True, **quiet).stdout)
    with zipfile.ZipFile(packed) as packages:
        packages.extractall(folder)


@contextmanager
def start_process(folder: Path, pair: list[str]) -> Iterator[subprocess.Popen]:
    """Starts a process of one version, which compiles every program and then waits for
    input.

    Raises:
        SystemExit: the process could not start, or it imported another package.
    """
    command, own = [sys.executable, str(SIDE), *pair], {"PYTHONPATH": str(folder)}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process = subprocess.Popen(command, env=os.environ | own, **pipes)
    try:
        package = answer(process)["package"]
        if not Path(package).is_relative_to(folder):
            sys.exit(f"error: {folder} has no specjax of its own; {package} was taken")
        yield process
    finally:
        process.stdin.close()
        process.wait()


def answer(process: subprocess.Popen) -> dict:
    line = process.stdout.readline()
    if not line:
        sys.exit("error: a side ended; what it says stands above")
    return json.loads(line)


def time_in_turns(sides: tuple, most: float) -> list[list[dict]]:
    """Times both versions in turns; returns the seconds of each program, as one
    dictionary for each round.
    """
    rounds, begun = [[] for _ in sides], time.monotonic()
    with progress.Bar("timing", round(most), "s") as bar:
        while len(rounds[0]) < ROUNDS or time.monotonic() - begun < most:
            for process, several in zip(sides, rounds, strict=True):
                process.stdin.write("\n")
                process.stdin.flush()
                several.append(answer(process))
            bar.update(min(round(time.monotonic() - begun), bar.total))
    return rounds


def numbers(rounds: list[dict]) -> dict[str, float]:
    """Returns c and v of Definition 3.7, the speed, and the milliseconds of a text."""
    median = {name: np.median([it[name] for it in rounds]) for name in rounds[0]}
    one = median["target_1"]
    return {
        "c": median["draft_1"] / one,
        f"v({GAMMA})": median[f"target_{GAMMA + 1}"] / one,
        "speed": median["alone"] / median["drafted"],
        "ms alone": 1e3 * median["alone"],
        "ms drafted": 1e3 * median["drafted"],
    }


def compare(
    earlier: list[dict], later: list[dict]
) -> tuple[list[list[str]], list[str]]:
    """Returns a table row for each number, and a warning for each change above MOST."""
    rows, warnings, here = [], [], numbers(later)
    for name, old in numbers(earlier).items():
        change = f"{100 * (here[name] / old - 1):+.1f} %"
        rows.append([name, *map(markup.number, (old, here[name])), change])
        if abs(here[name] / old - 1) > MOST:
            warnings.append(f"warning: {name} changed by {change}")
    return rows, warnings


if __name__ == "__main__":
    sys.exit(main())
