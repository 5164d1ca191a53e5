"""Rows of Wagner et al. (2024) for decoders, whose prompts their own tokenizer reads.

As `experiments.papers.wagner.rows`, whose measurements these are, of pairs such as the
paper's: a task is read with the target at hand (`experiments.tasks.texts`), and ROUGE-1
is of texts as the target's tokenizer spells them.
"""

from collections.abc import Callable

from experiments.papers.wagner import rows
from experiments.papers.wagner.methods import Method, of_scale, of_text
from experiments.papers.wagner.rows import WagnerSetting
from experiments.tasks import Task
from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.drafts.models import all_logits
from specjax.drafts.source import (
    DraftLike,
    check_pair,
)
from specjax.measure.row import Measurement


def row(
    target: Pretrained,
    draft: DraftLike,
    setting: WagnerSetting,
    read: Callable[[str, Pretrained], Task],
    kind: str,
) -> Measurement:
    """The measurement of a row. read: how a task of that name is read by the target,
    suffix included. kind: "text" for Tables 1, 3, 5, 6 and 8, "scale" for Tables 2 and
    7, "time" for Figures 3 and 4, "calls" for what Tables 1 and 3 count. Raises
    ValueError for a pair, a setting or a task that cannot be measured."""
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}: choose one of {', '.join(KINDS)}")
    if setting.suffix:
        raise ValueError("need no suffix: the task puts one")
    target, draft = drafts.pair(target, draft)
    pair = target, all_logits(draft)
    check_pair(*pair)
    measure, methods = KINDS[kind]
    task, decode = read(setting.task, target), target.tokenizer.decode
    parts = pair, setting, methods(setting.scales), measure, task, decode
    return rows.built(*parts)._replace(module=__name__)


# What is measured, and the methods that are compared, of the setting's scales.
KINDS: dict[str, tuple[Callable, Callable[[tuple[float, ...]], list[Method]]]] = {
    "text": (rows.texts, lambda scales: of_text(scales[0])),
    "scale": (rows.scales, of_scale),
    "time": (rows.times, lambda scales: of_text(scales[0])[:4]),
    "calls": (rows.calls, lambda scales: of_text(scales[0])[:4]),
}
