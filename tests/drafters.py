"""Every drafter, to be put to the same tests: add a `Case` here and it is.

A case builds its drafter for any `tiny.World`, for gamma at least 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from specjax.drafters import adaptive, autoregressive, copying, early_exit, random
from specjax.generate import Parts
from specjax.types import Drafter, Params, Policy, Verifier
from specjax.verifiers import token
from tests.tiny import World


class Case(NamedTuple):
    """drafter: (World, gamma) -> Drafter. weights: World -> its parameters."""

    name: str
    drafter: Callable[[World, int], Drafter]
    weights: Callable[[World], Any] = lambda world: None
    policy: Policy | None = None

    def parts(
        self, world: World, gamma: int, verifier: Verifier = token.verifier
    ) -> Parts:
        return Parts(world.target, self.drafter(world, gamma), verifier, self.policy)

    def params(self, world: World) -> Params:
        return Params(world.target_weights, self.weights(world))


CASES = (
    Case(
        "autoregressive",
        lambda world, gamma: autoregressive.build(world.draft, gamma),
        lambda world: world.draft_weights,
    ),
    Case(
        "adaptive",
        lambda world, gamma: autoregressive.build(world.draft, gamma),
        lambda world: world.draft_weights,
        adaptive.heuristic(start=2),
    ),
    Case(
        "itself",
        lambda world, gamma: autoregressive.build(world.target, gamma),
        lambda world: world.target_weights,
    ),
    Case(
        "early_exit",
        lambda world, gamma: early_exit.build(world.shallow, world.cut, gamma),
        lambda world: world.shallow_weights,
    ),
    Case("copying", lambda world, gamma: copying.build(gamma)),
    Case("random", lambda world, gamma: random.build(world.target.vocab, gamma)),
)
BY_NAME = {case.name: case for case in CASES}
