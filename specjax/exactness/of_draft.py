"""A draft of a name with the rules that it is for: what its whole texts say.

`specjax certify --draft`. Texts are of the real loop, by the draws of the draft and of
the rule (`sampled`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from specjax import policies, verifiers
from specjax.drafters.rollout import for_rule
from specjax.drafts.source import CERTAIN, Side
from specjax.exactness import draws, goodness, sampled, small_drafts
from specjax.exactness.claims import CLAIMS
from specjax.step import Decoder
from specjax.types import Params, Policy
from specjax.verifiers import token

GAMMA, NODES = 3, 6  # tokens of a chain, nodes of a tree
CALLS = 5  # of `sampled.ROWS` texts


class Case(NamedTuple):
    """A draft, and the names of the rules that are put to it."""

    side: Side
    gamma: int
    rules: Sequence[str]
    policy: Policy | None

    @property
    def certain(self) -> bool:
        """Whether its tokens are certain, so that their texts can be enumerated."""
        return self.side.regime == CERTAIN


def case(name: str, rules: Sequence[str] = (), policy: str = "none") -> Case:
    """Returns a draft by a name of `small_drafts.named`, with rules that take it.

    Args:
      name: Of the draft.
      rules: Names of rules; none are those of `CLAIMS` that read the laws of drafts.
      policy: A name of one, for all texts.

    Raises:
      ValueError: There is no such draft, rule or policy, or no rule takes the draft.
    """
    side, model = small_drafts.named(name, sampled.target()), sampled.target().model
    gamma, how = GAMMA, policies.find(policy)
    if side.drafter(gamma).siblings is not None:
        gamma = NODES

    def takes(rule: str) -> bool:
        verifier = verifiers.find(rule)
        drafter = side.drafter(gamma, for_rule(verifier))
        return sampled.accepts(model, drafter, verifier, how)

    chain = side.drafter(gamma).siblings is None
    read = [
        rule
        for rule, claim in CLAIMS.items()
        if verifiers.find(rule).noise is token.noise
        and not (chain and (claim.chains or rule == "rejection"))
    ]
    wrong = [rule for rule in rules if not takes(rule)]
    chosen = rules or [rule for rule in read if takes(rule)]
    if wrong or not chosen:
        raise ValueError(
            f"{name} is not for {' '.join(wrong) or 'any rule'}: leave out --rule, or"
            " name a rule for its trees or chains"
        )
    return Case(side, gamma, chosen, how)


def certify(case: Case) -> Iterator[tuple[str, sampled.Found]]:
    """Yields each rule with what its texts say."""
    each = {rule: verifiers.find(rule) for rule in case.rules}
    for coupled in (False, True):
        alike = {rule: it for rule, it in each.items() if it.coupled == coupled}
        if not alike:
            continue
        rules = tuple(alike.values())
        drafter = case.side.drafter(case.gamma, for_rule(rules[0]))
        texts = sampled.build(drafter, rules, case.policy)
        for number, rule in enumerate(alike):
            yield rule, sampled.certify(texts, case.side.params, number, calls=CALLS)


def draws_of(case: Case) -> draws.Recorder:
    """Returns what a step of the draft with the first of its rules draws from."""
    rule, target = verifiers.find(case.rules[0]), sampled.target()
    drafter = case.side.drafter(case.gamma, for_rule(rule))
    decoder = Decoder(target.model, drafter, rule, case.policy)
    asked = draws.side_by_side(drafter.gamma, target.vocab)
    return draws.of_step(decoder, Params(target.params, case.side.params), *asked)


def line(found: sampled.Found) -> str:
    """Returns what was found, and from what difference on it would have been."""
    return (
        f"{found.texts:,} texts of {sampled.TOKENS} tokens by its own draws, p ="
        f" {found.p_value:.2g}; total variation {found.tv:.3f}, {found.chance:.3f} by"
        f" chance; another law is found from {found.visible:.3f} on, with probability"
        f" {goodness.POWER:g}"
    )
