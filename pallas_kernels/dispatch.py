"""The choice of an implementation, by platform, compute capability and shape.

It is made before anything is lowered, never by catching an error: compiling a Mosaic
kernel for a GPU before Hopper ends the process. `Choice.why` gives the reason.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import jax

from pallas_kernels.gpu.decision import LANES
from pallas_kernels.gpu.launches import MOST
from pallas_kernels.plan import DEFERRED, Plan, Tiles
from pallas_kernels.tpu.block import block_place, vmem_bytes
from specjax.types import BLOCK

REFERENCE, ONEPASS = "reference", "onepass"
MOSAIC_GPU, MOSAIC_TPU, TRITON = "mosaic_gpu", "mosaic_tpu", "triton"
NAMES = (REFERENCE, ONEPASS, MOSAIC_GPU, MOSAIC_TPU, TRITON)
AMPERE, HOPPER = (8, 0), (9, 0)
TUNED = Path(__file__).with_name("tuned")
# MiB of vector memory per core, by JAX's names of the chips.
VMEM = {"TPU v5 lite": 128, "TPU v5": 64, "TPU v6 lite": 128, "TPU7x": 64}
VMEM_LEFT = 0.85  # the share of it for logits; the compiler uses the rest


class Device(NamedTuple):
    """The device that a program is compiled for.

    platform: "cpu", "gpu" or "tpu".
    kind: JAX's name of the device.
    capability: the compute capability of a GPU, (9, 0) for Hopper.
    """

    platform: str
    kind: str
    capability: tuple[int, int] | None = None


class Choice(NamedTuple):
    """An implementation and why it was chosen.

    name: one of NAMES.
    why: the reason, in words.
    tiles: how a GPU kernel splits the vocabulary.
    vmem: bytes that a TPU kernel may use.
    """

    name: str
    why: str
    tiles: Tiles | None = None
    vmem: int | None = None


class Timed(NamedTuple):
    """A shape that was measured on a device, and the fastest implementation there."""

    batch: int
    gamma: int
    vocab: int
    itemsize: int
    target: str
    draft: str
    name: str
    tiles: Tiles | None


def here(device: jax.Device | None = None) -> Device:
    """Returns the given device as a `Device`; by default that of JAX."""
    device = jax.devices()[0] if device is None else device
    capability = None
    version = str(getattr(device, "compute_capability", ""))
    if device.platform == "gpu" and version.replace(".", "").isdigit():  # not AMD's
        major, minor = version.split(".")
        capability = int(major), int(minor)
    return Device(device.platform, device.device_kind, capability)


def choose(plan: Plan, itemsize: int, device: Device, *, name: str = "auto") -> Choice:
    """Returns the implementation for a plan whose logits have `itemsize` bytes.

    name: "auto", or one of NAMES. Raises ValueError for one that this device or this
    shape does not allow.
    """
    if name != "auto":
        return choose_by_name(plan, itemsize, device, name=name)
    if device.platform == "tpu" and plan.target != DEFERRED:
        return Choice(ONEPASS, "a TPU, and the target's statistics are known")
    if device.platform == "tpu":
        name, why = MOSAIC_TPU, "a TPU, and the rows fit its vector memory"
    elif device.platform == "gpu" and device.capability is None:
        return Choice(ONEPASS, "a GPU that is not NVIDIA's")
    elif device.platform == "gpu" and device.capability >= HOPPER:
        if (choice := tuned_choice(plan, itemsize, device)) is not None:
            return choice
        name = MOSAIC_GPU
        why = f"Hopper or later; nothing near was measured on {device.kind}"
    elif device.platform == "gpu":
        return Choice(ONEPASS, "a GPU before Hopper")
    else:
        return Choice(REFERENCE, f"no kernels for {device.platform}")
    if reason := obstacle(name, plan, itemsize, device):
        return Choice(ONEPASS, reason)
    return Choice(name, why, tiles_for(plan, itemsize), vmem(device))


def choose_by_name(plan: Plan, itemsize: int, device: Device, *, name: str) -> Choice:
    """Returns the named implementation. Raises ValueError if it cannot run here."""
    if name not in NAMES:
        raise ValueError(f"no implementation {name!r}: choose one of auto, {NAMES}")
    if reason := obstacle(name, plan, itemsize, device):
        raise ValueError(f"{name} cannot run: {reason}; choose 'auto' or '{ONEPASS}'")
    return Choice(name, "asked for", tiles_for(plan, itemsize), vmem(device))


def obstacle(name: str, plan: Plan, itemsize: int, device: Device) -> str | None:
    """Returns why an implementation cannot run this plan here; None if it can."""
    if name in (REFERENCE, ONEPASS):
        return None
    if name == MOSAIC_TPU:
        return tpu_obstacle(plan, itemsize, device)
    if device.platform != "gpu":
        return f"{name} needs a GPU, and this is a {device.platform}"
    if device.capability is None:
        return f"{device.kind} is not an NVIDIA GPU"
    if name == MOSAIC_GPU and device.capability < HOPPER:
        major, minor = device.capability
        return f"{device.kind} is sm_{major}{minor}, and Mosaic needs sm_90 or later"
    if device.capability < AMPERE:
        return f"{device.kind} is older than what Triton compiles for, sm_80"
    if not BLOCK <= plan.vocab <= MOST:
        return f"a vocabulary of {plan.vocab} is outside of {BLOCK} .. {MOST}"
    if plan.gamma >= LANES:
        return f"gamma {plan.gamma} is more than {LANES - 1}"
    return None


def tpu_obstacle(plan: Plan, itemsize: int, device: Device) -> str | None:
    """Returns why Mosaic TPU cannot run this plan here; None if it can."""
    if device.platform != "tpu":
        return f"{MOSAIC_TPU} needs a TPU, and this is a {device.platform}"
    if plan.vocab < BLOCK:
        return f"a vocabulary of {plan.vocab} is below {BLOCK}"
    copies = 2 if plan.batch > block_place(plan).texts else 1
    needed = copies * vmem_bytes(plan, itemsize)
    held = (vmem(device) or 16 * 2**20) * VMEM_LEFT
    if needed > held:
        return f"its rows take {needed >> 20} MiB of vector memory"
    return None


def vmem(device: Device) -> int | None:
    """Returns the bytes of vector memory of a TPU core, None if not known."""
    mebibytes = VMEM.get(device.kind)
    return None if mebibytes is None else mebibytes * 2**20


def tiles_for(plan: Plan, itemsize: int) -> Tiles:
    """Returns tiles by rule: blocks that fill the chip first, then larger ones."""
    rows = plan.batch * sum(plan.rows(side) for side in plan.unread)
    largest = 16384 // itemsize
    stats = largest
    while stats > 1024 and rows * plan.vocab < stats * 1000:
        stats //= 2
    many = plan.batch * plan.count > 4096
    return Tiles(stats, 8 if many else 1, apart=many)


def tuned_choice(plan: Plan, itemsize: int, device: Device) -> Choice | None:
    """Returns the choice for a similar shape that was measured on this device; None if
    there is none."""
    path = tuned_file(device.kind, TUNED)
    if not path.is_file():
        return None
    near = [timed for timed in read(path) if is_same_kind(timed, plan, itemsize)]
    best = min(near, key=lambda timed: distance(timed, plan), default=None)
    if best is None or distance(best, plan) > 2:
        return None
    if reason := obstacle(best.name, plan, itemsize, device):
        return Choice(ONEPASS, reason)
    why = f"fastest at B {best.batch}, gamma {best.gamma}, V {best.vocab}: {path.name}"
    return Choice(best.name, why, best.tiles)


def tuned_file(kind: str, folder: Path) -> Path:
    """Returns the file of measurements on a kind of device."""
    return folder / f"{kind.lower().replace(' ', '_')}.json"


def read(path: Path) -> list[Timed]:
    """Returns the shapes of a file of measurements."""
    rows = json.loads(path.read_text("utf-8"))["shapes"]
    tiles = (row["tiles"] and Tiles(*row["tiles"]) for row in rows)
    return [Timed(**row | {"tiles": x}) for row, x in zip(rows, tiles, strict=True)]


def is_same_kind(timed: Timed, plan: Plan, itemsize: int) -> bool:
    """Returns whether a measurement has the item size, and the kinds of target and
    draft, of a plan."""
    kinds = timed.itemsize, timed.target, timed.draft
    return kinds == (itemsize, plan.target, plan.draft)


def distance(timed: Timed, plan: Plan) -> float:
    """Returns how far a measured shape is from a plan, in doublings of any size."""
    pairs = (timed.batch, plan.batch), (timed.gamma + 1, plan.gamma + 1)
    return sum(abs(math.log2(a / b)) for a, b in (*pairs, (timed.vocab, plan.vocab)))
