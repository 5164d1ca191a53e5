"""The losses of heads that read their target: EAGLE-3, Medusa and blockwise parallel
heads.

A head of EAGLE-3 reads its own estimates while it drafts, so it learns on them too: it
is unrolled over the text ("training-time test", Li et al. 2025,
https://arxiv.org/abs/2503.01840, Section 3.1). Turn j reads at every place what it
would after j drafted tokens: a text with all its turns is a tree whose chains leave the
text at every token, so that the layer is the one that drafts. Medusa's head i predicts
the token i + 2 places after a state (Cai et al. 2024, https://arxiv.org/abs/2401.10774,
Section 2.2.1).
Axes: B rows, L tokens, D features of the target, H of the head, K kept ids, C = K + 1
classes, V ids that the head proposes, J turns or heads.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.drafters import eagle3, heads, medusa
from specjax.models.cache import KeyValues, write_row
from specjax.training import losses, written
from specjax.training.target_states import Lesson
from specjax.types import Branches, ModelReadout, Prompt


class Turn(NamedTuple):
    """The logits of a head in one turn, after each token but the last of a text.

    Attributes:
      logits: [B, L - 1, V].
      shift: the law after token t + shift is what logits[:, t] estimate.
      first: the first t that counts.
    """

    logits: Array
    shift: int
    first: int


class Objective(NamedTuple):
    """The loss of a head, a weighted mean over its turns.

    Attributes:
      loss: a name of `losses.LOSSES`.
      decay: the weight of a turn relative to the one before.
    """

    loss: str
    decay: float


PredictTurns = Callable[[Any, Lesson], list[Turn]]


def eagle3_turns(config: eagle3.Config, turns: int) -> PredictTurns:
    """Returns the function (parameters of the head, batch) -> its logits in each turn;
    in the first turn the head reads only the target's states."""
    network, layer = eagle3.Network(config, write=_write), config.layer
    dtype = jnp.dtype(layer.dtype)

    def predict_turns(params: Any, lesson: Lesson) -> list[Turn]:
        tokens = lesson.whole.texts.tokens
        batch, length = tokens.shape

        def call(method: Any, *arguments: Any, **named: Any) -> Any:
            weights = {"params": params}
            return network.apply(weights, *arguments, **named, method=method)

        if config.own_embedding:
            embedded = call(eagle3.Network.embed, tokens)
        else:
            embedded = lesson.embedded
        assert lesson.hidden is not None
        taps = tuple(jnp.asarray(tap).astype(dtype) for tap in lesson.hidden.taps)
        state = call(eagle3.Network.join, taps)
        prompt = Prompt(jnp.asarray(tokens), jnp.zeros(batch, jnp.int32))
        cache, said = heads.empty(layer, prompt, turns * length).layer, []
        for turn in range(turns):
            before = jnp.pad(state, ((0, 0), (1, 0), (0, 0)))[:, :-1]
            start = jnp.full(batch, turn * length, jnp.int32)
            state, cache = call(
                eagle3.Network.__call__,
                jnp.asarray(embedded).astype(dtype),
                before,
                start,
                cache,
                branches=unrolled(batch, length, turn),
            )
            logits = call(eagle3.Network.logits, state)
            if config.norm_output:
                state = call(lambda network, state=state: network.norm(state))
            said.append(Turn(logits[:, :-1], shift=0, first=turn + 1))
        return said

    return predict_turns


def unrolled(batch: int, length: int, turn: int) -> Branches | None:
    """Returns which tokens the tokens of a turn see: the text up to the place where
    their chain leaves it, one token of each turn in between, and themselves. None for
    the first turn, which is a chain."""
    if turn == 0:
        return None
    at = np.arange(length)
    sees = np.zeros((length, turn + 1, length), bool)
    sees[:, 0] = at[None] <= at[:, None] - turn
    for j in range(1, turn + 1):
        sees[:, j] = at[None] == at[:, None] - turn + j
    depth = np.tile(at, turn + 1)
    whole = sees.reshape(length, -1)
    return Branches(
        jnp.asarray(np.broadcast_to(depth, (batch, depth.size)), jnp.int32),
        jnp.asarray(np.broadcast_to(whole, (batch, *whole.shape))),
    )


