"""The exact law of texts that a drafter without probabilities and a rule decode
together.

`certify` gives a rule drafts of every kind. Here the drafts come from the drafter's own
code, and from the state that it carries from step to step, which may depend on
everything that was written, drafted and accepted before. Every outcome of the noise of
a step is enumerated, from every state that is reached. Axes: B rows, G = gamma, V
vocabulary, K outcomes of the G uniforms that accept."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import generate
from specjax.drafts.source import DraftSource
from specjax.exactness import sampled_texts
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.step import Decoder, build_step
from specjax.types import Params, Request, State
from specjax.verifiers import recursive, token

CHUNK = 16  # states of a call, which has one shape
BELOW_ONE = 1 - 2**-24
PROMPT = [0, 1, 2, 0, 1]  # has what may be copied


class Branch(NamedTuple):
    """A state of one row, its leaves [...], and the probability of being in it."""

    state: State
    chance: float


def text_law(
    decoder: Decoder, params: Params, prompt: list[int], n: int
) -> dict[tuple, float]:
    """Returns the probability of each text of n tokens after a prompt, at temperature
    1.

    It is enumerated with the decoder's own step. The noise of its rule must be that of
    `verifiers.token`."""
    width, slots = len(prompt), len(prompt) + n + 2 * decoder.drafter.gamma + 2
    start = make_prompt([prompt])
    initial = jax.jit(lambda: generate.prefill(decoder, params, start, slots))()
    run_step = compile_step(decoder, params)
    waiting = [Branch(take_row(initial, 0), 1.0)]
    law: defaultdict[tuple, float] = defaultdict(float)
    while waiting:
        reached: dict[tuple, Branch] = {}
        for at in range(0, len(waiting), CHUNK):
            some = waiting[at : at + CHUNK]
            for branch in next_branches(run_step, some, decoder.drafter.gamma):
                state, chance = branch
                text: Any = np.asarray(state.tokens[width : int(state.length)])
                if len(text) >= n:
                    law[tuple(text[:n].tolist())] += chance
                    continue
                leaves = jax.tree.leaves(state._replace(target_cache=(), tokens=text))
                same = tuple(np.asarray(leaf).tobytes() for leaf in leaves)
                before = reached.get(same, branch._replace(chance=0.0)).chance
                reached[same] = Branch(state, before + chance)
        waiting = [*reached.values()]
    return law


def draft_error(draft: DraftSource, gamma: int = 2, n: int = 4) -> float:
    """Returns how far the law of texts of n tokens is from that of
    `sampled_texts.target`.

    They are decoded with a draft of certain tokens: chains by Algorithm 1, trees by
    recursive rejection."""
    drafter, target = draft.drafter(gamma), sampled_texts.target()
    rule = recursive.verifier if drafter.siblings else token.verifier
    decoder = Decoder(target.model, drafter, rule)
    law = text_law(decoder, Params(target.params, draft.params), PROMPT, n)
    return error(law, target_law(target.model, target.params, PROMPT, n))


def target_law(model: Any, params: Any, prompt: list[int], n: int) -> dict:
    """Returns the law of the same texts by the target alone, from one call on each
    text, in float64."""
    texts = np.array(list(itertools.product(range(model.vocab), repeat=n)))
    rows = [[*prompt, *text] for text in texts.tolist()]
    prompts = make_prompt(rows)

    @jax.jit
    def logits() -> Any:
        cache = model.init(params, prompts, len(rows[0]))
        zero = jnp.zeros_like(prompts.length)
        features, _ = model.apply(params, prompts.tokens, zero, cache)
        return model.readout(params, features)

    z = np.asarray(logits(), np.float64)[:, len(prompt) - 1 : -1]
    p = np.exp(z - np.log(np.exp(z).sum(-1, keepdims=True)))
    each = np.take_along_axis(p, texts[..., None], axis=-1)[..., 0].prod(1)
    return dict(zip(map(tuple, texts.tolist()), each.tolist(), strict=True))


def compile_step(decoder: Decoder, params: Params) -> Callable:
    """Returns the compiled step: (State [B], accept [B, G]) -> state, residual and
    probabilities.

    The residual is [B, V], and the chances are of each slot or node [B, G]."""

    @jax.jit
    def run_step(state: State, accept: Any) -> Any:
        verdicts = []

        def verify(
            law: Any, draft: Any, noise: Any, keep_residual: bool = False
        ) -> Any:
            verdict = decoder.verifier.verify(law, draft, noise, keep_residual=True)
            verdicts.append((verdict.residual, verdict.accept_prob))
            return verdict

        batch = state.length.size
        noise = token.Noise(accept, jnp.full((batch, 2), 0.5))
        rule = decoder.verifier._replace(noise=lambda *_: noise, verify=verify)
        step = build_step(*decoder._replace(verifier=rule))
        after, _ = step(params, make_requests(batch), state)
        return after, *verdicts[0]

    return run_step


def make_requests(batch: int) -> Request:
    prompt = make_prompt([[0]] * batch)
    requests = make_request(root_key(0), prompt, 2**20, make_sampling(batch, 1.0))
    return jax.tree.map(jnp.asarray, requests)


def next_branches(run_step: Callable, some: list[Branch], gamma: int) -> list[Branch]:
    """Returns all branches that follow `some` branches after one step."""
    below = np.array(list(itertools.product((True, False), repeat=gamma)))
    filled = [*some, *[some[0]] * (CHUNK - len(some))]
    states = [branch.state for branch in filled for _ in below]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    kept = np.tile(below, (CHUNK, 1))
    noise = np.where(kept, 0.0, BELOW_ONE).astype(np.float32)
    result, residual, chance = jax.device_get(run_step(batch, noise))
    each = np.where(kept, chance, 1 - np.float64(chance)).prod(1)
    mass = np.float64(residual)
    share = mass / np.maximum(mass.sum(1, keepdims=True), 1e-30)
    branches = []
    for row in range(len(some) * len(below)):
        for extra in np.flatnonzero(each[row] * share[row]).tolist():
            state = take_row(result, row)
            tokens: Any = np.array(state.tokens)
            tokens[state.length - 1] = extra
            weight = some[row // len(below)].chance * each[row] * share[row, extra]
            branches.append(Branch(state._replace(tokens=tokens), float(weight)))
    return branches


def take_row(state: State, row: int) -> State:
    return jax.tree.map(lambda leaf: np.asarray(leaf[row]), state)


def error(law: dict, own: dict) -> float:
    """Returns the largest difference between the probabilities of any text."""
    return max(abs(law.get(text, 0.0) - own.get(text, 0.0)) for text in {*law, *own})
