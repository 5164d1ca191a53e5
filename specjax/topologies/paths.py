"""Several paths side by side, which share nothing but the last committed token."""

from collections.abc import Callable

from specjax.trees import ROOT


def build(count: int) -> Callable[[int], tuple[int, ...]]:
    """Returns the topology of `count` paths, level by level; 1 is a chain.

    Raises ValueError below 1.
    """
    if count < 1:
        raise ValueError(f"there is at least one path; got {count}")
    return lambda nodes: tuple(max(i - count, ROOT) for i in range(nodes))
