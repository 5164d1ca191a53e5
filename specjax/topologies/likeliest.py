"""The tree that keeps most, for what each further sibling is accepted with.

If the i-th child of a node is accepted with probability a_i wherever the node is, a
tree keeps the sum over its nodes of the product of a along each path, so that the best
tree of so many nodes has the likeliest paths. Sequoia finds it by dynamic programming
(Chen et al. 2024, https://arxiv.org/abs/2402.12374, Proposition 3.4: c(n) = 1 + max sum
a_i c(n_i)); taking the likeliest node next finds the same, as no node is likelier than
its parent.
"""

import heapq
from collections.abc import Callable, Sequence

from specjax.trees import ROOT


def build(
    accept: Sequence[float], longest: int | None = None
) -> Callable[[int], tuple[int, ...]]:
    """The topology for acceptance probabilities `accept`, of the first child of a node,
    of the second where the first was rejected and the third where both were: a_i are
    their products with the chance to be tried. longest: tokens of a path at most.
    Raises ValueError for what is no list of probabilities."""
    if not accept or not all(0 <= x <= 1 for x in accept):
        raise ValueError(
            f"acceptances are probabilities from 0 to 1, one a sibling; got {accept}"
        )
    shares = of_ranks(accept)

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
            for likely, *place in following:
                heapq.heappush(waiting, (-likely, order, *place))
                order += 1
        return in_levels([parent for _, parent, _ in chosen])

    return tree


def of_ranks(accept: Sequence[float]) -> list[float]:
    """a_i: with what probability the i-th child of a node is the one accepted."""
    shares, untried = [], 1.0
    for each in accept:
        shares.append(untried * each)
        untried *= 1 - each
    # A later sibling is never likelier than an earlier one, or it would come first.
    return [min(shares[: i + 1]) for i in range(len(shares))]


def in_levels(parent: Sequence[int]) -> tuple[int, ...]:
    """The same tree with shorter paths first; siblings keep their order."""
    depth: list[int] = []
    for above in parent:
        depth.append(0 if above == ROOT else depth[above] + 1)
    order = sorted(range(len(parent)), key=lambda i: (depth[i], i))
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(order)}
    return tuple(place[parent[node]] for node in order)


def kept(accept: Sequence[float], parent: Sequence[int]) -> float:
    """E[tokens of a call] for a tree and acceptances, the target's own included."""
    shares, chance, total = of_ranks(accept), [], 1.0
    for node, above in enumerate(parent):
        rank = list(parent[:node]).count(above)
        share = shares[rank] if rank < len(shares) else 0.0
        chance.append(share * (1.0 if above == ROOT else chance[above]))
        total += chance[-1]
    return total
