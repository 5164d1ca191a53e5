"""Whole texts of the real loop, with its own draws, tested against the law they must
have.

`certify` enumerates a rule's decisions on drafts that were drawn correctly. Here a
drafter draws them with its own keys, and so does the rule: an error in keys that two
draws share shows in texts alone. The models are tables of a few ids (`tables`), so that
every text is a cell of one test. Axes: N rows, n tokens, V vocabulary, R rules."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, keys, step
from specjax.checkpoints import Pretrained
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


class TextReport(NamedTuple):
    """The test of a decoder's texts.

    texts: their number at temperature 1. tv, chance: their total variation from the
    law, and its mean for the same number of exact texts. visible: the total variation
    from which on any other law is detected with probability `goodness.POWER`. p_value:
    of all tests as one: of these texts, of the independence of neighbouring rows, and
    of texts at OTHERS. tokens: per call of the target."""

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
def target() -> Pretrained:
    """Returns the target of all texts: a table of three ids."""
    model = tables.build(VOCAB)
    params = jnp.asarray(tables.weights(VOCAB, seed=1), jnp.float32)
    return Pretrained("a table of three ids", None, model, params)


@functools.cache
def law(temperature: float) -> np.ndarray:
    """Returns the law [V] * n of texts of `target`."""
    logits = np.asarray(target().params)
    return tables.text_law(logits, PROMPT, TOKENS, temperature)


def accepts(
    model: Model, drafter: Drafter, rule: Verifier, policy: Policy | None = None
) -> bool:
    """Returns whether a step can be built from these parts."""
    try:
        step.build_step(model, drafter, rule, policy)
    except ValueError:
        return False
    return True


def select_rule(rules: Sequence[Verifier], number: Array) -> Verifier:
    """Returns the rule with a number, which may be traced, so that one program serves
    all rules."""
    if len(rules) == 1:
        return rules[0]

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        del gamma, vocab
        return key, start

    def verify(
        law: Law, draft: Draft, names: tuple, keep_residual: bool = False
    ) -> Verdict:
        del keep_residual
        gamma, vocab = draft.tokens.shape[1], law.logits.shape[-1]
        key, start = names

        def decide(rule: Verifier) -> Verdict:
            return rule.verify(law, draft, rule.noise(key, start, gamma, vocab))

        branches = [functools.partial(decide, rule) for rule in rules]
        return jax.lax.switch(number, branches)

    alike = set.intersection(*(set(rule.siblings) for rule in rules))
    return Verifier(noise, verify, siblings=tuple(alike))


def no_fault(drafter: Drafter, rules: Sequence[Verifier], fault: Array) -> tuple:
    """Returns the drafter and the rules unchanged."""
    del fault
    return drafter, rules


def build(
    drafter: Drafter,
    rules: Sequence[Verifier],
    policy: Policy | None = None,
    broken: Callable = no_fault,
) -> Callable:
    """Returns the compiled loop of one of several rules.

    It takes (number of the rule, number of a fault, Params, Prompt [N]), and by keyword
    `temperature` [N] and `key`; it returns (texts [N, n], tokens per call). broken:
    (drafter, rules, fault) -> both, with that fault; 0 is none."""
    slots = len(PROMPT) + TOKENS + drafter.gamma + 1

    def texts(
        number: Any,
        fault: Any,
        params: Params,
        prompt: Prompt,
        *,
        temperature: Array,
        key: Array,
    ) -> tuple:
        drafting, deciding = broken(drafter, rules, fault)
        rule = select_rule(deciding, number)
        decoder = step.Decoder(target().model, drafting, rule, policy)
        loop = generate.build_loop(decoder, slots)
        request = make_request(key, prompt, TOKENS, Sampling(temperature))
        output = loop(params, prompt, request)
        calls = output.counts.calls.sum()
        written = output.tokens[:, len(PROMPT) : len(PROMPT) + TOKENS]
        return written, temperature.size * TOKENS / calls

    return jax.jit(texts, compiler_options=BRISK)


def certify(
    texts: Callable,
    draft: Any,
    *,
    number: int = 0,
    fault: int = 0,
    calls: int = TEXTS // ROWS,
    seed: int = 0,
) -> TextReport:
    """Returns the report on texts decoded by a loop of `build`.

    There are `calls` calls of ROWS texts at temperature 1 and, unless a fault is set,
    one at each of OTHERS. draft: the drafter's parameters."""
    params, temperatures = Params(target().params, draft), [1.0] * calls
    tokens = jnp.tile(jnp.array(PROMPT, jnp.int32), (ROWS, 1))
    prompt = Prompt(tokens, jnp.full(ROWS, len(PROMPT), jnp.int32))
    temperatures += [] if fault else OTHERS
    each_key = keys.split(keys.root_key(seed), len(temperatures))
    results = [
        jax.device_get(
            texts(
                number,
                fault,
                params,
                prompt,
                temperature=jnp.full(ROWS, temperature),
                key=key,
            )
        )
        for temperature, key in zip(temperatures, each_key, strict=True)
    ]
    written = np.concatenate([ids for ids, _ in results[:calls]])
    expected, counts = law(1.0), goodness.count(written, VOCAB)
    p_values = goodness.text_p_values(written, expected)
    p_values.append(
        goodness.neighbours_p_value(written[::2], written[1::2], (expected, expected))
    )
    others = list(zip(temperatures, results, strict=True))[calls:]
    for temperature, (ids, _) in others:
        p_values.append(goodness.g_test(goodness.count(ids, VOCAB), law(temperature)))
    level = LEVEL / len(p_values)
    return TextReport(
        texts=len(written),
        tv=goodness.total_variation(counts, expected),
        chance=goodness.chance_variation(expected, len(written)),
        visible=goodness.least_visible_distance(expected, len(written), level),
        p_value=goodness.bonferroni(p_values),
        tokens=float(np.mean([tokens for _, tokens in results[:calls]])),
    )
