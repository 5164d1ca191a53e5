"""Threads of the native operations leave the processor soon after a step."""

import os
import time

import jax
import jax.numpy as jnp
import pytest

from specjax import native, probs
from specjax.types import Sampling

IDLE = 0.05  # seconds between two calls
MOST = 0.003  # of these, what threads may take of the processor; they spin for 0.0002


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the team is one thread")
def test_threads_sleep_within_a_millisecond_of_a_call():
    if problem := native.problem():
        pytest.skip(problem)
    logits, sampling = jnp.ones((1, 8, 50_000)), Sampling(jnp.ones(1))
    law = jax.jit(lambda logits: probs.standardize(logits, sampling))
    assert "specjax_rows" in str(jax.make_jaxpr(law)(logits))
    spent = []
    for _ in range(6):
        jax.block_until_ready(law(logits))
        time.sleep(0.001)
        begin = time.process_time()
        time.sleep(IDLE)
        spent.append(time.process_time() - begin)
    assert min(spent) < MOST, spent
