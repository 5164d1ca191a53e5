"""Trees that a model drafts: of a fixed shape, or another for every text."""

from collections.abc import Callable

from specjax.checkpoints import Pretrained
from specjax.drafters import best_first, forked, nothing
from specjax.drafters import grown as grows
from specjax.drafters import tree as trees
from specjax.drafts.source import (
    CERTAIN,
    SAMPLED,
    TABLE,
    DraftSource,
    Recipe,
    derived_source,
    recipe,
)
from specjax.drafts.vocabularies import limit_to_room
from specjax.topologies import kary, likeliest
from specjax.topologies import paths as side_by_side
from specjax.types import Drafter


def tree(
    target: Pretrained,
    pair: Callable,
    draft: str,
    *,
    width: int = 2,
    accept: str = "",
    longest: int = 0,
    siblings: str = "without",
    best: int = 0,
    floors: str = "",
    grown: str = "",
    copied: int = 0,
    paths: int = 0,
) -> DraftSource:
    """Returns the draft of a tree of gamma nodes that a model drafts.

    Args:
      target: for whom it drafts.
      pair: as `drafts.pair`.
      draft: any model that drafts, or "bigram".
      width: children of a node.
      accept: chances of the i-th sibling to be accepted, as "0.6/0.3/0.2": the tree
        that then keeps most, in the place of `width`.
      longest: tokens of a path at most; 0 is any.
      siblings: whether siblings are drawn "with" or "without" replacement.
      best: another tree for every text, the most likely of this many children a node
        (`drafters.best_first`, with `floors`).
      floors: the floors of `best`, probabilities as those of `accept`.
      grown: another tree for every text, drawn where it seems kept
        (`drafters.grown`), with floors for each child.
      copied: a chain and, beside it, a copy of this many tokens (`drafters.forked`).
      paths: this many paths side by side, for siblings="with" and the rule
        greedy_block.

    Raises:
      ValueError: the draft is not a model, or an option has an invalid value.
    """
    numbers = {"width": width, "longest": longest, "best": best}
    for option, value in (numbers | {"copied": copied, "paths": paths}).items():
        if value < 0:
            raise ValueError(f"{option}={value}: write a number that is not negative")
    other = pair(target, draft)[1]
    if other.model is None:
        raise ValueError(f"{draft} is not a model: a tree is drafted by one")
    factory = recipe(
        _tree,
        model=other.model,
        width=width,
        paths=paths,
        longest=longest or None,
        siblings=siblings,
        best=best,
        copied=copied,
        accept=parse_chances("accept", accept),
        floors=parse_chances("floors", floors),
        grown=parse_chances("grown", grown),
    )
    source = derived_source(
        other,
        name=f"tree of {other.name}",
        factory=limit_to_room(other, factory),
        regime=SAMPLED if other.regime == TABLE else other.regime,
    )._replace(pretrained=other.pretrained)
    certain = source.drafter(2 * max(1, copied)).siblings == "certain"
    return source._replace(regime=CERTAIN) if certain else source


def _tree(
    gamma: int,
    draw: Callable,
    *,
    model: Recipe,
    width: int,
    paths: int,
    longest: int | None,
    siblings: str,
    best: int,
    copied: int,
    accept: tuple[float, ...],
    floors: tuple[float, ...],
    grown: tuple[float, ...],
) -> Drafter:
    """Returns the drafter for the options of `tree`."""
    del draw  # trees draw siblings by a rule of their own
    if gamma == 0:
        return nothing.drafter
    if copied:
        return forked.build(model(), gamma, copied)
    if grown:
        return grows.build(model(), gamma, grown, longest)
    if best:
        return best_first.build(
            model(), gamma, width=best, longest=longest or gamma, floors=floors
        )
    if accept:
        shape = likeliest.build(accept, longest)
    else:
        shape = side_by_side.build(paths) if paths else kary.build(width)
    return trees.build(model(), shape(gamma), siblings)


def parse_chances(name: str, text: str) -> tuple[float, ...]:
    """Returns the probabilities in the value of an option, such as "0.6/0.3/0.2". name:
    that of the option, for the message of the ValueError."""
    try:
        return tuple(float(x) for x in text.split("/") if x)
    except ValueError:
        raise ValueError(
            f"{name}={text}: write probabilities with / between them, 0.6/0.3/0.2"
        ) from None
