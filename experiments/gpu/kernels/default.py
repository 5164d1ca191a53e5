"""Prints the default kernels of this device, and the kernels named in a folder's
records.

    python -m experiments.gpu.kernels.default FOLDER

There is a line for each shape that the stages decode, after the comparison with the
reference that happens at first use; then, for each table of FOLDER, the kernels that
its rows were measured with.
"""

import argparse
from collections import Counter
from pathlib import Path

import jax

from experiments.records import records
from specjax import fused
from specjax.drafts.source import TABLE
from specjax.fused import Sizes
from specjax.measure import jsonl
from specjax.verifiers import token

# Rows of the chip, the paper's GPT pair, Wagner et al.'s, and tables of counts.
SHAPES = Sizes(1, 10, 32128), Sizes(1, 10, 8000), Sizes(40, 20, 32128)
SHAPES += (Sizes(32, 5, 8000), Sizes(1, 10, 8000, TABLE))


def names(measured: dict) -> list[str]:
    """Returns the kernels that verified; a row of Wagner et al. has one record for each
    method.
    """
    kernels = measured.get("kernels", {})
    each = [kernels] if "verify" in kernels else kernels.values()
    return list(dict.fromkeys(record["verify"] for record in each))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.kernels.default")
    parser.add_argument("folder", type=Path)
    folder, kind = parser.parse_args(arguments).folder, jax.devices()[0].device_kind
    for sizes in SHAPES:
        record = fused.choose(fused.AUTO, token.verifier, sizes).record
        shape = f"B {sizes.batch}, gamma {sizes.gamma}, V {sizes.vocab}, {sizes.draft}"
        print(f"{kind}, {shape}: {fused.line(record)}")
    for path in sorted(folder.glob("*.jsonl")):
        rows = records.latest_records(jsonl.read(path)).values()
        each = Counter(name for row in rows for name in names(row["measured"]))
        if each:
            counts = (f"{name} {count}" for name, count in sorted(each.items()))
            print(f"{path.stem}: {', '.join(counts)}")


if __name__ == "__main__":
    main()
