"""Fused verification as compiled for GPUs and TPUs that need not be there.

Kernels, registers, spills, widths of loads, instructions and copies are facts of the
machine code, and what a faster chip cannot mend. Nothing is timed.
Axes: B rows, G = gamma, V vocabulary.
"""

import json
from collections.abc import Sequence
from functools import partial

from tqdm import tqdm

from experiments.aot import cuda, hlo, inspect, tpu
from experiments.aot import programs as kernel_programs
from experiments.aot.programs import DEVICES, Sizes
from pallas_kernels import dispatch
from pallas_kernels.laws import Deferred
from pallas_kernels.plan import Plan, plan
from pallas_kernels.tpu.block import vmem_bytes
from specjax.bench.row import Measurement
from specjax.types import Draft, Law

THREADS = 128  # of a warp group, which a Mosaic block is


def build(device: str, programs: Sequence[tuple]) -> Measurement:
    """The measurement of one device.

    programs: (implementation, what is known, B, G, V, dtype); "draw" for what is known
    is a draw of the draft loop. Raises ValueError for a device that is not known.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: name one of {sorted(DEVICES)}")
    run = partial(measure, device, [tuple(one) for one in programs])
    path = cuda.TARGETS / f"{device}.txtpb"
    return Measurement(run, __name__, (path,) if path.is_file() else (), "as named")


def measure(device: str, programs: Sequence[tuple]) -> dict:
    """Every program, and by flat names what the table's lines ask for.

    Raises ValueError, with the command that installs it, where the compiler is missing.
    """
    gpu = DEVICES[device].platform == "gpu"
    if reason := (cuda if gpu else tpu).available():
        raise ValueError(f"kernels are compiled by the vendors' compilers: {reason}")
    one = on_gpu if gpu else on_tpu
    found = [one(device, *program) for program in tqdm(programs, disable=None)]
    flat = {}
    for made in found:
        flat |= {f"{key_of(made)}:{k}": v for k, v in made.items() if k in QUANTITIES}
    return {"device": device, "programs": found, **flat}


QUANTITIES = ("launches", "registers", "spills", "widest_load", "instructions")
QUANTITIES += ("temp_bytes", "copies", "vector_memory", "captured")


def key_of(made: dict) -> str:
    sizes = "B{batch} g{gamma} V{vocab} {dtype}".format(**made)
    return f"{made['asked']} {made['known']} {sizes}"


def described(device: str, asked: str, known: str, sizes: Sizes) -> dict:
    """What was asked for, and what `dispatch` made of it."""
    itemsize = 2 if "16" in sizes.dtype else 4
    plan = planned(known, sizes)
    choice = dispatch.choose(plan, itemsize, DEVICES[device], asked)
    tiles = choice.tiles and choice.tiles._asdict()
    said = {"asked": asked, "known": known, **sizes._asdict()}
    return said | {"ran": choice.name, "why": choice.why, "tiles": tiles}


def planned(known: str, sizes: Sizes) -> Plan:
    given = kernel_programs.shapes(sizes)
    p, q = given.laws
    heat = given.sampling.temperature
    target, law = Law(given.target, *p), Law(given.draft, *q)
    if known != "both":
        target = Deferred(given.target, heat)
    if known == "nothing":
        law = Deferred(given.draft, heat)
    return plan(target, Draft(given.tokens, given.num, law))


def on_gpu(device: str, asked: str, known: str, *sizes) -> dict:
    """launches: kernels of one verification; captured: those in a CUDA graph.
    registers: most of a kernel. widest_load, in bytes, and instructions, PTX a logit
    that a thread reads: of the kernel that reads statistics. copies: of half of the
    draft's logits and more.
    """
    sizes = Sizes(*sizes)
    name, given = "on_gpu", [asked, device, known, *sizes]
    if known == "draw":
        name, given = "drawing", [asked, device, *sizes]
    named = f"{kernel_programs.__name__}:{name}"
    report = inspect.inspect(f"{named}:{json.dumps(given)}", device)
    program = getattr(kernel_programs, name)(*given)
    compiled = cuda.compile(*program, device=device)
    rows = 1 if known == "draw" else sizes.gamma
    whole = sizes.batch * rows * sizes.vocab * (2 if "16" in sizes.dtype else 4)
    said = described(device, asked, "draft" if known == "draw" else known, sizes)
    reads = [k for k in report.kernels if "statistics" in k.name]
    per = None
    if reads and said["tiles"]:
        part = said["tiles"]["stats"] / THREADS * (2 if known == "nothing" else 1)
        per = round(reads[0].instructions / part, 1)
    return {
        **said,
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
    found = [getattr(k, field) for k in kernels]
    return None if None in found else max(found)


def on_tpu(device: str, asked: str, known: str, *sizes) -> dict:
    """launches: Pallas kernels of one verification. copies: as `on_gpu`, of logits that
    a readout made. vector_memory: bytes that a block's logits take there."""
    sizes = Sizes(*sizes)
    made = kernel_programs.on_tpu(asked, device, known, *sizes)
    compiled = tpu.compile(*made, device=device)
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
