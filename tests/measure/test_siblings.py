"""The acceptance of further siblings, against a rule that tries them one by one."""

import numpy as np
import pytest

from specjax.measure.siblings import measure
from specjax.measure.texts import Text
from tests.support import tiny, tiny_pair
from tests.support.drafted import whole


def test_it_is_what_recursive_rejection_gives_at_every_token():
    """Greedy, where children and laws are sure, and the first is alpha at T = 1."""
    target, draft = tiny_pair.pair()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, tiny.TARGET.vocab, (6, 40)).astype(np.int32)
    length = np.full(6, 40)
    text = Text(tokens, np.full(6, 3), length, None)
    rate, error, *_ = measure(target, draft, text, 0.0, most=3)
    assert rate.shape == error.shape == (3,) and (error > 0).all()

    def logits(side):
        return np.asarray(whole(side.model)(side.params, tokens))[:, 2:39]

    best = logits(target).argmax(-1)
    ranked = np.argsort(-logits(draft), axis=-1, kind="stable")
    hits = [(ranked[..., i] == best).sum() for i in range(3)]
    left = best.size - np.cumsum([0, *hits[:2]])
    np.testing.assert_allclose(rate, np.array(hits) / left, atol=1e-6)

    found = measure(target, draft, text, 1.0, most=3)
    rate, error = found.rate, found.error
    p, q = (softmax(logits(side)) for side in (target, draft))
    beta = np.minimum(p, q).sum(-1).mean()
    assert abs(rate[0] - beta) < 5 * error[0]
    assert rate[0] > rate[1] > 0 and (found.floor <= rate).all()
    # Of one draw no rule keeps more than beta, of more none keeps all that it might.
    assert found.replaced[0] == pytest.approx(beta, abs=1e-5)
    assert found.distinct[0] == pytest.approx(beta, abs=2e-3)
    assert (found.kept < found.distinct[:3] + 5 * error).all()
    assert (found.distinct[1:] > found.replaced[1:]).all()


def softmax(z: np.ndarray) -> np.ndarray:
    weights = np.exp(z - z.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)
