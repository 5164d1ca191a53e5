"""What is measured after Wagner et al. (2024) is what it says, and broken twins differ.

Axes: B rows, G = gamma, V vocabulary.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import run
from experiments.exactness import engines
from experiments.records import table as line
from experiments.wagner import baseline, distances, methods, rows, runs, timing
from experiments.wagner import table as lines
from specjax import probs
from specjax.bench import players
from specjax.bench import texts as decoding
from specjax.bench.texts import Prompts, Protocol
from specjax.exactness import certify, enumeration
from specjax.exactness.claims import CLAIMS, UNKNOWN
from specjax.exactness.fixtures import trials
from specjax.generate import Counts
from specjax.types import Draft, Law, Sampling, Verdict, Verifier
from specjax.verifiers import sigmoid, token
from tests.support import tiny

pytestmark = pytest.mark.slow

TRIALS = {trial.fixture.name: trial for trial in trials()}
CONFIGS = {
    folder: sorted((run.ROOT / "gin_configs" / folder).glob("*.gin"))
    for folder in ("wagner_time", "wagner_text", "wagner_scale")
}
TABLES = {"wagner_time": lines.figure_wagner}
TABLES |= {"wagner_text": lines.wagner_text, "wagner_scale": lines.wagner_scale}
SMALL = rows.WagnerSetting(
    "unconditional", gammas=(2,), repeats=4, new_tokens=6, batch=4, timed=2, rounds=1
)


@functools.cache
def pair() -> tuple:
    world = tiny.transformers()
    far = tiny.mixed(world.target_weights, tiny.weights(tiny.TARGET, 52), 1.0)
    return (
        players.of_model("target", world.target, world.target_weights),
        players.of_model("draft", world.draft, far),
    )


@functools.cache
def text() -> decoding.Text:
    protocol = Protocol("", 1.0, 30, 0, 0, 12, 4)
    return decoding.write(pair()[0], Prompts([[1], [2, 3]], end=-1), protocol)


# The baseline.


@functools.cache
def twin(kind: str) -> Verifier:
    """Broken: keeps at r <= ratio, or has nothing to draw where p and q agree."""

    def verify(target, draft, noise, keep_residual=False):
        right = baseline.verify(target, draft, noise, keep_residual=True)
        n, weights = right.num_accepted, right.residual
        if kind == "<=":
            live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
            kept = (noise.accept <= right.accept_prob) & live
            n = jnp.sum(jnp.cumprod(kept, axis=1), axis=1, dtype=jnp.int32)
            p = probs.dense(probs.take(target, n))
            left = jnp.maximum(p - token.rejected_law(draft, n, p.shape[-1]), 0)
            weights = jnp.where(left.any(-1, keepdims=True), left, p)
        else:
            p, q = (baseline.softmax(probs.take(law, n)) for law in (target, draft.law))
            weights = jnp.maximum(p - q, 0)
        tokens = token.emit(draft, n, probs.pick(weights, noise.sample))
        residual = weights if keep_residual else None
        return Verdict(n, tokens, right.accept_prob, residual=residual)

    return Verifier(token.noise, verify)


@pytest.mark.parametrize(
    "name", ["random", "ragged table", "certain", "T 0", "T 0.7, top-k 2", "disjoint"]
)
def test_the_baseline_has_the_targets_law(name):
    fixture, gamma, _ = TRIALS[name]
    found = certify.certify(
        baseline.verifier, fixture, gamma, 2, CLAIMS["token"], "float64"
    )
    assert found.exact, found.broken


def test_twins_of_the_baseline_are_rejected():
    fixture = TRIALS["random"].fixture
    found = certify.certify(twin("<="), fixture, 2, 2, dtype="float64")
    assert "support" in found.broken
    # p = q, and a uniform that rejects all the same, as rounding can.
    law = probs.standardize(jnp.zeros((1, 2, 3)), Sampling(jnp.ones(1)))
    draft = Draft(jnp.array([[1]]), jnp.array([1]), probs.first(law, 1))
    noise = token.Noise(jnp.ones((1, 1)), jnp.full((1, 2), 0.5))
    for rule, weighs in ((twin("empty"), False), (baseline.verifier, True)):
        found = rule.verify(law, draft, noise, keep_residual=True)
        assert found.num_accepted[0] == 0
        assert bool(found.residual.any()) == weighs


@pytest.mark.parametrize("regime", ["dense", "none"])
def test_the_baseline_draws_the_tokens_of_the_fused_rule(regime):
    rng, count, gamma, vocab = np.random.default_rng(0), 200, 3, 300
    z_p, z_q = (
        jnp.float32(2 * rng.normal(size=(count, gamma + i, vocab))) for i in (1, 0)
    )
    heat = Sampling(jnp.float32(rng.choice([0.0, 0.7, 1.0], count)))
    target, q = probs.standardize(z_p, heat), probs.standardize(z_q, heat)
    tokens = jnp.argmax(z_q + rng.gumbel(size=z_q.shape), -1)
    num = jnp.asarray(rng.integers(0, gamma + 1, count))
    draft = Draft(tokens, num, q if regime == "dense" else None)
    u = rng.random((count, gamma)), rng.random((count, 2))
    noise = token.Noise(*map(jnp.float32, u))
    ours = jax.jit(baseline.verify)(sigmoid.law(z_p, heat), draft, noise)
    fused = jax.jit(token.verify)(target, draft, noise)
    for one, other in zip(ours[:2], fused[:2], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(ours.accept_prob, fused.accept_prob, atol=1e-5)
    assert 0 < ours.num_accepted.mean() < gamma


# Distances.


def laws_of(fixture) -> tuple[Law, Law]:
    heat = Sampling(jnp.ones(1))
    logits = (jnp.asarray(side(())[None]) for side in (fixture.target, fixture.draft))
    return tuple(probs.standardize(z, heat) for z in logits)


def first_law(verifier: Verifier, fixture) -> np.ndarray:
    case = enumeration.case_of(verifier, UNKNOWN, fixture, 1, "float32")
    law, _ = certify.text_law(case, 1)
    return np.array([law[(i,)] for i in range(fixture.vocab)])


EVERY = [
    methods.baseline(),
    methods.exact(),
    methods.by_sigmoid(1e1),
    methods.by_sigmoid(1e4),
    methods.by_sigmoid(1e1, "float16"),
    methods.by_sigmoid(1e5, "float16"),
    methods.always(),
]


@pytest.mark.parametrize("fixture", [engines.FOUR, engines.CUT], ids=lambda f: f.name)
@pytest.mark.parametrize("method", EVERY, ids=lambda m: m.name)
def test_the_closed_law_is_the_enumerated_one(method, fixture):
    found = distances.compared(method, *laws_of(fixture))
    law = first_law(method.verifier, fixture)
    np.testing.assert_allclose(found.out[0], law, atol=2e-6)
    none = fixture._replace(num=lambda prefix: 0)
    np.testing.assert_allclose(
        found.bonus[0], first_law(method.verifier, none), atol=2e-6
    )


def test_a_wrong_residual_is_another_law():
    p_law, q_law = laws_of(engines.CUT)
    weigh = sigmoid.weights(-10.0, 10.0)
    hats, q = (weigh(p_law), weigh(q_law)), probs.dense(q_law)
    law = first_law(methods.by_sigmoid(1e1).verifier, engines.CUT)
    support = sigmoid.support(p_law)
    right, _, kept = distances.mixed(q, *hats, support)
    np.testing.assert_allclose(right[0], law, atol=2e-6)
    ratio = jnp.minimum(1, hats[0] / jnp.maximum(hats[1], 1e-9))
    drawn = q * jnp.where(hats[1] > 0, ratio, 0)
    wrong = drawn + (1 - kept)[:, None] * distances.norm(hats[0], support)
    assert np.abs(wrong[0] - law).max() > 1e-2


def test_distances_over_a_text():
    chosen = [methods.baseline(), methods.by_sigmoid(1e4), methods.always()]
    found = distances.distances(pair(), chosen, text())
    base, lossy, control = (found[method.name] for method in chosen)
    assert max(base["tv_out_p"], base["tv_bonus_p"]) < 1e-5
    # out = p is 1 - alpha away from q; keeping everything is as far from p.
    assert base["tv_out_q"] == pytest.approx(1 - base["kept"], abs=1e-5)
    assert control["tv_out_p"] == pytest.approx(base["tv_out_q"], abs=1e-5)
    assert control["kept"] == 1 and control["tv_out_q"] == 0
    assert lossy["kept"] > 0.999 and lossy["tv_out_q"] < 1e-3
    assert lossy["tv_bonus_p"] > 0.3


# Filters.


def test_the_largest_of_a_row():
    rng = np.random.default_rng(0)
    z = np.float32(rng.normal(size=(6, 40)).round(1))
    z[0, :38], z[1, 5] = -np.inf, np.inf
    for count in (1, 7, 40):
        wanted = z >= np.sort(z, axis=-1)[:, -count][:, None]
        np.testing.assert_array_equal(methods.largest(jnp.asarray(z), count), wanted)


def test_a_filter_is_of_both_sides():
    whole, cut = pair(), methods.filtered(pair(), 5)
    assert methods.filtered(pair(), None) is whole
    for one, other in zip(whole, cut, strict=True):
        prompt = runs.take(Prompts([[1, 4, 7]]), [0])
        z, kept = timing.logits_of(one, prompt), timing.logits_of(other, prompt)
        assert jnp.isfinite(z).all() and (jnp.isfinite(kept).sum(-1) == 5).all()
        np.testing.assert_array_equal(jnp.where(jnp.isfinite(kept), z, kept), kept)


# Time.


def given(gamma: int = 3) -> timing.Inputs:
    return timing.inputs_of(pair(), text(), gamma)


def test_inputs_are_places_of_the_text():
    found, whole = given(3), given(20)
    assert found.p.shape == (1, 4, 29) and found.q.shape == (1, 3, 29)
    assert whole.p.shape == (1, 21, 29)  # of 12 places, again from the first on
    np.testing.assert_array_equal(whole.p[:, 12:], whole.p[:, :9])
    np.testing.assert_array_equal(whole.p[:, :4], found.p)
    assert ((found.tokens >= 0) & (found.tokens < 29)).all()


def by_hand(verify, key, inputs, loops: int) -> Verdict:
    verdict = verify(key, inputs)
    for i in range(1, loops):
        inputs = timing.turned(inputs, jnp.int32(i), verdict)
        verdict = verify(key, inputs)
    return verdict


@pytest.mark.parametrize("method", EVERY[1:3], ids=lambda m: m.name)
def test_every_turn_verifies_other_inputs(method):
    """A loop whose inputs stay, of which a compiler may do all but one turn's work at
    once, gives another verdict than the turns by hand."""
    verify, key = timing.build_verify(method), jax.random.split(jax.random.key(0), 1)
    wanted = by_hand(jax.jit(verify), key, given(), 4)
    found = timing.looped(verify, 4)(key, given())
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_allclose(found.accept_prob, wanted.accept_prob, rtol=1e-5)
    stays = timing.looped(verify, 4, lambda same, i, verdict: same)(key, given())
    same = np.allclose(stays.accept_prob, wanted.accept_prob, rtol=1e-5)
    assert not (same and np.array_equal(stays.tokens, wanted.tokens))


def test_a_turn_changes_every_row_of_both_models():
    before, verdict = given(), Verdict(None, jnp.array([[3]]), None)
    after = timing.turned(before, jnp.int32(2), verdict)
    for one, other in ((before.p, after.p), (before.q, after.q)):
        assert ((one != other).sum(-1) == 1).all()
    assert (after.start == before.start + 1).all()


def test_times_are_of_every_method_and_gamma():
    chosen = [methods.baseline(), methods.exact()]
    found = timing.verification(chosen, {None: [given(2)]}, rounds=2, loops=2)
    assert set(found) == {("baseline", 2), ("exact", 2)}
    assert all(one.shape == (2,) and (one > 0).all() for one in found.values())
    one = timing.spread(np.array([1.0, 2.0, 3.0, 10.0]))
    assert one["median"] == 2.5 and one["low"] == 1.75 and one["high"] == 4.75


def test_what_xla_says_of_a_program():
    small, large = (timing.program(methods.exact(), given(g)) for g in (2, 8))
    assert large.accessed > small.accessed > 0 and large.operations > small.operations
    assert large.peak > small.peak >= small.temporary


# Decoding.


def sample(new_tokens: int = 6) -> runs.Sample:
    return runs.sampled("unconditional", 1.0, 4, 0, new_tokens)


def test_a_sample_is_a_share_by_its_seed():
    one, same, other = (runs.sampled("docs", 0.1, 10, seed, 100) for seed in (0, 0, 1))
    assert len(one.prompts.tokens) == len(one.references) == 12 and one.count == 120
    assert one.references == same.references != other.references
    whole = runs.sampled("docs", 1.0, 1, 0, 100)
    at = whole.references.index(one.references[0])
    assert whole.prompts.inputs[at] == one.prompts.inputs[0]
    for wrong in ((0.0, 1), (1.5, 1), (1.0, 0)):
        with pytest.raises(ValueError, match="need a share"):
            runs.sampled("docs", *wrong, 0, 100)


@functools.cache
def decoded(name: str, gamma: int, new_tokens: int = 6) -> runs.Run:
    method = {m.name: m for m in EVERY}[name]
    return runs.decode(pair(), method, gamma, sample(new_tokens), 2)


def test_exact_methods_write_the_same_texts():
    one, other = decoded("baseline", 3), decoded("exact", 3)
    for row, wanted in zip(one.texts, other.texts, strict=True):
        np.testing.assert_array_equal(row, wanted)
    assert runs.kept(one) == runs.kept(other)
    lossy = decoded("always", 3)
    assert any(map(lambda a, b: not np.array_equal(a, b), one.texts, lossy.texts))


def test_the_control_keeps_all_that_is_tested():
    found = runs.kept(decoded("always", 3))
    assert found["acceptance_tested"] == 1 > found["acceptance"] > 0
    assert runs.kept(decoded("exact", 3))["acceptance_tested"] < 1
    assert found["drafted_per_call"] == 3


def test_the_schedule_begins_at_5_and_grows_by_2():
    """Everything is kept: drafts of 5, then 7 of which the limit of 8 needs 2."""
    counts = decoded("always", runs.SCHEDULE, 8).counts
    unended = np.asarray(counts.drafted)[np.asarray(counts.accepted) == 7]
    assert len(unended) and set(unended.tolist()) == {12}


def test_a_ratios_error():
    part, whole = np.array([1.0, 3.0, 2.0]), np.array([4.0, 4.0, 4.0])
    wanted = np.std(part / 4, ddof=1) / np.sqrt(3)
    assert runs.error_of_ratio(part, whole) == pytest.approx(wanted)
    assert runs.error_of_ratio(part[:1], whole[:1]) is None


def test_repeats_of_a_prompt_are_no_further_prompts():
    part, whole = np.array([1, 3, 2]), np.array([4, 4, 5])
    texts = [np.zeros(4, int)] * 12

    def error(repeats: int, claimed: int) -> float:
        each = (np.tile(x, repeats) for x in (whole, whole, whole, part))
        return runs.kept(runs.Run(Counts(*each), texts), claimed)["acceptance_se"]

    once = runs.error_of_ratio(part, whole)
    assert error(1, 1) == error(4, 4) == pytest.approx(once)
    assert error(4, 1) < 0.6 * once  # as if they were


def test_rouge_of_the_references_themselves():
    pieces = runs.sentencepiece.SentencePieceProcessor(
        model_file=str(runs.tasks.T5_TOKENIZER)
    )
    few = runs.sampled("docs", 0.03, 2, 0, 100)
    ids = [np.array([*pieces.encode(said), few.prompts.end]) for said in few.references]
    made = runs.Run(Counts(*[np.ones(8)] * 4), ids * 2)
    assert runs.rouge1(made, few)["rouge1"] > 0.95
    turned = runs.Run(made.counts, (ids[1:] + ids[:1]) * 2)
    assert runs.rouge1(turned, few)["rouge1"] < 0.5
    assert runs.rouge1(made, sample()) == {}


# Rows.


@functools.cache
def main_row() -> dict:
    chosen = methods.of_text(1e4, token.verifier, None)[:3]
    measure = functools.partial(rows.measured, rows.texts)
    return measure(pair(), SMALL, chosen, rows.sample_of(SMALL))


def test_what_a_main_row_reports(monkeypatch):
    monkeypatch.setattr(rows, "STEPS", (1,))
    found = main_row()
    json.dumps(found, allow_nan=False)
    names = ("baseline", "exact", "sigmoid_1e4")
    assert found["methods"] == list(names) and found["texts"] == 4
    for name in names:
        for key in (*lines.TEXT, *lines.WALL):
            assert f"{key}_{name}" in found or key == "rouge1"
        assert f"acceptance_{name}_g2" in found or name == "baseline"
    assert found["guarantees"]["sigmoid_1e4"].startswith("lossy")
    assert set(found["kernels"]) == {*names}
    assert found["kernels"]["exact"]["verify"] == "reference"
    assert found["acceptance_baseline"] == found["acceptance_exact"]
    assert 0 < found["step_share_g1"]
    (table,) = lines.wider({"code": {"measured": found}})
    assert len(table[2]) == 3 and all(len(x) == len(table[1]) for x in table[2])


def test_reductions_are_against_the_baseline_of_the_same_filter():
    chosen = [methods.baseline(), methods.exact(), methods.baseline(50)]
    chosen.append(methods.by_sigmoid(1e4, top_k=50))
    times, calls = (10.0, 8.0, 20.0, 5.0), (4, 4, 4, 8)
    found = {}
    for method, us, count in zip(chosen, times, calls, strict=True):
        found |= {f"us_{method.name}": us, f"calls_{method.name}": count}
    made = rows.profile(found, chosen)
    assert made["step_reduction_exact"] == pytest.approx(20)
    assert made["step_reduction_sigmoid_1e4_top50"] == pytest.approx(75)
    assert made["profile_reduction_sigmoid_1e4_top50"] == pytest.approx(50)
    assert made["profile_reduction_baseline_top50"] == 0


def test_a_row_of_times():
    chosen = methods.of_text(1e4, token.verifier, None)[:2]
    found = rows.times(pair(), SMALL._replace(rounds=2), chosen, sample())
    assert found["gamma"] == [2] and len(found["median_us_exact"]) == 1
    assert found["us_exact_g2"] == found["median_us_exact"][0] > 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (SMALL._replace(gammas=(0,)), "gammas must be in 1..20"),
        (SMALL._replace(gammas=()), "gammas must be in 1..20"),
        (SMALL._replace(rounds=0), "at least 1"),
        (SMALL._replace(share=2.0), "share"),
        (SMALL._replace(task="nothing"), "no task"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        rows.text_row(*pair(), setting)


def test_scales_have_lines_with_the_filter_and_without():
    names = {method.name for method in methods.of_scale((1e1, 1e3, 1e4, 1e5))}
    told = {one.quantity for one in lines.wagner_scale().lines if one.needs is None}
    assert told >= {f"acceptance_{name}" for name in names}
    assert len(names) == 2 * (2 * 4 + 2)


@pytest.mark.parametrize("folder", CONFIGS)
def test_rows_are_files_that_say_their_command(folder):
    table = TABLES[folder]()
    ours = [one for one in table.lines if one.needs is None]
    assert {one.row for one in ours} == {path.stem for path in CONFIGS[folder]}
    assert all(one.folder == folder for one in table.lines)
    assert not any(one.published for one in ours)
    for path in CONFIGS[folder]:
        assert f"gin_configs/{folder}/{path.name}" in path.read_text()
        measure = run.build(path).row.measurement
        setting = measure.run.args[2]
        if folder == "wagner_text":
            assert setting.gammas == lines.gammas_of(path.stem)
        assert measure.module == "experiments.wagner.rows"
        assert len(measure.inputs) >= 4  # two models, texts, a tokenizer


def test_published_numbers_are_the_papers():
    found = json.loads(line.PUBLISHED.read_text())["wagner2024"]
    seven = found["table7_sigmoid_scale"]["rows"]
    assert len(seven) == 6 * 5
    two = {
        (task.startswith("xsum"), beta): (metric, time)
        for task, _, beta, metric, time in found["table2_sigmoid_scale"]["rows"]
    }
    for model, _, scale, *rest in seven:
        if model in ("whisper_small_en", "llama2_7b"):
            assert two[model == "llama2_7b", scale] == tuple(rest)
    printed = [one.published for one in lines.wagner_scale().lines if one.needs]
    wanted = [x for row in seven for x in row[3:] if x is not None]
    assert sorted(printed) == sorted(wanted)
    assert sum(one.needs is not None for one in lines.wagner_text().lines) == 18 + 45


def test_a_suffix_follows_what_the_encoder_reads():
    plain, more = (runs.sampled("docs", 0.05, 1, 0, 9, s) for s in ("", "Summary:"))
    for one, other in zip(plain.prompts.inputs, more.prompts.inputs, strict=True):
        assert other[-1] == one[-1] == 1  # the end
        assert other[: len(one) - 1] == one[:-1] and len(other) > len(one)
    with pytest.raises(ValueError, match="an encoder reads"):
        runs.sampled("unconditional", 1.0, 1, 0, 9, "Summary:")
