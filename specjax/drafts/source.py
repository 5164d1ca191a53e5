"""The draft of a target: its drafter, its weights, and what is recorded of it.

p is the target M_p, q the drafter M_q. Axes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from specjax.checkpoints import Pretrained
from specjax.drafters.rollout import draw_independent
from specjax.pretrained import files_of
from specjax.types import Drafter, Law, Prompt, Sampling

# What a draft carries (`specjax.types.Draft.law`).
SAMPLED, TABLE, CERTAIN = "sampled law", "table law", "certain"
REDUCED_VOCAB = "law of some ids"


class Recipe(NamedTuple):
    """A function and the options that it is called with.

    Two recipes are equal where these are, so that what is compiled for one serves the
    other. options: pairs of a name and a hashable value; `recipe` writes them.
    """

    build: Callable[..., Any]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, **context: Any) -> Any:
        return self.build(**context, **dict(self.options))

    def change(self, **options: Any) -> "Recipe":
        """Returns the recipe with other values for these options."""
        return recipe(self.build, **dict(self.options) | options)


def recipe(build: Callable[..., Any], /, **options: Any) -> Recipe:
    """Returns the recipe that calls `build` with these options."""
    return Recipe(build, tuple(options.items()))


class DraftSource(NamedTuple):
    """A drafter for a target, with its weights and what is recorded of it.

    Attributes:
      name: as records have it.
      factory: (gamma=, draw=) -> Drafter, which takes `params`; see `drafters.rollout`
        for `draw`.
      params: weights as the drafter takes them; None for a drafter without any.
      vocab: V; None for a drafter of any vocabulary.
      regime: what its drafts carry: SAMPLED, TABLE, CERTAIN or REDUCED_VOCAB.
      law: (params, Prompt, Sampling) -> Law [B, T] of the token after each token of the
        prompt, as the drafter would draw it; None where a draft may be empty.
      files: what it was read from.
      model: the recipe of the model that drafts token by token, by which a tree can be
        drafted too; None where there is none.
      pretrained: the model whose weights draft, with its tokenizer; None where none
        does.
      taps: the places of the target whose hidden states it reads, see `types.Hidden`,
        besides those of the last layer.
    """

    name: str
    factory: Recipe
    params: Any
    vocab: int | None
    regime: str
    law: Callable[[Any, Prompt, Sampling], Law] | None = None
    files: tuple[Path, ...] = ()
    model: Recipe | None = None
    pretrained: Pretrained | None = None
    taps: tuple[int, ...] = ()

    def drafter(self, gamma: int, draw: Callable = draw_independent) -> Drafter:
        """Returns the drafter of at most gamma tokens, or nodes of a tree."""
        return self.factory(gamma=gamma, draw=draw)

    @property
    def dtype(self) -> str:
        """The dtype of the weights as they were loaded."""
        return "float32" if self.pretrained is None else self.pretrained.dtype

    @property
    def encodes(self) -> bool:
        """Returns whether the prompts need inputs for an encoder."""
        return self.pretrained is not None and self.pretrained.encodes


# What a function that measures takes as the draft of a pair: `drafts.pair`.
DraftLike = DraftSource | Pretrained | str


def certain_source(
    name: str, build: Callable[..., Drafter], params: Any = None, **options: Any
) -> DraftSource:
    """Returns the source of drafts without a law.

    Args:
      name: as records have it.
      build: ``(gamma, **options) -> Drafter``, which draws nothing.
      params: as the drafter takes them.
      **options: hashable, and the same for every gamma.
    """
    factory = recipe(_without_draw, build=build, **options)
    return DraftSource(name, factory, params, vocab=None, regime=CERTAIN)


def _without_draw(
    gamma: int, draw: Callable, build: Callable[..., Drafter], **options: Any
) -> Drafter:
    del draw  # nothing is drawn
    return build(gamma=gamma, **options)


def derived_source(
    other: DraftSource, *, name: str, factory: Recipe, regime: str
) -> DraftSource:
    """Returns a source that drafts in another way with the parameters of `other`."""
    source = other._replace(name=name, factory=factory, regime=regime)
    return source._replace(law=None, model=None, pretrained=None)


def record_names(target: Pretrained, draft: DraftSource) -> dict[str, str]:
    """Returns the names of a target and a draft, in the form that a record has them.

    Weights that were stored in fewer bits are another model than the published one:
    `stored` says which they are.
    """
    names = {"target": target.name, "draft": draft.name, "draft_regime": draft.regime}
    if target.stored:
        names["stored"] = target.stored
    return names


def check_pair(
    target: Pretrained, draft: DraftSource, *, with_alpha: bool = True
) -> None:
    """Raises ValueError for a target and a draft that cannot decode together.

    Args:
      target: M_p.
      draft: M_q.
      with_alpha: refuses a draft without a law at every position too.
    """
    if with_alpha and draft.law is None:
        raise ValueError(
            f"{draft.name} has no law at every position, so no alpha: measure its"
            " walltime or its accepted tokens instead"
        )
    if draft.vocab not in (None, target.vocab):
        raise ValueError(
            f"{target.name} has a vocabulary of {target.vocab}, {draft.name} one of"
            f" {draft.vocab}, and no tokenizers that say which ids are common: name a"
            " pair with one tokenizer, beside the weights of both"
        )
    if draft.encodes and not target.encodes:
        raise ValueError(
            f"{draft.name} reads the prompt with an encoder and {target.name} has none:"
            " name two models of one kind"
        )


def pair_files(target: Pretrained, draft: DraftSource) -> tuple[Path, ...]:
    """Returns the files of a target and a draft, which provenance records."""
    return *files_of(target), *draft.files
