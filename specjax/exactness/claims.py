"""The claims of each verifier, computed separately in float64, for `certify`.

A claim says how to enumerate a verifier's noise, the probability that each slot is
accepted, and the mean number of tokens per call. Axes: N drafts, G = gamma, V
vocabulary."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.exactness.cells import (
    EDGE,
    Situation,
    divide,
    gather,
    gumbel_cells,
    sample_cells,
    uniform_cells,
)


class Claim(NamedTuple):
    """The claim of a rule.

    cells: (Situation, dtype) -> Cells; bounded: they depend on the verifier's report.
    limits: Situation -> (probability [N, G] of accepting a slot, how far rounding may
    move it). tokens: Situation -> E[tokens per call | draft] [N]. Both are None for a
    rule without a claim. uniform: maps a leaf of its noise to [0, 1). chains: for a
    rule for trees, the rule whose code verifies its chains."""

    cells: Callable
    limits: Callable | None = None
    tokens: Callable | None = None
    bounded: bool = True
    uniform: Callable = np.asarray
    chains: str | None = None


# With what probability a slot is kept, and how many tokens follow from that.


def accept_ratio(at: Situation) -> tuple[np.ndarray, float]:
    """Returns min(1, p_i(x_i) / q_i(x_i)): Algorithm 1."""
    return np.minimum(1.0, _draft_ratio(at)), EDGE


def accept_rejection(at: Situation) -> tuple[np.ndarray, float]:
    """Returns p_i(x_i) / (M q_i(x_i)) for M = max_x p(x) / q(x): Appendix A.2."""
    p, q = at.p[:, :-1], at.q
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(p > 0, p / q, 0.0).max(-1)
    return np.minimum(1.0, _draft_ratio(at) / most), EDGE


def accept_target(at: Situation) -> tuple[np.ndarray, float]:
    """Returns p_i(x_i), for a token that is compared with one drawn from the target."""
    return gather(at.p[:, :-1], at.drafts), EDGE


def accept_block(at: Situation) -> tuple[np.ndarray, np.ndarray]:
    """Returns h_i of Sun et al. (2024): s_i / (s_i + 1 - w_i), and w_i at the last
    slot."""
    w, last = _block_weights(at), int(at.live.sum())
    s = np.maximum(w[:, :-1, None] * at.p[:, 1:-1] - at.q[:, 1:], 0.0).sum(-1)
    below = s + 1 - w[:, :-1]
    h = np.concatenate([divide(s, below, 1.0), w[:, -1:]], axis=1)
    h[:, last - 1 : last] = w[:, last - 1 : last]
    # Where w is 1 and nothing is left, h is 0 / 0: rounding may make it anything, and
    # the slots after it are then sure to be kept.
    below = np.concatenate([below, np.ones_like(w[:, -1:])], axis=1)
    return h, EDGE + 1e-6 / np.maximum(below, 1e-12)


def _block_weights(at: Situation) -> np.ndarray:
    """Returns w_i = min(1, w_{i-1} p(x_i) / q(x_i)) [N, G], from w_0 = 1."""
    ratio, w, walk = _draft_ratio(at), 1.0, []
    for i in range(ratio.shape[1]):
        w = np.minimum(1.0, w * ratio[:, i])
        walk.append(w)
    return np.stack(walk, axis=1) if walk else ratio


def _draft_ratio(at: Situation) -> np.ndarray:
    return divide(gather(at.p[:, :-1], at.drafts), gather(at.q, at.drafts))


def sum_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the sum of arrays, of which there is at least one."""
    return functools.reduce(np.add, parts)


def tokens_in_turn(limits: Callable) -> Callable:
    """Returns 1 + sum_i prod_{j <= i} limits_j: slots are accepted in turn."""

    def tokens(at: Situation) -> np.ndarray:
        return 1 + np.cumprod(limits(at)[0] * at.live, axis=1).sum(1)

    return tokens


def tokens_by_block(at: Situation) -> np.ndarray:
    """Returns 1 + sum_i w_i: the first i slots are accepted with probability w_i."""
    return 1 + (_block_weights(at) * at.live).sum(1)


# Of trees: the chance of each node given that all that was decided before it was
# rejected, which is what a uniform is compared with.


def accept_recursive(at: Situation) -> tuple[np.ndarray, float]:
    """Returns min(1, r(x) / q_i(x)) of each node among its siblings (Miao et al.
    2024)."""
    left, chance = Residuals(at), np.zeros(at.drafts.shape)
    for node in np.flatnonzero(at.live):
        x, q = left.proposal(node)
        row = left.parent[node]
        chance[:, node] = np.minimum(1.0, gather(left.r[:, row], x) / gather(q, x))
        left.reject(node, np.ones(len(x)))
    return chance, EDGE


