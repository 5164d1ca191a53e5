"""The checks of verdicts that `enumeration` weighs, and of the texts that follow from
them.

Axes: N drafts, G = gamma, V vocabulary, K cells with P = 4 points each."""

import numpy as np

from specjax.exactness.cells import Situation, gather
from specjax.exactness.claims import Claim
from specjax.types import Verdict

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}  # of a law
CHECKS = {
    "law": "texts do not have the target's distribution",
    "cells": "a verdict changes where `accept_prob` says that it does not, which voids"
    " the enumeration",
    "tokens": "a verdict's tokens are not those accepted, then a draw from the residual"
    " that it returns, then zeros: the law of that residual says nothing of them",
    "support": "an id that the target cannot draw is emitted, or nothing is left to"
    " draw from",
    "accept_prob": "it depends on the noise, or is not the chance that is claimed",
    "path": "a text is not the one that the same noise gives without a draft",
    "per_call": "tokens a call are not those of the closed form, which costs speed and"
    " not exactness",
    "noise": "what is drawn in two steps is not independent",
    "draws": "a key serves two draws of a step or of two in a row, or no draw was seen",
}
VOID = {"cells", "tokens"}  # then the law that was enumerated is not the rule's


def failed_checks(
    claim: Claim,
    situation: Situation,
    *,
    dtype: str,
    num: int,
    chances: tuple,
    results: tuple,
) -> set[str]:
    """Returns the names of the CHECKS that a step fails, other than "law", "per_call"
    and "noise"."""
    (chance, weight, cells), (verdict, drawn) = chances, results
    n, tokens = verdict.num_accepted, verdict.tokens
    drafts, live, p = situation.drafts, situation.live, situation.p
    likely, inside = (chance > 0)[:, None, None], (weight > 0)[..., None]
    slots, last = np.arange(live.size + 1), n[..., None]
    share, tolerance = normalize(verdict.residual), TOLERANCE[dtype]
    other_share = np.abs(share[..., :3, :] - share[..., 1:2, :]).max(-1) > tolerance
    wanted = np.pad(drafts, ((0, 0), (0, 1)))[:, None, None]
    known_path, rows = np.ones(n.shape, bool), slots  # the row behind each slot
    if situation.parent is not None:
        wanted, known_path, rows = follow_path(situation, verdict)
    wanted = np.where(slots < last, wanted, 0)
    wanted = np.where(slots == last, drawn[..., None], wanted)
    known = np.clip(tokens, 0, p.shape[-1] - 1)
    behind = np.arange(len(p)).reshape(-1, 1, 1, 1), rows
    p_x = np.where(known == tokens, gather(p[behind], known), 0.0)
    reported = (situation.reported * live)[:, None, None]
    wrong = {
        "cells": inside & ((n[..., :3] != n[..., 1:2]) | other_share),
        "tokens": likely & ((tokens != wanted).any(-1) | (n > num) | ~known_path),
        "support": likely
        & (((slots <= last) & (p_x == 0)).any(-1) | ~(verdict.residual.sum(-1) > 0)),
        "accept_prob": likely & ~(verdict.accept_prob == reported).all(-1),
    }
    if situation.parent is not None:
        assert claim.limits is not None
        chance, slack = verdict.accept_prob, claim.limits(situation)[1]
        off = (chance > 0) & (np.abs(chance - reported) > np.max(slack))
        wrong["accept_prob"] = inside & off.any(-1)
    if cells.path is not None:
        at = np.arange(cells.path.shape[1]).reshape(-1, 1, 1)
        path = cells.path[behind[0], at, rows]
        other = (slots <= last) & (tokens != path)
        wrong["path"] = inside & other[..., :3, :].any(-1)
    names = {name for name, where in wrong.items() if where.any()}
    if claim.limits is not None and situation.parent is None:
        limits, slack = claim.limits(situation)
        off = np.abs(situation.reported - limits) > slack
        names |= {"accept_prob"} if (likely[:, 0] & off & live).any() else set()
    return names


def follow_path(situation: Situation, verdict: Verdict) -> tuple[np.ndarray, ...]:
    """Returns the tokens of each verdict's path, whether the path is valid, and the
    rows that it passes.

    Their shapes are [N, K, P, G + 1], [N, K, P], and [N, K, P, G + 1]. A valid path
    consists of live nodes that follow each other in the tree; the rows are those before
    its tokens."""
    path, n = np.asarray(verdict.path), verdict.num_accepted[..., None]
    drafts = np.broadcast_to(situation.drafts[:, None, None], path.shape)
    tokens = np.take_along_axis(drafts, path, axis=-1)
    follows = np.pad(path[..., :-1] + 1, [(0, 0)] * 3 + [(1, 0)])
    parent = np.asarray(situation.parent)
    right = (parent[path] == follows) & situation.live[path]
    beyond = np.arange(path.shape[-1]) >= n
    padded, rows = (
        np.pad(each, [(0, 0)] * 3 + [side])
        for each, side in ((tokens, (0, 1)), (path + 1, (1, 0)))
    )
    return padded, (right | beyond).all(-1), rows


def normalize(weights: np.ndarray) -> np.ndarray:
    """Returns rows [..., V] that add up to 1; rows of zeros stay as they are."""
    mass = weights.sum(-1, keepdims=True)
    return weights / np.where(mass > 0, mass, 1.0)
