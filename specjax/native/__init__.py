"""Products of a few rows with a matrix on a CPU, in code compiled for this machine.

Checking gamma + 1 tokens at once should cost hardly more than checking one, since both
read all weights once. XLA, however, rearranges the weights for more than one row: its
call on two to eight tokens takes 1.1 to 2.2 times as long. `thin.h` streams weights
instead, of floats and of eight bits (`Int8`). They are compiled at first use; where
that is not possible, XLA's product is used, and `problem` says why.
"""

from specjax.native.library import problem, sources
from specjax.native.product import CHOICES, THIN, XLA, in_use, products

__all__ = [
    "CHOICES",
    "THIN",
    "XLA",
    "in_use",
    "problem",
    "products",
    "sources",
]
