"""A comparison of fused functions with the reference, on random logits.

Both draw from the same logits with the same uniforms and verify the same drafts, in
rows of the given shape. As in `exactness.divergence`, a different token is accepted
where rounding decides it: let eps be the largest difference in the numbers that both
report; then the token must be within eps of what its uniform selects. Rounding is at
most LIMIT. Axes: B rows, G = gamma, V vocabulary, K blocks of the inverse CDF.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.drafts.source import CERTAIN, REDUCED_VOCAB, TABLE
from specjax.types import BLOCK, Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import sigmoid, token

ROWS = 16  # the least number of rows to draw and verify, in batches of the given shape
TEMPERATURES = 1.0, 0.0, 0.7, 2.0
ROUNDING, LIMIT = 1e-5, 1e-3  # bounds of the rounding of float32 probabilities
FIELDS = "scale", "top", "tau", "tie", "lse"


class Functions(NamedTuple):
    """The functions to compare, of the reference or fused: a verifier and a draw.

    draw: (logits [B, V], Sampling, u [B, 2]) -> (ids [B], Law [B]).
    """

    verifier: Verifier
    draw: Callable


class Case(NamedTuple):
    """Random inputs of a step.

    p, q: logits [B, G + 1, V] and [B, G, V].
    sampling: settings [B].
    draws: [B, G, 2], uniforms of the drafts.
    noise: the noise of every verifier with a rule.
    num: [B], tokens that are real.
    """

    p: Array
    q: Array
    sampling: Sampling
    draws: Array
    noise: token.Noise
    num: Array


class Outcome(NamedTuple):
    """The outputs for a case: the drawn ids [B, G], their law, and a verdict."""

    ids: Array
    law: Law
    verdict: Verdict | None


def problem(plain: Functions, fused: Functions, sizes: Any) -> str | None:
    """Returns in words the first difference that rounding does not explain; None if
    there is none."""
    verifies = plain.verifier.rule is not None and sizes.draft not in (
        TABLE,
        REDUCED_VOCAB,
    )
    certain = sizes.draft == CERTAIN
    runs = [jax.jit(partial(run, it, verifies, certain)) for it in (plain, fused)]
    for seed in range(max(2, -(-ROWS // sizes.batch))):
        rows = random_case(sizes, seed)
        wanted = jax.device_get(runs[0](rows, None))
        seen = jax.device_get(runs[1](rows, wanted.ids))
        if fault := compare(plain.verifier, rows, wanted, seen):
            return fault
    return None


def random_case(sizes: Any, seed: int) -> Case:
    """Returns random rows of the given shape: q near p, temperatures from 0 to 2."""
    batch, gamma, vocab = sizes[:3]
    random = np.random.default_rng(seed)

    def normal(rows: int) -> np.ndarray:
        return random.standard_normal((batch, rows, vocab), np.float32)

    def uniform(*shape: int) -> Array:
        return jnp.asarray(random.random((batch, *shape), np.float32))

    p = 3 * normal(gamma + 1)
    q = p[:, :gamma] + normal(gamma)
    p[..., -1] = q[..., -1] = -np.inf  # like the ids of a padded vocabulary
    cycle = [TEMPERATURES[(seed + b) % len(TEMPERATURES)] for b in range(batch)]
    noise = token.Noise(uniform(gamma), uniform(2))
    num = jnp.full(batch, gamma, jnp.int32)
    return Case(
        p=jnp.asarray(p),
        q=jnp.asarray(q),
        sampling=Sampling(jnp.float32(cycle)),
        draws=uniform(gamma, 2),
        noise=noise,
        num=num,
    )


def run(
    functions: Functions, verifies: bool, certain: bool, rows: Case, ids: Array | None
) -> Outcome:
    """Draws, then verifies `ids` [B, G]; if None, what it drew, with the residual."""
    verifier = functions.verifier
    read = verifier.law or probs.standardize

    def slot(pair: tuple[Array, Array]) -> tuple[Array, Law]:
        id_, law = functions.draw(pair[0], rows.sampling, pair[1])
        return id_, law._replace(logits=None)

    drawn, law = jax.lax.map(slot, (rows.q.swapaxes(0, 1), rows.draws.swapaxes(0, 1)))
    law = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), law)
    drawn = drawn.swapaxes(0, 1)
    if not verifies:
        return Outcome(drawn, law, None)
    carried = None if certain else law._replace(logits=rows.q)
    draft = Draft(drawn if ids is None else ids, rows.num, carried)
    target = read(rows.p, rows.sampling)
    verdict = verifier.verify(target, draft, rows.noise, keep_residual=ids is None)
    return Outcome(drawn, law, verdict)


def compare(
    verifier: Verifier, rows: Case, wanted: Outcome, seen: Outcome
) -> str | None:
    """Returns in words how `seen` differs from `wanted`; None if it does not. Both are
    host arrays."""
    eps = largest_difference(wanted, seen)
    if not eps <= LIMIT:
        return f"probabilities differ by {eps:.1g}, and rounding is below {LIMIT:g}"
    reach = max(ROUNDING, 2 * eps)
    faults = wrong_draws(rows, wanted, seen, reach)
    total = wanted.ids.size
    if wanted.verdict is not None:
        faults += wrong_verdicts(verifier, rows, wanted, seen, reach)
        total += wanted.ids.shape[0]
    if not faults:
        return None
    return f"{faults} of {total} draws and verdicts differ by more than rounding"


def largest_difference(wanted: Outcome, seen: Outcome) -> float:
    """Returns the largest difference in what both report; infinite for NaN."""
    pairs = [(getattr(wanted.law, k), getattr(seen.law, k)) for k in FIELDS]
    if wanted.verdict is not None and seen.verdict is not None:
        pairs.append((wanted.verdict.accept_prob, seen.verdict.accept_prob))
    eps = 0.0
    for a, b in pairs:
        with np.errstate(invalid="ignore"):
            gap = np.where(a == b, 0.0, np.abs(np.subtract(a, b, dtype=np.float64)))
        eps = max(eps, float(np.max(np.nan_to_num(gap, nan=np.inf), initial=0.0)))
    return eps


def wrong_draws(rows: Case, wanted: Outcome, seen: Outcome, reach: float) -> int:
    """Returns the number of different draws that rounding does not explain."""
    faults = 0
    for b, g in np.argwhere(wanted.ids != seen.ids):
        row = Law(rows.q[b, g], *(getattr(wanted.law, k)[b, g] for k in FIELDS))
        q, u = np.asarray(probs.dense(row), np.float64), np.asarray(rows.draws[b, g])
        faults += not selects_id(q, q, u, seen.ids[b, g], reach)
    return faults


def wrong_verdicts(
    verifier: Verifier, rows: Case, wanted: Outcome, seen: Outcome, reach: float
) -> int:
    """Returns the number of different verdicts that rounding does not explain."""
    right: Any = wanted.verdict
    other: Any = seen.verdict
    differ = (right.tokens != other.tokens).any(1)
    differ |= right.num_accepted != other.num_accepted
    faults, gamma = 0, wanted.ids.shape[1]
    for b in np.flatnonzero(differ):
        n, m = int(right.num_accepted[b]), int(other.num_accepted[b])
        count = min(max(m, 0), gamma)
        kept = np.array_equal(other.tokens[b, :count], wanted.ids[b, :count])
        if not kept or m != count:
            faults += 1
        elif n != m:  # explained if the deciding uniform is next to its probability
            at = b, min(n, m)
            faults += not abs(rows.noise.accept[at] - right.accept_prob[at]) <= reach
        else:
            p, u = weights(verifier, rows, b, n), np.asarray(rows.noise.sample[b])
            # Where p - q is above 0 or nearly so, q is at most p, and rounded as well.
            w, id_ = np.float64(right.residual[b]), other.tokens[b, n]
            faults += not selects_id(w, 2 * p, u, id_, reach)
    return faults


def weights(verifier: Verifier, rows: Case, b: Any, n: int) -> np.ndarray:
    """Returns the verifier's p of row b after n tokens, [V] float64."""
    sampling = Sampling(rows.sampling.temperature[b : b + 1])
    law = (verifier.law or probs.standardize)(rows.p[b : b + 1, n], sampling)
    lossy = None if verifier.rule is None else verifier.rule.sigmoid
    dense = probs.dense if lossy is None else sigmoid.weights(*lossy)
    return np.asarray(dense(law), np.float64)[0]


def selects_id(w: Any, mass: np.ndarray, u: Any, id_: Any, reach: float) -> bool:
    """Returns whether uniforms u [2] select the id by weights w [V], up to rounding."""
    vocab, place = w.size, divmod(int(id_), BLOCK)
    if not 0 <= id_ < vocab or mass[id_] == 0:
        return False
    pad = (0, -vocab % BLOCK)
    blocks, masses = (np.pad(x, pad).reshape(-1, BLOCK) for x in (w, mass))
    steps = (blocks.sum(1), masses.sum()), (blocks[place[0]], masses[place[0]].sum())
    for (part, whole), at, coin in zip(steps, place, u, strict=True):
        ends = np.cumsum(part)
        goal, slack = float(coin) * ends[-1], reach * whole
        if not ends[at] - part[at] - slack <= goal <= ends[at] + slack:
            return False
    return True
