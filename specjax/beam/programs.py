"""The compiled programs of beam search, kept for each pair, settings and shape."""

import functools
from typing import NamedTuple

import jax
from jax.stages import Wrapped

from specjax.beam import search
from specjax.beam.settings import BeamConfig
from specjax.checkpoints import Config
from specjax.drafts.source import REDUCED_VOCAB, SAMPLED, DraftSource, Recipe, recipe
from specjax.models import families, llama, pad_vocab, reduced_vocab
from specjax.models.constrained import constrained
from specjax.types import Model, TokenAutomaton


class ProgramKey(NamedTuple):
    """The key of a program: all that it is compiled for besides shapes. It is hashable.

    draft: the recipe of the model that drafts, None for none. config:
    `BeamConfig.static`. slots: the number of slots of the caches. rules: what both
    models' logits are changed by.
    """

    target: Config
    draft: Recipe | None
    config: BeamConfig
    slots: int
    rules: TokenAutomaton | None = None


@functools.lru_cache(maxsize=32)
def program(key: ProgramKey) -> Wrapped:
    """Returns the search of a key, jitted; the same function for the same key."""
    target = families.build(key.target)
    if target.portion is not None and isinstance(key.target, llama.Config):
        target = with_room(key.target, target.vocab, key.slots)
    draft = None if key.draft is None else key.draft()
    if key.rules is not None:
        target = constrained(target, key.rules)
        draft = None if draft is None else constrained(draft, key.rules)
    return jax.jit(search.build(target, draft, key.config))


def draft_recipe(draft: DraftSource, slots: int, *, ruled: bool = False) -> Recipe:
    """Returns the recipe of the model that drafts beams, in caches of `slots` slots.
    ruled: whether rules will mask its logits, which must then be those of all ids.
    Raises ValueError for a draft that is not a model that reads trees."""
    if draft.model is None or draft.model().keep is None:
        raise ValueError(
            f"{draft.name} drafts no beams: name a model with the target's tokenizer,"
            " bigram, or None for the target alone"
        )
    if ruled and draft.regime == REDUCED_VOCAB:
        return recipe(_spread, model=draft.model)
    own = draft.pretrained
    if own is None or own.model.portion is None or draft.regime != SAMPLED:
        return draft.model
    return recipe(with_room, config=own.config, vocab=own.vocab, slots=slots)


def _spread(model: Recipe) -> Model:
    return reduced_vocab.spread(model())


def with_room(config: llama.Config, vocab: int, slots: int) -> Model:
    """Returns a model of Llama's kind whose layers with a window keep `slots` slots:
    beams take more of them than a text does."""
    return pad_vocab.pad_vocab(llama.build(config, slots), vocab)
