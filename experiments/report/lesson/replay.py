"""A prompt decoded under every rule for chains, with the laws that decided each step.

p is the target M_p, q the drafter M_q, gamma the number of drafted tokens. The rows are
those that the real compiled step reads: its verifier is replaced by one that also
records them. Axes: B rows, of which there is one; G = gamma, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.leviathan import figure1
from experiments.report import processes
from specjax import drafts, generate, pretrained, probs, verifiers
from specjax.checkpoints import Pretrained
from specjax.drafters import rollout
from specjax.drafts.source import DraftSource
from specjax.exactness.claims import CLAIMS
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import trace
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Draft, Info, Law, Params, Verdict, Verifier

RULES = tuple(name for name, claim in CLAIMS.items() if claim.chains is None)
PROMPT = 'def read_config(path, default=None):\n    """'
GAMMA, TOKENS, SEEDS = 4, 40, range(24)
SHOWN = 4  # of the target's most likely tokens
OWN = "match", "gumbel"  # rules that draw the target's own token, whatever was drafted


Pair = tuple[str, str]


def replays(pair: Pair = ("code_target", "code_small"), at_once: bool = True) -> dict:
    """Returns the runs of every rule, one for each seed, at temperature 1, and the
    values that all runs share.

    Args:
        at_once: decode by several rules at a time, in processes.
    """
    work = {
        f"texts by {rule}": partial(decode_runs, pair, rule, SEEDS) for rule in RULES
    }
    found = processes.run(work) if at_once else {x: one() for x, one in work.items()}
    runs = dict(zip(RULES, found.values(), strict=True))
    vocab = pretrained.load(pair[0]).vocab
    common = {"target": pair[0], "draft": pair[1], "vocab": vocab}
    common |= {"prompt": PROMPT, "gamma": GAMMA}
    return common | {"seeds": [*SEEDS], "rules": guarantees(), "runs": runs}


def decode_runs(pair: Pair, rule: str, seeds: Sequence[int]) -> list[list[dict]]:
    """Returns the steps of each seed's text under a rule."""
    target, draft = drafts.pair(pretrained.load(pair[0]), pair[1])
    return list(decode_texts(rule, target, draft, seeds))


def guarantees() -> dict[str, str]:
    return {name: verifiers.find(name).guarantee for name in RULES}


def decode_texts(
    rule: str, target: Pretrained, draft: DraftSource, seeds: Sequence[int]
) -> Iterator[list[dict]]:
    """Yields the steps of each seed's text."""
    verifier, seen = verifiers.find(rule), []
    drafter = draft.drafter(GAMMA, rollout.for_rule(verifier))
    decoder = Decoder(target.model, drafter, record_verdicts(verifier, seen))
    prompt, ends = figure1.begin(target, PROMPT)
    begun = int(prompt.length[0])
    stream = generate.build_stream(decoder, begun + TOKENS + GAMMA + 1)
    tokenizer, sampling = figure1.bundled_tokenizer(target), make_sampling(1, 1.0)
    for seed in seeds:
        request = make_request(root_key(seed), prompt, TOKENS, sampling, ends)
        steps, length = [], begun
        for state, info in stream(Params(target.params, draft.params), prompt, request):
            jax.effects_barrier()
            text = np.array(state.tokens)[0, : int(state.length[0])]
            info = jax.tree.map(lambda leaf: np.asarray(leaf)[0], info)
            here = step(text[length:], info, seen.pop(), tokenizer)
            steps.append(drop_meaningless(rule, here))
            length = len(text)
        yield steps


def record_verdicts(verifier: Verifier, seen: list) -> Verifier:
    """Returns the same verifier, which also appends each verdict to `seen`.

    Recorded are p and q of the drafted tokens; and for the position where a token was
    added, the ids of the target's first SHOWN and of the added token, their p, q and
    the residual that it was drawn from.
    """

    def verify(target: Law, draft: Draft, noise, keep_residual=False) -> Verdict:
        verdict = verifier.verify(target, draft, noise, True)
        p, q = probs.dense(target)[0], probs.dense(draft.law)[0]
        q = jnp.pad(q, ((0, 1), (0, 0)))
        drafted, n = draft.tokens[0], verdict.num_accepted[0]
        slots = [law[jnp.arange(GAMMA), drafted] for law in (p, q)]
        left = verdict.residual[0] / verdict.residual[0].sum()
        added = verdict.tokens[0, n]
        ids = jnp.append(jax.lax.top_k(p[n], SHOWN)[1], added)
        there = [law[ids] for law in (p[n], q[n], left)]
        traced = ((drafted, *slots), (ids, *there))
        jax.debug.callback(seen.append, traced, ordered=True)
        return verdict if keep_residual else verdict._replace(residual=None)

    return verifier._replace(verify=verify)


def step(new: np.ndarray, info: Info, seen: tuple, tokenizer: Tokenizer) -> dict:
    """Returns one call: a slot for each drafted token, and the target's most likely
    tokens where a token was added.

    A slot has p(x), q(x) and the probability that the rule gave the token. The most
    likely tokens, and last the added one, have p, q and the residual.
    """
    made = trace.make_step(new, info)
    slots, likely = (zip(*map(np.asarray, it), strict=True) for it in seen)
    chances = np.asarray(info.accept_prob)
    added = [tokenizer.piece(x) for x in made.added]
    return {
        "n": len(made.accepted),
        "added": added,
        "slots": [
            [tokenizer.piece(int(x)), *round_numbers(p, q, chance)]
            for (x, p, q), chance in zip(slots, chances, strict=True)
        ],
        "likely": [[tokenizer.piece(int(x)), *round_numbers(*it)] for x, *it in likely],
    }


def drop_meaningless(rule: str, step: dict) -> dict:
    """Removes the numbers that have no meaning for a rule.

    Where the target's coins drew the draft, p(x) is not its probability; a rule that
    draws the target's own token first has no residual.
    """
    slots, likely = step["slots"], step["likely"]
    if verifiers.find(rule).coupled:
        slots = [[*slot[:3], None] for slot in slots]
    if rule in OWN:
        likely = [[*it[:3], None] for it in likely]
    return step | {"slots": slots, "likely": likely}


def round_numbers(*several: float) -> list[float]:
    return [float(f"{x:.4g}") for x in several]
