"""The certificate of a draft by name, with the rules that can verify it.

It is for `specjax certify --draft`. Texts are of the real loop, with the draws of the
draft and of the rule (`sampled_texts`)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from specjax import policies, verifiers
from specjax.drafters.rollout import for_rule
from specjax.drafts.source import CERTAIN, DraftSource
from specjax.exactness import draws, goodness, sampled_texts, small_drafts
from specjax.exactness.claims import CLAIMS
from specjax.step import Decoder
from specjax.types import Params, Policy
from specjax.verifiers import token

GAMMA, NODES = 3, 6  # tokens of a chain, nodes of a tree
CALLS = 5  # of `sampled_texts.ROWS` texts


class Case(NamedTuple):
    """A draft, and the names of the rules that verify it."""

    source: DraftSource
    gamma: int
    rules: Sequence[str]
    policy: Policy | None

    @property
    def certain(self) -> bool:
        """Returns whether the draft's tokens are certain, so that texts can be
        enumerated."""
        return self.source.regime == CERTAIN


def make_case(name: str, rules: Sequence[str] = (), policy: str = "none") -> Case:
    """Returns a draft by a name of `small_drafts.load`, with the rules that can verify
    it.

    Args:
      name: the draft's name.
      rules: names of rules; none are those of `CLAIMS` that read the laws of drafts.
      policy: the name of one, for all texts.

    Raises:
      ValueError: there is no such draft, rule or policy, or no rule can verify the
        draft.
    """
    source, model = (
        small_drafts.load(name, sampled_texts.target()),
        sampled_texts.target().model,
    )
    gamma, how = GAMMA, policies.find(policy)
    if source.drafter(gamma).siblings is not None:
        gamma = NODES

    def accepts_rule(rule: str) -> bool:
        verifier = verifiers.find(rule)
        drafter = source.drafter(gamma, for_rule(verifier))
        return sampled_texts.accepts(model, drafter, verifier, how)

    chain = source.drafter(gamma).siblings is None
    readers = [
        rule
        for rule, claim in CLAIMS.items()
        if verifiers.find(rule).noise is token.noise
        and not (chain and (claim.chains or rule == "rejection"))
    ]
    wrong = [rule for rule in rules if not accepts_rule(rule)]
    chosen = rules or [rule for rule in readers if accepts_rule(rule)]
    if wrong or not chosen:
        raise ValueError(
            f"{name} cannot be verified by {' '.join(wrong) or 'any rule'}: leave"
            " --rule out, or name a rule for its trees or chains"
        )
    return Case(source, gamma, chosen, how)


def certify(case: Case) -> Iterator[tuple[str, sampled_texts.TextReport]]:
    """Yields each rule with the report on its texts."""
    each = {rule: verifiers.find(rule) for rule in case.rules}
    for coupled in (False, True):
        alike = {rule: it for rule, it in each.items() if it.coupled == coupled}
        if not alike:
            continue
        rules = tuple(alike.values())
        drafter = case.source.drafter(case.gamma, for_rule(rules[0]))
        texts = sampled_texts.build(drafter, rules, case.policy)
        for number, rule in enumerate(alike):
            yield (
                rule,
                sampled_texts.certify(
                    texts, case.source.params, number=number, calls=CALLS
                ),
            )


def record_draws(case: Case) -> draws.Recorder:
    """Returns the record of a step of the draft with the first of its rules."""
    rule, target = verifiers.find(case.rules[0]), sampled_texts.target()
    drafter = case.source.drafter(case.gamma, for_rule(rule))
    decoder = Decoder(target.model, drafter, rule, case.policy)
    requests = draws.make_requests(drafter.gamma, target.vocab)
    return draws.record_step(
        decoder, Params(target.params, case.source.params), *requests
    )


def format_line(found: sampled_texts.TextReport) -> str:
    """Returns the report in one line, with the smallest difference that it detects."""
    return (
        f"{found.texts:,} texts of {sampled_texts.TOKENS} tokens by its own draws, p ="
        f" {found.p_value:.2g}; total variation {found.tv:.3f}, {found.chance:.3f} by"
        f" chance; another law is found from {found.visible:.3f} on, with probability"
        f" {goodness.POWER:g}"
    )
