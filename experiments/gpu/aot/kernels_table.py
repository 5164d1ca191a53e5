"""Lines of what fused verification compiles to, on devices that need not be there."""

import itertools
from collections.abc import Mapping

from experiments.records.table import Line, Table, command

NEEDS = "the compilers for GPUs and TPUs: pip install --editable '.[aot]'"
DEVICES = {
    "h200": "H200",
    "a100": "A100",
    "t4": "T4",
    "v5e": "TPU v5e",
    "v6e": "TPU v6e",
    "v4": "TPU v4",
}
NAMES = {
    "mosaic_gpu": "Mosaic GPU",
    "mosaic_tpu": "Mosaic TPU",
    "triton": "Triton",
    "onepass": "one-pass XLA",
    "reference": "reference",
    "auto": "what is chosen",
}
WHAT = {
    "nothing": "from raw logits",
    "draft": "the draft's law known",
    "both": "both laws known",
    "draw": "a draw of the draft loop",
}
F, H = "float32", "bfloat16"
MOSAIC = [("draft", 1, 5, 32000, F), ("draft", 16, 5, 32000, F)]
MOSAIC += [("draft", 64, 5, 128256, F), ("nothing", 64, 5, 128256, H)]
MOSAIC += [("both", 64, 5, 128256, F), ("draft", 1, 20, 128256, F)]
MOSAIC += [("draft", 1, 5, 50257, H), ("draft", 64, 5, 256000, H)]
MOSAIC += [("draw", 1, 5, 32000, F)]
PLAIN = [
    ("draft", 1, 5, 32000, F),
    ("draft", 64, 5, 128256, F),
    ("draw", 1, 5, 32000, F),
]
ON_TPU = [("draft", 1, 5, 32000, F), ("nothing", 1, 5, 50257, H)]
ON_TPU += [("draft", 8, 5, 128256, H), ("draft", 64, 5, 128256, F)]
ON_TPU += [("draft", 1, 20, 128256, F)]
HEAD = ["device", "implementation", "ran", "known of the laws", "B", "gamma", "V"]
HEAD += ["dtype", "launches", "registers", "spilled bytes", "widest load, bytes"]
HEAD += ["instructions a logit", "copies of logits", "temporary bytes", "VMEM bytes"]
COLUMNS = ("launches", "registers", "spills", "widest_load", "instructions", "copies")
COLUMNS += ("temp_bytes", "vector_memory")


def programs() -> list[tuple]:
    """(device, implementation, program) of every line."""
    plain = [("nothing", 1, 5, 32000, F), *PLAIN]
    auto = ("draft", 1, 5, 32000, F), ("draft", 64, 5, 128256, H)
    v4 = ("draft", 1, 5, 32000, F), ("draft", 1, 5, 128256, F)
    return [
        *(("h200", "mosaic_gpu", case) for case in MOSAIC),
        ("h200", "triton", MOSAIC[0]),
        *(("h200", *pair) for pair in itertools.product(XLA, plain)),
        *((device, "auto", case) for device in ("a100", "t4") for case in auto),
        ("a100", "triton", MOSAIC[0]),
        *((v, "mosaic_tpu", case) for v in ("v5e", "v6e") for case in ON_TPU),
        *(("v4", "mosaic_tpu", case) for case in v4),
    ]


XLA = ("onepass", "reference")


def kernels_aot() -> Table:
    lines = []
    for device, name, case in programs():
        known, batch, gamma, vocab, dtype = case
        key = f"{name} {known} B{batch} g{gamma} V{vocab} {dtype}:launches"
        sizes = f"B {batch}, gamma {gamma}, V {vocab}, {dtype}"
        if known == "draw":
            sizes = f"B {batch}, V {vocab}, {dtype}"
        what = f"{DEVICES[device]}, {NAMES[name]}, {WHAT[known]}, {sizes}: launches"
        line = Line("kernels_aot", device, what, key, decimals=0, needs=NEEDS)
        lines.append(line)
    note = (
        "Facts of the machine code that the vendors' compilers make for devices that"
        " are not there; nothing ran and nothing is timed. A verification begins with"
        " logits and ends with tokens. Registers: most of a kernel; instructions: of"
        " the kernel that reads statistics, with branches that a row may not take."
        " Copies: of half of the draft's logits and more; on TPUs of logits that a"
        " readout in the same program made. Kernel by kernel it is in the record."
    )
    title = "Kernels as compiled: fused verification on GPUs and TPUs"
    return Table("kernels_aot", title, note, command("kernels_aot"), lines)


def wider(records: Mapping[str, dict]) -> list[tuple[str, list, list]]:
    """Every program of every device, with all that is known of its kernels."""
    lines = []
    for device, label in DEVICES.items():
        measured = records.get(device, {}).get("measured", {"programs": []})
        for entry in measured["programs"]:
            labels = [
                label,
                NAMES[entry["asked"]],
                NAMES[entry["ran"]],
                WHAT[entry["known"]],
            ]
            sizes = [str(entry[name]) for name in ("batch", "gamma", "vocab", "dtype")]
            lines.append(
                [*labels, *sizes, *(cell(entry.get(name)) for name in COLUMNS)]
            )
    title = "Launches, registers, spills and bytes of every program"
    return [(title, HEAD, lines)] if lines else []


def cell(value: float | None) -> str:
    """Counts are whole; an empty cell was not told."""
    return "" if value is None else f"{value:g}" if value < 1e4 else f"{value:,}"
