"""Errors of alpha by position count prompts, and not drafted tokens."""

from types import SimpleNamespace

import numpy as np
import pytest

from specjax.measure.positions import Positions
from specjax.theory import estimate

# Steps of a batch of four rows: drafted tokens that were kept, and that were tested.
KEPT = np.array([[2, 0, 2, 1], [2, 0, 1, 0], [2, 1, 2, 0]])
TESTED = np.minimum(KEPT + 1, 2)


def watch(batches: int, count: int) -> Positions:
    """Returns the tests of batches that are all alike."""
    found = Positions(count)
    for _ in range(batches):
        for kept, tested in zip(KEPT, TESTED, strict=True):
            info = SimpleNamespace(accepted=kept, tested=tested)
            found.see(np.ones(4, bool), None, info)
        found.next_batch(4)
    return found


def test_the_error_by_position_is_over_prompts():
    once = watch(1, 4).rates(4)
    assert once["tested_by_position"] == [12, 8] and once["position_units"] == "prompts"
    for place in (0, 1):
        kept, tests = ((x > place).sum(0) for x in (KEPT, TESTED))
        wanted = estimate.counts(kept, tests)
        assert once[f"alpha_{place + 1}"] == wanted.value
        assert once[f"alpha_{place + 1}_se"] == pytest.approx(wanted.se)
    # A row keeps all or little: the errors of independent tests are too small.
    assert once["alpha_1_se"] > 1.4 * np.sqrt(2 / 3 * 1 / 3 / 12)
    # The same texts once more tell nothing more of the prompts.
    again = watch(2, 8).rates(4)
    assert again["tested_by_position"] == [24, 16]
    assert again["alpha_1_se"] == pytest.approx(once["alpha_1_se"])
    alone = watch(1, 4).rates(1)
    assert alone["position_units"] == "texts"
    assert alone["alpha_1_se"] == once["alpha_1_se"]


def test_rows_that_only_fill_a_batch_are_not_counted():
    assert watch(2, 4).rates(4) == watch(1, 4).rates(4)
    first = watch(1, 1).rates(1)
    assert first["tested_by_position"] == [3, 3] and first["alpha_1"] == 1
    assert first["alpha_1_se"] is None
