"""Fused verification as compiled for GPUs and TPUs that need not be there.

Kernels, registers, spills, widths of loads, instructions and copies are facts of the
machine code, and what a faster chip cannot mend. Nothing is timed.
Axes: B rows, G = gamma, V vocabulary.
"""

import json
from collections.abc import Sequence
from functools import partial

from tqdm import tqdm

from experiments.gpu.aot import cuda, hlo, inspect, tpu
from experiments.gpu.aot import programs as kernel_programs
from experiments.gpu.aot.programs import DEVICES, Sizes
from pallas_kernels import dispatch
from pallas_kernels.laws import Deferred
from pallas_kernels.plan import Plan, plan
from pallas_kernels.tpu.block import vmem_bytes
from specjax.measure.row import Measurement
from specjax.types import Draft, Law

THREADS = 128  # of a warp group, which a Mosaic block is


def build(device: str, programs: Sequence[tuple]) -> Measurement:
    """The measurement of one device.

    programs: (implementation, what is known, B, G, V, dtype); "draw" for what is known
    is a draw of the draft loop. Raises ValueError for a device that is not known.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: name one of {sorted(DEVICES)}")
    run = partial(measure, device, [tuple(program) for program in programs])
    path = cuda.TARGETS / f"{device}.txtpb"
    return Measurement(run, __name__, (path,) if path.is_file() else (), "as named")


def measure(device: str, programs: Sequence[tuple]) -> dict:
    """Every program, and by flat names what the table's lines ask for.

    Raises ValueError, with the command that installs it, where the compiler is missing.
    """
    gpu = DEVICES[device].platform == "gpu"
    if reason := (cuda if gpu else tpu).available():
        raise ValueError(f"kernels are compiled by the vendors' compilers: {reason}")
    measure_program = on_gpu if gpu else on_tpu
    measured = [
        measure_program(device, *program) for program in tqdm(programs, disable=None)
    ]
    flat = {}
    for entry in measured:
        flat |= {f"{key_of(entry)}:{k}": v for k, v in entry.items() if k in QUANTITIES}
    return {"device": device, "programs": measured, **flat}


QUANTITIES = ("launches", "registers", "spills", "widest_load", "instructions")
QUANTITIES += ("temp_bytes", "copies", "vector_memory", "captured")


def key_of(entry: dict) -> str:
    sizes = "B{batch} g{gamma} V{vocab} {dtype}".format(**entry)
    return f"{entry['asked']} {entry['known']} {sizes}"


def described(device: str, asked: str, known: str, sizes: Sizes) -> dict:
    """What was asked for, and what `dispatch` made of it."""
    itemsize = 2 if "16" in sizes.dtype else 4
    plan = planned(known, sizes)
    choice = dispatch.choose(plan, itemsize, DEVICES[device], asked)
    tiles = choice.tiles and choice.tiles._asdict()
    request = {"asked": asked, "known": known, **sizes._asdict()}
    return request | {"ran": choice.name, "why": choice.why, "tiles": tiles}


def planned(known: str, sizes: Sizes) -> Plan:
    inputs = kernel_programs.shapes(sizes)
    p, q = inputs.laws
    heat = inputs.sampling.temperature
    target, law = Law(inputs.target, *p), Law(inputs.draft, *q)
    if known != "both":
        target = Deferred(inputs.target, heat)
    if known == "nothing":
        law = Deferred(inputs.draft, heat)
    return plan(target, Draft(inputs.tokens, inputs.num, law))


def on_gpu(device: str, asked: str, known: str, *sizes) -> dict:
    """launches: kernels of one verification; captured: those in a CUDA graph.
    registers: most of a kernel. widest_load, in bytes, and instructions, PTX a logit
    that a thread reads: of the kernel that reads statistics. copies: of half of the
    draft's logits and more.
    """
    sizes = Sizes(*sizes)
    name, arguments = "on_gpu", [asked, device, known, *sizes]
    if known == "draw":
        name, arguments = "drawing", [asked, device, *sizes]
    named = f"{kernel_programs.__name__}:{name}"
    report = inspect.inspect(f"{named}:{json.dumps(arguments)}", device)
    program = getattr(kernel_programs, name)(*arguments)
    compiled = cuda.compile(*program, device=device)
    rows = 1 if known == "draw" else sizes.gamma
    whole = sizes.batch * rows * sizes.vocab * (2 if "16" in sizes.dtype else 4)
    entry = described(device, asked, "draft" if known == "draw" else known, sizes)
    reads = [k for k in report.kernels if "statistics" in k.name]
    per = None
    if reads and entry["tiles"]:
        part = entry["tiles"]["stats"] / THREADS * (2 if known == "nothing" else 1)
        per = round(reads[0].instructions / part, 1)
    return {
        **entry,
        "known": known,
        "launches": report.launches,
        "captured": report.captured,
        "registers": most(report.kernels, "registers"),
        "spills": most(report.kernels, "spills"),
        "widest_load": max(k.widest_load for k in reads or report.kernels),
        "instructions": per,
        "temp_bytes": compiled.temp_bytes,
        "copies": len(hlo.large_moves(compiled.program, whole // 2)),
        "kernels": [k._asdict() for k in report.kernels],
    }


def most(kernels: list, field: str) -> int | None:
    values = [getattr(k, field) for k in kernels]
    return None if None in values else max(values)


def on_tpu(device: str, asked: str, known: str, *sizes) -> dict:
    """launches: Pallas kernels of one verification. copies: as `on_gpu`, of logits that
    a readout made. vector_memory: bytes that a block's logits take there."""
    sizes = Sizes(*sizes)
    program = kernel_programs.on_tpu(asked, device, known, *sizes)
    compiled = tpu.compile(*program, device=device)
    size = 2 if "16" in sizes.dtype else 4
    whole = sizes.batch * sizes.gamma * sizes.vocab * size
    own = [k for k in hlo.everything(compiled.program) if k.target == "tpu_custom_call"]
    return {
        **described(device, asked, known, sizes),
        "launches": len(own),
        "temp_bytes": compiled.temp_bytes,
        "copies": len(hlo.large_moves(compiled.program, whole // 2)),
        "vector_memory": vmem_bytes(planned(known, sizes), size),
        "code_bytes": compiled.code_bytes,
    }
