"""The acceptance rate of each drafted position.

The i-th drafted token is tested where those before it were kept; its alpha is the share
of these tests that keep it. Of a tree a position is a level. Axes: B rows, G positions,
N calls.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specjax.measure.texts import prompt_units
from specjax.runtime import hosts
from specjax.theory import estimate
from specjax.types import Info, State


@dataclasses.dataclass
class Positions:
    """The tests of a run by position.

    `see` is the function that `texts.decode` calls after each step, and `next_batch`
    is to be called after each batch.

    Attributes:
      count: how many texts count; rows beyond them only fill the last batch.
      first: the index of the first text of the current batch.
      calls: of each step, the texts of the rows that were running, and how many drafted
        tokens of each were kept, and how many the rule decided on.
    """

    count: int
    first: int = 0
    calls: list[tuple[NDArray, ...]] = dataclasses.field(default_factory=list)

    def see(self, running: NDArray, state: State, info: Info) -> None:
        """Adds the tests of the rows [B] that were running before a step."""
        del state
        text = self.first + np.arange(running.size)
        rows = np.flatnonzero(running & (text < self.count))
        accepted, tested = hosts.read((info.accepted, info.tested))
        self.calls.append((text[rows], accepted[rows], tested[rows]))

    def next_batch(self, rows: int) -> None:
        """Notes that a batch of this many rows has ended."""
        self.first += rows

    def rates(self, prompts: int) -> dict[str, Any]:
        """Returns alpha at each position from 1 on, its standard error, and the number
        of tests [G].

        Errors are over prompts, or over the texts of a single prompt; None for one of
        them. prompts: how many the texts continue in turns.
        """
        text, accepted, tested = map(np.concatenate, zip(*self.calls, strict=True))
        unit = prompt_units(text, prompts)
        places = range(tested.max(initial=0))
        found: dict[str, Any] = {
            "tested_by_position": [int((tested > place).sum()) for place in places],
            "position_units": "prompts" if prompts > 1 else "texts",
        }
        for place in places:
            kept, tests = (np.bincount(unit, x > place) for x in (accepted, tested))
            alpha = estimate.counts(kept, tests)
            found[f"alpha_{place + 1}"] = alpha.value
            found[f"alpha_{place + 1}_se"] = estimate.nan_to_none(alpha.se)
        return found
