"""Gradients of a batch from its parts, one after another."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array


def in_parts(
    loss: Callable[[Any, Any], Array], parts: int, weight: Callable[[Any], Array]
) -> Callable[[Any, Any], Array]:
    """Returns the same loss and gradient, computed with the activations of only one
    part of the rows in memory at a time, at the price of one more forward pass.

    Args:
      loss: (params, rows) -> mean over the weights of rows.
      parts: the number of parts of a batch; a batch that it does not divide is read
        whole.
      weight: rows -> their total weight.
    """
    if parts == 1:
        return loss

    def summed_loss(params: Any, rows: Any) -> Array:
        if len(jax.tree.leaves(rows)[0]) % parts:
            return loss(params, rows)

        def add(total: Array, part: Any) -> tuple[Array, None]:
            return total + loss(params, part) * weight(part), None

        def divide(x: Array) -> Array:
            return x.reshape(parts, len(x) // parts, *x.shape[1:])

        split = jax.tree.map(divide, rows)
        total, _ = jax.lax.scan(jax.checkpoint(add), 0.0, split)
        return total / weight(rows)

    return summed_loss
