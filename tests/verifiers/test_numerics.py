"""Greedy identity on four rungs: what rounding explains, and that it explains no more.

Tables of logits are the same in calls of any shape; `halves` rounds by the shape of a
call on every machine, and its largest two logits are often nearly tied; the
transformers are real.
Axes: N texts, B rows of a batch, T generated tokens, G = gamma, L buffer, V vocabulary.
"""

import functools
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exactness import microscope
from specjax import generate, sides
from specjax.drafters import nothing
from specjax.exactness import divergence
from specjax.exactness.divergence import DivergenceSetting, Found, Oracle, Report
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, t5
from specjax.prompts import Prompts
from specjax.sides import Side
from specjax.step import Decoder
from specjax.types import Model, Params, Verdict, Verifier
from specjax.verifiers import token
from tests.support import tiny, tiny_t5

pytestmark = pytest.mark.slow

GAMMA, NEW = 3, 16
PROMPTS = Prompts([[i, 3 * i % 4] for i in range(4)], None, ())
TABLES = DivergenceSetting((GAMMA,), texts=4, tokens=NEW, batch=4)
SLOTS = 2 + NEW + GAMMA + 1


def table_pair(dtype: str = "float32") -> tuple[Side, Side]:
    world = tiny.tables()
    model = world.target._replace(shapes=None)
    weights = world.target_weights, world.draft_weights
    named = zip("pq", weights, strict=True)
    return tuple(sides.of_model(n, model, w.astype(dtype)) for n, w in named)


# A model that rounds by the shape of a call.

WIDTH, VOCAB = 16, 256


def halves() -> Model:
    """Weights are two tables of logits [2, V, V]: of calls of one token, and others."""
    model = tiny.markov(VOCAB)

    def apply(params, tokens, start, cache):
        return model.apply(params[min(tokens.shape[1] - 1, 1)], tokens, start, cache)

    return model._replace(apply=apply, shapes=None)


def sums(embedding: jax.Array, readout: jax.Array) -> jax.Array:
    """Logits of both kinds: sums of products, rounded to bfloat16 after each, from the
    first on and from the last on."""
    terms = jnp.moveaxis(embedding[:, :, None] * readout, 1, 0)
    add = functools.partial(functools.reduce, lambda sum, term: sum + term)
    return jnp.stack([add(terms), add(terms[::-1])]).astype(jnp.float32)


@functools.cache
def halves_pair() -> tuple[Side, Side]:
    """Random ones, the draft the target with noise."""

    def draw(seed: int) -> list[jax.Array]:
        keys, shapes = jax.random.split(jax.random.key(seed)), [(VOCAB, WIDTH)]
        shapes.append(shapes[0][::-1])
        both = zip(keys, shapes, strict=True)
        return [jax.random.normal(*shape, jnp.bfloat16) for shape in both]

    target = draw(3)
    draft = tiny.mixed(target, draw(4), 0.2)
    model = halves()
    named = zip(("target", "draft"), (sums(*target), sums(*draft)), strict=True)
    return tuple(sides.of_model(name, model, logits) for name, logits in named)


HALVES = Prompts([[i] for i in range(16)], None, ())
MANY = DivergenceSetting((GAMMA,), texts=16, tokens=NEW, batch=4)


@functools.cache
def parted() -> Report:
    return divergence.look(halves_pair(), HALVES, MANY)


# The ladder.


def test_rung_1_texts_of_tables_are_identical():
    rung = divergence.look(table_pair(), PROMPTS, TABLES).found[0]
    for part in (rung.matched, rung.natural):
        assert part.identical == part.texts == 4 and part.places == 4 * NEW
        assert part.equal == 1 and part.eps_max == part.tv_bound == part.observed == 0
    assert rung.oracle == Oracle(4 * NEW, 0, 0.0)
    assert not divergence.failures(rung, strict=True)


