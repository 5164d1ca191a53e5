"""The curve of a training run as events of TensorBoard.

They are written by tensorboardX, of the extra `events`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specjax.training import loop


def writer_class() -> Callable[[str], Any]:
    """Returns the function that opens a folder for events. Raises ValueError where
    tensorboardX is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ValueError(
            "events are written by tensorboardX: pip install 'specjax[events]'"
        ) from None
    return SummaryWriter


def add(writer: Any, point: Mapping[str, Any]) -> None:
    """Writes a point of a curve; the tag of an upper bound ends in "at most"."""
    for name in point.keys() - {"step", loop.AT_MOST}:
        tag = loop.bound_name(name, point)
        writer.add_scalar(tag, point[name], point["step"])
    writer.flush()


def reporter(folder: Path, curve: Path) -> Callable[[Mapping[str, Any]], None]:
    """Returns a function that writes each new point of a run.

    Args:
      folder: of events. If it is new, the points that the run already has are written
        first.
      curve: the curve of the run, whether it exists or not.

    Raises:
      ValueError: tensorboardX is not installed.
    """
    make, is_new = writer_class(), not folder.exists()
    writer = make(str(folder))
    if is_new and curve.exists():
        for line in curve.read_text().rpartition("\n")[0].splitlines():
            add(writer, json.loads(line))
    return lambda point: add(writer, point)
