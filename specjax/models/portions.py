"""Long prompts in bounded memory: a call on many tokens is worked off in portions.

Attention holds a score for each pair of a call's tokens and the slots they see, so that
a prompt of T tokens at once needs T^2 of them; in portions of P it needs P T.
Axes: B rows, T tokens in one call, P tokens of a portion, D features.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.types import Model

TOKENS = 512  # of a portion, unless another number is asked for


def worked_in(model: Model, tokens: int = TOKENS) -> Model:
    """The same model, which reads at most so many tokens of a row at once.

    Calls of no more than that, such as steps, are as they were. A call without a cache
    is too: its tokens see each other alone.

    Raises:
      ValueError: portions of less than one token.
    """
    if tokens < 1:
        raise ValueError(f"portions of {tokens} tokens: take 1 or more")

    def apply(params, text: Array, start: Array, cache):
        count = text.shape[1]
        if count <= tokens or cache is None:
            return model.apply(params, text, start, cache)
        whole = count // tokens * tokens
        parts = text[:, :whole].reshape(len(text), -1, tokens).swapaxes(0, 1)

        def read(carry, part):  # part: [B, P]
            cache, at = carry
            features, cache = model.apply(params, part, at, cache)
            return (cache, at + tokens), features

        (cache, at), features = jax.lax.scan(read, (cache, start), parts)
        features = features.swapaxes(0, 1).reshape(len(text), whole, -1)
        if whole == count:
            return features, cache
        # Never filled up with pads: those could lie beyond the cache's last slot.
        rest, cache = model.apply(params, text[:, whole:], at, cache)
        return jnp.concatenate([features, rest], axis=1), cache

    return model._replace(apply=apply)
