"""Times the verifications that the goals name, within 90 seconds of an H100.

    python -m experiments.gpu.kernels.goals FOLDER

They are the rows b1_g5_v32000_f32 and b64_g5_v128256_f32 of
`gin_configs/kernels/shapes.gin`, at one acceptance and with few tiles. Every line is
appended to FOLDER/kernels_lines.jsonl and printed as soon as it is timed, so that a
kill loses none; a complete row is a record in FOLDER/kernels.jsonl. DRY=1 is a trial on
a CPU, of one row at tiny sizes.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from experiments import catalogue
from experiments.gpu.kernels import timing
from experiments.records import compilation
from experiments.run import build
from specjax.configs import run
from specjax.measure import jsonl
from specjax.runtime import console

FILE = Path("gin_configs/kernels/shapes.gin")
LINES = "kernels_lines.jsonl"
ONLY = "read", "ref_jnp/none", "onepass/none", "triton/none", "mosaic_gpu/none"
ONLY += "four_launches/none", "onepass/draft", "mosaic_gpu/draft", "mosaic_gpu/both"
ONLY += ("sigmoid/both",)
FEW = [f"ONLY = {ONLY}", "ACCEPTANCES = (0.7,)", "ROUNDS = 15"]
# The fastest tiles of the first runs, by row.
TILES = {
    "b1_g5_v32000_f32": "GRID = ((4096,), (1,), (False,))",
    "b64_g5_v128256_f32": "GRID = ((4096,), (4,), (True,))",
}
TRIAL = ["DRY = True", "BATCH = 1", "GAMMA = 1", "VOCAB = 300", "ROUNDS = 1"]
TRIAL += ["LENGTH = 3", "CACHE = 1000", "COPIED = 65536"]
TRIAL += ["GRID = ((256,), (2,), (False,))"]
TRIAL += ["ONLY = ('ref_jnp/none', 'triton/none')"]
READ = 8 * 10**9, 65536  # bytes: of an H100's memory, of a trial
FORM = "{name:32} {cache:5} {us:9.2f} {p10:9.2f} {p90:9.2f} {chain_us:9.2f}"
ALONE = "{name:32} alone {us:9.2f} {p10:9.2f} {p90:9.2f} {device}"
HEAD = "program, caches: us, 10 %, 90 %, us with the empty chain; alone: with dispatch"


def main(arguments: list[str] | None = None) -> None:
    parser = console.Parser(prog="python -m experiments.gpu.kernels.goals")
    parser.add_argument("folder", type=Path, help="of the lines and the records")
    parser.add_argument("--row", choices=TILES, help="this one, in this process")
    chosen, dry = parser.parse_args(arguments), bool(os.environ.get("DRY"))
    jsonl.prepare(chosen.folder / LINES)
    if chosen.row:
        measure(chosen.row, chosen.folder, dry)
        return
    print(HEAD, flush=True)
    # A process each: one that ends early, or a profiler, does not touch the other.
    command = [sys.executable, "-m", "experiments.gpu.kernels.goals", chosen.folder]
    rows = list(TILES)[: 1 if dry else None]
    ended = {row: subprocess.run([*command, "--row", row]).returncode for row in rows}
    if failed := [row for row, status in ended.items() if status]:
        raise SystemExit(f"failed: {', '.join(failed)}; lines are in {chosen.folder}")


def measure(row: str, folder: Path, dry: bool) -> None:
    """Times a row and the memory; stores the lines and the record of the row."""
    compilation.keep()
    print(f"{row}{' (trial)' if dry else ''}:", flush=True)
    write_line = partial(tell, folder / LINES, row)
    built = build(FILE, FEW + (TRIAL if dry else [TILES[row]]), row)
    one = built.row.measurement
    one = one._replace(run=partial(one.run, tell=write_line))
    built = built._replace(row=built.row._replace(measurement=one))
    run.measure(
        built, folder, kept={}, again=True, published=catalogue.published_numbers
    )
    speed = timing.read_speed(READ[dry])
    write_line({"name": "read of the memory", "bytes": READ[dry], "gb_s": speed / 1e9})


def tell(path: Path, row: str, line: dict) -> None:
    """Stores a line, and prints it."""
    jsonl.append(path, {"row": row, **line})
    print(line_text(line), flush=True)


def line_text(line: dict) -> str:
    """Returns a line of the table: that of a chain, of a single call, or of the
    memory."""
    if "chain_us" in line:
        return FORM.format(**line)
    if "alone" not in line:
        return f"{line['name']}: {line['gb_s']:.0f} GB/s of {line['bytes']:,} bytes"
    alone = line["alone"]
    device = alone.get("device", f"{alone.get('device_us', 0):.2f} in kernels")
    return ALONE.format(**alone | {"name": line["name"], "device": device})


if __name__ == "__main__":
    main()
