"""The settings of beam search, with the meaning that transformers gives them.

A text is scored by the sum of log p of its tokens, the one that ends it among them,
divided by its length to the power `length_penalty`.
"""

from typing import Any, NamedTuple

import numpy as np

from specjax.decode_config import MOST_DRAFTED, check_whole, short_repr

NEVER = "never"
WIDEST = 1000
FLOAT_MOST = float(np.finfo(float).max)


class BeamConfig(NamedTuple):
    """The settings of a beam search.

    width: w, beams that are kept after each token; 1 is greedy. gamma: the levels of
    beams that are drafted for each call of the target. draft_width: u >= w, beams in
    each of these levels; None is twice the width. length_penalty: above 0 it favours
    long texts, below 0 short ones, and 0 is the sum itself. early_stopping: when a
    search ends, besides at the most tokens. True, as soon as w texts are finished;
    False, once the best running beam, at its present length, scores no more than the
    worst of w finished texts; "never", once it could not at any length.
    """

    width: int = 4
    gamma: int = 4
    draft_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | str = False

    @property
    def drafted(self) -> int:
        """Returns the beams of each drafted level, u."""
        return 2 * self.width if self.draft_width is None else self.draft_width

    def static(self) -> "BeamConfig":
        """Returns the settings that a program is compiled for. Those that it does not
        depend on are the defaults, such as `length_penalty`, which is its argument."""
        plain = self.gamma == 0
        return self._replace(
            length_penalty=1.0, draft_width=self.width if plain else self.drafted
        )


def check(config: BeamConfig) -> None:
    """Raises ValueError, in one line, for settings that no search can have."""
    check_whole("width", config.width, 1, WIDEST)
    check_whole("gamma", config.gamma, 0, MOST_DRAFTED)
    if config.draft_width is not None:
        check_whole("draft_width", config.draft_width, config.width, WIDEST)
    penalty: Any = config.length_penalty
    number = isinstance(penalty, int | float | np.integer | np.floating)
    finite = number and abs(penalty) <= FLOAT_MOST  # an int may be beyond any float
    if not finite or isinstance(penalty, bool):
        raise ValueError(
            f"length_penalty must be a finite number; got {short_repr(penalty)}"
        )
    stopping = config.early_stopping
    if not isinstance(stopping, bool) and stopping != NEVER:
        raise ValueError(
            f'early_stopping must be True, False or "{NEVER}"; got'
            f" {short_repr(stopping)}"
        )


def divisors(length_penalty: float, most: int) -> np.ndarray:
    """Returns what sums of log p are divided by at each length 0 .. `most`: [N + 1].

    The powers are rounded from double precision, as those of transformers are. Raises
    ValueError where they leave float32.
    """
    with np.errstate(over="ignore", under="ignore"):
        powers = np.arange(1, most + 1, dtype=np.float64) ** float(length_penalty)
        powers = powers.astype(np.float32)
    if not np.isfinite(powers).all() or (powers < np.finfo(np.float32).tiny).any():
        raise ValueError(
            f"length_penalty = {length_penalty} divides scores of {most} tokens by more"
            " than float32 holds: take a number nearer to 0"
        )
    return np.concatenate([np.ones(1, np.float32), powers])
