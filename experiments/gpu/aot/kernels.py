"""Fused verification, compiled for GPUs and TPUs that need not be present.

Kernels, registers, spills, widths of loads, instructions and copies are facts of the
machine code, which a faster chip does not change. Nothing is timed. Axes: B rows, G =
gamma, V vocabulary, E features.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from experiments.gpu.aot import compilers, hlo, inspect
from experiments.gpu.aot.compilers import DEVICES
from experiments.gpu.kernels import inputs, programs
from experiments.gpu.kernels.inputs import Inputs, Shape
from experiments.gpu.kernels.programs import BOTH, CARRIED, DRAFT, NONE, Place
from pallas_kernels import dispatch, fuse, plan
from pallas_kernels.fuse import Options
from pallas_kernels.tpu.block import vmem_bytes
from specjax.measure.row import Measurement
from specjax.runtime import progress
from specjax.types import Sampling
from specjax.verifiers import token

THREADS = 128  # of a warp group, which a Mosaic block is
FEATURES = 256  # E, of the readout that makes the logits on a TPU
DRAW = "draw"
# What is known of the laws, and how `programs` calls it.
KNOWN = {"nothing": NONE, "draft": DRAFT, "both": BOTH, DRAW: DRAFT}
QUANTITIES = ("launches", "registers", "spills", "widest_load", "instructions")
QUANTITIES += ("temp_bytes", "copies", "vector_memory", "captured")


def build(device: str, programs: Sequence[tuple]) -> Measurement:
    """Returns the measurement of one device.

    Args:
        programs: (implementation, known laws, B, G, V, dtype); "draw" instead of known
            laws is a draw of the draft loop.

    Raises:
        ValueError: the device is unknown.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: name one of {sorted(DEVICES)}")
    run = partial(measure, device, [tuple(program) for program in programs])
    path = compilers.TARGETS / f"{device}.txtpb"
    return Measurement(run, __name__, (path,) if path.is_file() else (), "as named")


def measure(device: str, programs: Sequence[tuple]) -> dict:
    """Returns the numbers of every program, also under the names that the table's lines
    read."""
    compilers.check(device)
    every = progress.track(programs, "programs")
    measured = [describe(device, *program) for program in every]
    flat = {}
    for entry in measured:
        key = "{asked} {known} B{batch} g{gamma} V{vocab} {dtype}".format(**entry)
        flat |= {f"{key}:{k}": v for k, v in entry.items() if k in QUANTITIES}
    return {"device": device, "programs": measured, **flat}


def describe(device: str, asked: str, known: str, *sizes) -> dict:
    """Compiles one program, and describes the request, the choice of `dispatch`, and
    the machine code.

    Returns:
        copies: the number of copies of at least half of the draft's logits.
        launches: kernels of one verification, on a TPU those of Pallas.
        vector_memory: the bytes of logits in VMEM.
        captured: launches in a CUDA graph.
        registers: the most of any kernel.
        widest_load, instructions: of the kernel that reads statistics, in bytes, and in
            PTX instructions for each logit that a thread reads.
    """
    shape = Shape(*sizes)
    target, draft = CARRIED[KNOWN[known]]
    planned = plan.plan_for_shape(plan.Shape(*shape[:3], draft), target=target)
    choice = dispatch.choose(planned, shape.itemsize, DEVICES[device], name=asked)
    tiles = choice.tiles and choice.tiles._asdict()
    entry = {"asked": asked, "known": known, **shape._asdict()}
    entry |= {"ran": choice.name, "why": choice.why, "tiles": tiles}
    function, arguments = program(device, asked, known, *sizes)
    compiled = compilers.compile(function, arguments, device=device)
    half = shape.row_bytes(1 if known == DRAW else shape.gamma) // 2
    entry |= {"temp_bytes": compiled.temp_bytes}
    entry |= {"copies": len(hlo.large_moves(compiled.program, half))}
    if DEVICES[device].platform == "tpu":
        every = hlo.all_kernels(compiled.program)
        return entry | {
            "launches": sum(kernel.target == "tpu_custom_call" for kernel in every),
            "vector_memory": vmem_bytes(planned, shape.itemsize),
            "code_bytes": compiled.code_bytes,
        }
    arguments = json.dumps([device, asked, known, *shape])
    report = inspect.inspect(f"{__name__}:program:{arguments}", device)
    kernels = report.kernels
    reads = [kernel for kernel in kernels if "statistics" in kernel.name]
    per = None
    if reads and tiles:
        part = tiles["stats"] / THREADS * (2 if known == "nothing" else 1)
        per = round(reads[0].instructions / part, 1)
    all_known = all(kernel.registers is not None for kernel in kernels)
    return entry | {
        "launches": report.launches,
        "captured": report.captured,
        "registers": max(k.registers for k in kernels) if all_known else None,
        "spills": max(k.spills for k in kernels) if all_known else None,
        "widest_load": max(k.widest_load for k in reads or kernels),
        "instructions": per,
        "kernels": [k._asdict() for k in kernels],
    }


def program(device: str, asked: str, known: str, *sizes) -> tuple[Callable, tuple]:
    """Returns the function to compile, and its arguments as shapes.

    It is a verification, on a TPU after the products that make its logits, because
    these decide their layout; or a draw.

    Args:
        asked: one of `dispatch.NAMES`, or "auto".
        known: one of KNOWN.
    """
    shape, place = Shape(*sizes), Place(DEVICES[device])
    if known == DRAW:
        return draw_program(asked, place, shape)
    verify = programs.verification(asked, KNOWN[known], place=place)
    whole = inputs.shapes(shape)

    def run(batch: Inputs) -> tuple:
        return verify(batch)[:3]  # n, tokens, accept_prob

    if place.device.platform == "gpu":
        return run, (whole,)

    def verify_features(features: tuple, kernel, batch: Inputs) -> tuple:
        product = partial(jnp.dot, preferred_element_type=jnp.float32)
        target, draft = (product(x, kernel).astype(shape.dtype) for x in features)
        return run(batch._replace(target=target, draft=draft))

    half = partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    rows = tuple(half((*z.shape[:2], FEATURES)) for z in (whole.target, whole.draft))
    rest = whole._replace(target=None, draft=None)
    return verify_features, (rows, half((FEATURES, shape.vocab)), rest)


def draw_program(asked: str, place: Place, shape: Shape) -> tuple[Callable, tuple]:
    """Returns a draw from logits [B, V], as in the loop of a draft; gamma is not
    used."""
    fused = fuse.build(token.verify, place.device, Options(asked))

    def run(logits, temperature, u):
        id_, law = fused.draw(logits, Sampling(temperature), u)
        return id_, law.scale, law.top, law.tau, law.tie, law.lse

    of, (batch, _, vocab, dtype) = jax.ShapeDtypeStruct, shape
    settings = of((batch,), jnp.float32), of((batch, 2), jnp.float32)
    return run, (of((batch, vocab), dtype), *settings)
