"""A drafter or verifier that returns a wrong shape is refused in one line."""

import jax
import jax.numpy as jnp
import pytest

from specjax import generate, probs
from specjax.drafters.nothing import no_cache
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.runtime import contracts
from specjax.step import Decoder
from specjax.types import Draft, Drafter, Params, Sampling, Verdict
from specjax.verifiers import token
from tests.support import tiny

TOKENS, NUM = jnp.zeros((2, 3), jnp.int32), jnp.ones(2, jnp.int32)
LOGITS = jnp.zeros((2, 3, 5))
LAW = probs.standardize(LOGITS, Sampling(jnp.ones(2)))
GOOD, BARE = Draft(TOKENS, NUM, LAW), Draft(TOKENS, NUM, LOGITS)


def test_what_is_right_comes_back_as_it_is():
    for draft in (GOOD, GOOD._replace(law=None)):
        made = draft, "cache"
        assert contracts.check_draft(made, 2, 3) is made
    contracts.check_verdict(Verdict(NUM, jnp.zeros((2, 4), jnp.int32), LOGITS), 2, 3)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (GOOD, "returns Draft: return a pair, types.Draft"),
        ((TOKENS, NUM), "returns .*: return a pair"),
        ((BARE, ()), r"class .*: give probs\.standardize"),
        ((GOOD._replace(law=probs.first_tokens(LAW, 2)), ()), r"of \(2, 3\) rows and"),
        ((GOOD._replace(tokens=TOKENS.T), ()), r"tokens must be integers \(2, 3\)"),
        ((GOOD._replace(tokens=LOGITS[..., 0]), ()), "integers .*; got float32"),
        ((GOOD._replace(num=3), ()), r"num must be integers \(2,\); got int"),
    ],
)
def test_another_draft_is_refused(made, message):
    with pytest.raises(ValueError, match=message) as caught:
        contracts.check_draft(made, 2, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (TOKENS, "the verifier returns .*: return types.Verdict"),
        (Verdict(NUM, TOKENS, LOGITS), r"tokens must be integers \(2, 4\)"),
        (Verdict(TOKENS, TOKENS, LOGITS), r"num_accepted must be integers \(2,\)"),
    ],
)
def test_another_verdict_is_refused(verdict, message):
    with pytest.raises(ValueError, match=message):
        contracts.check_verdict(verdict, 2, 3)


def trace_decoder(decoder: Decoder) -> None:
    """Traces the decoding of two rows, up to where anything would be computed."""
    prompt = make_prompt([[0], [1]])
    request = make_request(root_key(0), prompt, 2, make_sampling(2, 1.0))
    loop, params = generate.build_loop(decoder, 8), Params(jnp.zeros((5, 5)))
    jax.eval_shape(loop, params, prompt, request)


def test_a_step_asks_both():
    model = tiny.markov(5)
    drafter = Drafter(no_cache, lambda *_: (GOOD, ()), 3)
    trace_decoder(Decoder(model, drafter))
    with pytest.raises(ValueError, match=r"give probs\.standardize"):
        trace_decoder(Decoder(model, drafter._replace(draft=lambda *_: (BARE, ()))))
    verifier = token.verifier._replace(verify=lambda *_: TOKENS)
    with pytest.raises(ValueError, match="the verifier returns"):
        trace_decoder(Decoder(model, drafter, verifier))
