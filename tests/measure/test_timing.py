"""Intervals of parts are over whole rounds."""

import numpy as np

from specjax.measure import timing

GAMMAS = 0, 2


def part_costs(rounds: np.ndarray) -> dict:
    """Returns the costs of parts whose seconds, [R, SAMPLES] each, are those of a call
    alone, of one on more tokens and of a draft."""
    seconds = {}
    for at in range(timing.SAMPLES):
        alone, several, draft = rounds[..., at]
        for gamma, call in zip(GAMMAS, (alone, several), strict=True):
            seconds[timing.TARGET, gamma, at] = call
            seconds[timing.PREFILL, gamma, at] = call
        seconds[timing.DRAFT, GAMMAS[1], at] = draft
    return timing.part_costs(GAMMAS, timing.part_times(GAMMAS, seconds))


def test_intervals_of_parts_draw_whole_rounds():
    """A round disturbs its samples alike, so that a second sample of each round tells
    nothing more: the interval is that of one sample."""
    rng = np.random.default_rng(0)
    once = rng.uniform(1, 2, (3, 9, 1))
    found = part_costs(np.repeat(once, timing.SAMPLES, axis=2))
    alone, several, draft = once[..., 0]

    def ratio(part, whole):
        return float(np.median(part) / np.median(whole))

    np.testing.assert_allclose(
        found["v_ci"][1], timing.interval(ratio, (several, alone)), rtol=1e-5
    )
    np.testing.assert_allclose(
        found["c_ci"][1], timing.interval(ratio, (draft / 2, alone)), rtol=1e-5
    )
    mean = 1e3 * alone / timing.LOOPS
    ends = timing.interval(lambda x: float(np.median(x)), (mean,))
    np.testing.assert_allclose(found["target_ms_ci"], ends, rtol=1e-5)


def test_a_single_round_has_no_interval():
    found = part_costs(np.random.default_rng(0).uniform(1, 2, (3, 1, timing.SAMPLES)))
    assert found["c_ci"] == [None, None] and found["v_ci"] == [None, None]
    assert found["target_ms_ci"] is None and found["c"][1] > 0
