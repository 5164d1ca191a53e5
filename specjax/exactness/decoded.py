"""The exact law of texts that a drafter of certain tokens and a rule decode together.

`certify` puts a rule to drafts of every kind; here the drafts are those of a drafter's
own code, with whatever it carries from step to step, which may depend on everything
that was written, drafted and accepted before. Every outcome of the noise of a step is
gone through, from every state that is reached.
Axes: B rows, G = gamma, V vocabulary, K outcomes of the G uniforms that accept.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import generate
from specjax.drafts.source import Side
from specjax.exactness import sampled
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.step import Decoder, build_step
from specjax.types import Params, Request, State
from specjax.verifiers import recursive, token

CHUNK = 16  # states of a call, which has one shape
BELOW_ONE = 1 - 2**-24
PROMPT = [0, 1, 2, 0, 1]  # has what may be copied


class Branch(NamedTuple):
    """A state of one row, its leaves [...], and the chance to be in it."""

    state: State
    chance: float


def text_law(
    decoder: Decoder, params: Params, prompt: list[int], n: int
) -> dict[tuple, float]:
    """Text of n tokens after a prompt -> its probability, by the decoder's own step at
    temperature 1. Its rule's noise must be that of `verifiers.token`."""
    width, slots = len(prompt), len(prompt) + n + 2 * decoder.drafter.gamma + 2
    given = make_prompt([prompt])
    begun = jax.jit(lambda: generate.prefill(decoder, params, given, slots))()
    stepped = compiled(decoder, params)
    waiting, law = [Branch(one(begun, 0), 1.0)], defaultdict(float)
    while waiting:
        reached: dict[tuple, Branch] = {}
        for at in range(0, len(waiting), CHUNK):
            some = waiting[at : at + CHUNK]
            for branch in after(stepped, some, decoder.drafter.gamma):
                state, chance = branch
                text = np.asarray(state.tokens[width : int(state.length)])
                if len(text) >= n:
                    law[tuple(text[:n].tolist())] += chance
                    continue
                leaves = jax.tree.leaves(state._replace(target_cache=(), tokens=text))
                same = tuple(np.asarray(leaf).tobytes() for leaf in leaves)
                before = reached.get(same, branch._replace(chance=0.0)).chance
                reached[same] = Branch(state, before + chance)
        waiting = [*reached.values()]
    return law


def error_of(side: Side, gamma: int = 2, n: int = 4) -> float:
    """Returns how far texts of n tokens are from the law of `sampled.target`, where a
    draft of certain tokens drafts for it, by Algorithm 1 or, trees, by recursive
    rejection."""
    drafter, target = side.drafter(gamma), sampled.target()
    rule = recursive.verifier if drafter.siblings else token.verifier
    decoder = Decoder(target.model, drafter, rule)
    law = text_law(decoder, Params(target.params, side.params), PROMPT, n)
    return error(law, own_law(target.model, target.params, PROMPT, n))


def own_law(model, params, prompt: list[int], n: int) -> dict:
    """The same of the target alone, by one call on each text, in float64."""
    texts = np.array(list(itertools.product(range(model.vocab), repeat=n)))
    rows = [[*prompt, *text] for text in texts.tolist()]
    given = make_prompt(rows)

    @jax.jit
    def logits():
        cache = model.init(params, given, len(rows[0]))
        zero = jnp.zeros_like(given.length)
        return model.readout(params, model.apply(params, given.tokens, zero, cache)[0])

    z = np.float64(logits())[:, len(prompt) - 1 : -1]
    p = np.exp(z - np.log(np.exp(z).sum(-1, keepdims=True)))
    each = np.take_along_axis(p, texts[..., None], axis=-1)[..., 0].prod(1)
    return dict(zip(map(tuple, texts.tolist()), each.tolist(), strict=True))


def compiled(decoder: Decoder, params: Params) -> Callable:
    """(State [B], accept [B, G]) -> (the state after, its residual [B, V], the chance
    of each slot or node [B, G])."""

    @jax.jit
    def stepped(state: State, accept):
        seen = []

        def verify(law, draft, noise, keep_residual=False):
            verdict = decoder.verifier.verify(law, draft, noise, keep_residual=True)
            seen.append((verdict.residual, verdict.accept_prob))
            return verdict

        batch = state.length.size
        noise = token.Noise(accept, jnp.full((batch, 2), 0.5))
        rule = decoder.verifier._replace(noise=lambda *_: noise, verify=verify)
        step = build_step(*decoder._replace(verifier=rule))
        after, _ = step(params, request_of(batch), state)
        return after, *seen[0]

    return stepped


def request_of(batch: int) -> Request:
    prompt = make_prompt([[0]] * batch)
    asked = make_request(root_key(0), prompt, 2**20, make_sampling(batch, 1.0))
    return jax.tree.map(jnp.asarray, asked)


def after(stepped: Callable, some: list[Branch], gamma: int) -> list[Branch]:
    """All branches one step after some."""
    below = np.array(list(itertools.product((True, False), repeat=gamma)))
    filled = [*some, *[some[0]] * (CHUNK - len(some))]
    states = [branch.state for branch in filled for _ in below]
    joined = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    kept = np.tile(below, (CHUNK, 1))
    noise = np.where(kept, 0.0, BELOW_ONE).astype(np.float32)
    result, residual, chance = jax.device_get(stepped(joined, noise))
    each = np.where(kept, chance, 1 - np.float64(chance)).prod(1)
    mass = np.float64(residual)
    share = mass / np.maximum(mass.sum(1, keepdims=True), 1e-30)
    branches = []
    for row in range(len(some) * len(below)):
        for extra in np.flatnonzero(each[row] * share[row]).tolist():
            state = one(result, row)
            tokens = np.array(state.tokens)
            tokens[state.length - 1] = extra
            weight = some[row // len(below)].chance * each[row] * share[row, extra]
            branches.append(Branch(state._replace(tokens=tokens), float(weight)))
    return branches


def one(state: State, row: int) -> State:
    return jax.tree.map(lambda leaf: np.asarray(leaf[row]), state)


def error(law: dict, own: dict) -> float:
    """The largest difference of a text's probability."""
    return max(abs(law.get(text, 0.0) - own.get(text, 0.0)) for text in {*law, *own})
