"""Words that stand in a record of kernels where a number would, and their ratios."""

FAILED, SKIPPED = "failed", "skipped"
UNCLEAR = "no longer than the empty chain"
NO_PEER = "the other has no time"


def over(value: float | str, other: float | str, peer: bool = False) -> float | str:
    """value / other, or the word of what has no time. peer: a failure of `value` is not
    that of `other`."""
    if isinstance(other, str):
        return other
    if isinstance(value, str):
        return f"{NO_PEER}: {value}" if peer else value
    return value / other
