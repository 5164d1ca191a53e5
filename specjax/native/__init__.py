"""Products of a few rows with a matrix on a CPU, by code compiled for the machine.

Checking gamma + 1 tokens at once should cost hardly more than one: both read all
weights once. XLA packs them anew for more than one row: a call on two to eight tokens
takes it 1.1 to 2.2 times as long. `thin.cc` streams them, and `thin_int8.cc` those that
are in eight bits (`Int8`). They are compiled at first use; where that cannot be, XLA's
product serves, and `problem` says why.
"""

from specjax.native.library import SOURCE, problem, sources
from specjax.native.product import CHOICES, THIN, XLA, in_use, products

__all__ = [
    "CHOICES",
    "SOURCE",
    "THIN",
    "XLA",
    "in_use",
    "problem",
    "products",
    "sources",
]
