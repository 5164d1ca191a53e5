"""Settings of JAX that last for a `with` block."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax


@contextlib.contextmanager
def use_settings(settings: dict[str, Any]) -> Iterator[None]:
    """Sets settings of JAX for a `with` block, and restores them afterwards."""
    before = {name: jax.config.values[name] for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
