"""Bounds on what any rule keeps of several draws hold for all sets of ids."""

import itertools

import numpy as np
import pytest

from specjax.measure import siblings


def subsets(size: int):
    for count in range(size + 1):
        yield from map(list, itertools.combinations(range(size), count))


def all_among(q: np.ndarray, ids: list, draws: int, removed: tuple = ()) -> float:
    """Returns the probability that all of `draws` draws without replacement are among
    some ids."""
    if draws == 0:
        return 1.0
    left = np.delete(q, removed).sum()
    free = [x for x in ids if x not in removed]
    return sum(
        q[x] / left * all_among(q, ids, draws - 1, (*removed, x))
        for x in free
        if q[x] > 0
    )


@pytest.mark.parametrize("seed", range(6))
def test_no_set_of_ids_bounds_it_further(seed):
    rng, vocab = np.random.default_rng(seed), 5
    p, q = rng.dirichlet(np.full(vocab, 0.7), 2)
    for draws in (1, 2, 3):
        alone = [p[h].sum() + 1 - q[h].sum() ** draws for h in subsets(vocab)]
        apart = [p[h].sum() + 1 - all_among(q, h, draws) for h in subsets(vocab)]
        with_it = siblings.bound_with_replacement(p[None], q[None], draws)[0, -1]
        without = siblings.bound_without_replacement(p[None], q[None], draws)[0, -1]
        assert with_it == pytest.approx(min(alone), abs=1e-6)
        assert without == pytest.approx(min(apart), abs=1e-3)
    assert siblings.bound_with_replacement(p[None], q[None], 1)[0, 0] == pytest.approx(
        np.minimum(p, q).sum(), abs=1e-6
    )
