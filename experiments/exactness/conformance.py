"""The conformance table: the law of the text under each engine's rule, enumerated.

Each rule, as `rules` transcribes it, is certified as our own rules are, in float64: its
texts are compared with those of the same engine's sampler without drafts.
"""

from collections.abc import Sequence

import jax

from experiments.exactness import engines
from experiments.exactness.engines import DIFFERS, EXACT, SLOWER, Rule
from specjax.exactness import certify, enumeration
from specjax.measure.row import Measurement
from specjax.types import Verifier
from specjax.verifiers import token

GAMMA, LENGTH, DTYPE = 2, 3, "float64"
SAME = 1e-9  # far above the rounding of float64, far below any difference
VOID = {"cells", "tokens", "accept_prob"}  # a verdict that is not what it reports


def build() -> Measurement:
    return Measurement(measure, __name__, dtype=DTYPE)


def measure(rules: Sequence[Rule] = tuple(engines.RULES)) -> dict:
    """Returns the numbers of every rule, as `certify_rule` computes them, and the same
    numbers under the names that the table reads.
    """
    measured = [certify_rule(rule) for rule in rules]
    flat = {f"tv_{entry['key']}": entry["tv"] for entry in measured}
    exact = sum(entry["class"] != DIFFERS for entry in measured)
    sizes = {"gamma": GAMMA, "length": LENGTH, "total": len(measured), "exact": exact}
    return {"rules": measured, **sizes, **flat}


def certify_rule(rule: Rule) -> dict:
    """Certifies one rule; texts have LENGTH tokens, drafts GAMMA.

    Returns:
        tv_first, tv: the total variation of the first token's law, and of the texts'
            law.
        largest: the largest difference of the probability of a text.
        tokens: the expected tokens of a call.
        impossible: the probability that a call emits an id of p = 0.
        at_zero: whether, where a uniform is 0, such an id may be emitted or nothing is
            left to draw from.

    Raises:
        ValueError: the verdicts are not what the rule reports.
    """
    verifier, fixture = rule.verifier, rule.fixture
    result, first = (
        certify.certify(verifier, fixture, GAMMA, n, rule.claim, dtype=DTYPE)
        for n in (LENGTH, 1)
    )
    if void := VOID & {*result.broken}:
        raise ValueError(
            f"{rule.key}: the enumeration is void, as {sorted(void)} failed: report in"
            " accept_prob the chance below which each uniform accepts, and return the"
            " weights that the last token is drawn from"
        )
    plain = rule.plain or fixture._replace(drawn=None)
    best = certify.certify(token.verifier, plain, GAMMA, 1, dtype=DTYPE)
    fewer = result.tokens < best.tokens - SAME
    return {
        **{name: getattr(rule, name) for name in ("key", "name", "source", "version")},
        "fixture": fixture.name,
        "expected": rule.expected,
        "class": DIFFERS if result.tv > SAME else SLOWER if fewer else EXACT,
        "tv_first": first.tv,
        "tv": result.tv,
        "largest": result.error,
        "tokens": result.tokens,
        "algorithm_1": best.tokens,
        "impossible": impossible_probability(rule, verifier),
        "at_zero": "support" in result.broken,
    }


def impossible_probability(rule: Rule, verifier: Verifier) -> float:
    """Returns the probability that the first call emits an id that p cannot draw."""
    case = enumeration.make_case(verifier, rule.claim, rule.fixture, GAMMA, DTYPE)
    with jax.enable_x64(True):
        law = enumeration.run(case, (), ()).law

    def is_possible(text: tuple) -> bool:
        return all(case.p(text[:i])[x] > 0 for i, x in enumerate(text))

    return float(
        sum(chance for (text, _), chance in law.items() if not is_possible(text))
    )
