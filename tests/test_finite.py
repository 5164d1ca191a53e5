"""Logits that are not finite end a decode with one line, with every rule.

Axes: B rows, G = gamma, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import finite, generate, probs, verifiers
from specjax.drafters import tree
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Draft, Params
from tests.support import tiny

BATCH, GAMMA, VOCAB = 7, 3, 300
# A row each but the last two: whose logits of which slot, and of which id, are what.
FAULTS = [
    ("target", 0, slice(None), np.nan),
    ("target", 1, slice(None), -np.inf),
    ("target", 2, 7, np.inf),
    ("target", 3, slice(None), np.inf),
    ("draft", 0, slice(None), np.nan),
]
SIDES = {"target": finite.TARGET, "draft": finite.DRAFT}


def logits() -> dict[str, np.ndarray]:
    """Returns the logits of two models that agree, so that drafts are kept up to the
    fault."""
    rng = np.random.default_rng(0)
    p = rng.normal(size=(BATCH, GAMMA + 1, VOCAB)).astype(np.float32)
    sides = {"target": p, "draft": p[:, :GAMMA].copy()}
    for row, (side, slot, ids, value) in enumerate(FAULTS):
        sides[side][row, slot, ids] = value
    return sides


@functools.partial(jax.jit, static_argnums=(0, 1))
def verdicts(verifier, temperature: float):
    """Returns the verdicts of a verifier as it is, and of the guarded one."""
    sampling = make_sampling(BATCH, temperature)
    read = verifier.law or probs.standardize
    z, drawn = map(jnp.asarray, logits().values())
    p, q = read(z, sampling), probs.standardize(drawn, sampling)
    tokens = jnp.argmax(drawn, axis=-1).astype(jnp.int32)
    draft = Draft(tokens, jnp.full(BATCH, GAMMA).at[-1].set(1), q)
    key = jax.random.split(jax.random.key(1), BATCH)
    noise = verifier.noise(key, jnp.ones(BATCH, jnp.int32), GAMMA, VOCAB)
    return [v.verify(p, draft, noise) for v in (verifier, finite.guard(verifier))]


# One whose law is in the step, and one that reads logits in its own way, as kernels do.
@pytest.mark.parametrize(("rule", "temperature"), [("token", 0.0), ("sigmoid", 1.0)])
def test_what_is_no_law_is_marked_and_other_verdicts_are_the_same(rule, temperature):
    plain, guarded = verdicts(verifiers.find(rule), temperature)
    for row, (side, slot, *_) in enumerate(FAULTS):
        n = int(guarded.num_accepted[row])
        assert n <= slot and guarded.tokens[row, n] == SIDES[side]
    for leaf, other in zip(plain[:2], guarded[:2], strict=True):
        np.testing.assert_array_equal(leaf[len(FAULTS) :], other[len(FAULTS) :])


def test_a_draft_may_have_several_laws():
    """A custom rule may read any tree of them; one that is no law marks its row."""
    z = jnp.zeros((2, 1, 4))
    both, bad = (
        probs.standardize(x, make_sampling(2, 1.0)) for x in (z, z.at[1].set(jnp.nan))
    )
    one = verifiers.find("token")

    def verify(p, draft, noise, keep_residual=False):
        return one.verify(p, draft._replace(law=draft.law[0]), noise)

    draft = Draft(jnp.zeros((2, 1), jnp.int32), jnp.ones(2, jnp.int32), (both, bad))
    p = probs.standardize(jnp.zeros((2, 2, 4)), make_sampling(2, 1.0))
    noise = one.noise(jax.random.split(jax.random.key(1), 2), jnp.ones(2, int), 1, 4)
    verdict = finite.guard(one._replace(verify=verify)).verify(p, draft, noise)
    assert verdict.tokens[1, 0] == finite.DRAFT and verdict.num_accepted[1] == 0
    assert (verdict.tokens[0] >= 0).all()


def test_whoever_decodes_names_the_row_and_the_step():
    """Each token is the one before it plus 1; after 9 there is no law."""
    model, vocab = tiny.markov(12), 12
    good = 9.0 * jnp.roll(jnp.eye(vocab), 1, axis=1)
    prompt = make_prompt([[0], [5, 6]])
    request = make_request(jax.random.key(0), prompt, 5, make_sampling(2, 0.0))
    stream = specjax.stream(Decoder(model), 8)

    def texts(weights):
        for state, _ in stream(Params(weights), prompt, request):
            yield np.array(state.tokens)[1]

    whole, shown = list(texts(good)), []
    assert list(whole[-1][:7]) == [5, 6, 7, 8, 9, 10, 11]
    told = "^row 1, the step that writes token 3 of its text: the target's logits are"
    with pytest.raises(FloatingPointError, match=told):
        shown.extend(texts(good.at[9].set(np.nan)))
    np.testing.assert_array_equal(shown, whole[:3])
    at_once = generate.build(Decoder(model), 8)
    with pytest.raises(FloatingPointError, match=told):
        at_once(Params(good.at[9].set(np.nan)), prompt, request)


@pytest.mark.parametrize("side", ["target", "draft"])
def test_a_tree_whose_path_has_no_law_ends_with_an_error(side):
    """That side has no law after 9; up to there both sides agree, and paths are
    kept."""
    model, vocab = tiny.markov(12), 12
    good = 9.0 * jnp.roll(jnp.eye(vocab), 1, axis=1)
    weights = dict.fromkeys(("target", "draft"), good)
    weights[side] = good.at[9].set(jnp.nan)
    drafter = tree.build(model, (-1, -1, 0))
    decoder = Decoder(model, drafter, verifiers.find("recursive"))
    prompt = make_prompt([[5, 6]])
    request = make_request(jax.random.key(0), prompt, 6, make_sampling(1, 0.0))
    decode = generate.build(decoder, 14)
    assert decode(Params(good, good), prompt, request).tokens[0, 4] == 9
    with pytest.raises(FloatingPointError, match=f"the {side}'s"):
        decode(Params(**weights), prompt, request)