def _write(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    """Writes as `lowering.write` does to rows that all begin at one slot, in a way that
    gradients pass through."""
    cache = write_row(cache, new, start[0])
    return cache, cache


def medusa_turns(config: medusa.Config) -> PredictTurns:
    """Returns the function (parameters of the heads, batch) -> the logits of each
    head."""
    return turns_at_once(config, medusa.medusa_states, medusa.head_logits)


def blockwise_turns(
    config: medusa.Config, readout: ModelReadout, tables: Mapping[str, Any]
) -> PredictTurns:
    """Returns the same for blockwise parallel heads, by the target's readout.

    Args:
      config: the configuration of the heads.
      readout: the target's.
      tables: its parameters.
    """

    def logits(params: Any, head: int, states: Array) -> Array:
        del params, head
        return readout(tables, states)

    return turns_at_once(config, medusa.blockwise_states, logits)


def turns_at_once(
    config: medusa.Config,
    states_of: Callable[[Any, Array], Array],
    logits_of: Callable[[Any, int, Array], Array],
) -> PredictTurns:
    """Returns the function (parameters, batch) -> logits for heads that all read one
    state.

    Each head has a product of its own: logits of all heads in one array would be copied
    to be taken apart, at 10^8 numbers a batch.

    Args:
      config: the configuration of the heads.
      states_of: (parameters, states [N, D]) -> [N, J, D], what each head reads its
        logits from.
      logits_of: (parameters, head i, [N, D]) -> [N, V], the logits by which head i
        predicts the token i + 2 places after each state.
    """

    def predict_turns(params: Any, lesson: Lesson) -> list[Turn]:
        assert lesson.hidden is not None
        last = jnp.asarray(lesson.hidden.last)[:, :-1].astype(config.dtype)
        batch, length, dim = last.shape
        states = states_of(params, last.reshape(-1, dim))
        states = states.reshape(batch, length, config.heads, dim)

        def turn(head: int) -> Turn:
            # After the text's last places, a head predicts what lies beyond its end.
            inside = states[:, : -(head + 1), head]
            logits = logits_of(params, head, inside.reshape(-1, dim))
            shape = batch, length - head - 1, config.vocab
            return Turn(logits.reshape(shape), shift=head + 1, first=0)

        return [turn(head) for head in range(config.heads)]

    return predict_turns


def compare(turn: Turn, lesson: Lesson) -> tuple[Array, Array, Array, Array]:
    """Returns the laws of target and head, in classes [B, T, C], whether both prefer
    the same id, and which places count, [B, T]."""
    whole, length = lesson.whole, turn.logits.shape[1]
    law = slice(turn.shift, turn.shift + length)
    ids, log_p = whole.ids[:, law], jnp.asarray(whole.log_p)[:, law]
    log_q = losses.reduced_classes(turn.logits, jnp.asarray(ids))
    counts = written.scored_positions(whole.texts)[:, law]
    counts &= jnp.arange(length) >= turn.first
    return log_p, log_q, jnp.argmax(turn.logits, -1) == ids[..., 0], counts


def objective(
    predict_turns: PredictTurns, goal: Objective
) -> Callable[[Any, Lesson], Array]:
    """Returns the loss of a head: (parameters, batch) -> the mean over the tokens of
    the texts, then the weighted mean over turns. Ids that the head cannot propose add
    nothing."""

    def loss(params: Any, lesson: Lesson) -> Array:
        total, weights = jnp.zeros(()), 0.0
        tokens = jnp.maximum(written.scored_positions(lesson.whole.texts).sum(), 1)
        for number, turn in enumerate(predict_turns(params, lesson)):
            log_p, log_q, _, counts = compare(turn, lesson)
            each = losses.divergence(goal.loss, log_p, log_q)
            weight = goal.decay**number
            mean = jnp.sum(each * counts) / tokens
            total, weights = total + weight * mean, weights + weight
        return total / weights

    return loss


def measure(
    predict_turns: PredictTurns,
) -> Callable[[Any, Lesson], dict[str, tuple[Array, Array]]]:
    """Returns the function that measures held-out texts: for each turn, numbered from
    1, alpha at temperature 1, and `best`, the share of places where head and target
    prefer the same id, which is alpha at temperature 0; each as its sum over tokens and
    their number.

    alpha is of the classes of `losses.classes`. It is an upper bound where those are
    fewer than the target's ids, because all other ids count as one, whatever they are.
    """

    def totals(params: Any, lesson: Lesson) -> dict[str, tuple[Array, Array]]:
        found = {}
        for number, turn in enumerate(predict_turns(params, lesson), 1):
            log_p, log_q, best, counts = compare(turn, lesson)
            at = jnp.arange(counts.shape[1]) + turn.shift + 1
            counts &= at >= jnp.asarray(lesson.whole.texts.begun)[:, None]
            alpha, many = losses.alpha(log_p, log_q), counts.sum()
            found[f"alpha_{number}"] = (alpha * counts).sum(), many
            found[f"best_{number}"] = (best * counts).sum(), many
        return found

    return totals
