"""What is published of accelerators: bytes that they hold, read and send, and FLOPs.

Nothing here was measured by us. GB are 1e9 bytes.
"""

from typing import NamedTuple

GOOGLE = "https://docs.cloud.google.com/tpu/docs/"
NVIDIA = "NVIDIA's data sheet, SXM, without sparsity"


class Chip(NamedTuple):
    """One device. memory: bytes that programs may have. bandwidth: bytes a second that
    it reads from it. flops: a second, in bfloat16. link: bytes a second that it sends
    to others, half of what is published for both ways. slice: of eight, as `aot` names
    them. source: of these numbers; a TPU's memory is what libtpu's compiler says that
    programs may have of it, in GiB."""

    memory: float
    bandwidth: float
    flops: float
    link: float
    slice: str
    source: str


CHIPS = {
    "v5e": Chip(15.75 * 2**30, 819e9, 197e12, 200e9, "2x4", f"{GOOGLE}v5e"),
    "v5p": Chip(95.73 * 2**30, 2765e9, 459e12, 600e9, "2x2x2", f"{GOOGLE}v5p"),
    "v6e": Chip(31.24 * 2**30, 1638e9, 918e12, 400e9, "2x4", f"{GOOGLE}v6e"),
    "h100": Chip(80e9, 3.35e12, 989e12, 450e9, "1x1x8", NVIDIA),
    "h200": Chip(141e9, 4.8e12, 989e12, 450e9, "1x1x8", NVIDIA),
}
