"""One prompt decoded by every rule of chains, with the laws that each step decided by.

p is the target M_p, q the drafter M_q, gamma the number of drafted tokens. The rows are
those that the real compiled step reads: its verifier is given, and watched.
Axes: B rows, of which there is one; G = gamma, V vocabulary.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.leviathan import figure1
from specjax import generate, probs, sides, verifiers
from specjax.drafters import rollout
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_request, make_sampling
from specjax.measure import trace
from specjax.sides import Side
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Draft, Info, Law, Params, Verdict, Verifier

RULES = tuple(name for name, claim in CLAIMS.items() if claim.chains is None)
PROMPT = 'def read_config(path, default=None):\n    """'
GAMMA, TOKENS, SEEDS, SHOWN = 4, 40, (0, 1, 2), 4


def replays(pair: tuple[str, str] = ("code_target", "code_small")) -> dict:
    """Every rule's runs, one a seed, at temperature 1; and what they have in common."""
    target, draft = sides.paired(*(sides.model(name) for name in pair))
    runs = {rule: list(decoded(rule, target, draft)) for rule in RULES}
    common = {"target": pair[0], "draft": pair[1], "vocab": target.vocab}
    common |= {"prompt": PROMPT, "gamma": GAMMA}
    return common | {"seeds": SEEDS, "rules": told(), "runs": runs}


def told() -> dict[str, str]:
    return {name: verifiers.named(name).guarantee for name in RULES}


def decoded(rule: str, target: Side, draft: Side) -> Iterator[list[dict]]:
    """The steps of each seed's text."""
    verifier, seen = verifiers.named(rule), []
    drafter = draft.drafter(GAMMA, rollout.for_rule(verifier))
    decoder = Decoder(target.model, drafter, watched(verifier, seen))
    prompt, ends = figure1.begin(target, PROMPT)
    begun = int(prompt.length[0])
    stream = generate.build_stream(decoder, begun + TOKENS + GAMMA + 1)
    tokenizer, sampling = figure1.tokenizer_of(target), make_sampling(1, 1.0)
    for seed in SEEDS:
        request = make_request(jax.random.key(seed), prompt, TOKENS, sampling, ends)
        steps, length = [], begun
        for state, info in stream(Params(target.params, draft.params), prompt, request):
            jax.effects_barrier()
            text = np.array(state.tokens)[0, : int(state.length[0])]
            info = jax.tree.map(lambda leaf: np.asarray(leaf)[0], info)
            steps.append(step(text[length:], info, seen.pop(), tokenizer))
            length = len(text)
        yield steps


def watched(verifier: Verifier, seen: list) -> Verifier:
    """The same, which tells of each verdict what p and q say of the drafted tokens and
    of the target's first SHOWN, in `seen`."""

    def verify(target: Law, draft: Draft, noise, keep_residual=False) -> Verdict:
        p, q = probs.dense(target)[0], probs.dense(draft.law)[0]
        q = jnp.pad(q, ((0, 1), (0, 0)))
        ids = jax.lax.top_k(p, SHOWN)[1]
        ids = jnp.concatenate([ids, jnp.pad(draft.tokens[0], (0, 1))[:, None]], axis=1)
        rows = (jnp.take_along_axis(law, ids, axis=1) for law in (p, q))
        jax.debug.callback(lambda *it: seen.append(it), ids, *rows, ordered=True)
        return verifier.verify(target, draft, noise, keep_residual)

    return verifier._replace(verify=verify)


def step(new: np.ndarray, info: Info, seen: tuple, tokenizer: Tokenizer) -> dict:
    """One call: a slot each of the tokens drafted, with p(x), q(x) and the chance that
    the rule gave it, where it gave one; at each place the target's likeliest tokens."""
    ids, p, q = map(np.asarray, seen)
    made = trace.make_step(new, info)
    chances = np.asarray(info.accept_prob).tolist()
    slots = [
        [tokenizer.piece(int(ids[i, -1])), *rounded(p[i, -1], q[i, -1], chances[i])]
        for i in range(GAMMA)
    ]
    likely = [
        [
            [tokenizer.piece(int(x)), *rounded(p[i, k], q[i, k])]
            for k, x in enumerate(ids[i, :-1])
        ]
        for i in range(GAMMA + 1)
    ]
    added = [tokenizer.piece(x) for x in made.added]
    return {"n": len(made.accepted), "added": added, "slots": slots, "likely": likely}


def rounded(*several: float) -> list[float]:
    return [round(float(x), 4) for x in several]
