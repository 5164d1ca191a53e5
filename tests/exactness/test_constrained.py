"""The law of whole jitted steps under rules that see all of a text, enumerated.

What the step hands a verifier after every draft is taken from the step itself, behind
slots that are stale; the rest is the enumeration that certifies verifiers.
Axes: N drafts of G = 2 tokens, V = 3 ids.
"""

import functools
import itertools
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import generate, probs, verifiers
from specjax.exactness import enumeration
from specjax.exactness.claims import CLAIMS
from specjax.exactness.fixtures import Fixture
from specjax.models import gpt
from specjax.models.constrained import constrained
from specjax.types import (
    Model,
    Params,
    Prompt,
    Sampling,
    TokenAutomaton,
    Verdict,
    Verifier,
)

V, G, TEXT = 3, 2, 3  # ids, drafted tokens, tokens of a text
START, SLOTS = (1, 0, 2), 12
FACTOR, OFFSET, SEED = 2654435761, 97, 41
CONFIG = gpt.Config(vocab=V, dim=8, mlp_dim=16, num_layers=2, num_heads=2)


def forbidden(code):
    """One id, by a number of all bits that every token of a text mixes."""
    return (code >> 7) % V


def _begin(tokens, length):
    def step(code, place):
        moved = jnp.where(place < length, _advance(code, tokens[:, place]), code)
        return moved, None

    seed = jnp.full(length.shape, SEED, jnp.uint32)
    return jax.lax.scan(step, seed, jnp.arange(tokens.shape[1]))[0]


def _advance(code, token):
    return code * jnp.uint32(FACTOR) + jnp.uint32(OFFSET) * (token + 1).astype("uint32")


def _apply(code, logits):
    return jnp.where(jnp.arange(V) == forbidden(code)[..., None], -jnp.inf, logits)


RULES = TokenAutomaton(_begin, _advance, _apply)


def code_of(text) -> int:
    """The same of a whole text, in plain numbers."""
    code = SEED
    for token in text:
        code = (code * FACTOR + OFFSET * (token + 1)) % 2**32
    return code


def stuck(model: Model) -> Model:
    """Broken: drafted tokens of a call leave the state as its first token did."""

    def apply(params, tokens, start, cache):
        features, cache = model.apply(params, tokens, start, cache)
        own, state = features[..., :-4], features[:, :1, -4:]
        state = jnp.broadcast_to(state, (*own.shape[:-1], 4))
        return jnp.concatenate([own, state], -1), cache

    return model._replace(apply=apply)


def unmoved(model: Model) -> Model:
    """Broken: a token's state is not kept for the call after it."""

    def apply(params, tokens, start, cache):
        features, after = model.apply(params, tokens, start, cache)
        return features, after._replace(states=cache.states)

    return model._replace(apply=apply)


@functools.cache
def weights(layers: int):
    rng = np.random.default_rng(layers)
    shapes = gpt.abstract_params(CONFIG._replace(num_layers=layers))
    return jax.tree.map(
        lambda leaf: jnp.float32(rng.normal(scale=0.25, size=leaf.shape)), shapes
    )


@functools.cache
def plain(layers: int) -> np.ndarray:
    """Logits of whole texts without a cache or rules: [V, V, .., slots, V]."""
    model = gpt.build(CONFIG._replace(num_layers=layers))
    longest = TEXT + G
    texts = np.array(list(itertools.product(range(V), repeat=longest)))
    tokens = np.concatenate([np.tile(START, (len(texts), 1)), texts], 1)

    @jax.jit
    def whole(params):
        features, _ = model.apply(params, tokens, np.zeros(1, np.int32), None)
        return model.readout(params, features)

    logits = np.asarray(whole(weights(layers)))[:, len(START) - 1 :]
    return logits.reshape(*(V,) * longest, longest + 1, V)


def masked(layers: int, ruled: bool):
    """prefix -> logits [V], as the definition has them."""

    def logits(prefix: tuple) -> np.ndarray:
        row = plain(layers)[prefix + (0,) * (TEXT + G - len(prefix))][len(prefix)]
        gone = np.arange(V) == forbidden(code_of(START + prefix))
        return np.where(gone & ruled, -np.inf, row).astype(np.float32)

    return logits


