"""The speed of the memory, which limits the speed of every step of decoding."""

from functools import partial
from typing import NamedTuple

from experiments.gpu.kernels.timing import copy_speed, read_speed
from specjax.measure.row import Measurement

GB = 1e9


class MemorySetting(NamedTuple):
    """The sizes of a measurement of the memory.

    Attributes:
        copied, read: bytes of the arrays that a loop copies, and reads.
    """

    copied: int = 2**30
    read: int = 8 * 10**9


def build(setting: MemorySetting) -> Measurement:
    """Returns the measurement of the speeds. Raises ValueError for an empty array."""
    for name, size in setting._asdict().items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1 byte; got {size}")
    return Measurement(partial(measure, setting), __name__, dtype="float32")


def measure(setting: MemorySetting) -> dict:
    """Returns GB a second of a looped copy, read and written, and of a looped read."""
    return {
        **setting._asdict(),
        "copy_gb_s": copy_speed(setting.copied) / GB,
        "read_gb_s": read_speed(setting.read) / GB,
    }
