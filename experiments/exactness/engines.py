"""The rules of other engines, each with the pair of models that it is tested on.

engines.json has their names, sources, versions and expected results. A pair is small
enough to enumerate and has the feature that the rule is about: sampled or argmax
drafts, a filter on one side or on both, a tie, an order of transforms.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.exactness import rules
from specjax.exactness.claims import CLAIMS, UNKNOWN, Claim
from specjax.exactness.fixtures import Fixture, context_free, reference, table
from specjax.types import Sampling, Verifier
from specjax.verifiers import block, gumbel, lenient, match, rejection, token

ENGINES = Path(__file__).with_name("engines.json")  # name, source, version, expected
EXACT, SLOWER, DIFFERS = "exact law", "exact, fewer tokens", "differs"


class Rule(NamedTuple):
    """An engine's rule, and the models that it is certified on.

    Attributes:
        key: the key of its numbers in a record.
        expected: EXACT, SLOWER or DIFFERS.
        plain: the models that Algorithm 1 is measured on, where they are not `fixture`
            with tokens drawn from the law that the draft carries.
    """

    key: str
    name: str
    source: str
    version: str
    expected: str
    verifier: Verifier
    fixture: Fixture
    plain: Fixture | None
    claim: Claim


def keep_largest(model: Callable, kept: int) -> Callable:
    """Returns the model with all but its `kept` largest logits set to -inf."""

    @functools.cache
    def logits(prefix: tuple) -> np.ndarray:
        z = model(prefix)
        return np.where(z >= np.sort(z)[-kept], z, -np.inf).astype(np.float32)

    return logits


def law(model: Callable, temperature: float = 1.0) -> Callable:
    """Returns the function from a prefix to the law [V] of a model; temperature 0 means
    argmax.
    """
    return lambda prefix: reference(model(prefix), Sampling(temperature))


def constant(*logits: float) -> Callable:
    return lambda prefix: np.float32(logits)


P, Q = context_free([0.4, 0.3, 0.2, 0.1]), context_free([0.55, 0.25, 0.15, 0.05])
FOUR = Fixture("fixed laws", 4, P, Q)
FOUR_ARGMAX = FOUR._replace(name="fixed laws, argmax drafts", drawn=law(Q, 0.0))
WIDE_P, WIDE_Q = table(4, 1), table(4, 13)
CUT_P, CUT_Q = keep_largest(WIDE_P, 2), keep_largest(WIDE_Q, 2)
CUT = Fixture("random, top-k 2", 4, CUT_P, CUT_Q)
HALF_CUT = Fixture("random, top-k 2, q unfiltered", 4, CUT_P, WIDE_Q)
HALF_CUT = HALF_CUT._replace(drawn=law(CUT_Q))
GREEDY = Fixture("random, T 0", 4, WIDE_P, WIDE_Q, Sampling(0.0))
TIE_P, TIE_Q = (1.0, 1.0, 0.0, -1.0), (1.0, 0.0, 0.0, -1.0)
TIE = Fixture("a tie at T 0", 4, constant(*TIE_P), constant(*TIE_Q), Sampling(0.0))
GUARD = 1e-10
STEEP = TIE._replace(
    name="the tie, logits / 1e-10",
    target=constant(*np.divide(TIE_P, GUARD)),
    draft=constant(*np.divide(TIE_Q, GUARD)),
    sampling=Sampling(1.0),
)


def ordered_fixture(temperature: float, top_p: float) -> Fixture:
    """Returns a fixture of five logits under both settings, with certain drafts: id 1
    and id 4 in turn.
    """
    name = f"five logits, T {temperature:g}, top-p {top_p:g}"
    target, ids = constant(2.0, 1.5, 1.0, 0.0, -1.0), np.eye(5, dtype=np.float32)
    sampling = Sampling(temperature, top_p=top_p)

    def draft(prefix: tuple) -> np.ndarray:
        return ids[(1, 4)[len(prefix) % 2]]

    return Fixture(name, 5, target, draft, sampling, "certain")


def sigmoid(digits: int) -> Verifier:
    return rules.build(rules.sigmoid(10.0**digits), strict=False)


def rule_pairs() -> dict[str, tuple]:
    """Returns, by the key of each rule, its verifier, its pair of models, and its
    `plain` twin where it has one.

    The fixtures "warm" and "cool" are for rules that apply top-k and top-p before the
    temperature.
    """
    ratio = rules.build(rules.ratio)
    loose = rules.build(rules.ratio, strict=False)
    everything = rules.build(rules.keep_everything)
    warm, cool = ordered_fixture(2.0, 0.6), ordered_fixture(0.5, 0.8)
    late = [rules.build_truncated_first(it.sampling) for it in (warm, cool)]
    warmed, cooled = (rules.build(rule, strict=False) for rule in late)
    return {
        "token": (token.verifier, FOUR),
        "token_cut": (token.verifier, CUT),
        "block": (block.verifier, FOUR),
        "rejection": (rejection.verifier, FOUR),
        "match": (match.verifier, FOUR),
        "gumbel": (gumbel.verifier, FOUR),
        "lenient": (lenient.build(0.5), CUT),
        "transformers": (loose, CUT),
        "transformers_argmax": (loose, FOUR_ARGMAX),
        "transformers_unfiltered": (loose, HALF_CUT, CUT),
        "kerashub": (ratio, FOUR_ARGMAX),
        "tpu_warm": (warmed, warm),
        "tpu_cool": (cooled, cool),
        "jaymody_before": (rules.build(rules.argmax_of_ratio), GREEDY),
        "jaymody_own": (ratio, STEEP),
        "jaymody_argmax": (rules.build(rules.build_divided(0.0, GUARD)), TIE),
        "lesson": (rules.without_bonus(ratio), FOUR),
        "sigmoid_1e3": (sigmoid(3), FOUR),
        "sigmoid_1e4": (sigmoid(4), FOUR),
        "everything": (everything, FOUR),
        "sigmoid_1e3_cut": (sigmoid(3), CUT),
        "sigmoid_1e4_cut": (sigmoid(4), CUT),
        "everything_cut": (everything, CUT),
    }


def read_rules() -> list[Rule]:
    stored = json.loads(ENGINES.read_text("utf-8"))
    return [
        Rule(
            *(key, *stored[key], verifier, fixture),
            plain=plain[0] if plain else None,
            claim=CLAIMS.get(key.removesuffix("_cut"), UNKNOWN),
        )
        for key, (verifier, fixture, *plain) in rule_pairs().items()
    ]


RULES = read_rules()
