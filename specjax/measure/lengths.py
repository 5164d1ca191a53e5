"""The cost per token of drafting with fixed lengths, with policies, and with an oracle.

Every length and policy decodes the same prompts by Algorithm 1. A call that drafts g
tokens costs c g + v(g) calls of the target on one token (Definition 3.7; v = 1 in
Leviathan et al. 2023) and emits one token more than were accepted. The oracle of
Section 3.5 drafts exactly the tokens that will be accepted. Axes: N calls, G = gamma,
the most that is drafted, B rows, K bins.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import native, probs
from specjax.checkpoints import Pretrained
from specjax.decode_config import change
from specjax.drafts.source import DraftSource
from specjax.measure.texts import Protocol, decode, digest_prompts
from specjax.policies.confidence import WIDTHS
from specjax.prompts import Prompts
from specjax.runtime import hosts
from specjax.theory import speedup
from specjax.types import Info, Kernels, Law, Policy, State


class Costs(NamedTuple):
    """The costs of a drafted token, in calls of the target on one token.

    c: to draft it.
    slope: to read it, in v(gamma) = 1 + slope gamma.
    """

    c: float
    slope: float

    def v(self, gamma: int) -> np.ndarray:
        return 1 + self.slope * np.arange(gamma + 1)


class Run(NamedTuple):
    """The calls of a run, with what the draft and the rule reported of each.

    sequence, drafted, accepted: [N], each call's text and numbers of tokens.
    chance: [N, G], what uniforms were compared with.
    sure: [N, G], q(x) of each drafted token at temperature 1, for a run by `recorder`.
    """

    sequence: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    chance: np.ndarray
    sure: np.ndarray | None


def fixed_length(length: int) -> Policy:
    """Returns a policy that always drafts `length` tokens.

    All lengths have one program.
    """

    def init(batch: int, gamma: int) -> tuple[Array, None]:
        return jnp.full(batch, min(length, gamma), jnp.int32), None

    return Policy(init, lambda budget, carry, info: (budget, carry), widths=WIDTHS)


def recorder() -> Policy:
    """Returns a policy that drafts gamma tokens and records the draft's confidence."""

    def init(batch: int, gamma: int) -> tuple[Array, Array]:
        return jnp.full(batch, gamma, jnp.int32), jnp.zeros((batch, gamma))

    def go_on(sure: Array, law: Law, token: Array, slot: Any) -> tuple[Array, Array]:
        own = probs.at_temperature_one(law, token)
        return sure.at[:, slot].set(own), jnp.ones(token.shape, bool)

    def update(budget: Array, sure: Array, info: Info) -> tuple[Array, Array]:
        return budget, sure

    return Policy(init, update, go_on)


def run(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    count: int,
    protocol: Protocol,
    kernels: Kernels | None = None,
) -> Run:
    """Returns the calls that decode `count` prompts by the protocol."""
    calls, first = [], 0

    def record_step(running: np.ndarray, state: State, info: Info) -> None:
        rows = np.flatnonzero(running & (first + np.arange(running.size) < count))
        sure = state.policy if protocol.decode.policy == RECORDER else info.accept_prob
        numbers = info.drafted, info.accepted, info.accept_prob, sure
        calls.append((first + rows, *(x[rows] for x in hosts.read(numbers))))

    decoded = decode(pair, prompts, count, protocol, kernels=kernels, seen=record_step)
    for _, each in decoded:
        first += len(each.texts)
    return Run(*map(np.concatenate, zip(*calls, strict=True)))


RECORDER = f"{__name__}:recorder"


