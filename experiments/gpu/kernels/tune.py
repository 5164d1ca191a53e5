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

from experiments.gpu.kernels.programs import BOTH, DRAFT, NONE, ONEPASS, REF
from pallas_kernels import dispatch
from pallas_kernels.dispatch import MOSAIC_GPU
from pallas_kernels.plan import DEFERRED, KNOWN
from specjax.measure import jsonl

KINDS = {NONE: (DEFERRED, DEFERRED), DRAFT: (DEFERRED, KNOWN), BOTH: (KNOWN, KNOWN)}
# Nothing is left to read where both are known: one-pass XLA is the reference then.
PLAIN = {NONE: ONEPASS, DRAFT: ONEPASS, BOTH: REF}
ITEMSIZE = {"float32": 4, "bfloat16": 2}


def tables(records: Iterable[dict], trial: bool = False) -> dict[str, dict]:
    """By device, what its file holds. trial: of interpreted runs instead."""
    latest = {}
    for record in records:
        if record["measured"].get("interpreted") is trial:
            device = record["provenance"]["device"]["kind"]
            latest[device, record["row"]] = record
    by_device = {}
    for (device, row), record in sorted(latest.items()):
        provenance = record["provenance"]
        table = by_device.setdefault(
            device, {"device": device, "from": {}, "shapes": []}
        )
        table["from"][row] = {
            "date": provenance["date"],
            "commit": provenance["commit"],
        }
        table["shapes"] += shapes(record["measured"])
    return by_device


def shapes(measured: dict) -> list[dict]:
    """What was fastest at the acceptance that tiles are chosen at, by what is known."""
    entries = []
    for carried, (target, draft) in KINDS.items():
        able = {f"{PLAIN[carried]}/{carried}", f"{MOSAIC_GPU}/{carried}"}
        lines = [
            line
            for line in measured["programs"]
            if line["acceptance"] == measured["acceptances"][0]
            and "/".join(line["name"].split("/")[:2]) in able
        ]
        if not lines:
            continue
        best = min(lines, key=lambda line: line["us"])
        mosaic = best["name"].startswith(MOSAIC_GPU)
        sizes = {name: measured[name] for name in ("batch", "gamma", "vocab")}
        entries.append(
            {
                **sizes,
                "itemsize": ITEMSIZE[measured["dtype"]],
                "target": target,
                "draft": draft,
                "name": MOSAIC_GPU if mosaic else dispatch.ONEPASS,
                "tiles": best["tiles"],
            }
        )
    return entries


def path_of(folder: Path, device: str) -> Path:
    """Where `dispatch.tuned` looks."""
    return folder / f"{device.lower().replace(' ', '_')}.json"


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
        path = path_of(chosen.out, device)
        path.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
        print(f"{path}: {len(dispatch.read(path))} shapes")


if __name__ == "__main__":
    main()
