"""The paper's mathematics as functions: closed forms, estimators, predictions."""

from specjax.theory import closed_forms, estimate, predict

__all__ = ["closed_forms", "estimate", "predict"]
