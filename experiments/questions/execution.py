"""Speculation beyond language: a planner that acts, and a simulator that answers.

Leviathan et al. (2023), Section 6: y is drawn from a slow f(x) and is the input of a
slow g(y). A cheap f' guesses y, and g runs on the guess while f runs. The guess is kept
by Algorithm 1, so that (y, g(y)) keeps its law; or, as in other work on speculative
actions, only where it equals the draw of f. Here x is a state of Dietterich's taxi
world, f is a softmax of the values after SWEEPS sweeps of value iteration, f' one after
fewer sweeps, and g is the world. Its 500 states are enumerated, and the probabilities
are those that the verifiers of `specjax` report: nothing is sampled. Axes: S states, A
actions, K guesses, N rows.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.questions.verdict import Question, judge
from specjax import probs
from specjax.measure.row import Measurement
from specjax.types import Draft, Sampling, Verifier
from specjax.verifiers import match, recursive, token

QUESTION = Question(
    "Does a guess kept by Algorithm 1 end sooner than one committed on a match, with"
    " all that guessing and the rule cost?",
    "it ends no sooner than the better of the two rules that match one guess, or than"
    " one step after the other",
    "sum min(p, q) is never below sum p q; against the likeliest guess either can win",
)
SIDE, LANDMARKS = 5, ((0, 0), (0, 4), (4, 0), (4, 3))
WALLS = {(0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2)}  # no way to the east
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # then pick up, and put down
SLIP = 0.1  # how often a move leaves the taxi where it is
SWEEPS, DISCOUNT = 60, 0.95
GAMMAS = 1, 2, 4, 8


def build_world() -> tuple[np.ndarray, np.ndarray]:
    """Returns G [S, A, S], the state that an action leads to, and its reward [S, A].

    After a passenger reaches the destination a new one appears, anywhere.
    """
    every = list(itertools.product(range(SIDE), range(SIDE), range(5), range(4)))
    number = {state: i for i, state in enumerate(every)}
    begun = [s for s in every if s[2] < 4 and s[2] != s[3]]
    leads = np.zeros((len(every), 6, len(every)))
    reward = np.full((len(every), 6), -1.0)
    for state, i in number.items():
        row, column, rider, goal = state
        for a, (down, east) in enumerate(MOVES):
            blocked = east and (row, column - (east < 0)) in WALLS
            to = np.clip([row + down, column + east], 0, SIDE - 1)
            to = (row, column) if blocked else tuple(map(int, to))
            leads[i, a, number[*to, rider, goal]] += 1 - SLIP
            leads[i, a, i] += SLIP
        here = LANDMARKS.index((row, column)) if (row, column) in LANDMARKS else None
        if rider < 4 and here == rider:
            leads[i, 4, number[row, column, 4, goal]] = 1
        else:
            leads[i, 4, i], reward[i, 4] = 1, -10
        if rider == 4 and here == goal:
            leads[i, 5, [number[s] for s in begun]] = 1 / len(begun)
            reward[i, 5] = 20
        else:
            leads[i, 5, i], reward[i, 5] = 1, -10
    return leads, reward


def sweep(value: Array, leads: Array, reward: Array) -> Array:
    """Returns Q [S, A] after one sweep of value iteration over the best values of the Q
    before."""
    return reward + DISCOUNT * leads @ value.max(-1)


def plan(leads: np.ndarray, reward: np.ndarray, sweeps: int) -> np.ndarray:
    value = np.zeros_like(reward)
    for _ in range(sweeps):
        value = sweep(value, leads, reward)
    return value


def softmax(z: np.ndarray) -> np.ndarray:
    weight = np.exp(z - z.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def stationary_shares(leads: np.ndarray) -> np.ndarray:
    """Returns the share of time that a Markov chain [S, S] spends in each state [S]."""
    return np.linalg.matrix_power(leads, 4096).mean(0)


@partial(jax.jit, static_argnames=("verifier", "drawn"))
def apply_verifier(
    p: Array, q: Array, guesses: Array, verifier: Verifier, drawn: bool
) -> tuple[Array, Array]:
    """Applies a verifier to guessed actions in each state.

    Args:
        guesses: [N, K], drawn from q [N, A] without replacement, or (not `drawn`)
            certain.

    Returns:
        The probability of each guess to be kept [N, K], and the law [N, A] of the
            action that is taken.
    """
    count, most = guesses.shape

    def law(x: Array, times: int):
        z = jnp.log(jnp.repeat(x[:, None], times, 1))
        return probs.standardize(z, Sampling(jnp.ones(count)))

    parent = None if most == 1 else jnp.full((count, most), -1, jnp.int32)
    given = law(q, most) if drawn else None
    draft = Draft(guesses, jnp.full(count, most), given, parent)
    # Uniforms that reject everything leave every chance and the last residual.
    noise = token.Noise(jnp.full((count, most), jnp.inf), jnp.zeros((count, 2)))
    if verifier is match.verifier:
        noise = match.Noise(jnp.zeros((count, most + 1, 2)))
    verdict = verifier.verify(law(p, most + 1), draft, noise, True)
    chance, left = verdict.accept_prob, verdict.residual
    if verifier is match.verifier:  # its own draw, given that it is not a guess
        left = p * (1 - jax.nn.one_hot(guesses[:, 0], p.shape[-1]))
    before = jnp.cumprod(jnp.pad(1 - chance, ((0, 0), (1, 0)), constant_values=1.0), 1)
    kept = chance * before[:, :-1]
    left = left / jnp.maximum(left.sum(-1, keepdims=True), 1e-30)
    taken = (kept[..., None] * jax.nn.one_hot(guesses, p.shape[-1])).sum(1)
    return kept, taken + before[:, -1:] * left


def outcome(
    p: np.ndarray, q: np.ndarray, k: int, *, verifier: Verifier, drawn: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the probability [S] that one of k guesses is kept, and the law [S, A] of
    the action that follows.

    It is the mean over all guesses that could be drawn, or the value for the k most
    likely ones.
    """
    states, actions = p.shape
    if not drawn:
        guesses = np.argsort(-q, axis=1, kind="stable")[:, :k].astype(np.int32)
        kept, law = apply_verifier(p, q, guesses, verifier, False)
        return np.asarray(kept.sum(1)), np.asarray(law)
    tuples = np.array(list(itertools.permutations(range(actions), k)), np.int32)
    orders = tuples.tolist()
    there = [
        [np.isin(range(actions), x[:j], invert=True) for j in range(k)] for x in orders
    ]
    rest = np.einsum("sa,tka->stk", q, np.array(there))  # a difference would round
    weight = np.prod(q[:, tuples] / rest, -1)
    rows = np.repeat(np.arange(states), len(tuples))
    guesses = np.tile(tuples, (states, 1))
    kept, law = apply_verifier(p[rows], q[rows], guesses, verifier, True)
    kept = np.asarray(kept.sum(1)).reshape(weight.shape)
    law = np.asarray(law).reshape(*weight.shape, actions)
    return (weight * kept).sum(1), (weight[..., None] * law).sum(1)


