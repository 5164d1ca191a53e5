"""Pairs of models that are built without a configuration."""

from typing import Any

from specjax.checkpoints import Pretrained
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftSource
from specjax.types import Model


def target(name: str, model: Model, params: Any) -> Pretrained:
    """Returns a target with this model."""
    return Pretrained(name, None, model, params)


def draft(name: str, model: Model, params: Any) -> DraftSource:
    """Returns a draft with this model."""
    return model_source(target(name, model, params))
