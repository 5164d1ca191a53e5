"""The decoding setting of rows after Chen et al. (2023), and its checks.

K is gamma: drafted tokens a call.
"""

from typing import NamedTuple

from experiments.tasks import Task
from specjax import decode_config, fused
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafts.source import DraftSource
from specjax.fused import Sizes
from specjax.measure import costs
from specjax.measure.texts import width
from specjax.verifiers import token


class ChenSetting(NamedTuple):
    """The setting of a row after Chen et al. (2023).

    Attributes:
        task: as `read` takes it.
        metric: one of `METRICS`.
        decode: the settings of decoding, whose gamma is K.
        samples: texts of each prompt, in batches.
        timed: texts decoded alone for their walltime; 0 times nothing.
        rounds: how often a call is timed.
    """

    task: str
    metric: str
    decode: DecodeConfig = DecodeConfig(temperature=1.0, new_tokens=128)
    samples: int = 1
    batch: int = 8
    timed: int = 24
    rounds: int = 5

    @property
    def K(self) -> int:
        return self.decode.gamma


def check(setting: ChenSetting) -> None:
    """Raises ValueError for an invalid setting."""
    decode_config.check(setting.decode)
    counts = ("K", "samples", "batch", "rounds")
    if min(getattr(setting, name) for name in counts) < 1:
        raise ValueError(f"{', '.join(counts)} must be at least 1")
    if setting.timed < 0:
        raise ValueError(f"timed must be at least 0; got {setting.timed}")
    if setting.decode.rule != "token" or setting.decode.policy != "none":
        raise ValueError("Chen et al. (2023) verify by token, without a policy")


def build_pair(
    target: Pretrained, draft: DraftSource, *, task: Task, setting: ChenSetting
) -> costs.Pair:
    """Returns both models in buffers of one length.

    Raises:
        ValueError: a model has fewer positions than that.
    """
    slots = width(task.prompts) + setting.decode.new_tokens + 2 * (setting.K + 1)
    longest = width(task.prompts) + setting.decode.new_tokens
    models = [it.model for it in (target, draft.pretrained) if it is not None]
    known = [model.slots for model in models]
    most = min((count for count in known if count), default=longest)
    if most < longest:
        raise ValueError(
            f"prompts of up to {width(task.prompts)} tokens and"
            f" {setting.decode.new_tokens} new ones need {longest} positions and the"
            f" models know {most}: set fewer"
            " NEW_TOKENS, or a shorter LENGTH"
        )
    sizes = Sizes(setting.batch, setting.K, target.vocab, draft.regime)
    chosen = fused.choose(setting.decode.kernels, token.verifier, sizes)
    return costs.Pair(target, draft, slots, chosen)
