"""Whose rule is which: name, source, version, and the pair of models it is put to.

A pair is small enough to enumerate and has what the rule is about: sampled or argmax
drafts, a filter on one side or on both, a tie, an order of transforms.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.exactness import rules
from specjax.exactness.claims import CLAIMS, UNKNOWN, Claim
from specjax.exactness.fixtures import Fixture, context_free, reference, table
from specjax.types import Sampling, Verifier
from specjax.verifiers import block, gumbel, lenient, match, rejection, token

EXACT, SLOWER, DIFFERS = "exact law", "exact, fewer tokens", "differs"


class Rule(NamedTuple):
    """key: of its numbers in a record. build: () -> Verifier. expected: EXACT, SLOWER
    or DIFFERS. plain: what Algorithm 1 is measured on, where it is not `fixture` with
    tokens drawn from the law that the draft carries."""

    key: str
    name: str
    source: str
    version: str
    build: Callable[[], Verifier]
    fixture: Fixture
    expected: str
    plain: Fixture | None = None
    claim: Claim = UNKNOWN


def cut(model: Callable, kept: int) -> Callable:
    """The `kept` largest logits; the others are -inf."""

    @functools.cache
    def logits(prefix: tuple) -> np.ndarray:
        z = model(prefix)
        return np.where(z >= np.sort(z)[-kept], z, -np.inf).astype(np.float32)

    return logits


def law(model: Callable, temperature: float = 1.0) -> Callable:
    """prefix -> the law [V] of a model: 0 is argmax."""
    return lambda prefix: reference(model(prefix), Sampling(temperature))


def constant(*logits: float) -> Callable:
    return lambda prefix: np.float32(logits)


P, Q = context_free([0.4, 0.3, 0.2, 0.1]), context_free([0.55, 0.25, 0.15, 0.05])
FOUR = Fixture("fixed laws", 4, P, Q)
FOUR_ARGMAX = FOUR._replace(name="fixed laws, argmax drafts", drawn=law(Q, 0.0))
WIDE_P, WIDE_Q = table(4, 1), table(4, 13)
CUT_P, CUT_Q = cut(WIDE_P, 2), cut(WIDE_Q, 2)
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


def ordered(temperature: float, top_p: float) -> Fixture:
    """Five logits under both settings; certain drafts, of id 1 and of id 4 in turn."""
    name = f"five logits, T {temperature:g}, top-p {top_p:g}"
    target, ids = constant(2.0, 1.5, 1.0, 0.0, -1.0), np.eye(5, dtype=np.float32)
    sampling = Sampling(temperature, top_p=top_p)

    def draft(prefix: tuple) -> np.ndarray:
        return ids[(1, 4)[len(prefix) % 2]]

    return Fixture(name, 5, target, draft, sampling, "certain")


PAPER = "Leviathan et al. (2023), arXiv 2211.17192"


def ours() -> list[Rule]:
    sun, daliri = "Sun et al. (2024), arXiv 2403.10444", "Daliri et al. (2024)"
    several = [
        ("token", "", f"{PAPER}, Algorithm 1", token.verifier, FOUR, EXACT),
        ("token", "_cut", f"{PAPER}, Algorithm 1", token.verifier, CUT, EXACT),
        ("block", "", sun, block.verifier, FOUR, EXACT),
        ("rejection", "", f"{PAPER}, Appendix A.2", rejection.verifier, FOUR, SLOWER),
        ("match", "", "a draw from p at every slot", match.verifier, FOUR, SLOWER),
        ("gumbel", "", f"{daliri}, arXiv 2408.07978", gumbel.verifier, FOUR, SLOWER),
        ("lenient", "", f"{PAPER}, Appendix A.5", lenient.build(0.5), CUT, DIFFERS),
    ]
    more = {"lenient": ", l = 0.5: at most p / l", "gumbel": ", drafts not coupled"}
    listed = []
    for name, suffix, source, verifier, fixture, expected in several:
        what = f"specjax: {name}{more.get(name, '')}"
        build = functools.partial(_itself, verifier)
        where, key = "this repository", name + suffix
        rule = Rule(key, what, source, where, build, fixture, expected)
        listed.append(rule._replace(claim=CLAIMS.get(name, UNKNOWN)))
    return listed


def _itself(verifier: Verifier) -> Verifier:
    return verifier


def hugging_face() -> list[Rule]:
    built = functools.partial(rules.build, rules.ratio, strict=False)
    place = "huggingface/transformers, generation/"
    sampled = Rule(
        "transformers",
        "transformers: sampled drafts",
        f"{place}utils.py, _speculative_sampling",
        "5.23.0",
        built,
        CUT,
        EXACT,
    )
    argmax = Rule(
        "transformers_argmax",
        "transformers: argmax drafts whose scores are q"
        " (SinglePositionMultiTokenCandidateGenerator)",
        f"{place}candidate_generator.py; issue 47932",
        "5.23.0; reported of 5.16.0.dev0",
        built,
        FOUR_ARGMAX,
        DIFFERS,
    )
    unfiltered = Rule(
        "transformers_unfiltered",
        "transformers: drafts drawn through top-k, q without it (DFlash, MTP)",
        f"{place}candidate_generator.py; issue 47932",
        "5.16.0.dev0 between pull requests 47867 and 48007; not 5.23.0",
        built,
        HALF_CUT,
        DIFFERS,
        CUT,
    )
    return [sampled, argmax, unfiltered]


def jax_engines() -> list[Rule]:
    kerashub = Rule(
        "kerashub",
        "KerasHub: argmax drafts whose softmax is q (SpeculativeSampler, batch 1)",
        "keras-team/keras-hub, samplers/speculative_sampler.py",
        "0.32.0",
        functools.partial(rules.build, rules.ratio),
        FOUR_ARGMAX,
        DIFFERS,
    )
    listed = [kerashub]
    place = "vllm-project/tpu-inference, layers/jax/sample/rejection_sampler.py"
    for key, heat, top_p in ("warm", 2.0, 0.6), ("cool", 0.5, 0.8):
        fixture = ordered(heat, top_p)
        rule = rules.truncated_first(fixture.sampling)
        what = "tpu-inference: top-k, top-p, then temperature"
        what = f"{what}; T {heat:g}, top-p {top_p:g}"
        built = functools.partial(rules.build, rule, strict=False)
        row = Rule(f"tpu_{key}", what, place, "b8692ff", built, fixture, DIFFERS)
        listed.append(row)
    return listed


def teaching() -> list[Rule]:
    place, after = "jaymody/speculative-sampling, main.py", "03b4759 (August 2023)"
    before = Rule(
        "jaymody_before",
        "jaymody: argmax for every draw, softmax in the ratio; against argmax",
        f"{place}; issue 3, pull request 4",
        "1055014 (June 2023)",
        functools.partial(rules.build, rules.argmax_of_ratio),
        GREEDY,
        DIFFERS,
    )
    own = Rule(
        "jaymody_own",
        "jaymody: logits / (T + 1e-10) at T = 0; against its own sampler",
        place,
        after,
        functools.partial(rules.build, rules.ratio),
        STEEP,
        EXACT,
    )
    argmax = Rule(
        "jaymody_argmax",
        "jaymody: logits / (T + 1e-10) at T = 0; against argmax, the first of equals",
        place,
        after,
        functools.partial(rules.build, rules.divided_by(0.0, GUARD)),
        TIE,
        DIFFERS,
    )
    lesson = Rule(
        "lesson",
        "lesson page: a loop that adds no token to a draft kept whole",
        "lesson page 'Speculative Decoding: Fast Inference from Transformers'",
        "undated",
        lambda: rules.without_bonus(rules.build(rules.ratio)),
        FOUR,
        SLOWER,
    )
    return [before, own, argmax, lesson]


def sigmoids() -> list[Rule]:
    source = "Wagner et al. (2024), arXiv 2406.11016, Section 3.2.2, Eqs. 5 to 7"
    listed = []
    for fixture, suffix in (FOUR, ""), (CUT, "_cut"):
        for digits in (3, 4):
            key, what = f"sigmoid_1e{digits}{suffix}", f"sigmoid, +-1e{digits}"
            rule = rules.sigmoid(10.0**digits)
            built = functools.partial(rules.build, rule, strict=False)
            what = f"Wagner et al.: {what}"
            row = Rule(key, what, source, "EMNLP 2024", built, fixture, DIFFERS)
            listed.append(row)
        key, what = f"everything{suffix}", "control: keeps every draft"
        built = functools.partial(rules.build, rules.everything)
        row = Rule(
            key, what, "for comparison", "this repository", built, fixture, DIFFERS
        )
        listed.append(row)
    return listed


RULES = [*ours(), *hugging_face(), *jax_engines(), *teaching(), *sigmoids()]
