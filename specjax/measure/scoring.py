"""The acceptance of a draft at every token of a text that the target wrote.

Leviathan et al. (2023), Theorem 3.5 and Corollary 3.6; p and q are standardized alike
(Section 2.2). Axes: N sequences, L tokens, V vocabulary, M generated tokens in all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.checkpoints import Pretrained
from specjax.drafts.models import build_law
from specjax.drafts.source import DraftSource
from specjax.inputs import make_sampling
from specjax.measure.texts import Calls, Text
from specjax.runtime import console, hosts
from specjax.theory import estimate
from specjax.types import Law, Prompt

# Rules that keep a drafted token with probability min(1, p / q) once they come to it,
# of siblings the first: the mean of beta is their alpha.
BY_RATIO = "token", "recursive", "recursive_replaced"
CHUNK = 8  # rows scored at once, where laws of [8, L, V] fit anywhere
LARGEST = 2**28  # numbers of a law that do


class Scores(NamedTuple):
    """The scores of each generated token x_t, [M].

    beta: sum_x min(p, q).
    p, q: the probabilities of x_t.
    sequence: the sequence that x_t belongs to.
    """

    beta: np.ndarray
    p: np.ndarray
    q: np.ndarray
    sequence: np.ndarray


def score(
    target: Pretrained,
    draft: DraftSource,
    text: Text,
    temperature: float,
    **truncation: Any,
) -> Scores:
    """Scores every generated token of `text` in one pass of each model.

    truncation: top_k, top_p and min_p of both laws (`DecodeConfig.truncation`).
    """

    def score_tokens(
        p_law: Law, q_law: Law, written: Array
    ) -> tuple[Array, Array, Array]:
        p, q = probs.dense(p_law), probs.dense(q_law)
        beta = jnp.sum(jnp.minimum(p, q), axis=-1)  # Corollary 3.6

        def at_written(law: Array) -> Array:
            return jnp.take_along_axis(law, written[..., None], axis=-1)[..., 0]

        return beta, at_written(p), at_written(q)

    return Scores(
        *positions((target, draft), text, temperature, score_tokens, **truncation)
    )


def positions(
    pair: tuple[Pretrained, DraftSource],
    text: Text,
    temperature: float,
    each: Callable,
    keys: Array | None = None,
    **truncation: Any,
) -> list[np.ndarray]:
    """Returns `each(p, q, written)` for every generated token, and the text [M] that it
    belongs to.

    The results are [M, ...]. p and q are the laws [B, T] by which (target, draft) draw
    the tokens `written` [B, T], standardized alike; `each` returns arrays [B, T, ...].
    keys: the keys of the sequences [N]; `each` then gets those of its rows [B] as a
    fourth argument. truncation: see `score`.
    """
    target, draft = pair
    target_law, draft_law = build_law(target.model), draft.law
    assert draft_law is not None

    @jax.jit
    def rows(p_params: Any, q_params: Any, prompt: Prompt, *row_keys: Array) -> Any:
        sampling = make_sampling(prompt.tokens.shape[0], temperature, **truncation)
        read, written = prompt.tokens[:, :-1], prompt.tokens[:, 1:]
        before = prompt._replace(tokens=read)
        p_law = target_law(p_params, before, sampling)
        q_law = draft_law(q_params, before, sampling)
        return each(p_law, q_law, written, *row_keys)

    count, size = text.tokens.shape
    # Rows that are not there, to fill the last chunk, are the first one again.
    together = rows_at_once(count, size, target.vocab)
    every = np.pad(np.arange(count), (0, -count % together))
    chunks = []
    for index in every.reshape(-1, together):
        chosen = jax.tree.map(lambda leaf, index=index: leaf[index], text)
        prompt = Prompt(chosen.tokens, chosen.length, chosen.inputs)
        row_keys = () if keys is None else (keys[index],)
        done = rows(target.params, draft.params, prompt, *row_keys)
        chunks.append(hosts.read(done))
    leaves = [np.concatenate(leaf)[:count] for leaf in zip(*chunks, strict=True)]
    # The token in slot i was drawn from the law after slot i - 1.
    slot = np.arange(1, size)
    generated = (slot >= text.start[:, None]) & (slot < text.length[:, None])
    sequence = np.broadcast_to(np.arange(count)[:, None], generated.shape)
    return [leaf[generated] for leaf in [*leaves, sequence]]


def rows_at_once(count: int, size: int, vocab: int) -> int:
    """Returns how many rows are scored at once: CHUNK, or fewer where the law of CHUNK
    rows would have more numbers than LARGEST."""
    fit = LARGEST // (size * vocab)
    return CHUNK if fit >= CHUNK else max(1, min(fit, count))


def estimates(scores: Scores | None, calls: Calls, gamma: int) -> dict[str, dict]:
    """Returns the four estimators of alpha (`specjax.theory.estimate`) as plain values
    for JSON.

    The error of a single sequence is None, because JSON has no nan. scores: None for a
    draft without a law, which may draft less than gamma tokens, or for a rule not in
    BY_RATIO; alpha is then the share of drafted tokens that were accepted.
    """
    if scores is not None:
        four = estimate.all_four(
            scores.beta,
            scores.sequence,
            accepted=calls.accepted,
            tested=calls.tested,
            calls=calls.calls,
            gamma=gamma,
        )
    else:
        four = {"counts": accepted_share(calls.accepted, calls.tested)}
    return console.to_plain(four)


def accepted_share(accepted: np.ndarray, tested: np.ndarray) -> estimate.Estimate:
    """Returns `estimate.counts`, or 0 if nothing was tested."""
    if tested.any():
        return estimate.counts(accepted, tested)
    return estimate.Estimate(0.0, np.nan, 0, np.nan, 0)


RUN = 8  # tokens in a row that are there twice: a loop, not a common phrase


def find_repeats(ids: np.ndarray) -> np.ndarray:
    """Returns which tokens end a run of RUN tokens that occurred before; [L] bool."""
    seen, marks = set(), np.zeros(len(ids), bool)
    for end in range(RUN, len(ids) + 1):
        run = tuple(ids[end - RUN : end].tolist())
        marks[end - 1] = run in seen
        seen.add(run)
    return marks


def alpha_outside_repeats(text: Text, scores: Scores | None) -> dict[str, float | None]:
    """Returns the share of greedy texts that repeats, and alpha at the other tokens.

    `repeated` is the share of generated tokens that end a run which the text, with its
    prompt, had before. alpha at the others comes with its error; both are None if
    nothing was scored.
    """
    marks = [
        find_repeats(ids[:length])[start:length]
        for ids, start, length in zip(*text[:3], strict=True)
    ]
    inside = np.concatenate(marks)
    row: dict[str, float | None] = {
        "repeated": float(inside.mean()) if inside.size else 0.0,
        "alpha_fresh": None,
        "alpha_fresh_se": None,
    }
    if scores is not None and not inside.all():
        beta, sequence = scores.beta[~inside], scores.sequence[~inside]
        alpha = estimate.rao_blackwell(beta, sequence)
        row |= {
            "alpha_fresh": alpha.value,
            "alpha_fresh_se": estimate.nan_to_none(alpha.se),
        }
    return row
