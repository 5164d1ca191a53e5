"""Tests run on the CPU, with exact matrix products; a compilation is kept for the next
run, in `.jax_cache/` of the repository root."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
