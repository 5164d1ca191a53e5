"""Tests that need the vendors' compilers are skipped without their wheels."""

import pytest

from experiments.gpu.aot import compilers

MISSING = {platform: compilers.missing(platform) for platform in compilers.WHEELS}
needs_cuda, needs_tpu = (
    pytest.mark.skipif(MISSING[name] is not None, reason=str(MISSING[name]))
    for name in ("gpu", "tpu")
)
