"""The tree that keeps the most tokens, given the acceptance rate of each sibling rank.

If the i-th child of a node is accepted with probability a_i at every node, a tree keeps
the sum over its nodes of the product of a along the path to each. The best tree with a
given number of nodes therefore has the most probable paths. Sequoia finds it by dynamic
programming (Chen et al. 2024, https://arxiv.org/abs/2402.12374, Proposition 3.4: c(n) =
1 + max sum a_i c(n_i)). Taking the most probable node next finds the same tree, as no
node is more probable than its parent.
"""

import heapq
from collections.abc import Callable, Sequence

from specjax.trees import ROOT


def build(
    accept: Sequence[float], longest: int | None = None
) -> Callable[[int], tuple[int, ...]]:
    """Returns the topology for acceptance probabilities of siblings.

    Args:
      accept: the acceptance probability of a node's first child, of the second given
        that the first was rejected, of the third given that both were, and so on. a_i
        is the product of each with the probability that it is tried.
      longest: the most tokens on a path; None for no limit.

    Raises:
      ValueError: unless `accept` is a non-empty list of probabilities.
    """
    if not accept or not all(0 <= x <= 1 for x in accept):
        raise ValueError(
            f"acceptances are probabilities from 0 to 1, one a sibling; got {accept}"
        )
    shares = acceptance_by_rank(accept)

    def tree(nodes: int) -> tuple[int, ...]:
        chosen: list[tuple[float, int, int]] = []  # (chance, parent, depth)
        waiting = [(-shares[0], 0, ROOT, 1, 0)]  # chance, order, parent, depth, rank
        order = 1
        while len(chosen) < nodes and waiting:
            chance, _, parent, depth, rank = heapq.heappop(waiting)
            own = len(chosen)
            chosen.append((-chance, parent, depth))
            following = []
            if rank + 1 < len(shares):
                above = 1.0 if parent == ROOT else chosen[parent][0]
                following += [(above * shares[rank + 1], parent, depth, rank + 1)]
            if longest is None or depth < longest:
                following += [(-chance * shares[0], own, depth + 1, 0)]
            for likely, above_it, level, at in following:
                heapq.heappush(waiting, (-likely, order, above_it, level, at))
                order += 1
        return sort_by_depth([parent for _, parent, _ in chosen])

    return tree


def acceptance_by_rank(accept: Sequence[float]) -> list[float]:
    """Returns a_i: the probability that a node's i-th child is the accepted one."""
    shares, untried = [], 1.0
    for each in accept:
        shares.append(untried * each)
        untried *= 1 - each
    # A later sibling is never more probable than an earlier one.
    return [min(shares[: i + 1]) for i in range(len(shares))]


def sort_by_depth(parent: Sequence[int]) -> tuple[int, ...]:
    """Returns the same tree with shorter paths first; siblings keep their order."""
    depth: list[int] = []
    for above in parent:
        depth.append(0 if above == ROOT else depth[above] + 1)
    order = sorted(range(len(parent)), key=lambda i: (depth[i], i))
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(order)}
    return tuple(place[parent[node]] for node in order)


def expected_tokens(accept: Sequence[float], parent: Sequence[int]) -> float:
    """Returns E[tokens per call] of a tree, with the target's own token."""
    shares, total = acceptance_by_rank(accept), 1.0
    chance: list[float] = []
    for node, above in enumerate(parent):
        rank = list(parent[:node]).count(above)
        share = shares[rank] if rank < len(shares) else 0.0
        chance.append(share * (1.0 if above == ROOT else chance[above]))
        total += chance[-1]
    return total
