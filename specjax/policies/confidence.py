"""A policy that stops a draft after a token its drafter was not sure of (Section 3.5).

This is the threshold of `assistant_confidence_threshold` in Hugging Face transformers,
but here it follows the acceptance of each row during decoding. The confidence of a
drafter is q(x) of the token that it drew, from its logits at temperature 1. Axes: B
rows, G = gamma.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Info, Law, Policy

WIDTHS = 2, 4, 8  # `Policy.widths`


def threshold(start: float = 0.2, step: float = 0.02, whole: float = 0.4) -> Policy:
    """Returns the policy with a confidence threshold that adapts to each row.

    The threshold starts at `start` and moves by at most `step` after each call, towards
    the value at which a share `whole` of the drafts is fully accepted: up where fewer
    drafts are fully accepted, down where more are. Raises ValueError for a number
    outside [0, 1].
    """
    if not all(0 <= x <= 1 for x in (start, step, whole)):
        raise ValueError(
            f"start, step and whole must be in [0, 1]; got {start}, {step}, {whole}"
        )

    def init(batch: int, gamma: int) -> tuple[Array, Array]:
        return jnp.full(batch, gamma, jnp.int32), jnp.full(batch, start, jnp.float32)

    def go_on(least: Array, law: Law, token: Array, slot: Any) -> tuple[Array, Array]:
        del slot
        return least, probs.at_temperature_one(law, token) >= least

    def update(budget: Array, least: Array, info: Info) -> tuple[Array, Array]:
        moved = jnp.clip(least - step * (info.full.astype(least.dtype) - whole), 0, 1)
        return budget, jnp.where(info.drafted > 0, moved, least)

    return Policy(init, update, go_on, WIDTHS)
