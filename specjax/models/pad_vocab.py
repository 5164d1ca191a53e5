"""A draft whose vocabulary is padded or cut to that of its target.

Axes: B rows, T tokens, E features, V vocabulary.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from specjax.models.reduced_vocab import UNSAID
from specjax.types import Branches, Model, Prompt


def pad_vocab(model: Model, vocab: int) -> Model:
    """Returns the same model with a vocabulary of `vocab` ids: the first ones, or with
    padding.

    Ids that it does not know have logits of -inf, so that it never writes them; where a
    text holds one it reads its own last id instead. Logits of ids beyond `vocab` are
    left out. As a draft it is as exact as any: the law of a text is the target's.
    """
    if vocab == model.vocab:
        return model
    missing = max(vocab - model.vocab, 0)

    def clip_to_vocab(tokens: Array) -> Array:
        return jnp.minimum(tokens, model.vocab - 1)

    def init(params: Any, prompt: Prompt, slots: int) -> Any:
        inputs = prompt.inputs
        if inputs is not None:  # ids, as a model with an encoder of texts reads them
            inputs = clip_to_vocab(inputs[0]), inputs[1]
        prompt = prompt._replace(tokens=clip_to_vocab(prompt.tokens), inputs=inputs)
        return model.init(params, prompt, slots)

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
    ) -> tuple[Array, Any]:
        return model.apply(params, clip_to_vocab(tokens), start, cache, branches)

    def readout(params: Any, features: Array) -> Array:
        logits = model.readout(params, features)[..., :vocab]
        widths = [(0, 0)] * (logits.ndim - 1) + [(0, missing)]
        return jnp.pad(logits, widths, constant_values=UNSAID)

    return model._replace(init=init, apply=apply, readout=readout, vocab=vocab)
