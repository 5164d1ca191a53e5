"""A side whose logits pass a top-k filter, as LaMDA's do: Table 3, footnote 6."""

from experiments.wagner import methods
from specjax.bench.players import Player


def top(side: Player, count: int) -> Player:
    """The side with all but the `count` largest of its logits at -inf.

    As `experiments.wagner.methods.filtered`. It has a name of its own: texts that a
    target wrote are kept by its name. Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"a filter keeps at least one id: set TOP_K; got {count}")
    (kept,) = methods.filtered((side,), count)
    return kept._replace(name=f"{side.name}, top {count}")
