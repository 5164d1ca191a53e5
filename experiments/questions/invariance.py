"""The price of texts that depend on the key and not on the draft.

Drafts and target race with the same Gumbel variables (`verifiers.gumbel`) and agree
with probability sum_x 1 / sum_y max(p(y) / p(x), q(y) / q(x)), where Algorithm 1 keeps
beta = sum_x min(p, q). Probabilities are exact, at every token of texts that the target
wrote; tokens a call are counted. Axes: V vocabulary, N texts.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.questions.verdict import Question, bootstrap, judge, sum_by_text
from specjax import fused, probs
from specjax.decode_config import change
from specjax.measure import scoring
from specjax.measure.pairs import Pair, target_text
from specjax.measure.texts import Protocol, prompt_units, speculate
from specjax.prompts import Prompts
from specjax.types import Law

QUESTION = Question(
    "What does a text that no draft can change cost in accepted tokens?",
    "more than 10 % of the tokens that Algorithm 1 accepts",
    "between 0 and (1 - beta) / (2 - beta) of what it accepts; 11 % of softmax pairs of"
    " 1,000 ids",
)
RULES = "token", "gumbel", "block"


def agreement(p: Array, q: Array) -> Array:
    """Returns `gumbel.acceptance` of laws [..., V], computed by a sort instead of V^2
    ratios.

    In the order of q / p, each maximum is one of its two arguments: sum_y max(p(y) /
    p(x), q(y) / q(x)) = P(ids up to x) / p(x) + Q(ids beyond x) / q(x).
    """
    both = (p > 0) & (q > 0)
    ratio = jnp.where(p > 0, q / jnp.where(p > 0, p, 1.0), jnp.inf)
    order = jnp.argsort(ratio, axis=-1)
    p, q, both = (jnp.take_along_axis(x, order, axis=-1) for x in (p, q, both))
    beyond = jnp.cumsum(q[..., ::-1], axis=-1)[..., ::-1] - q
    p_x, q_x = jnp.where(both, p, 1.0), jnp.where(both, q, 1.0)
    total = jnp.cumsum(p, axis=-1) / p_x + jnp.maximum(beyond, 0.0) / q_x
    return jnp.where(both, 1 / total, 0.0).sum(-1)


def chances(p_law: Law, q_law: Law, drawn: Array) -> tuple[Array]:
    """Returns, for each position, beta and the agreement of a race and of independent
    draws: [B, T, 3].
    """
    del drawn
    p, q = probs.dense(p_law), probs.dense(q_law)
    each = jnp.minimum(p, q).sum(-1), agreement(p, q), (p * q).sum(-1)
    return (jnp.stack(each, -1),)


def measure(
    pair: Pair,
    prompts: Prompts,
    protocol: Protocol,
    kept: dict,
    *,
    decoded: bool = False,
) -> dict:
    """Returns the price of a race in probabilities of acceptance.

    Args:
        decoded: also decode texts, for the price in tokens a call against Algorithm 1
            and against block verification.
    """
    chosen = fused.for_protocol(*pair, protocol)
    text = target_text(pair[0], prompts, protocol, chosen, kept)
    each, sequence = scoring.positions(
        pair, text, protocol.decode.temperature, chances, **protocol.decode.truncation()
    )
    ones = np.ones_like(each[:, :1], dtype=np.float64)
    units = prompt_units(sequence, len(prompts.tokens))
    totals = sum_by_text(np.concatenate([each, ones], -1), units)
    count = int(sequence.max()) + 1
    numbers = {"tokens": len(sequence), "sequences": count}
    for i, name in enumerate(("beta", "race", "match")):
        value, error = bootstrap(lambda sums, i=i: sums[i] / sums[-1], totals)
        numbers |= {name: value, f"{name}_se": error}
    price = bootstrap(lambda sums: 1 - sums[1] / sums[0], totals)
    numbers |= {"price": price[0], "price_se": price[1], "points": []}
    numbers["verdict"] = [
        judge("a race accepts fewer by", price[0], error=price[1], bound=0.1, most=True)
    ]
    return numbers | (count_tokens(pair, prompts, protocol, count) if decoded else {})


def count_tokens(pair: Pair, prompts: Prompts, protocol: Protocol, count: int) -> dict:
    """Decodes `count` texts by each of RULES; returns their tokens per call, and how
    many fewer a race gives.
    """
    numbers, calls = {}, []
    for rule in RULES:
        asked = change(protocol, rule=rule)
        using = fused.for_protocol(*pair, asked)
        run = speculate(pair, prompts, count, asked, using)
        calls.append(np.stack([run.accepted + run.calls, run.calls], -1))
    units = prompt_units(np.arange(count), len(prompts.tokens))
    runs = sum_by_text(np.stack(calls, 1), units)  # [units, rules, 2]
    shown = []
    for i, name in enumerate(RULES):
        value, error = bootstrap(lambda sums, i=i: sums[i, 0] / sums[i, 1], runs)
        numbers |= {f"per_call_{name}": value, f"per_call_{name}_se": error}
        own = {"tokens a call": value, "tokens a call_se": error}
        shown.append({"rule": name} | own)

    def lost_share(other: int):
        return lambda sums: (
            1 - sums[1, 0] * sums[other, 1] / (sums[1, 1] * sums[other, 0])
        )

    for name, other in (("token", 0), ("block", 2)):
        value, error = bootstrap(lost_share(other), runs)
        numbers |= {f"fewer_{name}": value, f"fewer_{name}_se": error}
    return numbers | {"points": shown}
