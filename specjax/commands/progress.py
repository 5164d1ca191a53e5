"""One line for each row that is measured: what runs now, then what became of it.

On a terminal the line is written over; in a log it is begun and then ended.
"""

import sys


def begin(label: str) -> None:
    print(f"{label} ...", end="\r" if sys.stdout.isatty() else " ", flush=True)


def end(label: str, outcome: str) -> None:
    print(f"{label}: {outcome}" if sys.stdout.isatty() else outcome, flush=True)
