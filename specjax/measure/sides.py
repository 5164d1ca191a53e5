"""The functions that make targets and drafts in gin files: `sides.model` and others.

Parameters are bound by these names, and records have them.
"""

from pathlib import Path

from specjax import pretrained
from specjax.checkpoints import Pretrained
from specjax.drafts.counts import ngram
from specjax.drafts.retrieval import copying
from specjax.drafts.source import DraftSource

__all__ = ["copied", "model", "ngram"]


def model(
    name: str, dtype: str = "float32", made_by: str = "", cache: str | None = None
) -> Pretrained:
    """Returns a model that decodes or drafts.

    Args:
      name: as `specjax.load` takes it: bundled, a path, a hub's id.
      dtype: the dtype of weights, activations and cache.
      made_by: the command that makes the file, for the message where it is absent.
      cache: as of `specjax.load`.

    Raises:
      ValueError: no model has this name.
    """
    if made_by and not Path(name).exists():
        raise ValueError(f"no weights at {name}: make them with `{made_by}`")
    return pretrained.load(name, dtype, cache=cache)


def copied(longest: int = 3, least: int = 1) -> DraftSource:
    """Returns the draft of `drafts.retrieval.copying`."""
    return copying(longest, least)
