"""Long prompts in bounded memory: a call on many tokens is worked off in portions.

Attention holds a score for each pair of a call's tokens and the slots they see, so that
a prompt of T tokens at once needs T^2 of them; in portions of P it needs P T.
Axes: B rows, T tokens in one call, P tokens of a portion, D features.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.types import Branches, Model, Prompt

TOKENS = 512  # of a portion, unless another number is asked for


def prefill(model: Model, params, prompt: Prompt, cache, tokens: int = TOKENS):
    """The cache after a right-padded prompt, of which at most so many tokens of a row
    are read at once. What a pad wrote is stale: written over before it is read. But a
    cache that keeps only what is still seen has room for the pads of one portion, so
    that there a row is left as it is by the portions that begin after its end. The last
    token is read by a step anyway: of a prompt of no other, as an encoder-decoder's
    start token, nothing is read here."""
    if prompt.tokens.shape[1] == 1:
        return cache
    tokens = min(tokens, model.portion or tokens)

    def apply(params, part: Array, at: Array, cache, branches=None):
        features, after = model.apply(params, part, at, cache)

        def kept(new: Array, old: Array) -> Array:
            going = (at < prompt.length).reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(going, new, old)

        return features, jax.tree.map(kept, after, cache)

    reader = model if model.portion is None else model._replace(apply=apply)
    zero = jnp.zeros_like(prompt.length)
    return in_chunks(reader, tokens).apply(params, prompt.tokens, zero, cache)[1]


def check_room(model: Model, gamma: int, side: str) -> None:
    """Refuses drafts that a cache of the last tokens could not take back. A step writes
    gamma + 1 tokens, of which the next may take back all but one; a ring has room for
    `Model.portion` of those beside what is still seen. Raises ValueError, in one
    line, which names the fix."""
    if model.portion is not None and gamma + 1 > model.portion:
        raise ValueError(
            f"gamma = {gamma} writes {gamma + 1} tokens a step and the {side}'s layers"
            f" with a window take back {model.portion}: draft at most"
            f" {model.portion - 1}, or build it with portion={gamma + 1} or more"
        )


def in_chunks(model: Model, tokens: int = TOKENS) -> Model:
    """The same model, which reads at most so many tokens of a row at once. Calls of no
    more than that, such as steps, are as they were. A call without a cache is too: its
    tokens see each other alone. Raises ValueError for portions of less than one token;
    in a call, a tree of more than one portion."""
    if tokens < 1:
        raise ValueError(f"portions of {tokens} tokens: take 1 or more")

    def apply(
        params, text: Array, start: Array, cache, branches: Branches | None = None
    ):
        count = text.shape[1]
        if count <= tokens or cache is None:
            tree = () if branches is None else (branches,)
            return model.apply(params, text, start, cache, *tree)
        if branches is not None:
            raise ValueError(
                f"a tree of {count} tokens is one call: draft at most {tokens}"
            )
        parts, rest = divide(text, tokens)

        def read(carry, part):  # part: [B, P]
            cache, at = carry
            features, cache = model.apply(params, part, at, cache)
            return (cache, at + tokens), features

        (cache, at), features = jax.lax.scan(read, (cache, start), parts)
        whole = len(parts) * tokens
        features = features.swapaxes(0, 1).reshape(len(text), whole, -1)
        if not rest.size:
            return features, cache
        # Never filled up with pads: those could lie beyond the cache's last slot.
        after, cache = model.apply(params, rest, at, cache)
        return jnp.concatenate([features, after], axis=1), cache

    return model._replace(apply=apply)


def divide(text: Array, tokens: int) -> tuple[Array, Array]:
    """Whole portions [T // P, B, P] of a text [B, T], and the rest of it."""
    whole = text.shape[1] // tokens * tokens
    parts = text[:, :whole].reshape(len(text), -1, tokens).swapaxes(0, 1)
    return parts, text[:, whole:]
