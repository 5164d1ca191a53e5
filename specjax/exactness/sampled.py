"""Whole texts of the real loop, by its own draws, against the law that they must have.

`certify` enumerates what a rule decides on drafts that were drawn as they should be.
Here a drafter draws them, with its keys, and so does the rule: what two draws share is
seen in texts alone. The models are tables of a few ids (`tables`), so that every text
is a cell of one test.
Axes: N rows, n tokens, V vocabulary, R rules.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, keys, step
from specjax.drafts import source as sides
from specjax.drafts.source import Side
from specjax.exactness import goodness, tables
from specjax.inputs import make_request
from specjax.types import (
    Draft,
    Drafter,
    Law,
    Model,
    Params,
    Policy,
    Prompt,
    Sampling,
    Verdict,
    Verifier,
)

VOCAB, TOKENS = 3, 4
PROMPT = (0, 1, 2, 0, 1)  # has what may be copied
ROWS, TEXTS = 20_000, 300_000  # of a call, and at temperature 1
OTHERS = (0.6, 1.5, 0.0)  # temperatures of a call each
LEVEL = 1e-6  # how often what is right fails
# Half the time to compile, and nearly as fast.
BRISK = {"xla_backend_optimization_level": 1}


class Found(NamedTuple):
    """What texts say of a decoder.

    texts: at temperature 1. tv, chance: their total variation from the law, and that
    which so many right texts have in the mean. visible: the total variation from which
    on any other law is found with probability `goodness.POWER`. p_value: of all tests
    as one: of these texts, of the independence of neighbouring rows, and of texts at
    OTHERS. tokens: of a call of the target.
    """

    texts: int
    tv: float
    chance: float
    visible: float
    p_value: float
    tokens: float

    @property
    def passed(self) -> bool:
        return self.p_value > LEVEL


@functools.cache
def target() -> Side:
    """The model that every text is of: a table of three ids."""
    model = tables.build(VOCAB)
    params = jnp.asarray(tables.weights(VOCAB, seed=1), jnp.float32)
    return sides.of_model("a table of three ids", model, params)


@functools.cache
def law(temperature: float) -> np.ndarray:
    """The law [V] * n of texts of `target`."""
    logits = np.asarray(target().params)
    return tables.text_law(logits, PROMPT, TOKENS, temperature)


def accepts(
    model: Model, drafter: Drafter, rule: Verifier, policy: Policy | None = None
) -> bool:
    """Whether a step can be built of these."""
    try:
        step.build_step(model, drafter, rule, policy)
    except ValueError:
        return False
    return True


def any_of(rules: Sequence[Verifier], number: Array) -> Verifier:
    """The rule of a number, which may be traced: one program serves all of them."""
    if len(rules) == 1:
        return rules[0]

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        del gamma, vocab
        return key, start

    def verify(law: Law, draft: Draft, named: tuple) -> Verdict:
        gamma, vocab = draft.tokens.shape[1], law.logits.shape[-1]

        def decide(rule: Verifier) -> Verdict:
            return rule.verify(law, draft, rule.noise(*named, gamma, vocab))

        branches = [functools.partial(decide, rule) for rule in rules]
        return jax.lax.switch(number, branches)

    alike = set.intersection(*(set(rule.siblings) for rule in rules))
    return Verifier(noise, verify, siblings=tuple(alike))


def unbroken(drafter: Drafter, rules: Sequence[Verifier], fault: Array) -> tuple:
    """Returns both as they are."""
    del fault
    return drafter, rules


def build(
    drafter: Drafter,
    rules: Sequence[Verifier],
    policy: Policy | None = None,
    broken: Callable = unbroken,
) -> Callable:
    """Returns the compiled loop of one of several rules.

    (number of the rule, number of a fault, Params, Prompt [N], temperature [N], key) ->
    (texts [N, n], tokens of a call). broken: (drafter, rules, fault) -> both, with that
    fault; 0 is none.
    """
    slots = len(PROMPT) + TOKENS + drafter.gamma + 1

    def texts(number, fault, params: Params, prompt: Prompt, temperature, key) -> tuple:
        drafting, deciding = broken(drafter, rules, fault)
        rule = any_of(deciding, number)
        decoder = step.Decoder(target().model, drafting, rule, policy)
        loop = generate.build_loop(decoder, slots)
        asked = make_request(key, prompt, TOKENS, Sampling(temperature))
        output = loop(params, prompt, asked)
        calls = output.counts.calls.sum()
        written = output.tokens[:, len(PROMPT) : len(PROMPT) + TOKENS]
        return written, temperature.size * TOKENS / calls

    return jax.jit(texts, compiler_options=BRISK)


def certify(
    texts: Callable,
    draft: Any,
    number: int = 0,
    fault: int = 0,
    calls: int = TEXTS // ROWS,
    seed: int = 0,
) -> Found:
    """Judges texts of a loop by `build`: so many calls of ROWS at temperature 1 and,
    where nothing is broken on purpose, one at each of OTHERS. draft: the drafter's
    parameters."""
    params, heats = Params(target().params, draft), [1.0] * calls
    tokens = jnp.tile(jnp.array(PROMPT, jnp.int32), (ROWS, 1))
    prompt = Prompt(tokens, jnp.full(ROWS, len(PROMPT), jnp.int32))
    how = number, fault, params, prompt
    heats += [] if fault else OTHERS
    each_key = keys.split(keys.root_key(seed), len(heats))
    told = [
        jax.device_get(texts(*how, jnp.full(ROWS, heat), key))
        for heat, key in zip(heats, each_key, strict=True)
    ]
    written = np.concatenate([ids for ids, _ in told[:calls]])
    wanted, counts = law(1.0), goodness.count(written, VOCAB)
    p_values = goodness.text_p_values(written, wanted)
    pairs = written[::2], written[1::2], (wanted, wanted)
    p_values.append(goodness.neighbours_p_value(*pairs))
    for heat, (ids, _) in list(zip(heats, told, strict=True))[calls:]:
        p_values.append(goodness.g_test(goodness.count(ids, VOCAB), law(heat)))
    level = LEVEL / len(p_values)
    return Found(
        len(written),
        goodness.total_variation(counts, wanted),
        goodness.by_chance(wanted, len(written)),
        goodness.visible(wanted, len(written), level),
        goodness.bonferroni(p_values),
        float(np.mean([each for _, each in told[:calls]])),
    )
