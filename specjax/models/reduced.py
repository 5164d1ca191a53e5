"""A small decoder that reads every id of its target, and says some thousands of them.

A readout of all ids would be most of a small draft's work. This one reads by the
target's own embedding, which is there already, and has rows of a table for the ids that
it says, the most frequent ones, as the drafts of EAGLE-3 (Li et al. 2025) have. What it
never says its target still may: the law of a text is the target's.
Axes: B rows, T tokens, E features, V ids of the target, K of the draft.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models import llama
from specjax.types import Branches, Model, Prompt, Reduced


class Reduction(NamedTuple):
    """A draft, before it has a target. config, params: of a decoder of K ids whose
    embedding is its readout. ids [K]: which of the target's they are, ascending."""

    config: llama.Config
    params: Any
    ids: np.ndarray


def build(config: llama.Config, vocab: int) -> Model:
    """The model, of the parameters of `with_embedding`. config: `Reduction.config`.
    vocab: V."""
    decoder = llama.build(config._replace(vocab=vocab))

    def init(params: Any, prompt: Prompt, slots: int) -> Any:
        return decoder.init(params["decoder"], prompt, slots)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
    ) -> tuple[Array, Any]:
        return decoder.apply(params["decoder"], tokens, start, cache, branches)

    def readout(params: Any, features: Array) -> Reduced:
        logits = decoder.readout({"embedding": params["readout"]}, features)
        return Reduced(logits, params["ids"], params["place"])

    return decoder._replace(init=init, apply=apply, readout=readout, shapes=None)


def with_embedding(draft: Reduction, embedding: Any) -> dict[str, Any]:
    """The parameters of a draft that reads by its target's embedding [V, E], which is
    not copied. Raises ValueError for one of another width, or that lacks an id."""
    (vocab, width), ids = embedding.shape, draft.ids
    if width != draft.config.dim:
        raise ValueError(
            f"it reads by an embedding of width {draft.config.dim}, and its target's"
            f" has {width}: name the target that it was trained for"
        )
    if (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= vocab:
        raise ValueError(
            f"d2t must give ids that ascend, of the {vocab} of its target: name the"
            " target that it was trained for"
        )
    place = np.full(vocab, ids.size, np.int32)
    place[ids] = np.arange(ids.size)
    decoder = {**draft.params, "embedding": embedding}
    known = {"ids": jnp.asarray(ids, jnp.int32), "place": jnp.asarray(place)}
    return {"decoder": decoder, "readout": draft.params["embedding"], **known}