def accept_kseq(at: Situation) -> tuple[np.ndarray, float]:
    """Returns min(1, p(x) / (rho q(x))), with rho for the number of live siblings.

    rho is the least value for which p(x) - min(q, p / rho) (1 - (1 - b)^K) / b is not
    negative (Sun et al. 2023)."""
    chance, parent = np.zeros(at.drafts.shape), np.asarray(at.parent)
    for node in np.flatnonzero(at.live):
        row, x = parent[node], at.drafts[:, node]
        p, q = at.p[:, row], at.q[:, node]
        count = int((at.live & (parent == row)).sum())
        low, high = np.ones(len(p)), np.full(len(p), float(count))
        for _ in range(60):
            rho = (low + high) / 2
            b = np.minimum(q, p / rho[:, None]).sum(1)
            beyond = 1 - (1 - b) ** count <= rho * b
            low, high = np.where(beyond, low, rho), np.where(beyond, rho, high)
        ratio = gather(p, x) / np.where(gather(q, x) > 0, high * gather(q, x), 1.0)
        chance[:, node] = np.minimum(1.0, ratio)
    return chance, 10 * EDGE


def accept_traversal(at: Situation) -> tuple[np.ndarray, np.ndarray | float]:
    """Returns w of each node after all that follows it was rejected (Weng et al.
    2025)."""
    left, chance = Residuals(at), np.zeros(at.drafts.shape)

    def visit(row: int, w: np.ndarray) -> np.ndarray:
        for node in left.children(row):
            x, q = left.proposal(node)
            below = np.minimum(1.0, w * gather(left.r[:, row], x) / gather(q, x))
            chance[:, node] = visit(node + 1, below)
            mass = left.reject(node, w)
            w = divide(mass, mass + 1 - w, 1.0)
        return w

    visit(0, np.ones(len(at.drafts)))
    return chance, 10 * EDGE


