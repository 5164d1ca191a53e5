"""Policies decide what is computed by hand, and calls are as short as their drafts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, policies, probs
from specjax.drafters import autoregressive, copying
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder, build_step
from specjax.theory import closed_forms
from specjax.types import Info, Params, Sampling
from tests.support import tiny

GAMMA = 12


def draft_law(q: float):
    """Returns the law of a draft of one row, which gives its first id probability q."""
    return probs.standardize(jnp.log(jnp.array([[q, 1 - q]])), Sampling(jnp.zeros(1)))


def make_info(drafted: int, accepted: int) -> Info:
    whole = accepted == drafted
    counts = drafted, accepted, drafted if whole else accepted + 1, accepted + 1
    each = jnp.zeros((1, GAMMA))
    numbers = (jnp.array([x], jnp.int32) for x in counts)
    return Info(*numbers, each, each, jnp.array([whole]))


def stops_after(policy, carry, q: float = 0.7) -> int:
    for slot in range(GAMMA):
        carry, going = policy.go_on(carry, draft_law(q), jnp.zeros(1, jnp.int32), slot)
        if not going[0]:
            break
    return slot + 1


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.8])
def test_renewal_drafts_the_best_gamma_where_acceptances_are_independent(alpha):
    """It is the gamma of Theorem 3.8, which has the least cost per token."""
    c, slope = 0.04, 0.03
    policy = policies.renewal(c, slope)
    _, carry = policy.init(1, GAMMA)
    best = closed_forms.optimal_gamma(alpha, c + slope)
    cost = 1 / closed_forms.walltime_factor(alpha, best, c + slope)
    many = jnp.full_like(carry.tested, 1e6)
    carry = carry._replace(tested=many, kept=alpha * many)
    carry = carry._replace(cost=jnp.array([cost]), tokens=jnp.ones(1))
    assert stops_after(policy, carry) == best


def test_renewal_learns_what_sureness_is_worth_and_what_a_token_costs():
    policy = policies.renewal(c=0.2, slope=0.05)
    budget, carry = policy.init(1, GAMMA)
    begun = stops_after(policy, carry, 0.7)
    for _ in range(50):
        told_of = carry
        for slot in range(3):  # three tokens of 0.7, none of which is kept
            told_of, _ = policy.go_on(told_of, draft_law(0.7), jnp.zeros(1, int), slot)
        budget, carry = policy.update(budget, told_of, make_info(3, 0))
    assert budget[0] == GAMMA and stops_after(policy, carry, 0.7) == 1 < begun
    # Three calls of six tokens are supposed before.
    assert carry.cost / carry.tokens == pytest.approx((3 + 50 * 1.75) / (6 + 50))
    assert stops_after(policy, carry, 0.99) > 1  # another bin


def test_a_cost_table_changes_where_the_gain_exceeds_the_margin():
    v, c = {1: 1.0, 4: 1.2, 8: 1.5}, 0.02
    policy = policies.cost_table("8:1.5/1:1/4:1.2", c=c, margin=0.1, memory=10)
    assert policy.widths == (1, 4, 8) and policy.go_on is None
    budget, carry = policy.init(1, GAMMA)
    for accepted, wanted in ((8, 8), (0, 1), (4, 4)):
        for _ in range(60):
            now = int(budget[0])
            budget, carry = policy.update(
                budget, carry, make_info(now, min(accepted, now))
            )
            alpha = float(carry.kept[0] / carry.tested[0])
            each = {
                g: (c * g + v[g]) / closed_forms.expected_tokens(alpha, g) for g in v
            }
            least = min(each, key=each.get)
            moves = each[least] < 0.9 * each[now] * (1 - 1e-5)
            if abs(each[least] / each[now] - 0.9) > 1e-4:
                assert int(budget[0]) == (least if moves else now)
        assert wanted != 1 or int(budget[0]) == 1
        assert wanted != 8 or int(budget[0]) == 8
    with pytest.raises(ValueError, match="write gamma:cost with / between"):
        policies.find("cost_table:v=1/2")


def test_a_threshold_follows_how_drafts_end():
    policy = policies.threshold(start=0.5, step=0.1, whole=0.5)
    budget, least = policy.init(1, GAMMA)
    assert policy.go_on(least, draft_law(0.6), jnp.zeros(1, int), 0)[1][0]
    assert not policy.go_on(least, draft_law(0.6), jnp.ones(1, int), 0)[1][0]
    assert policy.update(budget, least, make_info(2, 1))[1] == pytest.approx(0.55)
    assert policy.update(budget, least, make_info(2, 2))[1] == pytest.approx(0.45)


def widths_read(policy, calls: int = 3) -> list[tuple[int, int]]:
    """Returns pairs: the length of the longest draft of the batch, and the number of
    tokens on which the target was called."""
    world, read = tiny.tables(), []

    def apply(params, tokens, *rest):
        jax.debug.callback(lambda: read.append(tokens.shape[1]))
        return world.target.apply(params, tokens, *rest)

    decoder = Decoder(
        world.target._replace(apply=apply), autoregressive.build(world.draft, 6)
    )
    decoder = decoder._replace(policy=policy)
    params = Params(world.target_weights, world.draft_weights)
    prompt = make_prompt([[1, 3], [2], [3, 3, 3]])
    request = make_request(jax.random.key(0), prompt, 20, make_sampling(3, 1.0))
    state = generate.prefill(decoder, params, prompt, 32)
    step, pairs = jax.jit(build_step(*decoder)), []
    for _ in range(calls):
        jax.effects_barrier()
        read.clear()
        state, info = step(params, request, state)
        jax.effects_barrier()
        pairs.append((int(info.drafted.max()), read[-1], set(info.drafted.tolist())))
    return pairs


def test_the_targets_call_is_as_short_as_the_longest_draft():
    """Widths that are not below gamma are ignored."""
    policy = policies.threshold(start=0.3, step=0.0)._replace(widths=(2, 1, 4, 6, 9))
    pairs = widths_read(policy, calls=6)
    for longest, read, _ in pairs:
        assert read == 1 + min(w for w in (1, 2, 4, 6) if w >= longest)
    assert len({read for _, read, _ in pairs}) > 1
    assert any(len(each) > 1 for *_, each in pairs)  # rows end apart


def test_what_is_drafted_at_once_has_no_policy_within():
    world = tiny.transformers()
    with pytest.raises(ValueError, match="stops within a draft, but this drafter"):
        build_step(world.target, copying.build(3), policy=policies.renewal())
    build_step(world.target, copying.build(3), policy=policies.cost_table())


def test_numbers_out_of_range_are_refused():
    for name in ("renewal:c=-1", "renewal:prior=0", "confidence:start=2"):
        with pytest.raises(ValueError, match="must be"):
            policies.find(name)
    with pytest.raises(ValueError, match="need gamma >= 1"):
        policies.find("cost_table:v=0:1")


def test_sureness_is_of_the_logits_whatever_the_temperature():
    logits = jnp.array([[1.0, 2.0, -1.0], [0.0, 0.0, 3.0]])
    wanted = jax.nn.softmax(logits)
    for heat, top_k in ((0.0, None), (0.7, None), (1.0, jnp.ones(2, jnp.int32))):
        law = probs.standardize(logits, Sampling(jnp.full(2, heat), top_k))
        for ids in ([0, 2], [1, 1]):
            got = probs.at_temperature_one(law, jnp.array(ids))
            np.testing.assert_allclose(got, wanted[jnp.arange(2), jnp.array(ids)], 1e-6)
