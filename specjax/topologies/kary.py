"""Every node has the same number of children, level by level until nodes run out."""

from collections.abc import Callable

from specjax.trees import ROOT


def build(width: int) -> Callable[[int], tuple[int, ...]]:
    """The topology of `width` children a node; 1 is a chain. Raises ValueError below
    1."""
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    return lambda nodes: tuple(i // width + ROOT for i in range(nodes))
