"""From records of the table of kernels to what `pallas_kernels.dispatch` chooses by.

    python -m experiments.gpu.kernels.tune RESULTS [--out FOLDER]

Writes FOLDER/<device>.json: of every shape that was measured on the device, and of what
is known of the laws, the fastest of one-pass XLA and Mosaic GPU. Triton is a comparator
and is not chosen, as JAX has deprecated it; records of a trial on a CPU are not read.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from experiments.gpu.kernels import programs
from experiments.gpu.kernels.bench import group
from experiments.gpu.kernels.inputs import Shape
from pallas_kernels import dispatch
from specjax.measure import jsonl


def tables(records: Iterable[dict], trial: bool = False) -> dict[str, dict]:
    """By device, what its file holds. trial: of interpreted runs instead."""
    latest, by_device = {}, {}
    for record in records:
        if record["measured"].get("interpreted") is trial:
            device = record["provenance"]["device"]["kind"]
            latest[device, record["row"]] = record
    for (device, row), record in sorted(latest.items()):
        empty = {"device": device, "from": {}, "shapes": []}
        table, origin = by_device.setdefault(device, empty), record["provenance"]
        table["from"][row] = {key: origin[key] for key in ("date", "commit")}
        table["shapes"] += shapes(record["measured"])
    return by_device


def shapes(measured: dict) -> list[dict]:
    """What was fastest at the acceptance that tiles are chosen at, by what is known."""
    sizes = {name: measured[name] for name in ("batch", "gamma", "vocab")}
    sizes["itemsize"] = Shape(**sizes, dtype=measured["dtype"]).itemsize
    first, entries = measured["acceptances"][0], []
    lines = [line for line in measured["programs"] if line["acceptance"] == first]
    for carried, (target, draft) in programs.CARRIED.items():
        # Nothing is left to read where both are known: the reference is one-pass then.
        plain = programs.REF if carried == programs.BOTH else programs.ONEPASS
        able = {f"{name}/{carried}" for name in (plain, dispatch.MOSAIC_GPU)}
        own = [line for line in lines if group(line["name"]) in able]
        if own:
            best = min(own, key=lambda line: line["us"])
            mosaic = best["name"].startswith(dispatch.MOSAIC_GPU)
            name = dispatch.MOSAIC_GPU if mosaic else dispatch.ONEPASS
            known = {"target": target, "draft": draft}
            entries.append({**sizes, **known, "name": name, "tiles": best["tiles"]})
    return entries


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.kernels.tune")
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, default=dispatch.TUNED)
    parser.add_argument("--trial", action="store_true", help="of interpreted runs")
    chosen = parser.parse_args(arguments)
    by_device = tables(jsonl.read(chosen.results / "kernels.jsonl"), chosen.trial)
    if not by_device:
        parser.error(f"no record of kernels in {chosen.results}: measure them first")
    chosen.out.mkdir(parents=True, exist_ok=True)
    for device, table in by_device.items():
        path = dispatch.file_of(device, chosen.out)
        path.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
        print(f"{path}: {len(dispatch.read(path))} shapes")


if __name__ == "__main__":
    main()
