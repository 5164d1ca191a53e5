"""The state of a constrained model follows every text, in calls of any size and
shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import constrained as module
from specjax.models import gpt, pad_vocab
from specjax.models.constrained import constrained
from specjax.step import Decoder
from specjax.types import Branches, Params, Prompt, TokenAutomaton
from tests.support import tiny
from tests.support.model_cases import (
    GPT,
    WHISPER,
    assert_close,
    compile_call,
    make_branches,
)

V, SLOTS = 29, 16
TOKENS = jnp.array([[3, 12, 3, 8, 25, 7], [5, 5, 21, 7, 2, 2], [0, 28, 1, 0, 14, 9]])
LENGTH = jnp.array([2, 4, 1])  # of prompts


def advance(state, token):
    """Returns two numbers of a whole text: a sum of powers, and its length in
    sevenths."""
    number, length = state
    mixed = number * jnp.uint32(48271) + token.astype(jnp.uint32) + jnp.uint32(1)
    return mixed & jnp.uint32(2**31 - 1), (jnp.round(length * 7) + 1) / 7


def begin(tokens, length):
    rows = tokens.shape[0]
    states = [(jnp.zeros(rows, jnp.uint32), jnp.zeros((rows, 1), jnp.float32))]
    for token in tokens.T:
        states.append(advance(states[-1], token))
    row = jnp.arange(rows)
    return jax.tree.map(lambda *each: jnp.stack(each)[length, row], *states)


def apply(state, logits):
    """Leaves one id in three."""
    number, length = state
    shift = number[..., None] + jnp.round(length * 7).astype(jnp.uint32)
    ids = jnp.arange(logits.shape[-1], dtype=jnp.uint32)
    return jnp.where((ids + shift) % 3 == 0, logits, -jnp.inf)


RULES = TokenAutomaton(begin, advance, apply)


def allowed_ids(text) -> np.ndarray:
    number = 0
    for token in text:
        number = (number * 48271 + int(token) + 1) % 2**31
    return (np.arange(V) + number + len(text)) % 3 == 0


def possible_ids(logits) -> np.ndarray:
    return np.isfinite(np.asarray(logits)[..., :V])


def start_case(case, dtype: str = "float32"):
    """Returns a constrained model, its weights, and the cache before its first call."""
    model = constrained(case.build(case.config._replace(dtype=dtype)), RULES)
    params = case.world().target_weights
    prompt = Prompt(TOKENS, LENGTH, case.inputs())
    cache = jax.jit(model.init, static_argnums=2)(params, prompt, SLOTS)
    return model, params, cache


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(GPT, "float32"), (GPT, "bfloat16"), (WHISPER, "float32")],
    ids=["gpt", "gpt in bfloat16", "whisper"],
)
def test_what_is_left_depends_on_the_text_alone(case, dtype, monkeypatch):
    """This holds within the prompt and after it, whatever the slots held before."""
    monkeypatch.setattr(module, "UNROLLED", 3)  # longer calls are a loop
    monkeypatch.setattr(module, "AT_ONCE", 4)
    model, params, cache = start_case(case, dtype)
    run, zero, tokens = compile_call(model), np.zeros(3, np.int32), np.asarray(TOKENS)
    features, _ = jax.eval_shape(model.apply, params, tokens, zero, cache)
    assert features.model.dtype == dtype  # and not that of the states beside them
    assert [leaf.dtype for leaf in features.states] == [jnp.uint32, jnp.float32]
    for widths in ((6,), (1,) * 6, (3, 2, 1)):
        # Rejected, all of it.
        _, ruined = run(params, tokens, zero, cache)
        _, ruined = run(params, tokens[:, ::-1], LENGTH, ruined)
        start = 0
        for width in widths:
            part = tokens[:, start : start + width]
            logits, ruined = run(params, part, zero + start, ruined)
            assert logits.dtype == jnp.float32
            for row, place in np.ndindex(3, width):
                expected = allowed_ids(tokens[row, : start + place + 1])
                np.testing.assert_array_equal(
                    possible_ids(logits)[row, place], expected
                )
                assert 9 <= expected.sum() <= 10
            start += width


@pytest.mark.parametrize("case", [GPT, WHISPER], ids=lambda case: case.name)
def test_what_is_left_has_the_logits_of_the_plain_model(case):
    model, params, cache = start_case(case)
    zero, plain = jnp.zeros(3, jnp.int32), case.world().target
    logits, _ = compile_call(model)(params, TOKENS, zero, cache)
    own = plain.init(params, Prompt(TOKENS, LENGTH, case.inputs()), SLOTS)
    wanted, _ = compile_call(plain)(params, TOKENS, zero, own)
    assert_close(logits, np.where(np.isfinite(logits), wanted, -np.inf), 1e-5)


def test_on_a_tree_each_token_s_state_follows_its_path():
    model, params, cache = start_case(GPT)
    run, start = compile_call(model), jnp.array([3, 4, 2])
    _, cache = run(params, TOKENS, jnp.zeros(3, jnp.int32), cache)
    paths = [[0], [1], [0, 2], [1, 3], [0, 2, 4], [0, 5]]
    nodes = jnp.array([[4, 9, 17, 2, 6, 6], [1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4]])
    tree = make_branches([paths] * 3)
    logits, _ = run(params, nodes, start, cache, tree)
    for row, node in np.ndindex(3, 6):
        text = [*TOKENS[row, : start[row]], *nodes[row, np.array(paths[node])]]
        np.testing.assert_array_equal(
            possible_ids(logits)[row, node], allowed_ids(text)
        )
    # The same in two calls, and a path that is kept goes on as a chain does.
    head = Branches(tree.depth[:, :3], tree.sees[:, :3, :3])
    _, after = run(params, nodes[:, :3], start, cache, head)
    tail = tree._replace(sees=tree.sees[:, 3:])
    second, after = run(params, nodes[:, 3:], start + 3, after, tail)
    np.testing.assert_array_equal(possible_ids(second), possible_ids(logits)[:, 3:])
    path = jnp.array([paths[4]] * 3)
    kept = model.keep(after, start, path)
    following, _ = run(params, nodes[:, :1], start + 3, kept)
    for row in range(3):
        text = [*TOKENS[row, : start[row]], *nodes[row, np.array(paths[4])]]
        text = [*text, nodes[row, 0]]
        np.testing.assert_array_equal(
            possible_ids(following)[row, 0], allowed_ids(text)
        )


def test_rules_of_another_vocabulary_or_state_are_refused():
    def raise_wrong_size(state, logits):
        raise ValueError("logits of 4 ids, rules of 5")

    with pytest.raises(ValueError, match="rules of 5"):
        constrained(tiny.markov(4), RULES._replace(apply=raise_wrong_size))
    narrow = RULES._replace(begin=lambda tokens, length: length > 1)
    with pytest.raises(ValueError, match="int32, uint32 or float32: cast its leaves"):
        constrained(tiny.markov(4), narrow)


def test_a_padded_draft_follows_rules_that_leave_only_what_it_lacks():
    """Its law is then on ids that it does not know, and the text is the target's."""
    rules = TokenAutomaton(
        lambda tokens, length: jnp.zeros_like(length),
        lambda state, token: state,
        lambda state, z: jnp.where(jnp.arange(z.shape[-1]) == 5, z, -jnp.inf),
    )
    whole, small = (gpt.Config(vocab, 8, 16, 1, 2) for vocab in (6, 5))
    draft = pad_vocab.pad_vocab(gpt.build(small), 6)
    drafter = autoregressive.build(constrained(draft, rules), 2)
    decoder = Decoder(constrained(gpt.build(whole), rules), drafter)
    params = Params(tiny.weights(whole, 1), tiny.weights(small, 2))
    prompt = make_prompt([[1, 2]])
    request = make_request(jax.random.key(0), prompt, 4, make_sampling(1, 1.0))
    stream = generate.build_stream(decoder, 16)
    (*_, (state, _)) = stream(params, prompt, request)
    assert state.tokens[0, :6].tolist() == [1, 2, 5, 5, 5, 5]