def compare(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    protocol: Protocol,
    *,
    costs: Costs,
    gammas: Sequence[int],
    policies: Sequence[str],
    kernels: Kernels | None = None,
    kept: dict | None = None,
) -> dict:
    """Returns the costs of fixed lengths, policies and the oracle.

    The fixed lengths are those of `gammas` and the protocol's gamma, which is the most
    that a policy may draft. Results are named by "gamma_4", a policy's bare name, or
    "oracle", followed by: tokens_per_call, drafted (per token), cost (per token, with
    its error over texts), regret (the excess over the oracle's cost), and closed (the
    share of the gap to the oracle).

    In addition, on the calls of the longest drafts, the rule of `policies.renewal` is
    applied with known probabilities: how often tokens with the same confidence were
    kept ("hindsight"), or each token's own probability to be kept ("chances"). kept:
    runs that rows share.
    """
    kept, most = {} if kept is None else kept, protocol.decode.gamma
    count = min(len(prompts.tokens), -(-protocol.tokens // protocol.decode.new_tokens))

    def run_policy(policy: str) -> Run:
        changed = change(protocol, policy=policy)
        names = pair[0].name, pair[0].dtype, pair[1].name, native.in_use()
        key = *names, changed, digest_prompts(prompts)
        if key not in kept:
            kept[key] = run(pair, prompts, count, changed, kernels)
        return kept[key]

    every = {
        f"gamma_{x}": run_policy(f"{__name__}:fixed_length:{x}")
        for x in gammas
        if x < most
    }
    longest = every[f"gamma_{most}"] = run_policy(RECORDER)
    runs = every | {name.partition(":")[0]: run_policy(name) for name in policies}
    c, v, accepted = costs.c, costs.v(most), longest.accepted
    best_gamma = min(every, key=lambda x: token_cost(every[x], c, v)[0])
    best = token_cost(every[best_gamma], c, v)[0]
    assert longest.sure is not None
    runs["oracle"] = longest._replace(drafted=accepted)
    least = oracle(accepted, c, v)
    known = kept_if_sure(longest.sure, accepted), longest.chance
    for name, chance in zip(("hindsight", "chances"), known, strict=True):
        drafted, _ = replay_renewal(chance, accepted, c, v)
        taken = np.minimum(drafted, accepted)
        runs[name] = longest._replace(drafted=drafted, accepted=taken)
    numbers: dict[str, Any] = {"tokens": int(np.sum(accepted + 1)), "sequences": count}
    numbers |= {"alpha": float(accepted.sum() / np.minimum(accepted + 1, most).sum())}
    numbers |= {"best_gamma": int(best_gamma.removeprefix("gamma_"))}
    for name, it in runs.items():
        own, error = token_cost(it, c, v)
        tokens = np.sum(it.accepted + 1)
        numbers |= {
            f"{name}_tokens_per_call": float(tokens / len(it.accepted)),
            f"{name}_drafted": float(it.drafted.sum() / tokens),
            f"{name}_cost": own,
            f"{name}_cost_se": error,
            f"{name}_regret": own / least - 1,
            f"{name}_closed": gap_share(own, best, least),
        }
    return numbers


def token_cost(it: Run, c: float, v: np.ndarray) -> tuple[float, float | None]:
    """Returns the cost per token of a run, and its standard error over texts, which is
    None for a single text."""
    paid = np.bincount(it.sequence, c * it.drafted + v[it.drafted])
    given = np.bincount(it.sequence, it.accepted + 1.0)
    value, error = speedup.ratio([paid], [given])
    return value, None if error is None else value * error


def cost(drafted: np.ndarray, accepted: np.ndarray, c: float, v: np.ndarray) -> float:
    """Returns the cost per token of N calls that drafted [N] and accepted [N] tokens.

    v: [G + 1], a target's call with g drafted tokens, from 0 on.
    """
    return float(np.sum(c * drafted + v[drafted]) / np.sum(accepted + 1))


def oracle(accepted: np.ndarray, c: float, v: np.ndarray) -> float:
    """Returns the cost per token if the number of tokens to be accepted [N], at most G,
    were known beforehand.

    The calls begin where those of G tokens do. No rule of at most G tokens costs less,
    as long as a drafted token costs less than a token.
    """
    return cost(accepted, accepted, c, v)


def gap_share(own: float, best: float, least: float) -> float | None:
    """Returns which share of the gap between the best gamma's cost and the oracle's a
    policy closes.

    A rule with share 1 is the oracle; below 0 it is worse than the best gamma. None
    where there is no gap, as for a draft that is always accepted.
    """
    return (best - own) / (best - least) if best > least else None


def kept_if_sure(sure: np.ndarray, accepted: np.ndarray, bins: int = 16) -> np.ndarray:
    """Returns, for each drafted token [N, G], the share kept among tokens with a
    similar confidence.

    It counts the tokens that were decided on, in bins of equally many tokens by `sure`
    [N, G]. This is what the confidence tells about acceptance in hindsight.
    """
    slot = np.arange(sure.shape[1])
    kept, tested = slot < accepted[:, None], slot <= accepted[:, None]
    edges = np.quantile(sure[tested], np.linspace(0, 1, bins + 1)[1:-1])
    place = np.searchsorted(edges, sure)
    counts = [np.bincount(place[x], minlength=bins) for x in (kept & tested, tested)]
    return (counts[0] / np.maximum(counts[1], 1))[place]


def replay_renewal(
    kept: np.ndarray, accepted: np.ndarray, c: float, v: np.ndarray
) -> tuple[np.ndarray, float]:
    """Returns the lengths [N] that the rule of `policies.renewal` drafts, and its cost
    per token.

    Each drafted token is kept with the known probability `kept` [N, G], on calls that
    begin where those of G tokens did.
    """
    count, gamma = kept.shape
    slot = np.arange(gamma)
    after = np.sum(accepted) / np.sum(slot <= accepted[:, None])
    alive = np.cumprod(kept, axis=1)
    drafted, own = np.full(count, gamma), np.inf
    for _ in range(20):  # the least cost a token is a fixed point
        own = cost(drafted, np.minimum(drafted, accepted), c, v)
        stops = alive * after * own <= c + np.diff(v, append=np.inf)[1:]
        drafted = stops.argmax(1) + 1
    return drafted, cost(drafted, np.minimum(drafted, accepted), c, v)
