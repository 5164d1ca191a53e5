"""A draft among the ids of a target that knows more tokens, or fewer.

Axes: B rows, T tokens, E features, V vocabulary.
"""

import jax.numpy as jnp
from jax import Array

from specjax.types import Branches, Model, Prompt


def pad_vocab(model: Model, vocab: int) -> Model:
    """The same model with the first `vocab` ids. Ids that it does not know have logits
    of -inf, so that it never writes them; where a text holds one it reads its own last
    id instead. Logits of ids beyond `vocab` are left out. As a draft it is as exact as
    any: the law of a text is the target's."""
    if vocab == model.vocab:
        return model
    missing = max(vocab - model.vocab, 0)

    def in_vocab(tokens: Array) -> Array:
        return jnp.minimum(tokens, model.vocab - 1)

    def init(params, prompt: Prompt, slots: int):
        inputs = prompt.inputs
        if inputs is not None:  # ids, as a model with an encoder of texts reads them
            inputs = in_vocab(inputs[0]), inputs[1]
        prompt = prompt._replace(tokens=in_vocab(prompt.tokens), inputs=inputs)
        return model.init(params, prompt, slots)

    def apply(
        params, tokens: Array, start: Array, cache, branches: Branches | None = None
    ):
        return model.apply(params, in_vocab(tokens), start, cache, branches)

    def readout(params, features: Array) -> Array:
        logits = model.readout(params, features)[..., :vocab]
        widths = [(0, 0)] * (logits.ndim - 1) + [(0, missing)]
        return jnp.pad(logits, widths, constant_values=-jnp.inf)

    return model._replace(init=init, apply=apply, readout=readout, vocab=vocab)
