"""Errors in keys, noise, drafts and batches, which no single verdict can show.

Each is near to what is right, and `test_sampled.py` catches it by the texts of the real
loop. `EXACT` are changes that look as bad and cost nothing. Not here, because texts of
this number do not show them: coins of block verification by position while drafts are
right, and uniforms of bfloat16 (see `tests/support/mutants.py`). What is wrong is
numbers, so that one program decodes with all of them.
Axes: B rows, G = gamma, N rows of a sample, n tokens, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, keys, policies, probs
from specjax.drafters import autoregressive
from specjax.drafters.rollout import draw_coupled
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import (
    BLOCK,
    Draft,
    Drafter,
    Law,
    Params,
    Request,
    Sampling,
    State,
    Verdict,
    Verifier,
)
from specjax.verifiers import block, gumbel, match, rejection, token
from tests.support import goodness, tiny

GAMMA, ROWS = 3, goodness.ROWS // 4  # these errors are large
FEW = 3_000  # of blocks, which are wide
POLICY = policies.heuristic(start=3, least=2)  # the rows of a batch draft 2 or 3
# Not first met in a trace, which would keep its own.
WORLD, BLOCKS = tiny.tables(), tiny.blocks()
# Half the time to compile, and as fast.
BRISK = {"xla_backend_optimization_level": 1}
SLOTS = len(goodness.PROMPT) + goodness.TOKENS + GAMMA + 1
# A row's key: its own, of the first, of each two, of its place.
OWN, FIRST, PAIR, PLACE = range(4)


class Noise(NamedTuple):
    """The way in which the noise of a rule is wrong.

    start: 0 for the same in every iteration. by_position: coins of token verification.
    by_iteration: races. shared: one coin. reused: it draws, too.
    """

    whose: int = OWN
    start: int = 1
    by_position: bool = False
    by_iteration: bool = False
    shared: bool = False
    reused: bool = False


class Draw(NamedTuple):
    """The way in which the draws of a draft are wrong.

    A draft's uniforms are of slot `slot * i` of the iteration that is named `start *
    length + shift * i`. coin: one uniform for both of a token's. heat: the temperature
    of drafts alone. race: by Gumbel variables, of the place `ahead` of its own.
    """

    whose: int = OWN
    start: int = 1
    shift: int = 0
    slot: int = 1
    purpose: int = keys.DRAFT
    coin: bool = False
    heat: float = 1.0
    race: bool = False
    ahead: int = 0


class Mutant(NamedTuple):
    """An error in keys, noise, drafts or batches.

    wrong: what is, in a clause. verifier: the name of the rule that is used.

    verdict: of VERDICTS, its own if there is none. cut: 1 before an unlikely draft, 2
    after it. world: "tables" of `tiny`, its "blocks" of ids, or "binary", where p =
    (1/3, 2/3) and q = (2/3, 1/3) at every place. samples: how many show it.
    """

    wrong: str
    verifier: str = "token"
    noise: Noise = Noise()
    draw: Draw = Draw()
    verdict: str = ""
    cut: int = 0
    world: str = "tables"
    samples: int = 1


def correct_counterpart(mutant: Mutant) -> Mutant:
    """Returns the correct counterpart of a mutant, with the same rule and tables."""
    return Mutant("nothing", mutant.verifier, world=mutant.world)


BY_POSITION = "drafts have uniforms of their position, met again after a rejection"
NEVER_NEW = "no uniform is new after a rejection"
ONE_COIN = "all slots have the first slot's coin"
EXTRA = "the extra token has the uniform that decided on the first"
SAME = "the verifier's noise is the same in every iteration"
ALIKE = "drafts have the same uniforms in every iteration"
OWN_COIN = "a token is drawn by the uniform that decides on it"
ACCEPT_KEY = "a token's block of 256 ids is picked by the uniform that decides on it"
HOTTER = "drafts are drawn at 1.5 times the temperature of the law that they carry"
DROPPED = "a draft ends before a token with q(x) < 0.3"
AGAIN = "the sample that rejected a token is not the one emitted"
FEWER = "two rows keep the fewer of their tokens, then draw from p"
FIRST_KEY = "all rows draw and decide by the key of the first"
KEPT = "nothing: the token that it looked at is kept"
by_position, by_slot = Draw(shift=1, slot=0), Draw(start=0)
by_its_coin = Draw(purpose=keys.ACCEPT, coin=True)
by_the_accept_key = Draw(purpose=keys.ACCEPT)

MUTANTS = (
    Mutant(BY_POSITION, "block", draw=by_position, world="binary"),
    Mutant(NEVER_NEW, "block", Noise(by_position=True), by_position, world="binary"),
    Mutant(ONE_COIN, noise=Noise(shared=True)),
    Mutant(ONE_COIN, "rejection", Noise(shared=True), samples=4),
    Mutant(EXTRA, noise=Noise(reused=True)),
    *(Mutant(SAME, rule, Noise(start=0)) for rule in ("token", "match", "gumbel")),
    *(Mutant(ALIKE, rule, draw=by_slot) for rule in ("token", "block")),
    *(Mutant(OWN_COIN, rule, draw=by_its_coin) for rule in ("token", "block")),
    Mutant(ACCEPT_KEY, "token", draw=by_the_accept_key, world="blocks"),
    Mutant(ACCEPT_KEY, "block", draw=by_the_accept_key, world="blocks"),
    Mutant(HOTTER, draw=Draw(heat=1.5)),
    *(Mutant(DROPPED, rule, cut=1) for rule in ("token", "block")),
    Mutant("a draft ends before a token with p(x) < q(x)", verdict="drops"),
    Mutant(FEWER, verdict="stops"),
    Mutant("a draft is verified with the q of the row before it", verdict="beside"),
    Mutant(AGAIN, "match", verdict="draws again"),
    Mutant(FIRST_KEY, noise=Noise(FIRST), draw=Draw(FIRST)),
    Mutant("each two rows have one key for the verifier's noise", noise=Noise(PAIR)),
)

EXACT = (
    Mutant("nothing: no verdict looks ahead", draw=by_position),
    *(Mutant(KEPT, rule, cut=2) for rule in ("token", "block")),
    Mutant("nothing: any draft serves", "match", cut=1),
    Mutant("nothing: it has no coins", "match", draw=by_its_coin),
    Mutant("only that texts depend on drafts", "gumbel", Noise(by_iteration=True)),
    Mutant("nothing: as they should be", "gumbel", draw=Draw(race=True)),
    Mutant("nothing: any draft serves", "gumbel", draw=Draw(race=True, ahead=1)),
)


# Verdicts.


def stops_with_its_neighbour(target: Law, draft: Draft, noise: token.Noise):
    """Decides batches of two rows: keeps what both rows keep, and then draws from p."""
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
    p = probs.at(probs.first_tokens(target, draft.tokens.shape[1]), draft.tokens)
    liked = p >= probs.at(draft.law, draft.tokens)
    return token.verify(target, cut(draft, liked), noise)


def decide_by_match(target: Law, draft: Draft, noise: match.Noise):
    """Decides as `match`, whose noise has one sample more in this module."""
    return match.verify(target, draft, match.Noise(noise.sample[:, :-1]))


def draws_again(target: Law, draft: Draft, noise: match.Noise):
    verdict = decide_by_match(target, draft, noise)
    n = verdict.num_accepted
    extra = probs.sample(probs.take(target, n), noise.sample[:, -1])
    return verdict._replace(tokens=token.emit(draft, n, extra))


def cut(draft: Draft, good: Array) -> Draft:
    """Returns the draft up to its first token that is not good; good: [B, G]."""
    before = jnp.sum(jnp.cumprod(good, axis=1), axis=1, dtype=jnp.int32)
    return draft._replace(num=jnp.minimum(draft.num, before))


BY_COINS = {
    "token": token.verify,
    "block": block.verify,
    "rejection": rejection.verify,
    "drops": drops_what_the_target_likes_less,
    "stops": stops_with_its_neighbour,
    "beside": reads_the_law_beside,
}
BY_SAMPLES = {"match": decide_by_match, "draws again": draws_again}
VERDICTS = *BY_COINS, *BY_SAMPLES, "gumbel"


# The program: `number`s of a verdict, and the fields of a mutant, are its arguments.


def wrong_keys(key: Array, whose) -> Array:
    place = jnp.arange(key.size)
    at = jnp.where(whose == FIRST, 0, jnp.where(whose == PAIR, place // 2 * 2, place))
    return jnp.where(whose == PLACE, jax.vmap(jax.random.key)(place), key[at])


def decide_by(number, how: Noise, coins: int = 6, others: bool = True) -> Verifier:
    """Decides by the verdict with this number. coins: from how many rules of BY_COINS
    it chooses. others: whether it chooses from the other rules too."""

    def verify(target: Law, draft: Draft, noise: tuple) -> Verdict:
        (key, start), gamma = noise, draft.tokens.shape[1]
        vocab = target.logits.shape[-1]
        key, start = wrong_keys(key, how.whose), start * how.start

        def decide_by_coins():
            right = token.noise(key, start, gamma, vocab)
            places = (start[:, None] + jnp.arange(gamma)).ravel()
            apart = token.noise(key.repeat(gamma), places, 1, vocab).accept
            apart = apart.reshape(right.accept.shape)
            accept = jnp.where(how.by_position, apart, right.accept)
            accept = jnp.where(how.shared, accept[:, :1], accept) if gamma else accept
            first = jnp.concatenate([right.accept, right.sample], axis=1)[:, 0]
            again = right.sample.at[:, 1].set(first)
            own = token.Noise(accept, jnp.where(how.reused, again, right.sample))
            each = list(BY_COINS.values())[:coins]
            return jax.lax.switch(number, each, target, draft, own)

        def decide_by_samples():
            own = match.noise(key, start, gamma + 1, vocab)
            each, place = list(BY_SAMPLES.values()), number - len(BY_COINS)
            return jax.lax.switch(place, each, target, draft, own)

        def decide_by_races():
            named = jnp.where(how.by_iteration, keys.iteration(key, start), key)
            at = jnp.where(how.by_iteration, 0, start)
            own = gumbel.noise(named, at, gamma, vocab)
            return gumbel.verify(target, draft, own)

        if not others:
            return decide_by_coins()
        kind = (number >= len(BY_COINS)) + jnp.int32(number == len(VERDICTS) - 1)
        return jax.lax.switch(
            kind, [decide_by_coins, decide_by_samples, decide_by_races]
        )

    return Verifier(lambda key, start, gamma, vocab: (key, start), verify)


def draw_by(how: Draw, wide: bool) -> Callable:
    """Returns the wrong draw. wide: draws with a wrong key or uniform alone, from one
    law per token."""

    def draw(key: Array, request: Request, state: State, gamma: int) -> Callable:
        del key
        own, start = wrong_keys(request.key, how.whose), how.start * state.length
        ahead = state._replace(length=state.length + how.ahead)

        def draw_by_uniforms(logits: Array, slot) -> tuple[Array, Law]:
            named = keys.iteration(own, start + how.shift * slot)
            named = keys.purpose(named, how.purpose)
            u = keys.uniform(named, how.slot * slot, (2,))
            u = jnp.where(how.coin, u[:, :1], u)
            return probs.draw(logits, request.sampling, u)

        def draw_wrongly(logits: Array, slot) -> tuple[Array, Law]:
            by_race = draw_coupled(own, request, ahead, gamma)
            ways = [
                lambda z, of=of: of(z, slot)[0] for of in (by_race, draw_by_uniforms)
            ]
            chosen = jax.lax.cond(how.race, *ways, logits / how.heat)
            return chosen, probs.standardize(logits, request.sampling)

        return draw_by_uniforms if wide else draw_wrongly

    return draw


def edit_drafter(drafter: Drafter, number) -> Drafter:
    def draft(key: Array, params, request: Request, state: State):
        right, cache = drafter.draft(key, params, request, state)
        likely = probs.at(right.law, right.tokens) > 0.3
        before = jnp.pad(likely[:, :-1], ((0, 0), (1, 0)), constant_values=True)
        return cut(right, jnp.where(number == 1, likely, before) | (number == 0)), cache

    return drafter._replace(draft=draft)


@functools.partial(jax.jit, static_argnames="wide", compiler_options=BRISK)
def decode(wrong: tuple, params: Params, prompt, request, wide: bool = False):
    world, (number, noise, draw, edit) = BLOCKS if wide else WORLD, wrong
    drafter = autoregressive.build(world.draft, GAMMA, draw_by(draw, wide))
    rule = decide_by(number, noise, 2 if wide else 6, not wide)
    decoder = Decoder(world.target, edit_drafter(drafter, edit), rule, POLICY)
    return generate.build_loop(decoder, SLOTS)(params, prompt, request)


# Texts, and the laws that they are to follow.


def weights(world: str) -> Params:
    """Returns logits of target and draft, [V, V] each."""
    if world != "binary":
        whole = BLOCKS if world == "blocks" else WORLD
        return Params(whole.target_weights, whole.draft_weights)
    laws = [1 / 3, 2 / 3, 0, 0], [2 / 3, 1 / 3, 0, 0]
    return Params(*(jnp.log(jnp.tile(jnp.array(law), (4, 1))) for law in laws))


@functools.cache
def laws(world: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the laws of `texts` in even rows and in odd rows."""
    if world == "blocks":
        logits = tiny.tables(3).target_weights
        return (goodness.markov_law(logits, Sampling(1.0)),) * 2
    logits = weights(world).target
    return tuple(goodness.markov_law(logits, s) for s in goodness.SETTINGS)


def output(mutant: Mutant, seed: int = 0) -> generate.Output:
    """Returns what the loop of a mutant writes."""
    number = VERDICTS.index(mutant.verdict or mutant.verifier)
    return _output((number, *mutant[2:4], mutant.cut), mutant.world, seed)


def texts(mutant: Mutant, seed: int = 0) -> np.ndarray:
    """Returns texts [N, n] of a mutant's loop: ids, or in the world of blocks the block
    of each id."""
    ids = goodness.continuations(output(mutant, seed))
    return ids // (BLOCK if mutant.world == "blocks" else 1)


@functools.cache
def _output(wrong: tuple, world: str, seed: int) -> generate.Output:
    wide, asked = world == "blocks", goodness.ask(ROWS, seed)
    if wide:
        prompt = make_prompt([goodness.PROMPT] * FEW)
        limits = goodness.TOKENS, make_sampling(FEW, 1.0)
        asked = prompt, make_request(jax.random.key(seed), prompt, *limits)
    return decode(wrong, weights(world), *asked, wide=wide)
