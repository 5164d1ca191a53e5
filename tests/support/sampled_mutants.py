"""Errors in keys, noise, drafts and batches, which no single verdict can show.

Each is near to what is right, and `test_sampled.py` catches it by the texts of the real
loop. `EXACT` are changes that look as bad and cost nothing. Not here, because texts of
this number do not show them: coins of block verification by position while drafts are
right, and uniforms of bfloat16 (see `tests/support/mutants.py`).
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.drafters.rollout import coupled, independent
from specjax.types import Draft, Law, Request, State, Verifier
from specjax.verifiers import block, gumbel, match, named, token
from tests.support import mutants


class Mutant(NamedTuple):
    """wrong: what is, in a clause. verifier: the name of the rule that is used.

    rule: as broken, None if it is right. draw: how drafts are drawn, of those of
    `drafters.rollout`. edit: what becomes of a draft before it is verified. world:
    "tables" of `tiny`, its "blocks" of ids, or "binary", where p = (1/3, 2/3) and
    q = (2/3, 1/3) at every place.
    """

    name: str
    wrong: str
    verifier: str
    rule: Verifier | None = None
    draw: Callable = independent
    edit: Callable = lambda draft: draft
    world: str = "tables"


def unbroken(mutant: Mutant) -> Mutant:
    """Its twin: of the same rule and tables, and nothing is wrong."""
    return Mutant("", "nothing", mutant.verifier, world=mutant.world)


# Noise.


def noisy(noise: Callable, rule: Verifier = token.verifier) -> Verifier:
    return rule._replace(noise=noise)


def same_every_time(rule: Verifier) -> Verifier:
    def noise(key: Array, start: Array, gamma: int, vocab: int):
        return rule.noise(key, 0 * start, gamma, vocab)

    return noisy(noise, rule)


def coins_by_position(key: Array, start: Array, gamma: int, vocab: int) -> token.Noise:
    each = [token.noise(key, start + slot, 1, vocab).accept for slot in range(gamma)]
    right = token.noise(key, start, gamma, vocab)
    return right._replace(accept=jnp.concatenate(each, axis=1))


def races_by_iteration(key: Array, start: Array, gamma: int, vocab: int) -> Array:
    key = keys.iteration(key, start)
    return gumbel.noise(key, 0 * start, gamma, vocab)


def first_of(key: Array) -> Array:
    return jnp.broadcast_to(key[:1], key.shape)


def noise_of_the_first_row(key: Array, start: Array, gamma: int, vocab: int):
    return token.noise(first_of(key), start, gamma, vocab)


def noise_of_the_pair(key: Array, start: Array, gamma: int, vocab: int):
    even = jnp.arange(key.size) // 2 * 2
    return token.noise(key[even], start, gamma, vocab)


def one_sample_more(key: Array, start: Array, gamma: int, vocab: int) -> match.Noise:
    return match.noise(key, start, gamma + 1, vocab)


# Verdicts.


def stops_with_its_neighbour(target: Law, draft: Draft, noise: token.Noise):
    """Batches of two rows keep what both keep, and then draw from p."""
    verdict = token.verify(target, draft, noise)
    n = verdict.num_accepted.reshape(-1, 2).min(1).repeat(2)
    anew = probs.sample(probs.take(target, n), noise.sample)
    mended = jnp.take_along_axis(verdict.tokens, n[:, None], axis=1)[:, 0]
    extra = jnp.where(n < verdict.num_accepted, anew, mended)
    return verdict._replace(num_accepted=n, tokens=token.emit(draft, n, extra))


def reads_the_law_beside(target: Law, draft: Draft, noise: token.Noise):
    law = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), draft.law)
    return token.verify(target, draft._replace(law=law), noise)


def drops_what_the_target_likes_less(target: Law, draft: Draft, noise: token.Noise):
    p = probs.at(probs.first(target, draft.tokens.shape[1]), draft.tokens)
    liked = p >= probs.at(draft.law, draft.tokens)
    return token.verify(target, cut(draft, liked), noise)


def draws_again(target: Law, draft: Draft, noise: match.Noise):
    verdict = match.verify(target, draft, match.Noise(noise.sample[:, :-1]))
    n = verdict.num_accepted
    extra = probs.sample(probs.take(target, n), noise.sample[:, -1])
    return verdict._replace(tokens=token.emit(draft, n, extra))


def cut(draft: Draft, good: Array) -> Draft:
    """The draft up to its first token that is not good [B, G]."""
    before = jnp.sum(jnp.cumprod(good, axis=1), axis=1, dtype=jnp.int32)
    return draft._replace(num=jnp.minimum(draft.num, before))


# Drafts.


def draws_by(uniform: Callable) -> Callable:
    """Draws with uniforms of (request key, start [B], slot) -> key [B], slot."""

    def draw(key: Array, request: Request, state: State) -> Callable:
        def of(logits: Array, slot) -> tuple[Array, Law]:
            u = keys.uniform(*uniform(request.key, state.length, slot))
            return probs.draw(logits, request.sampling, jnp.stack([u, u], axis=1))

        return of

    return draw


def named_key(request_key: Array, start: Array, purpose: int = keys.DRAFT) -> Array:
    return keys.purpose(keys.iteration(request_key, start), purpose)


by_position = draws_by(lambda key, start, slot: (named_key(key, start + slot), 0))
by_slot = draws_by(lambda key, start, slot: (named_key(key, 0 * start), slot))
by_the_first_row = draws_by(
    lambda key, start, slot: (named_key(first_of(key), start), slot)
)
by_its_coin = draws_by(
    lambda key, start, slot: (named_key(key, start, keys.ACCEPT), slot)
)


def by_the_accept_key(key: Array, request: Request, state: State) -> Callable:
    """What a step does that names the wrong purpose: the first of a token's uniforms,
    which picks its block, is its coin. Where all ids are one block that picks none."""
    del key
    accept = named_key(request.key, state.length, keys.ACCEPT)
    return independent(accept, request, state)


def hotter(key: Array, request: Request, state: State) -> Callable:
    right = independent(key, request, state)

    def of(logits: Array, slot) -> tuple[Array, Law]:
        return right(logits / 1.5, slot)[0], right(logits, slot)[1]

    return of


def races_for_the_next_place(key: Array, request: Request, state: State) -> Callable:
    return coupled(key, request, state._replace(length=state.length + 1))


def likely(draft: Draft) -> Array:
    return probs.at(draft.law, draft.tokens) > 0.3


def drops_unlikely(draft: Draft) -> Draft:
    return cut(draft, likely(draft))


def stops_after_unlikely(draft: Draft) -> Draft:
    before = jnp.pad(likely(draft)[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return cut(draft, before)


BY_POSITION = (
    "drafts by position",
    "drafts have uniforms of their position, met again after a rejection",
)
BOTH_BY_POSITION = (
    "drafts and coins by position",
    "no uniform is new after a rejection",
)
ONE_UNIFORM = "one uniform for the block", "all slots have the first slot's coin"
SAME_NOISE = "same noise", "the verifier's noise is the same in every iteration"
SAME_DRAFTS = "same drafts", "drafts have the same uniforms in every iteration"
OWN_COIN = "draft by its coin", "a token is drawn by the uniform that decides on it"
ACCEPT_KEY = (
    "draft by the accept key",
    "a token's block of 256 ids is picked by the uniform that decides on it",
)
DROPPED = "unlikely drafts dropped", "a draft ends before a token with q(x) < 0.3"

MUTANTS = (
    Mutant(*BY_POSITION, "block", draw=by_position, world="binary"),
    Mutant(
        *BOTH_BY_POSITION,
        "block",
        noisy(coins_by_position, block.verifier),
        by_position,
        world="binary",
    ),
    Mutant(*ONE_UNIFORM, "token", noisy(mutants.shared_noise)),
    Mutant(*ONE_UNIFORM, "rejection", noisy(mutants.shared_noise, named("rejection"))),
    Mutant(
        "extra token by a coin",
        "the extra token has the uniform that decided on the first",
        "token",
        noisy(mutants.reused_noise),
    ),
    Mutant(*SAME_NOISE, "token", same_every_time(token.verifier)),
    Mutant(*SAME_NOISE, "match", same_every_time(match.verifier)),
    Mutant(*SAME_NOISE, "gumbel", same_every_time(gumbel.verifier)),
    Mutant(*SAME_DRAFTS, "token", draw=by_slot),
    Mutant(*SAME_DRAFTS, "block", draw=by_slot),
    Mutant(*OWN_COIN, "token", draw=by_its_coin),
    Mutant(*OWN_COIN, "block", draw=by_its_coin),
    Mutant(*ACCEPT_KEY, "token", draw=by_the_accept_key, world="blocks"),
    Mutant(*ACCEPT_KEY, "block", draw=by_the_accept_key, world="blocks"),
    Mutant(
        "another temperature",
        "drafts are drawn at 1.5 times the temperature of the law that they carry",
        "token",
        draw=hotter,
    ),
    Mutant(*DROPPED, "token", edit=drops_unlikely),
    Mutant(*DROPPED, "block", edit=drops_unlikely),
    Mutant(
        "stops by the target",
        "a draft ends before a token with p(x) < q(x)",
        "token",
        token.verifier._replace(verify=drops_what_the_target_likes_less),
    ),
    Mutant(
        "batch cut and drawn anew",
        "two rows keep the fewer of their tokens, then draw from p",
        "token",
        token.verifier._replace(verify=stops_with_its_neighbour),
    ),
    Mutant(
        "law of the row beside",
        "a draft is verified with the q of the row before it",
        "token",
        token.verifier._replace(verify=reads_the_law_beside),
    ),
    Mutant(
        "drawn again on a mismatch",
        "the sample that rejected a token is not the one emitted",
        "match",
        Verifier(one_sample_more, draws_again),
    ),
    Mutant(
        "one key for the batch",
        "all rows draw and decide by the key of the first",
        "token",
        noisy(noise_of_the_first_row),
        by_the_first_row,
    ),
    Mutant(
        "coins of the row beside",
        "each two rows have one key for the verifier's noise",
        "token",
        noisy(noise_of_the_pair),
    ),
)

EXACT = (
    Mutant(
        BY_POSITION[0], "nothing: no verdict looks ahead", "token", draw=by_position
    ),
    Mutant(
        "stops after an unlikely draft",
        "nothing: the token that it looked at is kept",
        "token",
        edit=stops_after_unlikely,
    ),
    Mutant(
        "stops after an unlikely draft",
        "nothing: the token that it looked at is kept",
        "block",
        edit=stops_after_unlikely,
    ),
    Mutant(DROPPED[0], "nothing: any draft serves", "match", edit=drops_unlikely),
    Mutant(OWN_COIN[0], "nothing: it has no coins", "match", draw=by_its_coin),
    Mutant(
        "races by iteration",
        "nothing but that texts depend on the drafts",
        "gumbel",
        noisy(races_by_iteration, gumbel.verifier),
    ),
    Mutant("coupled drafts", "nothing: as they should be", "gumbel", draw=coupled),
    Mutant(
        "drafts that race for the next place",
        "nothing: any draft serves",
        "gumbel",
        draw=races_for_the_next_place,
    ),
)
