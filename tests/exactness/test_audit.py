"""The audit accepts every exact decoder and rejects broken ones, and its stated limits
are right.

Markov chains of four tokens: their exact sampler is a line of numpy, so that z is
compared with N(0, 1), E with mean 1, and the limits with the power that runs have.
"""

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from experiments.exactness import faults
from specjax import fused, native, probs
from specjax.decode_config import change
from specjax.drafts import retrieval
from specjax.exactness import audit, audit_row
from specjax.types import Sampling, Verifier
from specjax.verifiers import lenient, token
from tests.support import bare, mutants
from tests.support.audit_samples import (
    PROMPTS,
    TASK,
    groups,
    next_token_law,
    pair,
    sample_texts,
)

pytestmark = pytest.mark.slow

LEVEL = 1e-4


def audit_run(both, protocol=TASK, fault=None, verifier=None):
    """Returns the sums and the log E of a run."""
    target, draft = both
    broken, rule = audit_row.apply_fault(draft, protocol, fault)
    kernels = fused.reference(verifier or rule)
    # Mutants are changed definitions, in whose place compiled code would be run.
    with native.products(native.XLA if verifier else native.THIN):
        text, calls = audit.write((target, broken), PROMPTS, protocol, kernels)
    assert calls.tokens.sum() == (text.length - text.start).sum()
    how = protocol.decode
    steps = audit.score(both, text, how.temperature, **how.truncation())
    return audit.total(steps), audit.evidence(steps)[0]


# Real runs.


def test_an_exact_run_passes():
    sums, log_e = audit_run(pair(), TASK)
    report = audit.judge(sums, LEVEL)
    assert report.passed and report.p_value > 0.01 and report.impossible == 0
    assert report.tokens == report.free >= TASK.tokens
    assert audit.alarm(log_e, LEVEL) is None and log_e.max() < math.log(100)


def test_a_filter_keeps_what_it_keeps_and_is_tested_as_such():
    """Two of four tokens are kept; what was drawn from all four has probability zero
    then."""
    few = change(TASK, tokens=4000, top_k=2)
    sums, _ = audit_run(pair(), few)
    assert sums.impossible == 0 and audit.judge(sums, LEVEL).p_value > 0.01
    text, _ = audit.write(pair(), PROMPTS, change(few, top_k=None))
    assert audit.total(audit.score(pair(), text, 1.0, top_k=2)).impossible


