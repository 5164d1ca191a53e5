"""A draft with another tokenizer writes in its own ids; its text is tokenized again.

This is string-level exact match (SLEM) of Timor et al. (ICML 2025),
https://arxiv.org/abs/2502.05202. What the draft wrote becomes text, the target's
tokenizer cuts it, together with the last tokens that were kept, and the target keeps
what it would write itself. The draft takes its most probable id at any temperature, so
a draft is certain (law None) and a function of the text. Decoding is therefore exact,
whatever the tokenizers return. Tokenizers run on the host, which is called once per
step. The kept text is read like in `drafters.intersection`. Axes: B rows, G = gamma, N
tokens that a draft follows.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks
from specjax.drafters.autoregressive import catch_up, init_fn
from specjax.drafters.intersection import (
    TargetVocabCache,
    in_target_vocab,
    limit_to_room,
)
from specjax.drafters.ngram import last_tokens
from specjax.types import Draft, Drafter, Model, Request, State

BEHIND = 8  # tokens before a draft that are tokenized with it, as they may change it


def build(
    model: Model, gamma: int, vocab: int, stretch: int, respelled: Callable
) -> Drafter:
    """Returns a drafter of at most `gamma` tokens, by as many ids of the draft `model`.

    Args:
      model: the draft, with the parameters of `Spelling.params`.
      gamma: the most tokens of a draft.
      vocab: the number of the target's ids.
      stretch: see `intersection.in_target_vocab`.
      respelled: (behind [B, N], said [B, G]) -> (tokens [B, G], num [B]), on the host,
        see `tokenizers.retokenize`.

    Raises:
      ValueError: if gamma < 1, or is more than the model's caches can take back.
    """
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1 for strings; got {gamma}")
    reader = in_target_vocab(model, vocab, stretch)
    chunks.check_room(reader, gamma, "draft")

    def draft(
        key: Array, params: Any, request: Request, state: State
    ) -> tuple[Draft, TargetVocabCache]:
        del key, request

        def most_likely(features: Array) -> Array:
            logits = model.readout(params["model"], features)
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)

        # The kept part of the last draft has not been read in the draft's own ids.
        features, cache = catch_up(reader, params, state, gamma + 1)
        end = jnp.take_along_axis(cache.ends, state.length[:, None], axis=1)[:, 0]

        def draft_token(slot: Array, carry: tuple) -> tuple:
            said, own = carry
            last = jax.lax.dynamic_slice_in_dim(said, slot - 1, 1, axis=1)
            features, own = model.apply(params["model"], last, end + slot - 1, own)
            return said.at[:, slot].set(most_likely(features[:, 0])), own

        said = jnp.full((end.size, gamma), -1).at[:, 0].set(most_likely(features))
        most = jnp.minimum(jnp.max(state.budget), gamma)
        said, own = jax.lax.fori_loop(1, most, draft_token, (said, cache.model))
        behind = last_tokens(state.tokens, state.length, BEHIND)
        shapes = [jax.ShapeDtypeStruct(x.shape, jnp.int32) for x in (said, end)]
        tokens, num = jax.pure_callback(respelled, tuple(shapes), behind, said)
        num = jnp.minimum(num, state.budget)
        return Draft(tokens, num, None), TargetVocabCache(own, cache.ends)

    drafter = Drafter(init_fn(reader), draft, gamma, vocab)
    return limit_to_room(drafter, model, stretch)
