"""The tree whose nodes all have the same number of children, filled level by level."""

from collections.abc import Callable

from specjax.trees import ROOT


def build(width: int) -> Callable[[int], tuple[int, ...]]:
    """Returns the topology of `width` children per node; 1 is a chain.

    Raises ValueError below 1.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    return lambda nodes: tuple(i // width + ROOT for i in range(nodes))