def test_rung_1_in_float64():
    with jax.enable_x64(True):
        (target, draft), (prompt, request) = table_pair("float64"), case(jnp.int64)
        sizes, params = (SLOTS, NEW), Params(target.params, draft.params)
        speculative = Decoder(target.model, draft.drafter(GAMMA))
        alone, other = (
            divergence.build_text(
                decoder,
                sizes,
                divergence.build_read(target.model, sizes, rows),
                divergence.in_order(NEW),
            )(params, prompt, request)
            for decoder, rows in ((Decoder(target.model), 1), (speculative, GAMMA + 1))
        )
        rung = divergence.summarize(divergence.compare(alone, other))
    assert alone.logits.dtype == np.float64
    assert rung.identical == 4 and rung.lost == rung.eps_max == 0


def case(dtype=jnp.int32):
    """The prompts of the tables and a greedy request. dtype: of lengths."""
    prompt = make_prompt(PROMPTS.tokens)
    prompt = prompt._replace(length=prompt.length.astype(dtype))
    sampling = make_sampling(4, 0.0)
    return prompt, make_request(jax.random.key(0), prompt, NEW, sampling)


def real_pair(name: str, dtype: str) -> tuple[tuple[Side, Side], Prompts]:
    """A tiny transformer, and a draft that copies."""
    if name == "t5":
        model = t5.build(tiny_t5.SMALL._replace(dtype=dtype))
        weights, inputs = tiny_t5.world().draft_weights, [[5, 9, 2, 17, 11], [4]]
        prompts = Prompts([[0], [0]], inputs, ())
    else:
        model = gpt.build(tiny.SHALLOW._replace(dtype=dtype))
        weights = tiny.transformers().shallow_weights
        prompts = Prompts([[1, 2, 3, 4, 5], [7]], None, ())
    target = sides.of_model(name, model, cast(weights, dtype))
    loaded = SimpleNamespace(dtype=dtype)
    return (target._replace(pretrained=loaded), sides.copied()), prompts


def cast(weights, dtype: str):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), weights)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_rungs_2_to_4_of_transformers(name, dtype):
    pair, prompts = real_pair(name, dtype)
    rung = divergence.look(pair, prompts, DivergenceSetting((GAMMA,), 2, NEW)).found[0]
    assert rung.matched.identical == 2 and rung.matched.places == 2 * NEW
    assert rung.matched.equal == 1 and rung.matched.eps_max == 0
    assert rung.natural.unexplained == rung.natural.lost == rung.oracle.below == 0
    assert not divergence.failures(rung, strict=True)


def test_rung_3_near_ties_part_texts_and_are_explained():
    rung = parted().found[0]
    assert 0 < rung.natural.identical < 16 and rung.natural.unexplained == 0
    assert rung.natural.explained == 16 - rung.natural.identical
    assert rung.natural.eps_max > 0 and rung.natural.equal < 1
    assert 0 < rung.natural.observed <= rung.natural.bound
    assert 0 < rung.natural.expected <= rung.natural.bound
    assert rung.natural.tv_max <= rung.natural.tv_bound
    assert rung.matched.identical == 16 and rung.matched.equal == 1
    assert rung.oracle.below == 0 and parted().margins.shape == (16 * NEW,)
    assert not divergence.failures(rung, strict=True)
    json.dumps(microscope.numbers(parted()), allow_nan=False)  # a record's


# Broken twins.


def credulous(target, draft, noise, keep_residual=False) -> Verdict:
    """Algorithm 1 that accepts whatever was drafted."""
    right = token.verify(target, draft, noise, keep_residual)
    extra = jnp.take_along_axis(right.tokens, right.num_accepted[:, None], axis=1)[:, 0]
    return right._replace(
        num_accepted=draft.num, tokens=token.emit(draft, draft.num, extra)
    )


@pytest.mark.parametrize("world", ["tables", "halves"])
def test_a_verifier_that_accepts_a_wrong_token_is_unexplained(world):
    worlds = {"tables": (table_pair(), PROMPTS, TABLES)}
    worlds["halves"] = halves_pair(), HALVES, MANY._replace(tokens=8)
    wrong = sides.reference(Verifier(token.noise, credulous))
    rung = divergence.look(*worlds[world], wrong).found[0]
    assert rung.natural.unexplained > 0 and rung.matched.unexplained > 0
    assert rung.oracle.below > 0
    failed = " ".join(divergence.failures(rung, strict=False))
    assert "unexplained in natural" in failed and "unexplained in matched" in failed
    assert "below the full forward" in failed


