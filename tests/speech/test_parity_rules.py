"""Ruled logits as transformers' three processors leave them, on random beginnings."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.generation import logits_process  # noqa: E402

from specjax.speech import rules  # noqa: E402
from specjax.speech.rules import Limits  # noqa: E402
from tests.speech.test_rules import texts  # noqa: E402
from tests.support.small_speech import EARLIER, PROMPT, TOKENS, VOCAB  # noqa: E402

CASES = [Limits((1, 7, 28), (5, 20), 4), Limits((0,), (), None), Limits((), (2, 20), 0)]


def processed(limits: Limits, prompt: list[int], own: list[int], logits: np.ndarray):
    """What transformers makes of a row's logits [V], in the order of its generate."""
    config = SimpleNamespace(
        no_timestamps_token_id=TOKENS.no_timestamps,
        eos_token_id=TOKENS.end,
        bos_token_id=TOKENS.end,
        max_initial_timestamp_index=limits.first_time,
    )
    at = len(prompt)
    process = [logits_process.SuppressTokensLogitsProcessor(limits.suppressed)]
    begin = logits_process.SuppressTokensAtBeginLogitsProcessor(limits.at_first, at)
    process = [begin, *process]
    process.append(logits_process.WhisperTimeStampLogitsProcessor(config, at))
    ids, scores = torch.tensor([prompt + own]), torch.tensor(logits)[None]
    for one_more in process:
        scores = one_more(ids, scores)
    return scores[0].numpy()


@pytest.mark.parametrize("limits", CASES)
@pytest.mark.parametrize("prompt", [PROMPT, EARLIER + PROMPT, [TOKENS.start]])
def test_logits_are_those_of_transformers(limits, prompt):
    rng = np.random.default_rng(7)
    built = rules.build(TOKENS, limits, VOCAB)
    rows = texts(rng)
    logits = rng.standard_normal((len(rows), VOCAB)).astype(np.float32) * 4
    logits[:, TOKENS.first_time :] -= rng.uniform(0, 6, (len(rows), 1))
    width = max(map(len, rows))
    padded = [prompt + own + [0] * (width - len(own)) for own in rows]
    length = jnp.array([len(prompt + own) for own in rows])
    state = jax.jit(built.begin)(jnp.array(padded), length)
    ours = np.asarray(jax.jit(built.apply)(state, jnp.array(logits)))
    expected = [
        processed(limits, prompt, own, row)
        for own, row in zip(rows, logits, strict=True)
    ]
    np.testing.assert_array_equal(ours, np.stack(expected))
