"""Every mutant that a certificate must catch, and what it finds.

Axes: none.
"""

from specjax import certify
from specjax.certify_claims import CLAIMS
from tests import mutants, mutants_joint
from tests.mutants import Mutant

MUTANTS = mutants.MUTANTS + mutants_joint.MUTANTS


def title(mutant: Mutant) -> str:
    return f"{mutant.rule}: {mutant.name}"


def certified(mutant: Mutant) -> certify.Certificate:
    """Its certificate, on three tokens of its fixture."""
    fixture, gamma = mutants.fixtures()[mutant.fixture]
    if mutant.rule != "token":
        verifier = mutants_joint.build(mutant.rule, mutant.name)
    elif fixture.drawn is not None:  # the draft is wrong, and the verifier right
        verifier = mutants.build("")
    else:
        verifier = mutants.build(mutant.name)
    return certify.certify(verifier, fixture, gamma, 3, CLAIMS[mutant.rule])
