"""`python -m experiments.canary [COMMIT | FILE.whl]`: c, v and speed, then and now.

Two processes time the bundled pair in turns, one by the package of an earlier commit
(HEAD, if none is named, to see what is not committed) or of a wheel, one by what is
here. Two minutes on two cores. Beyond 10 % it warns, with exit code 1.
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
MOST, ROUNDS = 0.1, 5  # a change that is told, and rounds that are needed for a word
PACKAGES = ("specjax", "pallas_kernels", "gin_configs")
HEAD = ["", "then", "now", "change"]


def main(arguments: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), times and prints."""
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
        with side(Path(folder), flags.pair) as then, side(ROOT, flags.pair) as now:
            seconds = in_turns((then, now), flags.seconds)
    rows, warnings = compared(*seconds)
    print(markup.plain(HEAD, rows), end="")
    print("\n".join(warnings) or f"no change beyond {MOST:.0%}")
    return int(bool(warnings))


def unpack(then: str, folder: Path) -> None:
    """The packages of a wheel or of a commit, as they are imported."""
    packed = then
    if not then.endswith(".whl"):
        command = ["git", "-C", str(ROOT), "archive", "--format=zip", then, *PACKAGES]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        packed = io.BytesIO(subprocess.run(command, check=True, **quiet).stdout)
    with zipfile.ZipFile(packed) as packages:
        packages.extractall(folder)


@contextmanager
def side(folder: Path, pair: list[str]) -> Iterator[subprocess.Popen]:
    """A process that has compiled everything and waits. Raises SystemExit where it
    could not, or took another package."""
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


def in_turns(sides: tuple, most: float) -> list[list[dict]]:
    """Seconds of each program, a dictionary a round, of both sides."""
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
    """c and v of Definition 3.7, the speed, and the milliseconds of a target's text."""
    median = {name: np.median([it[name] for it in rounds]) for name in rounds[0]}
    one = median["target_1"]
    return {
        "c": median["draft_1"] / one,
        f"v({GAMMA})": median[f"target_{GAMMA + 1}"] / one,
        "speed": median["alone"] / median["drafted"],
        "ms alone": 1e3 * median["alone"],
        "ms drafted": 1e3 * median["drafted"],
    }


def compared(then: list[dict], now: list[dict]) -> tuple[list[list[str]], list[str]]:
    """A line for each number, and what is beyond MOST."""
    rows, warnings, here = [], [], numbers(now)
    for name, old in numbers(then).items():
        told = f"{100 * (here[name] / old - 1):+.1f} %"
        rows.append([name, *map(markup.number, (old, here[name])), told])
        if abs(here[name] / old - 1) > MOST:
            warnings.append(f"warning: {name} changed by {told}")
    return rows, warnings


if __name__ == "__main__":
    sys.exit(main())