def texts_of(decoder: Decoder, wrong_prefix: bool = False) -> divergence.Text:
    """A text of the tables, whose logits are the right model's."""
    (target, draft), (prompt, request) = table_pair(), case()
    rows, sizes = decoder.drafter.gamma + 1, (SLOTS, NEW)
    right = divergence.build_read(target.model, sizes, rows)

    def read(params, prompt, whole, begins):
        whole = jnp.roll(whole, 1, axis=1) if wrong_prefix else whole
        return right(params, prompt, whole, begins)

    begins = divergence.at_every_row(NEW, rows)
    text = divergence.build_text(decoder, sizes, read, begins)
    return text(Params(target.params, draft.params), prompt, request)


def test_a_run_that_reads_what_is_wrong_is_unexplained():
    """In calls of several tokens it takes the logits of the token before."""
    target, draft = table_pair()
    right = target.model

    def apply(params, tokens, start, cache):
        late = jnp.roll(tokens, 1, axis=1) if tokens.shape[1] == GAMMA + 1 else tokens
        return right.apply(params, late, start, cache)

    broken = right._replace(apply=apply)
    base = texts_of(Decoder(right))
    for model, wrong in ((right, 0), (broken, 4)):
        text = texts_of(Decoder(model, draft.drafter(GAMMA)))
        assert divergence.summarize(divergence.compare(base, text)).unexplained == wrong


def test_an_eps_of_another_prefix_is_noticed():
    """It would explain anything."""
    (target, draft), wrong = table_pair(), Verifier(token.noise, credulous)
    base = texts_of(Decoder(target.model))
    decoder = Decoder(target.model, draft.drafter(GAMMA), wrong)
    text = texts_of(decoder, wrong_prefix=True)
    places = divergence.compare(base, text)
    rung = divergence.summarize(places)
    assert rung.identical == 0
    honest = divergence.summarize(divergence.compare(base, texts_of(decoder)))
    assert honest.unexplained > rung.unexplained and honest.eps_max == 0
    assert rung.eps_max > 1 and rung.lost > rung.places / 2
    failed = divergence.failures(Found(GAMMA, rung, rung, Oracle(1, 0, 0.0)), True)
    assert any("not what their logits say" in line for line in failed)


def test_every_place_has_every_row():
    for tokens, rows in ((16, 4), (7, 3), (3, 8), (5, 1)):
        row_of_place = [set() for _ in range(tokens)]
        for begins in divergence.at_every_row(tokens, rows):
            assert len(begins) <= tokens + 1
            row_of = {at + i: i for at in begins for i in range(rows)}
            for at in range(tokens):
                row_of_place[at].add(row_of[at])
        for at in range(tokens):
            assert row_of_place[at] == set(range(min(at + 1, rows)))


# The padded baseline.


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padded_is_autoregression_in_longer_calls(temperature):
    (target, _), (prompt, request) = table_pair(), case()
    sampling = make_sampling(4, temperature)
    request, widths = request._replace(sampling=sampling), []

    def apply(params, tokens, start, cache):
        widths.append(tokens.shape[1])
        return target.model.apply(params, tokens, start, cache)

    model = target.model._replace(apply=apply)
    decoder = Decoder(model, nothing.build(GAMMA))
    got = generate.build(decoder, SLOTS)(Params(target.params), prompt, request)
    assert set(widths) == {2, GAMMA + 1}
    wanted = generate.autoregressive(target.model, SLOTS)
    wanted = wanted(Params(target.params), prompt, request)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    np.testing.assert_array_equal(got.counts.calls, np.full(4, NEW))
    assert not np.any(got.counts.drafted)


def test_padded_refuses_fewer_than_no_slots():
    with pytest.raises(ValueError, match="at least 0"):
        nothing.build(-1)
