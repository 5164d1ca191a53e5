"""The acceptance rate of each drafted position.

The i-th drafted token is tested where those before it were kept; its alpha is the share
of these tests that keep it. Of a tree a position is a level. Axes: S steps, B rows, G
positions.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specjax.runtime import hosts
from specjax.types import Info, State


class Positions(NamedTuple):
    """The tests of a run by position; `see` is the function that `texts.decode` calls
    after each step.

    Attributes:
      accepted: for each step S, how many drafted tokens of each running row were kept.
      tested: likewise, how many the rule decided on.
    """

    accepted: list[NDArray]
    tested: list[NDArray]

    def see(self, running: NDArray, state: State, info: Info) -> None:
        """Adds the tests of the rows [B] that were running before a step."""
        del state
        accepted, tested = hosts.read((info.accepted, info.tested))
        self.accepted.append(accepted[running])
        self.tested.append(tested[running])

    def rates(self) -> dict[str, Any]:
        """Returns alpha at each position from 1 on, its standard error if tests were
        independent, and the number of tests [G]."""
        accepted = np.concatenate(self.accepted)[:, None]
        tested = np.concatenate(self.tested)[:, None]
        place = np.arange(tested.max(initial=0))
        tests = (tested > place).sum(0)
        kept = (accepted > place).sum(0)
        found: dict[str, Any] = {"tested_by_position": tests.tolist()}
        for i, rate in enumerate((kept / tests).tolist()):
            found[f"alpha_{i + 1}"] = rate
            found[f"alpha_{i + 1}_se"] = float(np.sqrt(rate * (1 - rate) / tests[i]))
        return found
