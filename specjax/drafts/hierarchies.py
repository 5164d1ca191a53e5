"""Hierarchies: draft models with drafts of their own (Leviathan et al. 2023, Section
6)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from specjax import chunks
from specjax.checkpoints import Pretrained
from specjax.drafters import nothing
from specjax.drafts import heads, levels
from specjax.drafts.models import chain
from specjax.drafts.source import (
    SAMPLED,
    TABLE,
    DraftSource,
    Recipe,
    check_pair,
    recipe,
)
from specjax.runtime.plugins import is_custom
from specjax.types import Drafter, Law, Params

# Names of drafts that can stand below a model: what a level above rejects leaves
# nothing behind in them.
LOWEST = "unigram", "bigram", "copying", "suffix", "datastore", "recycling", "random"
# Names that draft in another way than token by token, and why they stand nowhere.
NOWHERE = {
    "tree": "drafts trees, and the levels of a hierarchy verify chains",
    "lookahead": "drafts trees, and the levels of a hierarchy verify chains",
    "early_exit": "reads the cache of its target, which is behind within a hierarchy",
    "strings": "has a cache in ids of its own, which cannot be taken back",
    "anchored": "follows a place in the input, which cannot be taken back",
    "copying_else": "is two drafts in one: name either of them",
    "hierarchy": "is a hierarchy: write all drafts in one, A,B,C",
}


def hierarchy(
    *draft: str, target: Pretrained, pair: Callable, gammas: str
) -> DraftSource:
    """Returns the draft of a model that is accelerated by a further draft, and so on
    (`drafts.levels`).

    Args:
      *draft: names: of a model that drafts for the target, then of what drafts for this
        model, and so on; all in the target's vocabulary.
      target: for whom the first drafts.
      pair: as `drafts.pair`.
      gammas: how many tokens each draft after the first drafts at a time, "4" or "4/6";
        or each of all drafts, and the first then drafts at most that many tokens,
        whatever gamma is.

    Raises:
      ValueError: as `check_names`; or for a draft that does not fit its level.
    """
    most, below = check_names(draft, gammas)
    *above, lowest = [pair(target, name)[1] for name in draft]
    for name, source in zip(draft, above, strict=False):
        check_middle(name, source)
        check_pair(target, source, with_alpha=False)
    check_pair(target, lowest, with_alpha=False)
    factory = recipe(
        _levels,
        models=tuple(source.model for source in above),
        lowest=last_recipe(draft[-1], lowest, level=len(draft)),
        below=below,
        most=most,
    )
    params, first = lowest.params, above[0]
    for source in reversed(above):
        params = Params(source.params, params)
    rest = zip([*above[1:], lowest], below, strict=True)
    by = ", then ".join(f"{source.name} (gamma {gamma})" for source, gamma in rest)
    own = first.name if most is None else f"{first.name} (at most {most})"
    made = DraftSource(
        name=f"{own}, accelerated by {by}",
        factory=factory,
        params=params,
        vocab=target.vocab,
        regime=SAMPLED,
        law=first.law and partial(_law_of_first, first.law),
        files=tuple(dict.fromkeys(x for it in (*above, lowest) for x in it.files)),
    )
    made.drafter(1)
    return made


def _law_of_first(law: Callable, params: Params, *asked: Any) -> Law:
    return law(params.target, *asked)


def _levels(
    gamma: int,
    draw: Callable,
    *,
    models: tuple[Recipe, ...],
    lowest: Recipe,
    below: tuple[int, ...],
    most: int | None,
) -> Drafter:
    """Returns the drafter of the levels, the first of which drafts for the target."""
    gammas = (gamma if most is None else min(gamma, most), *below)
    if not gamma:
        return nothing.drafter
    drafter = lowest(gamma=gammas[-1], draw=draw)
    for level, build in reversed([*enumerate(models, start=1)]):
        model = build()
        # The levels above may take back as much as all of them draft.
        chunks.check_room(model, sum(gammas[: level + 1]), "draft")
        drafter = levels.build(model, drafter, gammas[level - 1], draw, level=level)
    return drafter


def check_names(
    names: Sequence[str], gammas: str
) -> tuple[int | None, tuple[int, ...]]:
    """Returns the most tokens that the first draft drafts, None for any number, and how
    many each of the others drafts.

    Raises ValueError for names, or a number of gammas, that do not form a hierarchy.
    """
    if len(names) < 2:
        raise ValueError(
            f"{', '.join(names) or 'nothing'} is not a hierarchy: name a model and what"
            " drafts for it, hierarchy:MODEL,bigram,gammas=4"
        )
    for name in names:
        bare = name.partition(":")[0]
        if bare in NOWHERE:
            raise ValueError(f"{bare} {NOWHERE[bare]}")
        if is_custom(name):
            raise ValueError(
                f"{name} may keep what a level above it rejects: name a model, or one"
                f" of {', '.join(LOWEST)}, in a hierarchy"
            )
        if heads.is_folder(name):
            raise ValueError(
                f"{name} is a head, and reads hidden states, which no level gives: name"
                " a model in a hierarchy"
            )
    for name in names[:-1]:
        if name.partition(":")[0] in {*LOWEST} - {"bigram"}:
            raise ValueError(
                f"{name} is not a model: only the last draft may be another"
            )
    try:
        each = tuple(int(text) for text in gammas.split("/"))
    except ValueError:
        each = ()
    if len(each) not in (len(names) - 1, len(names)) or min(each) < 1:
        raise ValueError(
            f"gammas={gammas} of {len(names)} drafts: write the most tokens of each but"
            f" the first, gammas={'/'.join(['4'] * (len(names) - 1))}, or of each"
        )
    return (None, each) if len(each) < len(names) else (each[0], each[1:])


def check_middle(name: str, source: DraftSource) -> None:
    """Raises ValueError for a draft that no other draft can accelerate."""
    if source.model is None:
        raise ValueError(f"{name} is not a model: only the last draft may be another")
    if source.factory.build is not chain and source.regime != TABLE:
        raise ValueError(
            f"{name} has another tokenizer than the target, and its caches cannot be"
            " taken back: name models of one tokenizer in a hierarchy"
        )


def last_recipe(name: str, source: DraftSource, *, level: int) -> Recipe:
    """Returns the recipe of the last draft of a hierarchy.

    It reads again as many tokens as the `level` levels above it may have left unread.
    Raises ValueError for a draft whose cache cannot go back when these levels reject
    tokens.
    """
    if source.factory.build is chain:
        return source.factory.change(behind=level + 1)
    if name.partition(":")[0] in LOWEST or source.drafter(1).init is nothing.no_cache:
        return source.factory
    raise ValueError(
        f"{name} has a cache that cannot be taken back: name a model of the target's"
        f" tokenizer, or one of {', '.join(LOWEST)}, last in a hierarchy"
    )
