"""Whether fused functions give the tokens of the reference, on random logits.

Both draw from the same logits by the same uniforms and verify the same drafts, in rows
of the shape at hand. As in `exactness.divergence`, a token that differs is explained
where rounding decides it: by eps, the most that the two computations differ in what
both report, the token is within reach of its uniform. Rounding is no more than LIMIT.
Axes: B rows, G = gamma, V vocabulary, K blocks of the inverse CDF.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.drafts.source import CERTAIN, REDUCED, TABLE
from specjax.types import BLOCK, Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import sigmoid, token

ROWS = 16  # drawn and verified, at least, in batches of the shape at hand
HEATS = 1.0, 0.0, 0.7, 2.0
ROUNDING, LIMIT = 1e-5, 1e-3  # of probabilities in float32: the least, the most
FIELDS = "scale", "top", "tau", "tie", "lse"


class Functions(NamedTuple):
    """Those of the reference, or fused: a verifier, and (logits [B, V], Sampling,
    u [B, 2]) -> (ids [B], Law [B])."""

    verifier: Verifier
    draw: Callable


class Case(NamedTuple):
    """Logits p [B, G + 1, V] and q [B, G, V]; draws: uniforms [B, G, 2]; noise: that of
    every verifier with a rule; num [B]: tokens that are real."""

    p: Array
    q: Array
    sampling: Sampling
    draws: Array
    noise: token.Noise
    num: Array


class Seen(NamedTuple):
    """What functions made of a case: ids [B, G] drawn, their law, a verdict."""

    ids: Array
    law: Law
    verdict: Verdict | None


def problem(plain: Functions, fused: Functions, sizes) -> str | None:
    """What rounding does not explain, in words; None if it explains everything."""
    verifies = plain.verifier.rule is not None and sizes.draft not in (TABLE, REDUCED)
    certain = sizes.draft == CERTAIN
    runs = [jax.jit(partial(run, it, verifies, certain)) for it in (plain, fused)]
    for seed in range(max(2, -(-ROWS // sizes.batch))):
        rows = case(sizes, seed)
        wanted = jax.device_get(runs[0](rows, None))
        seen = jax.device_get(runs[1](rows, wanted.ids))
        if fault := compare(plain.verifier, rows, wanted, seen):
            return fault
    return None


def case(sizes, seed: int) -> Case:
    """Random rows of the shape at hand: q near p, temperatures from 0 to 2."""
    batch, gamma, vocab = sizes[:3]
    random = np.random.default_rng(seed)

    def normal(rows: int) -> np.ndarray:
        return random.standard_normal((batch, rows, vocab), np.float32)

    def uniform(*shape: int) -> Array:
        return jnp.asarray(random.random((batch, *shape), np.float32))

    p = 3 * normal(gamma + 1)
    q = p[:, :gamma] + normal(gamma)
    p[..., -1] = q[..., -1] = -np.inf  # as of a padded vocabulary
    heat = jnp.float32([HEATS[(seed + b) % len(HEATS)] for b in range(batch)])
    noise = token.Noise(uniform(gamma), uniform(2))
    num = jnp.full(batch, gamma, jnp.int32)
    draws = uniform(gamma, 2)
    return Case(jnp.asarray(p), jnp.asarray(q), Sampling(heat), draws, noise, num)


def run(
    functions: Functions, verifies: bool, certain: bool, rows: Case, ids: Array | None
) -> Seen:
    """Draws, then verifies `ids` [B, G]; where None what it drew, with the residual."""
    verifier = functions.verifier
    read = verifier.law or probs.standardize

    def slot(pair: tuple[Array, Array]) -> tuple[Array, Law]:
        id_, law = functions.draw(pair[0], rows.sampling, pair[1])
        return id_, law._replace(logits=None)

    drawn, law = jax.lax.map(slot, (rows.q.swapaxes(0, 1), rows.draws.swapaxes(0, 1)))
    law = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), law)
    drawn = drawn.swapaxes(0, 1)
    if not verifies:
        return Seen(drawn, law, None)
    carried = None if certain else law._replace(logits=rows.q)
    draft = Draft(drawn if ids is None else ids, rows.num, carried)
    target = read(rows.p, rows.sampling)
    verdict = verifier.verify(target, draft, rows.noise, keep_residual=ids is None)
    return Seen(drawn, law, verdict)


def compare(verifier: Verifier, rows: Case, wanted: Seen, seen: Seen) -> str | None:
    """What is wrong with what was seen, in words; both on the host."""
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


def largest_difference(wanted: Seen, seen: Seen) -> float:
    """The largest difference of what both report; infinite for what is no number."""
    pairs = [(getattr(wanted.law, k), getattr(seen.law, k)) for k in FIELDS]
    if wanted.verdict is not None:
        pairs.append((wanted.verdict.accept_prob, seen.verdict.accept_prob))
    eps = 0.0
    for a, b in pairs:
        with np.errstate(invalid="ignore"):
            gap = np.where(a == b, 0.0, np.abs(np.subtract(a, b, dtype=np.float64)))
        eps = max(eps, float(np.max(np.nan_to_num(gap, nan=np.inf), initial=0.0)))
    return eps


def wrong_draws(rows: Case, wanted: Seen, seen: Seen, reach: float) -> int:
    """Draws that differ and that rounding does not explain."""
    faults = 0
    for b, g in np.argwhere(wanted.ids != seen.ids):
        row = Law(rows.q[b, g], *(getattr(wanted.law, k)[b, g] for k in FIELDS))
        q, u = np.asarray(probs.dense(row), np.float64), np.asarray(rows.draws[b, g])
        faults += not within(q, q, u, seen.ids[b, g], reach)
    return faults


def wrong_verdicts(
    verifier: Verifier, rows: Case, wanted: Seen, seen: Seen, reach: float
) -> int:
    """Rows whose verdicts differ where rounding does not explain it."""
    right, other = wanted.verdict, seen.verdict
    differ = (right.tokens != other.tokens).any(1)
    differ |= right.num_accepted != other.num_accepted
    faults, gamma = 0, wanted.ids.shape[1]
    for b in np.flatnonzero(differ):
        n, m = int(right.num_accepted[b]), int(other.num_accepted[b])
        count = min(max(m, 0), gamma)
        kept = np.array_equal(other.tokens[b, :count], wanted.ids[b, :count])
        if not kept or m != count:
            faults += 1
        elif n != m:  # explained where the coin that decided it is at its chance
            at = b, min(n, m)
            faults += not abs(rows.noise.accept[at] - right.accept_prob[at]) <= reach
        else:
            p, u = weights(verifier, rows, b, n), np.asarray(rows.noise.sample[b])
            # Where p - q is above 0, or next to it, q is at most p, and rounded too.
            w, id_ = np.float64(right.residual[b]), other.tokens[b, n]
            faults += not within(w, 2 * p, u, id_, reach)
    return faults


def weights(verifier: Verifier, rows: Case, b: int, n: int) -> np.ndarray:
    """What the verifier takes for p of row b after n tokens, [V] float64."""
    heat = Sampling(rows.sampling.temperature[b : b + 1])
    law = (verifier.law or probs.standardize)(rows.p[b : b + 1, n], heat)
    lossy = verifier.rule.sigmoid
    dense = probs.dense if lossy is None else sigmoid.weights(*lossy)
    return np.asarray(dense(law), np.float64)[0]


def within(w: np.ndarray, mass: np.ndarray, u, id_: int, reach: float) -> bool:
    """Whether uniforms u [2] give the id by weights w [V], but for rounding."""
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
