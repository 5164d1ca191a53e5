"""Who drafts, by name, wherever a draft is named: `named` has the grammar.

A drafter that only has a name knows nothing of the target; the functions of `DRAFTS`
are told of it where they have a parameter `target`, and so is one's own.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax import pretrained
from specjax.checkpoints import reduced
from specjax.drafts import kinds as draft_kinds
from specjax.drafts import source as sides
from specjax.drafts.kinds import own
from specjax.drafts.source import Side
from specjax.pretrained import Pretrained
from specjax.runtime.plugins import (
    call_with_options,
    file_of,
    is_custom,
    is_module,
    resolve,
    usage,
)

DRAFTS: dict[str, Callable[..., Side]] = {
    "copying": sides.copied,
    "copying_else": draft_kinds.copying_else,
    "suffix": sides.suffix,
    "anchored": sides.anchored,
    "datastore": draft_kinds.stored,
    "recycling": draft_kinds.recycled,
    "early_exit": draft_kinds.early_exit,
    "tree": draft_kinds.tree,
    "lookahead": sides.lookahead,
    "strings": draft_kinds.by_strings,
    "random": lambda target: sides.random(target.vocab),
    "unigram": lambda target: draft_kinds.counted(target, 1),
    "bigram": lambda target: draft_kinds.counted(target, 2),
}
# What these functions are told beside the options of a name. paired: (target, a draft's
# name) -> both.
TOLD = {"target", "paired"}


def load_draft(name: str, target: Pretrained) -> Side:
    """A draft for a target, to be given to `generate_text` again and again.

    Args:
      name: "copying", "copying:longest=5", "early_exit:4", "random", "unigram",
        "bigram", what `specjax.load` takes, or one's own "my_module:builder" (see the
        guide on writing one).
      target: for whom it drafts.

    Raises:
      ValueError: there is no such draft, in one line that lists those that there are.
    """
    return named(name, sides.of_pretrained(target))


def named(name: str, target: Side) -> Side:
    """The draft of a name, for a target and in its dtype; see `load_draft`."""
    bare, _, options = name.partition(":")
    if bare in DRAFTS:
        told = {"target": target, "paired": paired}
        return call_with_options(name, DRAFTS[bare], options, told)
    if is_custom(name):
        return own(name, target)
    if (path := reduced.find(name)) is not None:
        return of_some_ids(path, target)
    return of_model(name, sides.model, target.dtype)


def of_model(name: str, load: Callable, dtype: str) -> Any:
    """What `load` makes of a model's name; where there is none, it is told what else a
    draft may be."""
    try:
        return load(name, dtype)
    except ValueError as error:
        if "no checkpoint at" not in str(error):
            raise
        if is_module(name):
            raise ValueError(
                f"{name} is a module: write {name}:NAME, of what it has"
            ) from None
        raise ValueError(f"{error}; a draft may also be {spelled()}") from None


def of_some_ids(path: Path, target: Side) -> Side:
    """The draft in a file with `d2t`."""
    if target.pretrained is None:
        raise ValueError(f"{target.name} has no embedding to read by: name a model")
    draft = reduced.load(path, target.dtype)
    return sides.reduced(path.stem, draft, target.pretrained)._replace(files=(path,))


def spelled() -> str:
    """The names that are no model's, as a person writes them."""
    each = [usage(name, build, TOLD) for name, build in DRAFTS.items()]
    return f"{', '.join(each)} or module:name"


def target(name: str, dtype: str, cache: str | None = None) -> Side:
    """A model that decodes; cache: as of `specjax.load`. Raises ValueError for the name
    of what only drafts."""
    check_target(name)
    return sides.model(name, dtype, cache=cache)


def paired(target: Side, draft: Side | str) -> tuple[Side, Side]:
    """As `sides.paired`, with a draft that may be a name (`named`).

    Raises ValueError as both, and for a target that is a name.
    """
    if isinstance(target, str):
        raise ValueError(
            f"TARGET = {target!r} is a name: include gin_configs/checkpoints/target.gin"
            f" and write TARGET_NAME = {target!r}"
        )
    if isinstance(draft, str):
        draft = named(draft, target)
    return sides.paired(target, draft)


# What is seen of names before weights are read.


def check(target: str, draft: str, dtype: str) -> tuple[Pretrained, tuple[Path, ...]]:
    """Returns the target without its weights, and the files that the draft is made of.
    Raises ValueError for names of a pair that `target` and `named` would refuse."""
    check_target(target)
    return pretrained.describe(target, dtype), check_draft(draft, dtype)


def check_draft(name: str, dtype: str) -> tuple[Path, ...]:
    """Returns the files that a draft is made of. Raises ValueError for a name that
    `named` would refuse."""
    bare, _, options = name.partition(":")
    if bare in DRAFTS:

        @functools.wraps(DRAFTS[bare])
        def named_in(
            draft: str | None = None, file: str | None = None, **_
        ) -> tuple[Path, ...]:
            inner = () if draft is None else check_draft(draft, dtype)
            return inner if file is None else (*inner, Path(file))

        counts = draft_kinds.counts() if bare in ("unigram", "bigram") else ()
        return (
            *counts,
            *call_with_options(name, named_in, options, dict.fromkeys(TOLD)),
        )
    if is_custom(name):
        resolve(name)
        return (file_of(name),)
    if (path := reduced.find(name)) is not None:
        return (path,)
    return pretrained.files_of(of_model(name, pretrained.describe, dtype))


def check_target(name: str) -> None:
    if is_named(name):
        raise ValueError(f"{name} only drafts: name a model as the target")


def is_named(name: str) -> bool:
    """Whether a name is that of a draft which is no model."""
    return name.partition(":")[0] in DRAFTS or is_custom(name)