RULES = {
    "a draw, kept by Algorithm 1": (1, token.verifier, True),
    "a draw, committed on a match": (1, match.verifier, True),
    "the likeliest, committed on a match": (1, match.verifier, False),
    "2 draws, recursive rejection": (2, recursive.verifier, True),
    "3 draws, recursive rejection": (3, recursive.verifier, True),
    "the 2 likeliest": (2, recursive.verifier, False),
    "the 3 likeliest": (3, recursive.verifier, False),
}
OURS, *MATCHES = [*RULES][:3]


def operations(actions: int, leads: np.ndarray, reward: np.ndarray) -> float:
    """Returns the operations of a verification, as a share of those of f, as XLA counts
    them.
    """
    one = jnp.ones((1, actions)) / actions
    none = jnp.zeros((1, 1), jnp.int32)
    rule = apply_verifier.lower(one, one, none, token.verifier, True)
    planned = jax.jit(sweep).lower(reward, leads, reward)
    flops = [x.compile().cost_analysis()["flops"] for x in (rule, planned)]
    return float(flops[0] / (SWEEPS * flops[1]))


def actions_per_call(
    p: np.ndarray, q: np.ndarray, leads: np.ndarray, *, gamma: int
) -> float:
    """Returns the actions per call of Algorithm 1 with gamma guessed steps, from the
    Markov chain of calls.
    """
    both = np.minimum(p, q)
    keeps, mends, takes = (
        np.einsum("sa,sat->st", x, leads) for x in (both, p - both, p)
    )
    alive, next_start, tokens = np.eye(len(p)), 0.0, 0.0
    for _ in range(gamma):
        next_start = next_start + alive @ mends
        tokens = tokens + alive.sum(1)
        alive = alive @ keeps
    next_start, tokens = next_start + alive @ takes, tokens + alive.sum(1)
    return float(stationary_shares(next_start) @ tokens)


