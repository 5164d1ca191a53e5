"""Constrained texts follow the law of the masked model, with and without drafts.

The language is small and read a second time by `re` here, so that the law of a text is
a product of a few fractions. Axes: N rows, n tokens, V vocabulary.
"""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, verifiers
from specjax.drafters import autoregressive, nothing, tree
from specjax.exactness import goodness, tables
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models.constrained import constrained
from specjax.step import Decoder
from specjax.types import Params

pytest.importorskip("outlines_core", reason="needs the extra constraints")

from specjax.constraints import grammars, regular
from specjax.constraints import tables as token_tables

REGEX = "(ab|ba)*a|b{3}|bab"
WORDS = [b"a", b"b", b"ab", None]
END = 3
V, NEW, ROWS, SLOTS = len(WORDS), 4, 20_000, 16
PROMPT = (0, 1, 2)
FINE, NEVER = 1e-3, 1e-12  # the seeds are fixed
TABLE = token_tables.lift(regular.compile_bytes(REGEX), WORDS, [END])
P, Q = (np.float32(tables.weights(V, seed=seed)) for seed in (3, 4))
LANGUAGE = {
    text
    for size in range(14)
    for text in map("".join, itertools.product("ab", repeat=size))
    if re.fullmatch(REGEX, text)
}


@functools.cache
def allowed_ids(ids: tuple) -> tuple[bool, ...]:
    """Returns which ids may follow: those from which a text can still be completed."""
    if END in ids:
        return tuple(i == END for i in range(V))
    text = "".join(WORDS[i].decode() for i in ids)
    longer = [text + word.decode() for word in WORDS[:END]]
    found = [any(it.startswith(x) for it in LANGUAGE) for x in longer]
    return (*found, text in LANGUAGE)


def masked_law() -> np.ndarray:
    """Returns the law [V] * n of the masked model."""
    law = np.zeros((V,) * NEW)
    for text in itertools.product(range(V), repeat=NEW):
        chance = 1.0
        for place in range(NEW):
            before = (*PROMPT, *text[:place])
            weight = np.exp(np.float64(P[before[-2], before[-1]]))
            weight = np.where(allowed_ids(text[:place]), weight, 0)
            if not weight[text[place]]:
                chance = 0.0
                break
            chance *= weight[text[place]] / weight.sum()
        law[text] = chance
    return law


def whole_law() -> np.ndarray:
    """Returns the model's own law, given that the text belongs to the language or
    begins a text of it."""
    law = tables.text_law(np.float64(P), PROMPT, NEW, 1.0)
    law = law * (masked_law() > 0)
    return law / law.sum()


DRAFTS = {
    "none": "token",
    "ruled": "token",
    "free": "block",
    "tree": "recursive",
}


@functools.partial(jax.jit, static_argnums=0)
def decode(draft: str, table, key) -> jax.Array:
    rules = token_tables.build(table)
    model = tables.build(V)
    ruled = constrained(model, rules)
    drafter = {
        "none": lambda: nothing.drafter,
        "ruled": lambda: autoregressive.build(ruled, 3),
        "free": lambda: autoregressive.build(model, 3),
        "tree": lambda: tree.build(ruled, (-1, -1, 0, 1)),
    }[draft]()
    rule = verifiers.find(DRAFTS[draft])
    prompt = make_prompt([PROMPT] * ROWS)
    request = make_request(key, prompt, NEW, make_sampling(ROWS, 1.0))
    loop = generate.build_loop(Decoder(ruled, drafter, rule), SLOTS)
    output = loop(Params(jnp.asarray(P), jnp.asarray(Q)), prompt, request)
    return output.tokens[:, len(PROMPT) : len(PROMPT) + NEW]


def texts(draft: str, table=TABLE, seed: int = 0) -> np.ndarray:
    return np.asarray(decode(draft, table, jax.random.key(seed)))


def p_value(written: np.ndarray, law: np.ndarray) -> float:
    return goodness.bonferroni(goodness.text_p_values(written, law))


def test_the_masks_are_those_of_what_can_be_completed():
    waiting = [((), 0)]
    for ids, state in waiting:
        mask = np.unpackbits(TABLE.masks.view(np.uint8), axis=1, bitorder="little")
        assert tuple(mask[TABLE.mask[state], :V] == 1) == allowed_ids(ids)
        if len(ids) < 5:
            steps = ((i, TABLE.step[state, TABLE.classes[i]]) for i in range(V))
            waiting += [((*ids, i), to) for i, to in steps if allowed_ids(ids)[i]]
    assert len(waiting) > 50


@pytest.mark.parametrize(
    "draft", ["none", "ruled", pytest.param("free", marks=pytest.mark.slow), "tree"]
)
def test_texts_follow_the_masked_model_and_those_of_a_fault_do_not(draft):
    right = texts(draft)
    assert p_value(right, masked_law()) > FINE
    assert p_value(right, whole_law()) < NEVER  # as the guide says
    width = TABLE.masks.shape[1] * 32
    bits = np.unpackbits(TABLE.masks.view(np.uint8), axis=1, bitorder="little")
    faults = {
        "a text ends anywhere": dict(masks=bits | (np.arange(width) == END)),
        "a dead end is allowed": dict(masks=bits | (np.arange(width) < END)),
        "a token moves as another does": dict(classes=TABLE.classes[[0, 1, 0, 3]]),
        "no token moves": dict(step=np.zeros_like(TABLE.step)),
    }
    for name, changed in faults.items():
        if "masks" in changed:
            packed = np.packbits(changed["masks"], axis=1, bitorder="little")
            changed = dict(masks=packed.view(np.uint32))
        wrong = texts(draft, TABLE._replace(**changed))
        assert p_value(wrong, masked_law()) < NEVER, name


def test_a_grammar_s_texts_are_those_of_the_same_regular_expression():
    pytest.importorskip("llguidance", reason="needs the extra constraints")
    rules = grammars.build(f"start: /{REGEX}/", WORDS, [END], room=8)
    drafter = autoregressive.build(constrained(tables.build(V), rules), 3)
    model = constrained(tables.build(V), rules)
    rows = 64
    prompt = make_prompt([PROMPT] * rows)
    whole = make_request(
        jax.random.key(0), make_prompt([PROMPT] * ROWS), NEW, make_sampling(ROWS, 1.0)
    )
    request = jax.tree.map(lambda leaf: leaf[:rows], whole)
    loop = jax.jit(generate.build_loop(Decoder(model, drafter), SLOTS))
    output = loop(Params(jnp.asarray(P), jnp.asarray(Q)), prompt, request)
    written = np.asarray(output.tokens[:, len(PROMPT) : len(PROMPT) + NEW])
    np.testing.assert_array_equal(written, texts("ruled")[:rows])
