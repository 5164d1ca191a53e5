"""Stores compiled programs on disk, so that a second run does not wait for their
compilation."""

import os
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parents[2]


def keep() -> Path:
    """Turns JAX's persistent cache on and returns its folder.

    The folder is `$JAX_COMPILATION_CACHE_DIR`, or `.jax_cache/` of the checkout.
    """
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or ROOT / ".jax_cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return folder
