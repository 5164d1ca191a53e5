"""What a step takes at least, in closed form: bytes read, FLOPs, bytes sent.

A call takes as long as what it reads from memory, or as its products where that is
longer, and what its sums send besides. Nobody waits in it: launches, latencies and
whatever does not reach the published speeds come on top, above all for a small draft.
"""

from typing import NamedTuple

from experiments.gpu.plans.chips import Chip
from experiments.gpu.plans.memory import BFLOAT16, Plan, Sizes, cache
from specjax.theory.closed_forms import expected_tokens


class Sent(NamedTuple):
    """Sums of features over devices in a call, and the bytes of their results."""

    sums: int
    bytes: int


def sent(model: Sizes, plan: Plan, tokens: int, split: int) -> Sent:
    """Of a call on so many tokens a row: one after each attention and feed-forward, and
    the embedding; nothing where each device has the whole model."""
    if split == 1:
        return Sent(0, 0)
    sums = model.layers * (2 + model.crosses) + 1
    rows = plan.batch // plan.layout.data
    return Sent(sums, sums * BFLOAT16 * rows * tokens * model.dim)


def call(model: Sizes, plan: Plan, tokens: int, split: int, chip: Chip) -> float:
    """Seconds of a call on `tokens` a row, of a model split over `split` devices. All
    slots of a cache are read, whatever the text's length."""
    cached = cache(model, plan, split)
    read = BFLOAT16 * model.read / split + cached
    rows, groups = plan.batch / plan.layout.data, model.heads / model.key_heads
    products = 2 * tokens * rows * model.read / split
    products += 2 * tokens * groups * cached / BFLOAT16
    # Each device sends and gets a sum's parts, all but its own, and then the sums.
    moved = 2 * (split - 1) / split * sent(model, plan, tokens, split).bytes
    return max(read / chip.bandwidth, products / chip.flops) + moved / chip.link


def step(
    target: Sizes, draft: Sizes, plan: Plan, chip: Chip, alpha: float | None
) -> dict[str, float | None]:
    """Milliseconds, predicted: of a token a row by the target alone, of gamma drafted
    tokens, of the target's call on gamma + 1, and, given alpha, of a token by
    speculation (Leviathan et al. 2023, Eq. 1); and how many times as fast that is."""
    _, model, split = plan.layout
    alone = call(target, plan, 1, model, chip)
    drafted = plan.gamma * call(draft, plan, 1, split, chip)
    scored = call(target, plan, plan.gamma + 1, model, chip)
    told = {"alone_ms": alone, "draft_ms": drafted, "score_ms": scored}
    told = {name: 1e3 * seconds for name, seconds in told.items()}
    if alpha is None:
        return told | {"spec_ms": None, "speed": None}
    each = (drafted + scored) / expected_tokens(alpha, plan.gamma)
    return told | {"spec_ms": 1e3 * each, "speed": alone / each}
