"""Interleaved texts with two settings, for `specjax.exactness.goodness`.

The law is worked out in float64 from the tables that decode, never sampled. Seeds are
fixed, so that a false alarm is met once, when a seed is chosen.
Axes: N rows, n tokens, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import generate
from specjax.exactness.fixtures import reference
from specjax.exactness.goodness import bonferroni, neighbours_p_value, text_p_values
from specjax.inputs import make_prompt, make_request
from specjax.types import Prompt, Request, Sampling

PROMPT = (0, 1, 2, 0, 1, 0)  # so that copying finds something
TOKENS = 4
ROWS = 24_000  # shows an error of 0.02 in the law of one token (`test_goodness.py`)
# Of even rows and of odd ones; a top_k of all ids limits nothing.
SETTINGS = (Sampling(1.0, top_k=4), Sampling(0.7, top_k=3))


def p_value(texts: np.ndarray, laws: tuple[np.ndarray, np.ndarray]) -> float:
    """Returns one p-value for all these tests, of texts [N, n] whose rows alternate
    between `laws`."""
    even, odd = texts[::2], texts[1::2]
    each = text_p_values(even, laws[0]) + text_p_values(odd, laws[1])
    return bonferroni([*each, neighbours_p_value(even, odd, laws)])


def markov_law(logits: np.ndarray, setting: Sampling, n: int = TOKENS) -> np.ndarray:
    """Returns the law [V] * n of the tokens after `PROMPT`, for logits [V, V] of the
    next token given the last; in float64, and without `specjax.probs`."""
    step = np.stack([reference(row, setting) for row in np.asarray(logits)])
    law = step[PROMPT[-1]]
    for _ in range(n - 1):
        law = law[..., None] * step
    return law


def ask(rows: int, seed: int, n: int = TOKENS) -> tuple[Prompt, Request]:
    """Returns the request for n tokens after `PROMPT` in each row; rows alternate
    between `SETTINGS`."""
    prompt = make_prompt([PROMPT] * rows)
    temperature = jnp.array([setting.temperature for setting in SETTINGS])
    top_k = jnp.array([setting.top_k for setting in SETTINGS])
    sampling = Sampling(jnp.resize(temperature, rows), jnp.resize(top_k, rows))
    return prompt, make_request(jax.random.key(seed), prompt, n, sampling)


def continuations(output: generate.Output, n: int = TOKENS) -> np.ndarray:
    """Returns the n tokens [N, n] that follow `PROMPT`."""
    return np.asarray(output.tokens)[:, len(PROMPT) : len(PROMPT) + n]
