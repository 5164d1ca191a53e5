"""Writes the choices of `pallas_kernels.dispatch` from records of the table of kernels.

    python -m experiments.gpu.kernels.tune RESULTS [--out FOLDER]

FOLDER/<device>.json has, for every shape that was measured on the device and for the
known laws, one-pass XLA or Mosaic GPU. The earlier choice of that file, or else the
default of `dispatch`, stays, unless another is faster by more than noise: in nine
rounds of ten of each. Triton is only compared and never chosen, because JAX has
deprecated it; records of a trial on a CPU are not read.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from experiments.gpu.kernels import programs
from experiments.gpu.kernels.inputs import Shape
from experiments.records.kernel_times import COLD, group
from pallas_kernels import dispatch
from pallas_kernels.dispatch import Timed
from pallas_kernels.plan import Tiles
from specjax.measure import jsonl

Key = tuple  # batch, gamma, vocab, itemsize, target, draft
Before = dict[Key, tuple[str, Tiles | None]]  # what a file chose
KEY = Timed._fields[:6]


def tables(records: Iterable[dict], out: Path, trial: bool = False) -> dict[str, dict]:
    """Returns the content of the file of each device.

    Args:
        out: the folder of the current files.
        trial: read interpreted runs instead.
    """
    latest, by_device = {}, {}
    for record in records:
        if record["measured"].get("interpreted") is trial:
            device = record["provenance"]["device"]["kind"]
            latest[device, record["row"]] = record
    for (device, row), record in sorted(latest.items()):
        empty = {"device": device, "from": {}, "shapes": []}
        table, origin = by_device.setdefault(device, empty), record["provenance"]
        table["from"][row] = {key: origin[key] for key in ("date", "commit")}
        path = dispatch.tuned_file(device, out)
        chosen = dispatch.read(path) if path.is_file() else []
        before = {timed[:6]: timed[6:] for timed in chosen}
        table["shapes"] += choose_all(record["measured"], before)
    return by_device


def choose_all(measured: dict, before: Before) -> list[dict]:
    """Returns the fastest implementation for each combination of known laws, at the
    acceptance by which tiles are chosen.
    """
    sizes = {name: measured[name] for name in ("batch", "gamma", "vocab")}
    sizes["itemsize"] = Shape(**sizes, dtype=measured["dtype"]).itemsize
    first, entries = measured["acceptances"][0], []
    lines = [line for line in measured["programs"] if line["acceptance"] == first]
    lines = [line for line in lines if line.get("cache", COLD) == COLD]
    for carried, (target, draft) in programs.CARRIED.items():
        # Nothing is left to read where both are known: the reference is one-pass then.
        plain = programs.REF if carried == programs.BOTH else programs.ONEPASS
        able = {f"{name}/{carried}" for name in (plain, dispatch.MOSAIC_GPU)}
        own = [line for line in lines if group(line["name"]) in able]
        if own:
            key = {**sizes, "target": target, "draft": draft}
            entries.append(
                key | choose_one(own, before.get(tuple(key[x] for x in KEY)))
            )
    return entries


def choose_one(lines: list[dict], before: tuple[str, Tiles | None] | None) -> dict:
    """Returns the name and the tiles of the implementation to use, chosen from timed
    lines.

    Args:
        lines: the lines of one shape, with their medians and percentiles.
        before: the earlier choice; None is `dispatch`'s own, Mosaic GPU.
    """

    def implementation(line: dict) -> str:
        mosaic = line["name"].startswith(dispatch.MOSAIC_GPU)
        return dispatch.MOSAIC_GPU if mosaic else dispatch.ONEPASS

    name, tiles = before or (dispatch.MOSAIC_GPU, None)
    fast = sorted(lines, key=lambda line: line["us"])
    kept = [line for line in fast if implementation(line) == name]
    same = [line for line in kept if tiles and line["tiles"] == list(tiles)]
    best = fast[0]
    stays = next(iter(same or kept), best)
    if best["p90"] >= stays["p10"]:
        best = stays
    return {"name": implementation(best), "tiles": best["tiles"]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.kernels.tune")
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, default=dispatch.TUNED)
    parser.add_argument("--trial", action="store_true", help="of interpreted runs")
    chosen = parser.parse_args(arguments)
    by_device = tables(
        jsonl.read(chosen.results / "kernels.jsonl"), chosen.out, chosen.trial
    )
    if not by_device:
        parser.error(f"no record of kernels in {chosen.results}: measure them first")
    chosen.out.mkdir(parents=True, exist_ok=True)
    for device, table in by_device.items():
        path = dispatch.tuned_file(device, chosen.out)
        path.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
        print(f"{path}: {len(dispatch.read(path))} shapes")


if __name__ == "__main__":
    main()
