"""What a choice of how much to draft is worth: its cost a token, against an oracle's.

A call that drafts g tokens costs c g + v(g) calls of the target on one token
(Definition 3.7; v = 1 in Leviathan et al. 2023) and gives one token more than were
accepted. The oracle of Section 3.5 drafts those that will be accepted and no more.
Everything here is numpy. Axes: N calls, G = gamma, the most that is drafted, K bins.
"""

import numpy as np


def cost(drafted: np.ndarray, accepted: np.ndarray, c: float, v: np.ndarray) -> float:
    """The cost a token of N calls that drafted [N] and accepted [N] tokens. v [G + 1]:
    a target's call beside g drafted tokens, of 0 on."""
    return float(np.sum(c * drafted + v[drafted]) / np.sum(accepted + 1))


def oracle(accepted: np.ndarray, c: float, v: np.ndarray) -> float:
    """The same where it was known how many of G tokens would be accepted [N]: the calls
    begin where those of G tokens do. No rule of at most G tokens costs less while a
    drafted token costs less than a token."""
    return cost(accepted, accepted, c, v)


def closed(own: float, best: float, least: float) -> float:
    """The share of the gap between the best gamma's cost and the oracle's that a rule
    of cost `own` closes; 1 is the oracle, below 0 it is worse than the best gamma."""
    return (best - own) / (best - least)


def kept_if_sure(sure: np.ndarray, accepted: np.ndarray, bins: int = 16) -> np.ndarray:
    """The share of tokens kept among those that were decided on, of which the drafter
    was as sure, for each drafted token [N, G]: what `sure` [N, G] tells of acceptance
    in hindsight, by bins of equally many tokens."""
    slot = np.arange(sure.shape[1])
    kept, tested = slot < accepted[:, None], slot <= accepted[:, None]
    edges = np.quantile(sure[tested], np.linspace(0, 1, bins + 1)[1:-1])
    place = np.searchsorted(edges, sure)
    counts = [np.bincount(place[x], minlength=bins) for x in (kept & tested, tested)]
    return (counts[0] / np.maximum(counts[1], 1))[place]


def replayed(
    kept: np.ndarray, accepted: np.ndarray, c: float, v: np.ndarray
) -> tuple[np.ndarray, float]:
    """What the rule of `policies.renewal` drafts [N] and costs a token where each
    drafted token is kept with the known probability kept [N, G], on calls that begin
    where those of G tokens did."""
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
