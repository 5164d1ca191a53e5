"""The measurement that answers a question about a pair, as a row of a table."""

from functools import partial

from experiments.questions import (
    frontier,
    hierarchy,
    invariance,
    monitor,
    stopping,
    transform,
)
from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike
from specjax.measure import pairs
from specjax.measure.pairs import Pair, Read
from specjax.measure.row import Measurement
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.runtime import console

ASKED = {
    "stopping": stopping,
    "frontier": frontier,
    "transform": transform,
    "invariance": invariance,
    "monitor": monitor,
    "hierarchy": hierarchy,
}


def build(
    ask: str,
    target: Pretrained,
    draft: DraftLike,
    *,
    protocol: Protocol,
    read: Read = pairs.prompts,
    options: dict | None = None,
) -> Measurement:
    """Returns the measurement that answers a question.

    Args:
        ask: a name of ASKED.
        options: the options of this question.

    Raises:
        ValueError: the name is unknown, the draft has no law, or as `pairs.alpha`.
    """
    if ask not in ASKED:
        raise ValueError(f"no question {ask!r}: choose one of {', '.join(ASKED)}")
    pair, run = drafts.pair(target, draft), partial(measure, ask)
    whole = pairs.text_measurement(
        run, pair, protocol, read, options={"options": options or {}}
    )
    return whole._replace(module=ASKED[ask].__name__)


def measure(
    ask: str,
    pair: Pair,
    prompts: Prompts,
    protocol: Protocol,
    *,
    options: dict,
    kept: dict | None = None,
) -> dict:
    """Returns the question, the results and the verdict as plain values; an unknown
    number, such as the error of a single text, is None."""
    kept = {} if kept is None else kept
    found = ASKED[ask].measure(pair, prompts, protocol, kept, **options)
    told = ASKED[ask].QUESTION._asdict() | console.to_plain(found)
    return told | pairs.names(pair, protocol)