class Residuals:
    """The laws of a tree after rejections: r, q [N, G + 1, V] of each row.

    r is the target's law there, and q that of the row's next child."""

    def __init__(self, at: Situation) -> None:
        self.at, self.r, self.q = at, at.p.copy(), np.zeros_like(at.p)
        self.parent = np.asarray(at.parent)
        for node in reversed(range(at.drafts.shape[1])):
            self.q[:, self.parent[node]] = at.q[:, node]

    def children(self, row: int) -> np.ndarray:
        """Returns the live nodes that follow a row."""
        return np.flatnonzero((self.at.parent == row) & self.at.live)

    def proposal(self, node: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the token of a node [N], and the law that it is verified by [N,
        V]."""
        x, q = self.at.drafts[:, node], self.q[:, self.parent[node]]
        if self.at.siblings in ("with", "own"):  # each by the law that it carries
            q = self.at.q[:, node]
        sure = x[:, None] == np.arange(q.shape[-1])
        return x, np.where(gather(q, x)[:, None] > 0, q, sure)

    def reject(self, node: Any, w: np.ndarray) -> np.ndarray:
        """Replaces r by w r - q, and removes the node from q. Returns the remaining
        mass [N]."""
        row, (x, q) = self.parent[node], self.proposal(node)
        rest = np.maximum(w[:, None] * self.r[:, row] - q, 0.0)
        mass = rest.sum(1)
        some = mass[:, None] > 0
        self.r[:, row] = np.where(some, divide(rest, mass[:, None]), self.r[:, row])
        if self.at.siblings not in ("with", "own"):
            np.put_along_axis(self.q[:, row], x[:, None], 0.0, axis=1)
            left = self.q[:, row].sum(1, keepdims=True)
            self.q[:, row] /= np.where(left > 0, left, 1.0)
        return mass


def tokens_by_children(limits: Callable) -> Callable:
    """Returns one more than the sum of the probabilities that each node is reached and
    accepted."""

    def tokens(at: Situation) -> np.ndarray:
        chance, one = limits(at)[0], np.ones(len(at.drafts))
        reached = [one]
        parent = np.asarray(at.parent)
        untried = [one] * (1 + len(parent))  # no child of a row was accepted yet
        for node, row in enumerate(parent):
            reached.append(reached[row] * untried[row] * chance[:, node])
            untried[row] = untried[row] * (1 - chance[:, node])
        return sum_of(reached)

    return tokens


def tokens_by_traversal(at: Situation) -> np.ndarray:
    """Returns one more than the mean length of the accepted path."""
    chance = accept_traversal(at)[0]
    parent = np.asarray(at.parent)
    depth = np.zeros(len(parent) + 1)
    for node, row in enumerate(parent):
        depth[node + 1] = depth[row] + 1
    tokens, none = np.ones(len(at.drafts)), np.ones(len(at.drafts))

    def visit(row: int) -> None:
        nonlocal tokens, none
        for node in np.flatnonzero((parent == row) & at.live):
            visit(int(node) + 1)
            tokens = tokens + none * chance[:, node] * depth[node + 1]
            none = none * (1 - chance[:, node])

    visit(0)
    return tokens


def accept_best(at: Situation) -> tuple[np.ndarray, np.ndarray | float]:
    """Returns h of each node on the best path, for a draft drawn from q' (Thomas & Pal
    2026)."""
    chance, slack = np.zeros(at.drafts.shape), EDGE
    for i, (chain, levels) in enumerate(best_paths(at)):
        h, moved = accept_block(chain)
        for nodes, limit in zip(levels, h[0], strict=True):
            chance[i, nodes] = limit
        slack = max(slack, float(np.max(moved, initial=0.0)))
    return chance, slack


def tokens_by_best(at: Situation) -> np.ndarray:
    """Returns the tokens per call of block verification along the best path."""
    return np.array([tokens_by_block(chain)[0] for chain, _ in best_paths(at)])


def best_paths(at: Situation) -> list[tuple[Situation, list[np.ndarray]]]:
    """Returns the best path of each draft as a draft of its own, and the nodes that
    agree with it, level by level."""
    return [_best_child(at, i) for i in range(len(at.drafts))]


def _best_child(at: Situation, i: int) -> tuple[Situation, list[np.ndarray]]:
    group, levels, rows, laws = [0], [], [0], []
    while True:
        nodes = np.flatnonzero(np.isin(np.asarray(at.parent), group) & at.live)
        if not nodes.size:
            break
        p, q = at.p[i, group[0]], at.q[i, nodes[0]]
        order = np.lexsort((np.arange(len(q)), divide(p, q, -1.0)))
        high = np.cumsum(q[order])
        power = np.diff(high**nodes.size, prepend=0.0)
        laws.append(power[np.argsort(order)])
        place = np.argsort(order)[at.drafts[i, nodes]]
        levels.append(nodes[place == place.max()])
        group = [node + 1 for node in levels[-1]]
        rows.append(group[0])
    tokens = at.drafts[i, [nodes[0] for nodes in levels]].reshape(1, -1)
    q = np.array(laws).reshape(1, len(laws), at.p.shape[-1])
    live = np.ones(len(levels), bool)
    blank = np.zeros(tokens.shape)
    return Situation(at.p[i, rows][None], q, tokens, live, blank), levels


def accept_path(at: Situation) -> tuple[np.ndarray, float]:
    """Returns p(x) of each node after its own parent: `accept_target` for a tree."""
    return gather(at.p[:, at.parent], at.drafts) * at.live, EDGE


def tokens_by_path(at: Situation) -> np.ndarray:
    """Returns one more than the sum of the probabilities that the target's own tokens
    follow each path."""
    chance, reached = accept_path(at)[0], [np.ones(len(at.drafts))]
    parent = np.asarray(at.parent)
    for node, row in enumerate(parent):
        earlier = [i for i in range(node) if parent[i] == row]
        same = np.zeros(len(at.drafts), bool)
        for i in earlier:  # of twins the first is followed
            same |= at.drafts[:, i] == at.drafts[:, node]
        reached.append(np.where(same, 0.0, reached[row] * chance[:, node]))
    return sum_of(reached)


def gumbel_cdf(g: np.ndarray) -> np.ndarray:
    return np.exp(-np.exp(-np.float64(g)))


def tree_claim(claim: Claim, limits: Callable, tokens: Callable, **more: Any) -> Claim:
    """Returns the claim of a rule for trees, with `claim` for its chains.

    limits, tokens: those of trees."""

    def chain_or_tree(chain: Callable | None, tree: Callable) -> Callable:
        if chain is None:
            return tree
        return lambda at: (chain if at.parent is None else tree)(at)

    both = chain_or_tree(claim.limits, limits), chain_or_tree(claim.tokens, tokens)
    return claim._replace(limits=both[0], tokens=both[1], **more)


TOKEN = Claim(uniform_cells, accept_ratio, tokens_in_turn(accept_ratio))
BLOCK = Claim(uniform_cells, accept_block, tokens_by_block)
MATCH = Claim(sample_cells, accept_target, tokens_in_turn(accept_target), bounded=False)
RECURSIVE = tree_claim(
    TOKEN, accept_recursive, tokens_by_children(accept_recursive), chains="token"
)
CLAIMS = {
    "token": TOKEN,
    "block": BLOCK,
    "rejection": Claim(
        uniform_cells, accept_rejection, tokens_in_turn(accept_rejection)
    ),
    "match": tree_claim(MATCH, accept_path, tokens_by_path),
    "recursive": RECURSIVE,
    "recursive_replaced": RECURSIVE,
    "kseq": tree_claim(
        TOKEN, accept_kseq, tokens_by_children(accept_kseq), chains="token"
    ),
    "traversal": tree_claim(
        BLOCK, accept_traversal, tokens_by_traversal, chains="block"
    ),
    "greedy_block": tree_claim(BLOCK, accept_best, tokens_by_best, chains="block"),
    "gumbel": MATCH._replace(cells=gumbel_cells, uniform=gumbel_cdf),
}
UNKNOWN = Claim(uniform_cells)
