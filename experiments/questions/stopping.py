"""Rules that stop a draft: a trained classifier, thresholds on q, and the renewal rule.

Every rule reads a score of each drafted token and stops after the first that is below
its threshold (Section 3.5 of Leviathan et al., 2023). All are replayed on the same
calls, which drafted G tokens each. Everything learned or tuned comes from the other
half of the texts. Costs are those of `specjax.measure.lengths`. Axes: N calls, G =
gamma, B rows, F features.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.questions.verdict import Question, bootstrap, judge, sum_by_text
from specjax import fused, native, probs
from specjax.decode_config import change
from specjax.measure import lengths
from specjax.measure.pairs import Pair
from specjax.measure.texts import Protocol, decode, digest_prompts
from specjax.prompts import Prompts
from specjax.types import Info, Law, Policy, State
from specjax.verifiers import lenient

QUESTION = Question(
    "Does a learned head stop drafts at less cost a token than a threshold on q(x)? And"
    " how much would an oracle gain?",
    "the head does not beat the threshold on q(x)",
    "the oracle gains up to 60 % (Section 3.5); of its gap to the best gamma the rule"
    " `renewal` that knows every chance closes 40 to 60 %, where the chances are two",
)
WATCHER = f"{__name__}:recording_policy"
THRESHOLDS = 40
RIDGE = 1e-3


class WatchedRun(NamedTuple):
    """The calls of a run, with the features that stopping rules may read.

    Attributes:
        sequence: [N], the text of each call.
        accepted: [N].
        chance: [N, G], the probability of acceptance.
        seen: [N, G, F], log q(x), log max q and the entropy of q, all at temperature 1.
    """

    sequence: np.ndarray
    accepted: np.ndarray
    chance: np.ndarray
    seen: np.ndarray


def recording_policy() -> Policy:
    """Returns a policy that always drafts gamma tokens, and records the features that a
    stopping rule may read.
    """

    def init(batch: int, gamma: int) -> tuple[Array, Array]:
        return jnp.full(batch, gamma, jnp.int32), jnp.zeros((batch, gamma, 3))

    def go_on(seen: Array, law: Law, token: Array, slot) -> tuple[Array, Array]:
        weight = probs.dense(lenient.relative_weights(law))  # q(x) / max q
        total = weight.sum(-1)
        logs = jnp.log(jnp.where(weight > 0, weight, 1.0))
        entropy = jnp.log(total) - (weight * logs).sum(-1) / total
        own = jnp.log(probs.at_temperature_one(law, token))
        each = jnp.stack([own, -jnp.log(total), entropy], -1)
        return seen.at[:, slot].set(each), jnp.ones(token.shape, bool)

    def update(budget: Array, seen: Array, info: Info) -> tuple[Array, Array]:
        return budget, seen

    return Policy(init, update, go_on)


def record_run(pair: Pair, prompts: Prompts, protocol: Protocol) -> WatchedRun:
    """Returns all calls of the texts of a protocol, with each prompt once."""
    count = min(len(prompts.tokens), -(-protocol.tokens // protocol.decode.new_tokens))
    how = change(protocol, policy=WATCHER)
    calls, first = [], 0

    def record(running: np.ndarray, state: State, info: Info) -> None:
        rows = np.flatnonzero(running & (first + np.arange(running.size) < count))
        values = info.accepted, info.accept_prob, state.policy
        calls.append((first + rows, *(np.array(x)[rows] for x in values)))

    kernels = fused.for_protocol(*pair, protocol)
    for _, each in decode(pair, prompts, count, how, kernels=kernels, seen=record):
        first += len(each.texts)
    return WatchedRun(*map(np.concatenate, zip(*calls, strict=True)))


def features(seen: np.ndarray) -> np.ndarray:
    """Returns the features of each token that the classifier reads, [N, G, F].

    They are those of `Watched.seen`, those of the token before, the squares, and the
    place in the draft.
    """
    before = np.pad(seen[:, :-1], ((0, 0), (1, 0), (0, 0)))
    place = np.broadcast_to(np.arange(seen.shape[1])[:, None], (*seen.shape[:2], 1))
    whole = np.concatenate([seen, before, seen**2, place], -1)
    return np.clip(whole, -50, 50)


def fit_logistic(x: np.ndarray, kept: np.ndarray, steps: int = 25) -> tuple:
    """Fits a logistic regression to kept [M], shares, from x [M, F], by Newton's
    method; returns the argument of `predict`.
    """
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x = np.pad((x - mean) / spread, ((0, 0), (0, 1)), constant_values=1.0)
    weight, ridge = np.zeros(x.shape[1]), RIDGE * len(x) * np.eye(x.shape[1])
    for _ in range(steps):
        share = 1 / (1 + np.exp(-np.clip(x @ weight, -30, 30)))
        slope = x.T @ (kept - share) - ridge @ weight
        curved = (x * (share * (1 - share))[:, None]).T @ x + ridge
        weight = weight + np.linalg.solve(curved, slope)
    return mean, spread, weight


def predict(head: tuple, x: np.ndarray) -> np.ndarray:
    """Returns the probability that each token with features x [..., F] is kept,
    [...]."""
    mean, spread, weight = head
    z = (x - mean) / spread @ weight[:-1] + weight[-1]
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))


def stop_lengths(score: np.ndarray, least: float) -> np.ndarray:
    """Returns the number of drafted tokens [N], up to the first whose score [N, G] is
    below `least`.
    """
    below = score < least
    return np.where(below.any(1), below.argmax(1) + 1, score.shape[1])


def call_costs(
    it: WatchedRun, drafted: np.ndarray, c: float, slope: float
) -> np.ndarray:
    """Returns the cost and the tokens of each call, if it drafts `drafted` [N] tokens:
    [N, 2].
    """
    cost = 1 + (c + slope) * drafted
    return np.stack([cost, np.minimum(drafted, it.accepted) + 1.0], -1)


def cost_per_token(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def rules(it: WatchedRun, c: float, slope: float) -> dict[str, np.ndarray]:
    """Returns the number of tokens that each rule drafts in each call [N]; rules are
    fitted to one half of the texts and applied to the other.
    """
    gamma, x = it.chance.shape[1], features(it.seen)
    tested = np.arange(gamma) <= it.accepted[:, None]
    drafted = {}

    def put(name: str, here: np.ndarray, tokens: np.ndarray) -> None:
        drafted.setdefault(name, np.zeros(len(here), int))[here] = tokens[here]

    for half in (0, 1):
        here, other = it.sequence % 2 == half, it.sequence % 2 != half
        other_half = WatchedRun(*(leaf[other] for leaf in it))

        def best(choices: dict, other_half=other_half, other=other):
            costs = {
                k: cost_per_token(
                    call_costs(other_half, tokens[other], c, slope).sum(0)
                )
                for k, tokens in choices.items()
            }
            return choices[min(costs, key=costs.get)]

        fixed = {g: np.full(len(here), g) for g in range(1, gamma + 1)}
        put("gamma", here, best(fixed))
        learned = tested & other[:, None]
        head = predict(fit_logistic(x[learned], it.chance[learned]), x)
        sure = np.exp(it.seen[..., 0])
        scores = {
            "q": sure,
            "max_q": np.exp(it.seen[..., 1]),
            "entropy": -it.seen[..., 2],
            "q_product": np.cumprod(sure, 1),
            "head": head,
            "head_product": np.cumprod(head, 1),
        }
        for name, score in scores.items():
            grid = np.quantile(score[learned], np.linspace(0, 1, THRESHOLDS))
            put(name, here, best({at: stop_lengths(score, at) for at in grid}))
        for name, known in (("renewal_head", head), ("renewal_chances", it.chance)):
            v = 1 + slope * np.arange(gamma + 1)
            _, own = lengths.replay_renewal(known[other], other_half.accepted, c, v)
            after = other_half.accepted.sum() / tested[other].sum()
            least = (c + slope) / (after * own)
            put(name, here, stop_lengths(np.cumprod(known, 1), least))
    return drafted | {"oracle": it.accepted}


def measure(
    pair: Pair,
    prompts: Prompts,
    protocol: Protocol,
    kept: dict,
    *,
    c: float,
    slope: float,
) -> dict:
    """Returns the cost per token of each rule, the share that it closes of the gap
    between the best gamma and the oracle, and the oracle's gain.

    The best gamma is chosen in the other half of the texts.
    """
    names = pair[0].name, pair[0].dtype, pair[1].name, native.in_use()
    key = *names, protocol, WATCHER, digest_prompts(prompts)
    if key not in kept:
        kept[key] = record_run(pair, prompts, protocol)
    it = kept[key]
    drafted = rules(it, c, slope)
    names = [*drafted]
    calls = np.stack([call_costs(it, drafted[name], c, slope) for name in names], 1)
    totals = sum_by_text(calls, it.sequence)
    at = {name: i for i, name in enumerate(names)}

    def closed_share(i: int):
        def share(sums: np.ndarray) -> float:
            costs = cost_per_token(sums)
            best, least = costs[at["gamma"]], costs[at["oracle"]]
            closed = lengths.gap_share(costs[i], best, least)
            return np.nan if closed is None else closed

        return share

    def relative_gain(name: str, other: str):
        return lambda sums: (
            cost_per_token(sums[at[name]]) / cost_per_token(sums[at[other]]) - 1
        )

    numbers = {"tokens": int(np.sum(it.accepted + 1)), "sequences": len(totals)}
    points = []
    for i, name in enumerate(names):
        cost, error = bootstrap(lambda sums, i=i: cost_per_token(sums[i]), totals)
        share, share_error = bootstrap(closed_share(i), totals)
        numbers |= {f"closed_{name}": share, f"closed_{name}_se": share_error}
        points.append(
            {
                "rule": name.replace("_", " "),
                "drafted a call": float(drafted[name].mean()),
                "cost a token": cost,
                "cost a token_se": error,
                "of the gap closed": share,
                "of the gap closed_se": share_error,
            }
        )
    for name, pair_of in {
        "head_gain": ("q", "head_product"),
        "product_gain": ("q_product", "head_product"),
        "oracle_gain": ("gamma", "oracle"),
    }.items():
        value, error = bootstrap(relative_gain(*pair_of), totals)
        numbers |= {name: value, f"{name}_se": error}
    numbers |= {"c": c, "slope": slope, "points": points}
    return numbers | {"verdict": verdicts(numbers)}


def verdicts(numbers: dict) -> list[str]:
    """Returns the three verdicts in words.

    They compare the head with a threshold on q(x), the head with a threshold on the
    product of all q(x) of a draft, and the oracle with the best gamma.
    """
    asked = {
        "head_gain": ("over the threshold on q(x) the head gains", 0.0, False),
        "product_gain": ("over one on the product of q(x) it gains", 0.0, False),
        "oracle_gain": ("over the best gamma the oracle gains", 0.6, True),
    }
    return [
        judge(
            said,
            numbers[name],
            error=numbers[f"{name}_se"],
            bound=bound,
            most=most,
            count=len(asked),
        )
        for name, (said, bound, most) in asked.items()
    ]
