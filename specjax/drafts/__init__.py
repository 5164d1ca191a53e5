"""Drafts by their names; `load_draft` documents the grammar of names.

A drafter that only has a name knows nothing of the target; the functions of `DRAFTS`
get it where they have a parameter `target`, and so does one of a user's own.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax import pretrained
from specjax.checkpoints import Pretrained, reduced_vocab
from specjax.drafts import (
    counts,
    heads,
    hierarchies,
    models,
    retrieval,
    trees,
    vocabularies,
)
from specjax.drafts.custom import custom_source
from specjax.drafts.source import DraftLike, DraftSource
from specjax.runtime.plugins import (
    call_with_options,
    is_custom,
    is_module,
    module_file,
    resolve,
    usage,
)

DRAFTS: dict[str, Callable[..., DraftSource]] = {
    "copying": retrieval.copying,
    "copying_else": retrieval.copying_else,
    "suffix": retrieval.suffix,
    "anchored": retrieval.anchored,
    "datastore": retrieval.texts_store,
    "recycling": retrieval.recycling,
    "early_exit": models.early_exit,
    "tree": trees.tree,
    "hierarchy": hierarchies.hierarchy,
    "lookahead": retrieval.lookahead,
    "strings": vocabularies.strings_source,
    "random": lambda target: counts.random(target.vocab),
    "unigram": lambda target: counts.target_counts(target, 1),
    "bigram": lambda target: counts.target_counts(target, 2),
}
# Parameters of these functions that are not options of a name. pair: `pair` below.
CONTEXT = {"target", "pair"}


def load_draft(name: str, target: Pretrained) -> DraftSource:
    """Returns the draft of a name for a target, in its dtype.

    It may be given to `generate_text` again and again.

    Args:
      name: "copying", "copying:longest=5", "early_exit:4", "random", "unigram",
        "bigram", what `specjax.load` takes, the folder or hub's id of a head (EAGLE-3,
        EAGLE, Medusa), or your own "my_module:builder" (see the guide on writing one).
      target: for whom it drafts.

    Raises:
      ValueError: there is no such draft, in one line that lists those that there are.
    """
    bare, _, options = name.partition(":")
    if bare in DRAFTS:
        context = {"target": target, "pair": pair}
        return call_with_options(name, DRAFTS[bare], options, context)
    if is_custom(name):
        return custom_source(name, target)
    if (path := reduced_vocab.find(name)) is not None:
        return models.load_reduced_vocab(path, target)
    if (path := heads.find(name)) is not None:
        return heads.load_head(path, target, "" if path == Path(name) else name)
    return models.model_source(read_model(name, pretrained.load, target.dtype))


def read_model(name: str, read: Callable[[str, str], Any], dtype: str) -> Any:
    """Returns the result of `read` for a model's name. Where there is no such model,
    the ValueError says what else a draft may be."""
    try:
        return read(name, dtype)
    except ValueError as error:
        if "no checkpoint at" not in str(error):
            raise
        if is_module(name):
            raise ValueError(
                f"{name} is a module: write {name}:NAME, of what it has"
            ) from None
        raise ValueError(f"{error}; a draft may also be {usages()}") from None


def usages() -> str:
    """Returns the names of drafts that are not models, in the form that a user
    writes."""
    each = [usage(name, build, CONTEXT) for name, build in DRAFTS.items()]
    return f"{', '.join(each)} or module:name"


def load_target(name: str, dtype: str, cache: str | None = None) -> Pretrained:
    """Returns a model that decodes. cache: see `specjax.load`. Raises ValueError for
    the name of a draft that cannot be a target."""
    check_target_name(name)
    return pretrained.load(name, dtype, cache=cache)


def pair(target: Pretrained, draft: DraftLike) -> tuple[Pretrained, DraftSource]:
    """Returns a target and its draft in the target's vocabulary; the target also gives
    the hidden states that the draft reads.

    Args:
      target: M_p.
      draft: M_q: what drafts, a model that does, or the name of either (`load_draft`).

    Raises:
      ValueError: the target is a name, or only drafts; as `load_draft`; or as
        `vocabularies.match_vocab`.
    """
    if isinstance(target, str):
        raise ValueError(
            f"TARGET = {target!r} is a name: include gin_configs/checkpoints/target.gin"
            f" and write TARGET_NAME = {target!r}"
        )
    if not isinstance(target, Pretrained):
        raise ValueError(f"{target.name} only drafts: name a model as the target")
    if isinstance(draft, str):
        draft = load_draft(draft, target)
    elif isinstance(draft, Pretrained):
        draft = models.model_source(draft)
    draft = vocabularies.match_vocab(target, draft)
    return pretrained.with_taps(target, draft.taps), draft


# What is seen of names before weights are read.


def check_names(
    target: str, draft: str | None, dtype: str
) -> tuple[Pretrained, tuple[Path, ...]]:
    """Returns the target without its weights, and the files of the draft. draft: None
    for a target alone. Raises ValueError for names of a pair that `load_target` and
    `load_draft` would refuse."""
    check_target_name(target)
    files = () if draft is None else draft_files(draft, dtype)
    return pretrained.describe(target, dtype), files


def draft_files(name: str, dtype: str) -> tuple[Path, ...]:
    """Returns the files of a draft. Raises ValueError for a name that `load_draft`
    would refuse."""
    bare, _, options = name.partition(":")
    if bare in DRAFTS:

        @functools.wraps(DRAFTS[bare])
        def files_in(
            *several: str,
            draft: str | None = None,
            file: str | None = None,
            **more: Any,
        ) -> tuple[Path, ...]:
            if "gammas" in more:
                hierarchies.check_names(several, more["gammas"])
            names = several if draft is None else (draft,)
            inner = [path for name in names for path in draft_files(name, dtype)]
            return (*inner,) if file is None else (*inner, Path(file))

        bundled = counts.bundled_files() if bare in ("unigram", "bigram") else ()
        return (
            *bundled,
            *call_with_options(name, files_in, options, dict.fromkeys(CONTEXT)),
        )
    if is_custom(name):
        resolve(name)
        return (module_file(name),)
    if (path := reduced_vocab.find(name)) is not None:
        return (path,)
    if (path := heads.find(name)) is not None:
        return heads.head_paths(path)
    return pretrained.files_of(read_model(name, pretrained.describe, dtype))


def check_target_name(name: str) -> None:
    """Raises ValueError for the name of a draft that cannot be a target."""
    if is_draft_name(name):
        raise ValueError(f"{name} only drafts: name a model as the target")


def is_draft_name(name: str) -> bool:
    """Returns whether a name is that of a draft that is not a model."""
    return name.partition(":")[0] in DRAFTS or is_custom(name)
