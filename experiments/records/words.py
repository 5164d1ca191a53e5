"""Words that take the place of a number in a record of kernels, and ratios of numbers
or words.
"""

FAILED, SKIPPED = "failed", "skipped"
UNCLEAR = "no longer than the empty chain"
NO_PEER = "the other has no time"


def ratio(value: float | str, other: float | str, peer: bool = False) -> float | str:
    """Returns value / other, or the word of whichever has no time.

    Args:
        peer: a failure of `value` must not be shown as a failure of `other`.
    """
    if isinstance(other, str):
        return other
    if isinstance(value, str):
        return f"{NO_PEER}: {value}" if peer else value
    return value / other
