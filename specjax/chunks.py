"""Long prompts in bounded memory: a call on many tokens is split into portions.

Attention holds a score for each pair of a call's tokens and the slots that they see: a
prompt of T tokens in one call needs T^2 of them, in portions of P only P T. Axes: B
rows, T tokens in one call, P tokens of a portion, D features.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from specjax.types import Branches, Drafter, Model, Prompt, TargetCall

TOKENS = 512  # the default number of tokens of a portion


def prefill(
    model: Model, params: Any, prompt: Prompt, cache: Any, tokens: int = TOKENS
) -> Any:
    """Returns the cache after a right-padded prompt, read in portions of `tokens`.

    What a pad writes is stale: it is overwritten before it is read. A cache that stores
    only what is still seen, however, has room for the pads of one portion only; there a
    row is left unchanged by the portions that begin after its end. The last token is
    read by a step anyway, so a prompt of one token, such as an encoder-decoder's start
    token, is not read here.
    """
    if prompt.tokens.shape[1] == 1:
        return cache
    tokens = min(tokens, model.portion or tokens)

    def apply(
        params: Any, part: Array, at: Array, cache: Any, branches: Any = None
    ) -> tuple[Array, Any]:
        features, after = model.apply(params, part, at, cache)

        def keep_finished(new: Array, old: Array) -> Array:
            going = (at < prompt.length).reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(going, new, old)

        return features, jax.tree.map(keep_finished, after, cache)

    reader = model if model.portion is None else model._replace(apply=apply)
    zero = jnp.zeros_like(prompt.length)
    return read_in_portions(reader, tokens).apply(params, prompt.tokens, zero, cache)[1]


def first_slots(model: Model, params: Any, prompt: Prompt, cache: Any) -> Any:
    """Returns the cache that a prompt is read into: the first slots of `cache`, as many
    as the prompt has tokens.

    Attention over more slots takes longer, and where XLA computes it, its sums depend
    on their number, and so on gamma. See `put_first`.
    """
    width = prompt.tokens.shape[1]
    if width == 1:
        return cache
    shapes = jax.eval_shape(lambda params: model.init(params, prompt, width), params)

    def cut(leaf: Array, shape: Any) -> Array:
        return jax.lax.slice(leaf, [0] * leaf.ndim, shape.shape)

    return jax.tree.map(cut, cache, shapes)


def put_first(cache: Any, first: Any) -> Any:
    """Returns a cache with `first`, the cache of a prompt, in its first slots."""

    def put(leaf: Array, new: Array) -> Array:
        whole = new.shape == leaf.shape
        return new if whole else jax.lax.dynamic_update_slice(leaf, new, [0] * new.ndim)

    return jax.tree.map(put, cache, first)


def with_observer(
    target: Model, drafter: Drafter, weights: Any, prompt: Prompt
) -> Model:
    """Returns a target whose calls on portions of a prompt a drafter observes.

    Its cache is a pair, of the target and of the drafter with these `weights`. The last
    token of a prompt is not counted as accepted, since a step reads it again.
    """
    observe, read_hidden = drafter.observe, target.hidden
    assert observe is not None and read_hidden is not None  # see `trees.check_parts`

    def apply(
        params: Any, part: Array, at: Array, caches: Any, branches: Any = None
    ) -> tuple[Any, Any]:
        features, cache = target.apply(params, part, at, caches[0])
        count = jnp.minimum(part.shape[1], prompt.length - 1 - at) - 1
        seen = TargetCall(part, None, count, count, at, read_hidden(features))
        return features, (cache, observe(weights, caches[1], seen))

    return target._replace(apply=apply)


def check_room(model: Model, gamma: int, side: str) -> None:
    """Raises ValueError for drafts that a cache of only the last tokens could not undo.

    A step writes gamma + 1 tokens, of which the next may take back all but one. A ring
    buffer has room for `Model.portion` of those besides what is still seen. The message
    is one line and names the remedy.
    """
    if model.portion is not None and gamma + 1 > model.portion:
        raise ValueError(
            f"gamma = {gamma} writes {gamma + 1} tokens a step and the {side}'s layers"
            f" with a window take back {model.portion}: draft at most"
            f" {model.portion - 1}, or build it with portion={gamma + 1} or more"
        )


def read_in_portions(model: Model, tokens: int = TOKENS) -> Model:
    """Returns the same model, which reads at most `tokens` tokens of a row at once.

    Calls on no more than that, such as steps, are unchanged. So is a call without a
    cache, whose tokens see only each other. Raises ValueError for portions of less than
    one token; a call raises it for a tree of more than one portion.
    """
    if tokens < 1:
        raise ValueError(f"portions of {tokens} tokens: take 1 or more")

    def apply(
        params: Any,
        text: Array,
        start: Array,
        cache: Any,
        branches: Branches | None = None,
    ) -> tuple[Array, Any]:
        count = text.shape[1]
        if count <= tokens or cache is None:
            tree = () if branches is None else (branches,)
            return model.apply(params, text, start, cache, *tree)
        if branches is not None:
            raise ValueError(
                f"a tree of {count} tokens is one call: draft at most {tokens}"
            )
        parts, rest = divide(text, tokens)

        def read(carry: Any, part: Array) -> tuple[Any, Array]:  # part: [B, P]
            cache, at = carry
            features, cache = model.apply(params, part, at, cache)
            return (cache, at + tokens), features

        (cache, at), features = jax.lax.scan(read, (cache, start), parts)
        whole = len(parts) * tokens
        features = jax.tree.map(
            lambda x: x.swapaxes(0, 1).reshape(len(text), whole, *x.shape[3:]), features
        )
        if not rest.size:
            return features, cache
        # The rest is not padded: pads could lie beyond the cache's last slot.
        after, cache = model.apply(params, rest, at, cache)
        joined = jax.tree.map(
            lambda x, y: jnp.concatenate([x, y], axis=1), features, after
        )
        return joined, cache

    return model._replace(apply=apply)


def divide(text: Array, tokens: int) -> tuple[Array, Array]:
    """Returns the whole portions [T // P, B, P] of a text [B, T], and the rest."""
    whole = text.shape[1] // tokens * tokens
    parts = text[:, :whole].reshape(len(text), -1, tokens).swapaxes(0, 1)
    return parts, text[:, whole:]
