"""A small draft with a reduced vocabulary: it reads every id, and proposes some
thousands.

A readout of all ids would be most of a small draft's work. This one reads by the
target's own embedding, which is there already, and has a table with rows for the ids
that it says, the most frequent ones, as the drafts of EAGLE-3 (Li et al. 2025) have.
Its target may still write an id that it never says: the law of a text is the target's.
A Whisper's draft hears by the target's encoder, too.
Axes: B rows, T tokens, E features, V ids of the target, K of the draft.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.models import families
from specjax.models.families import Config
from specjax.types import Branches, Features, Model, Prompt, Reduced

UNSAID = -1e9  # a logit; where rules allow none of the draft's ids, it proposes another


class Reduction(NamedTuple):
    """A draft with a reduced vocabulary, before it has a target.

    config, params: of a decoder of K ids whose embedding is its readout, without an
    encoder. ids [K]: which of the target's they are, ascending.
    """

    config: Config
    params: Any
    ids: np.ndarray


def build(config: Config, whole: Config) -> Model:
    """Returns the model, whose parameters are those of `with_target`. config:
    `Reduction.config`. whole: the target's. Raises ValueError as `families.of` does."""
    decoder = families.build(config._replace(vocab=whole.vocab))
    encode = families.of(whole).encode

    def init(params: Any, prompt: Prompt, slots: int) -> Any:
        if encode is not None and isinstance(prompt.inputs, Features):
            heard = encode(whole, params["model"], prompt.inputs)
            prompt = prompt._replace(inputs=heard)
        return decoder.init(params["model"], prompt, slots)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
    ) -> tuple[Array, Any]:
        return decoder.apply(params["model"], tokens, start, cache, branches)

    def readout(params: Any, features: Array) -> Reduced:
        own = with_embedding(params["model"], params["readout"])
        return Reduced(decoder.readout(own, features), params["ids"], params["place"])

    return decoder._replace(init=init, apply=apply, readout=readout, shapes=None)


def spread(model: Model) -> Model:
    """Returns the same model with logits [..., V], which rules can mask: `UNSAID` for
    the ids that it never proposes."""

    def readout(params: Any, features: Array) -> Array:
        return probs.expand_logits(model.readout(params, features), UNSAID)

    return model._replace(readout=readout)


def with_target(draft: Reduction, params: Any) -> dict[str, Any]:
    """Returns the parameters of a draft that reads tokens by its target's embedding,
    and inputs by its target's encoder; neither is copied. Raises ValueError for a
    target of another width, or that lacks an id."""
    embedding, ids = find_embedding(params), draft.ids
    vocab, width = embedding.shape
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
    heard = {name: params[name] for name in ("encoder",) if name in params}
    known = {"ids": jnp.asarray(ids, jnp.int32), "place": jnp.asarray(place)}
    model = with_embedding(draft.params, embedding) | heard
    return {"model": model, "readout": find_embedding(draft.params), **known}


def is_reduced(params: Any) -> bool:
    """Returns whether these are parameters of `with_target`."""
    return "place" in params


def find_embedding(params: Any) -> Any:
    """Returns the embedding in the parameters of a decoder, with or without an
    encoder."""
    return params.get("decoder", params)["embedding"]


def with_embedding(params: Any, table: Any) -> dict[str, Any]:
    """Returns the same parameters with another embedding."""
    if "decoder" in params:
        return {**params, "decoder": {**params["decoder"], "embedding": table}}
    return {**params, "embedding": table}