BROKEN = {
    "draft temperature": dict(fault=faults.draft_temperature),
    "reused key": dict(fault=faults.reused_key),
    "residual is p": dict(verifier=mutants.build("residual is p")),
    "lenience 0.5": dict(verifier=lenient.build(0.5)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_decoders_fail(name, monkeypatch):
    monkeypatch.setattr(faults, "HOTTER", 2.0)  # four ids show less than thousands
    sums, log_e = audit_run(pair(), TASK, **BROKEN[name])
    report = audit.judge(sums, LEVEL)
    assert not report.passed and report.p_value < 1e-9
    assert sums.tokens > audit.alarm(log_e, LEVEL) > 1


def test_at_temperature_0_only_impossible_tokens_tell():
    sums, log_e = audit_run(pair(), change(TASK, temperature=0.0))
    report = audit.judge(sums)
    assert report.passed and report.free == 0 and report.p_value == 1
    assert set(report.z.values()) == {None} == set(report.limits.shift.values())
    assert report.limits.leak is None and abs(log_e).max() < 1e-9
    text = sample_texts(pair()[0], 4, new=20, seed=0)  # drawn at temperature 1
    wrong = audit.score(pair(), text, 0.0)
    report = audit.judge(audit.total(wrong))
    assert not report.passed and report.p_value == 0 and report.impossible > 10


# The exact sampler.


def test_z_is_normal_for_the_exact_sampler():
    exact, leaky = (
        np.array([list(audit.judge(audit.total(steps)).z.values()) for steps in runs])
        for runs in (
            groups(20, 40, seed=1, count=120),
            groups(20, 40, seed=1, count=120, leak=0.3),
        )
    )
    assert exact.shape == (120, len(audit.NAMES))
    normal = functools.partial(scipy.stats.kstest, cdf="norm")
    assert all(normal(column).pvalue > 0.01 for column in exact.T)
    assert min(normal(column).pvalue for column in leaky.T) < 1e-6


def test_e_has_mean_1_and_seldom_alarms():
    runs = [audit.evidence(steps)[0] for steps in groups(5, 40, seed=2, count=600)]
    last = np.exp([log_e[-1] for log_e in runs])
    assert last.mean() < 1 + 4 * last.std() / math.sqrt(last.size)
    assert last.mean() > 0.8  # its tail is long: most runs end below 1
    for level in (0.1, 0.3, 0.5):
        alarms = [audit.alarm(log_e, level) is not None for log_e in runs]
        assert 0 < np.mean(alarms) < level
    leaky = [
        audit.evidence(steps)[0][-1]
        for steps in groups(20, 40, seed=1, count=120, leak=0.3)
    ]
    assert np.median(leaky) > math.log(1e4)


def test_every_alternative_is_a_law():
    """Under p itself, deviations have mean 0 and their stated variance, and ratios have
    mean 1."""
    hot = Sampling(jnp.ones(4))
    laws = [
        probs.standardize(jnp.asarray(side.params)[:, None], hot) for side in pair()
    ]
    each = [audit.score_tokens(*laws, jnp.full((4, 1), token)) for token in range(4)]
    deviation, variance, pull, square, log_ratio, impossible = (
        np.stack(leaf, axis=1)[:, :, 0] for leaf in zip(*each, strict=True)
    )
    p, q = next_token_law(pair()[0])[..., None], next_token_law(pair()[1])[..., None]
    np.testing.assert_allclose((p * deviation).sum(1), 0, atol=1e-6)
    np.testing.assert_allclose((q * deviation).sum(1), pull[:, 0], atol=1e-5)
    for law, second in (p, variance), (q, square):
        np.testing.assert_allclose((law * deviation**2).sum(1), second[:, 0], rtol=1e-5)
    mean = (p[..., None] * np.exp(log_ratio)).sum(1)
    np.testing.assert_allclose(mean, 1, atol=1e-6)
    assert not impossible.any()


# What is seen, and what is not.


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("power", [0.5, 0.9])
def test_the_limits_are_the_power_that_runs_have(learnt, power):
    """A leak of the stated size is detected as often as is stated."""
    size, new, count = 25, 40, 200
    exact = map(
        audit.total, groups(size, new, seed=3, count=count, leak=0.0, learnt=learnt)
    )
    whole = functools.reduce(audit.add, exact)
    mean = audit.Sums(*(np.asarray(leaf) / count for leaf in whole))
    leak = audit.limits(mean, LEVEL, power).leak
    assert 0.01 < leak < 0.2
    runs = groups(size, new, seed=4, count=count, leak=leak, learnt=learnt)
    failed = [not audit.judge(audit.total(steps), LEVEL).passed for steps in runs]
    assert np.mean(failed) == pytest.approx(power, abs=0.1)
    # The same limit is wrong for runs of another length.
    short = [audit.Steps(*(leaf[::4] for leaf in steps)) for steps in runs]
    failed = [not audit.judge(audit.total(steps), LEVEL).passed for steps in short]
    assert np.mean(failed) < power - 0.2


def test_uniforms_of_bfloat16_are_not_seen():
    """A draft that is often kept conceals that it is kept too often, by 1/256."""

    def noise(*args):
        right = token.noise(*args)
        return right._replace(accept=jnp.floor(right.accept * 128) / 128)

    coarse = Verifier(noise, token.verify)
    sums, _ = audit_run(pair(learnt=True), verifier=coarse)
    report = audit.judge(sums, LEVEL)
    assert report.passed and report.limits.leak > 1 / 256


def test_an_impossible_token_fails_at_once():
    hopeless = np.array(pair()[0].params)
    hopeless[:, 3] = -np.inf
    target = bare.target("target", pair()[0].model, jnp.asarray(hopeless))
    text = sample_texts(target, 50, new=40, seed=6)
    steps = audit.score((target, pair()[1]), text, 1.0)
    assert audit.judge(audit.total(steps)).passed
    text.tokens[30, 20] = 3
    steps = audit.score((target, pair()[1]), text, 1.0)
    report, (log_e, _) = audit.judge(audit.total(steps)), audit.evidence(steps)
    assert not report.passed and report.impossible == 1 and report.p_value == 0
    assert audit.alarm(log_e) == 30 * 40 + 20
    assert np.isinf(log_e[30 * 40 + 19 :]).all() and np.isfinite(log_e[:1219]).all()


def test_an_e_value_goes_on_where_it_was():
    steps = groups(20, 40, seed=1, count=120)[0]
    (whole, end), wealth, parts = audit.evidence(steps), None, []
    for part in (slice(300), slice(300, None)):
        some = audit.Steps(*(leaf[part] for leaf in steps))
        log_e, wealth = audit.evidence(some, *([] if wealth is None else [wealth]))
        parts.append(log_e)
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-9)
    np.testing.assert_allclose(wealth, end, atol=1e-9)


def test_a_draft_without_a_law_leaves_two_statistics_and_one_may_miss_ids():
    target, text = pair()[0], sample_texts(pair()[0], 100, new=40, seed=7)
    gone = np.array(pair()[1].params)
    gone[:, 0] = -np.inf  # the ratio is 0 where q is, and its logarithm is cut
    misses = bare.draft("draft", target.model, jnp.asarray(gone))
    alone, some, both = (
        audit.judge(audit.total(audit.score((target, draft), text, 1.0)))
        for draft in (retrieval.copying(), misses, pair()[1])
    )
    assert list(alone.z) == ["surprisal", "argmax"] and alone.passed and some.passed
    assert alone.limits.leak is None
    assert alone.z["surprisal"] == pytest.approx(both.z["surprisal"], rel=1e-5)
