"""Words that stand in a record of kernels where a number would, and their ratios."""

FAILED, SKIPPED = "failed", "skipped"
NO_PEER = "the other has no time"


def over(one: float | str, other: float | str, peer: bool = False) -> float | str:
    """one / other, or the word of what has no time.

    peer: `other` is compared with `one`, whose failure is not its own.
    """
    if isinstance(other, str):
        return other
    if isinstance(one, str):
        return f"{NO_PEER}: {one}" if peer else one
    return one / other
