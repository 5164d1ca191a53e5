"""Rows of Wagner et al. (2024) for decoders, whose prompts are read by their own
tokenizer.

The measurements are those of `experiments.papers.wagner.rows`, on pairs such as the
paper's: a task is read by the target (`experiments.tasks.texts`), and ROUGE-1 is
computed on texts that the target's tokenizer decodes.
"""

from collections.abc import Callable

from experiments.papers.wagner import rows
from experiments.papers.wagner.methods import Method, scale_methods, text_methods
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
    *,
    setting: WagnerSetting,
    read: Callable[[str, Pretrained], Task],
    kind: str,
) -> Measurement:
    """Returns the measurement of a row.

    Args:
        read: reads a task of that name for the target, suffix included.
        kind: "text" for Tables 1, 3, 5, 6 and 8, "scale" for Tables 2 and 7, "time" for
            Figures 3 and 4, "calls" for the counts of Tables 1 and 3.

    Raises:
        ValueError: the pair, the setting or the task cannot be measured.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}: choose one of {', '.join(KINDS)}")
    if setting.suffix:
        raise ValueError("need no suffix: the task puts one")
    target, draft = drafts.pair(target, draft)
    draft = all_logits(draft)
    check_pair(target, draft)
    measure, methods = KINDS[kind]
    row = rows.build_row(
        (target, draft),
        setting,
        methods(setting.scales),
        measure=measure,
        source=read(setting.task, target),
        decode=target.tokenizer.decode,
    )
    return row._replace(module=__name__)


# What is measured, and the methods that are compared, of the setting's scales.
KINDS: dict[str, tuple[Callable, Callable[[tuple[float, ...]], list[Method]]]] = {
    "text": (rows.texts, lambda scales: text_methods(scales[0])),
    "scale": (rows.scales, scale_methods),
    "time": (rows.times, lambda scales: text_methods(scales[0])[:4]),
    "calls": (rows.calls, lambda scales: text_methods(scales[0])[:4]),
}