def build(sweeps: int, heat: float, world_time: float) -> Measurement:
    """Returns the measurement of one row.

    Args:
        sweeps: the number of sweeps of f'.
        heat: the temperature of both softmaxes.
        world_time: the time of g, in times of f.

    Raises:
        ValueError: not 1 <= sweeps < SWEEPS, or another argument is not above 0.
    """
    if not (1 <= sweeps < SWEEPS and heat > 0 and world_time > 0):
        raise ValueError(
            f"sweeps must be in 1 .. {SWEEPS - 1}, heat and world_time above 0; got"
            f" {sweeps}, {heat}, {world_time}"
        )
    run = partial(measure, sweeps, heat, world_time)
    return Measurement(run, __name__, dtype="float32")


def measure(sweeps: int, heat: float, world_time: float) -> dict:
    """Returns how often each rule's guess is kept, the time of a step in times of f,
    and how often g runs in it. Arguments as in `build`.
    """
    leads, reward = build_world()
    p, q = (softmax(plan(leads, reward, n) / heat) for n in (SWEEPS, sweeps))
    spent = stationary_shares(np.einsum("sa,sat->st", p, leads))
    c, extra = sweeps / SWEEPS, operations(p.shape[1], leads, reward)
    numbers, shown, time, alone = {}, [], {}, 1 + world_time
    for name, (k, verifier, drawn) in RULES.items():
        kept, law = outcome(p, q, k, verifier=verifier, drawn=drawn)
        share = float(spent @ kept)
        # g beside f; where no guess is kept it begins again as soon as f has ended.
        side, again = max(1.0, world_time), 1 + world_time
        time[name] = c + extra + share * side + (1 - share) * again
        shown.append(
            {
                "rule": name,
                "kept": share,
                "time a step": time[name],
                "times as fast": alone / time[name],
                "runs of g a step": k + 1 - share,
                "largest difference of a law": float(np.abs(law - p).max()),
            }
        )
    for gamma in GAMMAS:
        many = actions_per_call(p, q, leads, gamma=gamma)
        took = (gamma * (c + world_time) + 1 + extra + world_time) / many
        shown.append(
            {
                "rule": f"Algorithm 1, {gamma} steps ahead",
                "kept": (many - 1) / gamma,
                "time a step": took,
                "times as fast": alone / took,
                "runs of g a step": (gamma + 1) / many,
                "largest difference of a law": None,
            }
        )
    numbers |= {f"kept_{i}": it["kept"] for i, it in enumerate(shown[: len(RULES)])}
    numbers["gain_match"] = min(time[name] for name in MATCHES) / time[OURS] - 1
    own = [it["times as fast"] for it in shown if "Algorithm 1" in it["rule"]]
    fastest = max(it["times as fast"] for it in shown)
    numbers |= {"gain_alone": max(own) - 1, "fastest": fastest}
    verdict = [
        judge(
            "over a match of one guess a step gains",
            numbers["gain_match"],
            error=None,
            bound=0.0,
        ),
        judge(
            "over f and g in turn it gains",
            numbers["gain_alone"],
            error=None,
            bound=0.0,
        ),
    ]
    numbers |= {
        "c": c,
        "rule_operations": extra,
        "world_time": world_time,
        "heat": heat,
    }
    return QUESTION._asdict() | numbers | {"verdict": verdict, "points": shown}
