"""The decoding setting of rows after Chen et al. (2023), and its checks.

K is gamma: drafted tokens a call.
"""

from typing import NamedTuple

from experiments.tasks import Task
from specjax import fused
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.fused import Sizes
from specjax.measure import costs
from specjax.measure.texts import width
from specjax.verifiers import token


class ChenSetting(NamedTuple):
    """task: as `read` takes it. metric: of `METRICS`. K: drafted tokens a call.
    samples: texts of each prompt, at most `new_tokens` each, in batches. timed: texts
    decoded alone for their walltime; 0 times nothing. rounds: of the times of a call.
    kernels: what reads logits, see `specjax.fused`."""

    task: str
    metric: str
    K: int = 4
    temperature: float = 1.0
    top_p: float = 1.0
    samples: int = 1
    new_tokens: int = 128
    batch: int = 8
    timed: int = 24
    rounds: int = 5
    seed: int = 0
    kernels: str = "auto"


def check(setting: ChenSetting) -> None:
    """Raises ValueError for an invalid setting."""
    counts = ("K", "samples", "new_tokens", "batch", "rounds")
    if min(getattr(setting, name) for name in counts) < 1:
        raise ValueError(f"{', '.join(counts)} must be at least 1")
    if setting.timed < 0:
        raise ValueError(f"timed must be at least 0; got {setting.timed}")
    if not 0 < setting.top_p <= 1 or setting.temperature < 0:
        raise ValueError(
            "need a top_p in (0, 1] and a temperature of at least 0; got"
            f" {setting.top_p}, {setting.temperature}"
        )


def build_pair(
    target: Pretrained, draft: DraftSource, *, task: Task, setting: ChenSetting
) -> costs.Pair:
    """Returns both models in buffers of one length.

    Raises:
        ValueError: a model has fewer positions than that.
    """
    slots = width(task.prompts) + setting.new_tokens + 2 * (setting.K + 1)
    longest = width(task.prompts) + setting.new_tokens
    models = [it.model for it in (target, draft.pretrained) if it is not None]
    known = [model.slots for model in models]
    most = min((count for count in known if count), default=longest)
    if most < longest:
        raise ValueError(
            f"prompts of up to {width(task.prompts)} tokens and {setting.new_tokens}"
            f" new ones need {longest} positions and the models know {most}: set fewer"
            " NEW_TOKENS, or a shorter LENGTH"
        )
    sizes = Sizes(setting.batch, setting.K, target.vocab, draft.regime)
    chosen = fused.choose(setting.kernels, token.verifier, sizes)
    return costs.Pair(target, draft, slots, chosen)
