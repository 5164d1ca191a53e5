"""Threads of the native operations leave the processor soon after a step."""

import os
from pathlib import Path

import pytest

from specjax import native
from tests.support import devices

SCRIPT = """
import pathlib
import time
import jax
import jax.numpy as jnp
from specjax import probs
from specjax.types import Sampling

def count_running():
    stats = pathlib.Path("/proc/self/task").glob("*/stat")
    return sum(stat.read_text().rpartition(")")[2].split()[0] == "R" for stat in stats)

logits, sampling = jnp.ones((1, 8, 50_000)), Sampling(jnp.ones(1))
law = jax.jit(lambda logits: probs.standardize(logits, sampling))
assert "specjax_rows" in str(jax.make_jaxpr(law)(logits))
jax.block_until_ready(law(logits))
spent = []
for _ in range(6):
    jax.block_until_ready(law(logits))
    time.sleep(0.001)
    begin = time.process_time()
    time.sleep(0.05)
    spent.append((count_running() - 1, time.process_time() - begin))
print(*min(spent))
"""
MOST = 0.003  # seconds of the processor in 0.05; threads spin for 0.0009


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no list of threads")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the team is one thread")
def test_threads_sleep_within_a_millisecond_of_a_call():
    if problem := native.problem():
        pytest.skip(problem)
    running, spent = devices.run_python("-c", SCRIPT, NPROC="2").split()
    # Where other processes take the processor, a thread that spins has little of it.
    assert (int(running), float(spent) < MOST) == (0, True)
