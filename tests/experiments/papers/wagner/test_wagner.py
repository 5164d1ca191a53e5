"""The measurements after Wagner et al. (2024) are correct, and the rules that they
compare have their laws."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue, tasks
from experiments.exactness import engines
from experiments.papers.wagner import baseline, distances, methods, rows, runs, timing
from specjax import probs
from specjax.drafts.models import build_law
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import CLAIMS, UNKNOWN
from specjax.exactness.fixtures import trials
from specjax.generate import Counts
from specjax.inputs import make_sampling
from specjax.measure import texts as decoding
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.types import Draft, Law, Sampling, Verifier
from specjax.verifiers import token
from tests.support import bare, tiny
from tests.support.settings import make

pytestmark = pytest.mark.slow

SMALL = make(
    rows.WagnerSetting,
    task="unconditional",
    temperature=1.0,
    gammas=(2,),
    repeats=4,
    new_tokens=6,
    batch=4,
    timed=2,
    rounds=1,
)
METHODS = {method.name: method for method in methods.text_methods(1e4)}


@functools.cache
def pair() -> tuple:
    world = tiny.transformers()
    other = tiny.add_share(world.target_weights, tiny.weights(tiny.TARGET, 52), 1.0)
    target = bare.target("target", world.target, world.target_weights)
    return target, bare.draft("draft", world.target, other)


@functools.cache
def text() -> decoding.Text:
    protocol = make(
        Protocol, task="", temperature=1.0, tokens=30, gamma=0, new_tokens=12, batch=4
    )
    return decoding.write(pair()[0], Prompts([[1], [2, 3]], ends=()), protocol)


def test_a_filter_is_of_both_sides():
    whole, prompt = pair(), runs.take(Prompts([[1, 4, 7]]), [0])
    assert methods.filter_pair(whole, None) is whole
    cut = methods.filter_pair(whole, 5)
    laws = (
        [build_law(whole[0].model), whole[1].law],
        [build_law(cut[0].model), cut[1].law],
    )
    for model, (before, after) in zip(whole, zip(*laws, strict=True), strict=True):
        z, kept = (
            np.asarray(timing.logits(law, model.params, prompt))
            for law in (before, after)
        )
        least = np.sort(z, axis=-1)[..., -5:][..., :1]
        np.testing.assert_array_equal(kept, np.where(z >= least, z, -np.inf))


def inputs(gamma: int = 3) -> timing.Inputs:
    return timing.text_inputs(pair(), text(), gamma)


def test_a_step_is_timed_in_a_buffer_that_holds_a_padded_prompt():
    prompts, key = Prompts([[1] * 20, [2]]), jax.random.key(0)
    begun = runs.make_batch(
        prompts, [1], key=key, tokens=4, sampling=make_sampling(1, 1.0)
    )
    state = timing.begin(pair(), METHODS["exact"], gamma=2, begun=begun)[1]
    assert state.tokens.shape[1] >= begun[0].tokens.shape[1] == 20


@pytest.mark.parametrize("name", ["exact", "sigmoid_1e4"])
def test_every_turn_verifies_other_inputs(name):
    verify = timing.build_verify(METHODS[name])
    key, by_hand, turn = jax.random.key(0)[None], jax.jit(verify), inputs()
    wanted = by_hand(key, turn)
    for i in range(1, 4):
        last, turn = turn, timing.next_turn(turn, jnp.int32(i), wanted)
        wanted = by_hand(key, turn)
        for old, new in ((last.p, turn.p), (last.q, turn.q)):  # every row
            assert ((old != new).sum(-1) == 1).all()
        assert (turn.start == last.start + 1).all()
    verdict = timing.loop(verify, 4)(key, inputs())
    np.testing.assert_array_equal(verdict.tokens, wanted.tokens)
    np.testing.assert_allclose(verdict.accept_prob, wanted.accept_prob, rtol=1e-5)


def test_what_xla_says_of_a_program():
    small, large = (timing.program(methods.exact_method(), inputs(g)) for g in (2, 8))
    assert large.accessed > small.accessed > 0 and large.operations > small.operations
    assert large.peak > small.peak >= small.temporary


def sample_prompts(
    task: str, share: float, repeats: int, *, seed: int, new_tokens: int = 100, **more
) -> runs.Sample:
    return runs.sample_prompts(
        tasks.read(task),
        share=share,
        repeats=repeats,
        seed=seed,
        new_tokens=new_tokens,
        **more,
    )


def sample(new_tokens: int = 6) -> runs.Sample:
    return sample_prompts("unconditional", 1.0, 4, seed=0, new_tokens=new_tokens)


def test_a_sample_is_a_share_by_its_seed_and_has_its_suffix():
    first, same, other = (
        sample_prompts("docs", 0.1, 10, seed=seed) for seed in (0, 0, 1)
    )
    assert len(first.prompts.tokens) == len(first.references) == 12
    assert first.count == 120 and first.references == same.references
    assert first.references != other.references
    whole = sample_prompts("docs", 1.0, 1, seed=0)
    at = whole.references.index(first.references[0])
    assert whole.prompts.inputs[at] == first.prompts.inputs[0]
    more = sample_prompts("docs", 0.1, 10, seed=0, suffix="Summary:")
    for ids, longer in zip(first.prompts.inputs, more.prompts.inputs, strict=True):
        assert longer[-1] == ids[-1] == 1  # the end
        assert longer[: len(ids) - 1] == ids[:-1] and len(longer) > len(ids)


@functools.cache
def decode_pair(name: str, gamma: int, new_tokens: int = 6) -> runs.Run:
    return runs.decode(
        pair(), METHODS[name], gamma=gamma, sample=sample(new_tokens), batch=2
    )


def test_the_schedule_begins_at_5_and_grows_by_2():
    """Everything is kept: drafts have 5 tokens, and then 7, of which the limit of 8
    needs 2."""
    counts = decode_pair("always", runs.SCHEDULE, 8).counts
    unended = np.asarray(counts.drafted)[np.asarray(counts.accepted) == 7]
    assert len(unended) and set(unended.tolist()) == {12}


def test_a_ratios_error_counts_prompts_and_not_their_repeats():
    part, whole = np.array([1, 3, 2]), np.array([4, 4, 4])
    wanted = np.std(part / 4, ddof=1) / np.sqrt(3)
    assert runs.error_of_ratio(part, whole) == pytest.approx(wanted)
    assert runs.error_of_ratio(part[:1], whole[:1]) is None
    texts = [np.zeros(4, int)] * 12

    def error(repeats: int, claimed: int) -> float:
        each = (np.tile(x, repeats) for x in (whole, whole, whole, part))
        return runs.kept_shares(runs.Run(Counts(*each), texts), claimed)[
            "acceptance_se"
        ]

    assert error(1, 1) == error(4, 4) == pytest.approx(wanted)
    assert error(4, 1) < 0.6 * wanted  # as if they were


def test_what_a_main_row_reports(monkeypatch):
    monkeypatch.setattr(rows, "STEPS", (1,))
    names = ["baseline", "exact", "sigmoid_1e4"]
    chosen = [METHODS[name] for name in names]
    row = rows.measure_row(
        rows.texts, pair(), setting=SMALL, methods=chosen, sample=sample()
    )
    json.dumps(row, allow_nan=False)
    assert row["methods"] == names and row["texts"] == 4
    lines = catalogue.find_table("wagner_text").lines
    ours = (line.quantity for line in lines if line.row == "docs_small")
    told = {key for key in ours if key.endswith(tuple(f"_{name}" for name in names))}
    assert told and all(key in row or key.startswith("rouge1") for key in told)
    assert {"acceptance_exact_g2", "acceptance_sigmoid_1e4_g2"} < row.keys()
    assert row["guarantees"]["sigmoid_1e4"].startswith("lossy")
    assert row["acceptance_baseline"] == row["acceptance_exact"]
    assert 0 < row["step_share_g1"]
    # The law of the baseline is p, 1 - alpha away from q; the sigmoid's is nearly q.
    assert max(row["tv_out_p_baseline"], row["tv_bonus_p_baseline"]) < 1e-5
    kept = row["kept_baseline"]
    assert row["tv_out_q_baseline"] == pytest.approx(1 - kept, abs=1e-5)
    assert row["kept_sigmoid_1e4"] > 0.999 and row["tv_out_q_sigmoid_1e4"] < 1e-3
    assert row["tv_bonus_p_sigmoid_1e4"] > 0.3


def test_reductions_are_against_the_baseline_of_the_same_filter():
    names = "baseline", "exact", "baseline_top50", "sigmoid_1e4_top50"
    row = {f"us_{x}": us for x, us in zip(names, (10.0, 8.0, 20.0, 5.0), strict=True)}
    row |= {f"calls_{x}": n for x, n in zip(names, (4, 4, 4, 8), strict=True)}
    reductions = rows.reductions_against_baseline(
        row, [METHODS[name] for name in names]
    )
    assert reductions["step_reduction_exact"] == pytest.approx(20)
    assert reductions["step_reduction_sigmoid_1e4_top50"] == pytest.approx(75)
    assert reductions["profile_reduction_sigmoid_1e4_top50"] == pytest.approx(50)
    assert reductions["profile_reduction_baseline_top50"] == 0


def test_a_row_of_times():
    chosen = [METHODS["baseline"], METHODS["exact"]]
    row = rows.times(pair(), SMALL._replace(rounds=2), chosen, sample())
    assert row["gamma"] == [2] and [row["us_exact_g2"]] == row["median_us_exact"]
    assert 0 < row["low_us_exact"][0] < row["us_exact_g2"] < row["high_us_exact"][0]


REFUSED = [
    ({"gammas": (21,)}, "gammas must be in 1..20"),
    ({"rounds": 0}, "at least 1"),
    ({"share": 1.5}, "need a share"),
    ({"suffix": "Summary:"}, "an encoder reads"),
    ({"task": "nothing"}, "no task"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        rows.text_row(*pair(), SMALL._replace(**change))


# Laws.

TRIALS = {trial.fixture.name: trial for trial in trials()}
NAMES = ["random", "ragged table", "certain", "T 0", "T 0.7, top-k 2", "disjoint"]


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_has_the_targets_law(name):
    fixture, gamma, _ = TRIALS[name]
    certificate = certify.certify(
        baseline.verifier, fixture, gamma, 2, CLAIMS["token"], dtype="float64"
    )
    assert certificate.exact, certificate.broken


def test_where_p_and_q_agree_a_rejected_draft_leaves_p():
    """A uniform rejects the draft nevertheless, as rounding can make it do."""
    law = probs.standardize(jnp.zeros((1, 2, 3)), Sampling(jnp.ones(1)))
    draft = Draft(jnp.array([[1]]), jnp.array([1]), probs.first_tokens(law, 1))
    noise = token.Noise(jnp.ones((1, 1)), jnp.full((1, 2), 0.5))
    verdict = baseline.verify(law, draft, noise, keep_residual=True)
    assert verdict.num_accepted[0] == 0 and verdict.residual.any()


def fixture_laws(fixture) -> tuple[Law, Law]:
    heat = Sampling(jnp.ones(1))
    logits = (jnp.asarray(side(())[None]) for side in (fixture.target, fixture.draft))
    return tuple(probs.standardize(z, heat) for z in logits)


def first_law(verifier: Verifier, fixture) -> np.ndarray:
    case = enumeration.make_case(verifier, UNKNOWN, fixture, 1, "float32")
    law, _ = certify.text_law(case, 1)
    return np.array([law[(i,)] for i in range(fixture.vocab)])


EVERY = [methods.baseline_method(), methods.exact_method(), methods.keep_all_method()]
EVERY += [methods.sigmoid_method(scale) for scale in (1e1, 1e4)]
EVERY += [methods.sigmoid_method(scale, "float16") for scale in (1e1, 1e5)]


@pytest.mark.parametrize("fixture", [engines.FOUR, engines.CUT], ids=lambda f: f.name)
@pytest.mark.parametrize("method", EVERY, ids=lambda m: m.name)
def test_the_closed_law_is_the_enumerated_one(method, fixture):
    closed = distances.method_laws(method, *fixture_laws(fixture))
    law = first_law(method.verifier, fixture)
    np.testing.assert_allclose(closed.out[0], law, atol=2e-6)
    none = fixture._replace(num=lambda prefix: 0)
    bonus = first_law(method.verifier, none)
    np.testing.assert_allclose(closed.bonus[0], bonus, atol=2e-6)


def test_the_largest_of_a_row():
    rng = np.random.default_rng(0)
    z = np.float32(rng.normal(size=(6, 40)).round(1))
    z[0, :38], z[1, 5] = -np.inf, np.inf
    for count in (1, 7, 40):
        wanted = z >= np.sort(z, axis=-1)[:, -count][:, None]
        np.testing.assert_array_equal(
            methods.select_largest(jnp.asarray(z), count), wanted
        )
