"""The result that a verification must have, computed in float64 by NumPy, with which
every timed program is compared.

Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import numpy as np

MARGIN = 1e-5  # between a uniform and what it is compared with, where rounding decides
BLOCK = 256  # ids of a block of the inverse CDF, as in `specjax.types`


class Answer(NamedTuple):
    """The right answer of a verification.

    Attributes:
        n: [B], the number of kept tokens.
        near: [B], whether a comparison that decided n is within MARGIN.
        p, q: [B, V], the weights at n, q = 0 where nothing was rejected.
        chance: [B, G], min(1, p(x) / q(x)) of each drafted token.
    """

    n: np.ndarray
    near: np.ndarray
    p: np.ndarray
    q: np.ndarray
    chance: np.ndarray


def weights(logits, temperature, sigmoid: tuple | None = None) -> np.ndarray:
    """Returns float64 probabilities of logits [B, ..., V] at temperatures [B], where 0
    means argmax; or the sigmoids of Wagner et al. (2024), Eq. 5, for (alpha, beta).
    """
    z = np.asarray(logits).astype(np.float64)
    heat = np.asarray(temperature, np.float64).reshape(-1, *[1] * (z.ndim - 1))
    scaled = z / np.where(heat == 0, 1.0, heat)
    if sigmoid is not None:
        low, high = sigmoid
        return 1 / (1 + np.exp(-(scaled - low) / (high - low)))
    e = np.exp(scaled - scaled.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    first = np.arange(z.shape[-1]) == np.argmax(z, axis=-1)[..., None]
    return np.where(heat == 0, first, e) if (heat == 0).any() else e


def answer(p, q, tokens, accept) -> Answer:
    """Applies Algorithm 1 of Leviathan et al. (2023) to weights p [B, G + 1, V] and q
    [B, G, V], drafted tokens and uniforms [B, G].

    A token is kept where u < p(x) / q(x).
    """
    rows, gamma = np.arange(len(tokens)), tokens.shape[1]
    at = rows[:, None], np.arange(gamma), tokens
    p_x, q_x = p[at], q[at]
    ratio = np.divide(p_x, q_x, out=np.full(p_x.shape, np.inf), where=q_x > 0)
    kept = np.cumprod(accept < ratio, axis=1)
    n = kept.sum(1)
    asked = np.arange(gamma) <= n[:, None]
    near = (np.abs(accept - ratio) < MARGIN) & asked
    q_n = np.where((n < gamma)[:, None], q[rows, np.minimum(n, gamma - 1)], 0.0)
    return Answer(n, near.any(1), p[rows, n], q_n, np.minimum(ratio, 1.0))


def find_error(it: Answer, drafted, *, n, tokens) -> str | None:
    """Returns the error in a verdict, n [B] and tokens [B, G + 1]; None if it is
    right."""
    n, tokens, drafted = (np.asarray(x) for x in (n, tokens, drafted))
    clear, rows = ~it.near, np.arange(len(n))
    if (differ := (n != it.n) & clear).any():
        b = int(np.argmax(differ))
        return f"row {b}: n = {n[b]} where float64 has {it.n[b]}"
    before = np.arange(drafted.shape[1]) < n[:, None]
    if ((drafted != tokens[:, :-1]) & before).any():
        return "a token before n is not the drafted one"
    extra = tokens[rows, np.minimum(n, drafted.shape[1])]
    if ((extra < 0) | (extra >= it.p.shape[1])).any():
        return "the token at n is not an id of the vocabulary"
    p, q = it.p[rows, extra], it.q[rows, extra]
    some = (it.p > it.q).any(1)  # else rounding rejected where p = q: p is right
    bad = clear & ((some & (p * (1 + MARGIN) <= q)) | (p == 0))
    if bad.any():
        b = int(np.argmax(bad))
        return f"row {b}: token {extra[b]} has no weight (p {p[b]:.3g}, q {q[b]:.3g})"
    return None


def draw(it: Answer, sample) -> tuple[np.ndarray, np.ndarray]:
    """Returns the token at n by the two-step inverse CDF, [B], and whether rounding
    decides it.

    MARGIN is relative to the sum of the masses of p and q, because their difference is
    rounded like them.

    Args:
        sample: uniforms [B, 2].
    """
    rest = np.maximum(it.p - it.q, 0.0)
    none = ~rest.any(1)
    rest = np.where(none[:, None], it.p, rest)
    both, pad = it.p + it.q, ((0, 0), (0, -rest.shape[1] % BLOCK))
    shape = len(rest), -1, BLOCK
    blocks, mass = (np.pad(x, pad).reshape(shape) for x in (rest, both))
    rows = np.arange(len(rest))
    block, close = _invert(blocks.sum(2), sample[:, 0], mass.sum((1, 2)))
    inside, tight = _invert(blocks[rows, block], sample[:, 1], mass[rows, block].sum(1))
    # A residual that rounding alone leaves is not the same in float32.
    faint = rest.sum(1) < MARGIN
    return block * BLOCK + inside, close | tight | faint | none


def _invert(w, u, mass) -> tuple[np.ndarray, np.ndarray]:
    total = np.cumsum(w, axis=1)
    goal = u * total[:, -1]
    past = (total > goal[:, None]) & (w > 0)
    index = np.argmax(past, axis=1)
    away = np.abs(total - goal[:, None])
    # An end that no further weight follows is not a choice between two ids.
    choice = (total[:, -1:] - total) > 0
    near = np.where(choice, away, np.inf).min(1) < MARGIN * mass
    return index, near