class Probe:
    """Steps of a pair of which it is known what they hand a verifier."""

    def __init__(self, target: Model, draft: Model):
        self.target, self.draft = target, draft
        self.params = Params(weights(2), weights(1))
        self.drafts = np.array(list(itertools.product(range(V), repeat=G)), np.int32)
        count = len(self.drafts)
        tokens = jnp.tile(jnp.array(START), (count, 1))
        prompt = Prompt(tokens, jnp.full(count, len(START)))
        sampling = specjax.make_sampling(count, 1.0)
        self.request = specjax.make_request(jax.random.key(0), prompt, 6, sampling)
        drafter = specjax.drafters.autoregressive.build(draft, G)
        decoder = specjax.Decoder(target, drafter)
        begin = jax.jit(lambda params: generate.prefill(decoder, params, prompt, SLOTS))
        self.begun = begin(self.params)
        self.run = jax.jit(self._run)

    def _run(self, state, drafts, num, tokens):
        """One step with these drafts and this verdict: (state, logits that the verifier
        read of the target [N, G + 1, V], of the draft [N, G, V])."""
        read = []

        def forced(key, request, state):
            def draw(logits, slot):
                token = jax.lax.dynamic_index_in_dim(drafts, slot, 1, keepdims=False)
                return token, probs.standardize(logits, request.sampling)

            return draw

        def verify(law, draft, noise, keep_residual=False):
            read.extend([law.logits, draft.law.logits])
            return Verdict(num, tokens, jnp.zeros(drafts.shape))

        drafter = specjax.drafters.autoregressive.build(self.draft, G, forced)
        rule = Verifier(verifiers.named("token").noise, verify)
        step = specjax.build_step(self.target, drafter, rule)
        return step(self.params, self.request, state)[0], *read


@functools.cache
def committed(probe: Probe, prefix: tuple):
    """The state after these tokens, two at a time behind a wrong draft."""
    if not prefix:
        return probe.begun
    before = prefix[: (len(prefix) - 1) // 2 * 2]
    new = prefix[len(before) :]
    count = len(probe.drafts)
    wrong = [(prefix[-1] + 1) % V] * G
    drafts = np.tile(np.int32([*new[:-1], *wrong][:G]), (count, 1))
    tokens = np.tile(np.int32([*new, 0, 0][: G + 1]), (count, 1))
    num = np.full(count, len(new) - 1, np.int32)
    return probe.run(committed(probe, before), drafts, num, tokens)[0]


@functools.cache
def decoded(probe: Probe, prefix: tuple) -> tuple:
    """(target, draft): prefix and context -> [V], as a step from `prefix` reads them.

    What a row is to read does not depend on what is drafted behind it.
    """
    zero = np.zeros(len(probe.drafts), np.int32)
    tokens = np.zeros((len(probe.drafts), G + 1), np.int32)
    read = probe.run(committed(probe, prefix), probe.drafts, zero, tokens)[1:]

    def of(logits):
        def at(text: tuple) -> np.ndarray:
            context = text[len(prefix) :]
            same = (probe.drafts[:, : len(context)] == np.int32(context)).all(1)
            return logits[np.argmax(same), len(context)]

        return at

    # The draft's of the last slot are never read.
    target, draft = map(np.asarray, read)
    return of(target), of(np.pad(draft, ((0, 0), (0, 1), (0, 0))))


def error(rule: str, probe: Probe, ruled: bool) -> float:
    """How far the law of texts is from the target's own, under its rules."""
    own = Fixture("rules", V, masked(2, True), masked(1, ruled), Sampling(1.0))
    case = enumeration.case_of(verifiers.named(rule), CLAIMS[rule], own, G, "float32")
    masses = [defaultdict(float) for _ in range(TEXT + 1)]
    masses[0][()] = 1.0
    for length in range(TEXT):
        for prefix, mass in list(masses[length].items()):
            read = Fixture("decoded", V, *decoded(probe, prefix), Sampling(1.0))
            _, q = enumeration.references(read)
            here = case._replace(fixture=read, q=q, drawn=q)
            for (emitted, _), chance in enumeration.run(here, prefix, ()).law.items():
                text = (prefix + emitted)[:TEXT]
                masses[len(text)][text] += mass * chance
    texts = itertools.product(range(V), repeat=TEXT)
    target = {x: np.prod([case.p(x[:i])[x[i]] for i in range(TEXT)]) for x in texts}
    return max(abs(masses[TEXT][x] - p) for x, p in target.items())


@functools.cache
def probe_of(ruled: bool, broken=None) -> Probe:
    target, draft = (gpt.build(CONFIG._replace(num_layers=n)) for n in (2, 1))
    target = constrained(target, RULES)
    target = target if broken is None else broken(target)
    return Probe(target, constrained(draft, RULES) if ruled else draft)


# A draft without rules proposes what the target may not say, whatever the verifier.
@pytest.mark.parametrize(
    ("rule", "ruled"), [*((rule, True) for rule in CLAIMS), ("block", False)]
)
def test_every_verifier_is_exact_under_rules(rule, ruled):
    assert error(rule, probe_of(ruled), ruled) < 1e-6


@pytest.mark.parametrize("broken", [stuck, unmoved])
def test_a_state_that_drafted_tokens_leave_behind_is_caught(broken):
    assert error("token", probe_of(True, broken), True) > 1e-2


@pytest.mark.parametrize("prefix", [(), (2,), (0, 1), (1, 1, 2)])
def test_a_ruled_draft_draws_by_the_rules_too(prefix):
    """What is drafted behind a prefix, and behind drafts."""
    at = decoded(probe_of(True), prefix)[1]
    for context in [(), (0,), (1,), (2,)]:
        text = prefix + context
        np.testing.assert_allclose(at(text), masked(1, True)(text), atol=1e-5)
