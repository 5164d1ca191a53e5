"""Random models whose law depends on the whole text, and beam search by its definition.

A model of `context_model` looks its logits up by a sum over the tokens that it sees and
their positions, in whole numbers: whatever a call's size, they are the same bits.
Axes: B rows, T tokens of a call, S slots, R contexts, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.tree_mask import token_positions, tree_over_slots
from specjax.types import Branches, Model

CONTEXTS = 499  # R, a prime


def context_model(vocab: int) -> Model:
    """Returns a model whose parameters are logits [R, V], one row for each context."""

    def init(params, prompt, slots):
        del params
        return jnp.zeros((len(prompt.tokens), slots), jnp.int32)

    def apply(params, tokens, start, cache, branches: Branches | None = None):
        put = jax.vmap(jax.lax.dynamic_update_slice_in_dim, (0, 0, 0, None))
        cache = put(cache, tokens, start, 0)
        size = cache.shape[1]
        own = token_positions(start, tokens.shape[1], branches)
        slot = jnp.arange(size)
        if branches is None:
            mask, stands = slot <= own[..., None], jnp.broadcast_to(slot, cache.shape)
        else:
            tree = tree_over_slots(branches, start, size)
            mask, stands = tree.mask, tree.stands
        weight = (cache + 1) * factor(stands)
        context = jnp.where(mask, weight[:, None], 0).sum(-1) % CONTEXTS
        return params[context], cache

    def keep(cache, start, path):
        moved = jnp.take_along_axis(cache, start[:, None] + path, axis=1)
        put = jax.vmap(jax.lax.dynamic_update_slice_in_dim, (0, 0, 0, None))
        return put(cache, moved, start, 0)

    return Model(init, apply, lambda params, features: features, vocab, keep=keep)


def factor(position):
    return (position * position * 31 + position * 7 + 3) % CONTEXTS


def context_logits(table: np.ndarray) -> Callable[[Sequence[int]], np.ndarray]:
    """Returns a function text -> logits [V] of the same model."""

    def logits(text: Sequence[int]) -> np.ndarray:
        weight = (np.array(text) + 1) * factor(np.arange(len(text)))
        return table[weight.sum() % CONTEXTS]

    return logits


class Hypothesis(NamedTuple):
    """A text: its new tokens, and their log p, which is the final score once it has
    ended."""

    tokens: tuple[int, ...]
    score: float


def search_by_definition(
    logits: Callable[[Sequence[int]], np.ndarray],
    prompt: Sequence[int],
    *,
    width: int,
    most: int,
    ends: Sequence[int],
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
) -> tuple[list[Hypothesis], int]:
    """Returns the finished texts, best first, and the number of steps.

    Lists and sorting, a whole text for each law: nothing in it is of the library.
    """
    running, finished = [Hypothesis((), np.float32(0))], []

    def final(score, length):
        return np.float32(score) / np.float32(float(length) ** length_penalty)

    for step in range(1, most + 1):
        every = []
        for tokens, score in running:
            z = np.float64(logits([*prompt, *tokens]))
            logs = z - z.max() - np.log(np.exp(z - z.max()).sum())
            every += [
                Hypothesis((*tokens, i), score + np.float32(x))
                for i, x in enumerate(logs)
            ]
        every.sort(key=lambda it: -it.score)  # stable: then by beam and id
        over = {it.tokens for it in every if it.tokens[-1] in ends or step == most}
        done = [it for it in every[:width] if it.tokens in over]
        finished += [Hypothesis(it.tokens, final(it.score, step)) for it in done]
        finished = sorted(finished, key=lambda it: -it.score)[:width]
        running = [it for it in every if it.tokens not in over][:width]
        if not running:
            break
        if len(finished) < width:
            continue
        if early_stopping is True:
            break
        ahead = step
        if early_stopping == "never" and length_penalty > 0 and width > 1:
            ahead = most
        if final(running[0].score, ahead) <= finished[-1].score:
            break
    return finished, step
