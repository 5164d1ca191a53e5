"""What is measured after Wagner et al. (2024) is what it says, and broken twins differ.

Axes: B rows, G = gamma, V vocabulary.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue
from experiments.papers.wagner import distances, methods, rows, runs, timing
from experiments.records import records
from experiments.records.table import PUBLISHED
from experiments.report import details
from specjax import configs, sides
from specjax.generate import Counts
from specjax.measure import texts as decoding
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.types import Verdict
from specjax.verifiers import token
from tests.support import tiny

pytestmark = pytest.mark.slow

TABLES = {"wagner_time": "figure_wagner"}
TABLES |= {name: name for name in ("wagner_text", "wagner_scale")}
SMALL = rows.WagnerSetting(
    "unconditional", gammas=(2,), repeats=4, new_tokens=6, batch=4, timed=2, rounds=1
)
METHODS = {method.name: method for method in methods.of_text(1e4, token.verifier, None)}


def lines_of(table: str, row: str) -> list:
    """The lines of one of our own rows."""
    return [line for line in catalogue.named(table).lines if line.row == row]


@functools.cache
def pair() -> tuple:
    world = tiny.transformers()
    other = tiny.mixed(world.target_weights, tiny.weights(tiny.TARGET, 52), 1.0)
    return (
        sides.of_model("target", world.target, world.target_weights),
        sides.of_model("draft", world.draft, other),
    )


@functools.cache
def text() -> decoding.Text:
    protocol = Protocol("", 1.0, 30, 0, 0, 12, 4)
    return decoding.write(pair()[0], Prompts([[1], [2, 3]], ends=()), protocol)


def test_distances_over_a_text():
    chosen = [methods.baseline(), methods.by_sigmoid(1e4), methods.always()]
    apart = distances.distances(pair(), chosen, text())
    base, lossy, control = (apart[method.name] for method in chosen)
    assert max(base["tv_out_p"], base["tv_bonus_p"]) < 1e-5
    # out = p is 1 - alpha away from q; keeping everything is as far from p.
    assert base["tv_out_q"] == pytest.approx(1 - base["kept"], abs=1e-5)
    assert control["tv_out_p"] == pytest.approx(base["tv_out_q"], abs=1e-5)
    assert control["kept"] == 1 and control["tv_out_q"] == 0
    assert lossy["kept"] > 0.999 and lossy["tv_out_q"] < 1e-3
    assert lossy["tv_bonus_p"] > 0.3


def test_a_filter_is_of_both_sides():
    whole, cut = pair(), methods.filtered(pair(), 5)
    assert methods.filtered(pair(), None) is whole
    for player, limited in zip(whole, cut, strict=True):
        prompt = runs.take(Prompts([[1, 4, 7]]), [0])
        z, kept = timing.logits_of(player, prompt), timing.logits_of(limited, prompt)
        assert jnp.isfinite(z).all() and (jnp.isfinite(kept).sum(-1) == 5).all()
        np.testing.assert_array_equal(jnp.where(jnp.isfinite(kept), z, kept), kept)


def inputs(gamma: int = 3) -> timing.Inputs:
    return timing.inputs_of(pair(), text(), gamma)


def test_inputs_are_places_of_the_text():
    few, whole = inputs(3), inputs(20)
    assert few.p.shape == (1, 4, 29) and few.q.shape == (1, 3, 29)
    assert whole.p.shape == (1, 21, 29)  # of 12 places, again from the first on
    np.testing.assert_array_equal(whole.p[:, 12:], whole.p[:, :9])
    np.testing.assert_array_equal(whole.p[:, :4], few.p)
    assert ((few.tokens >= 0) & (few.tokens < 29)).all()


@pytest.mark.parametrize("name", ["exact", "sigmoid_1e4"])
def test_every_turn_verifies_other_inputs(name):
    """A loop whose inputs stay, of which a compiler may do all but one turn's work at
    once, gives another verdict than the turns by hand."""
    verify, key = (
        timing.build_verify(METHODS[name]),
        jax.random.split(jax.random.key(0), 1),
    )
    by_hand, turn = jax.jit(verify), inputs()
    wanted = by_hand(key, turn)
    for i in range(1, 4):
        turn = timing.turned(turn, jnp.int32(i), wanted)
        wanted = by_hand(key, turn)
    verdict = timing.looped(verify, 4)(key, inputs())
    np.testing.assert_array_equal(verdict.tokens, wanted.tokens)
    np.testing.assert_allclose(verdict.accept_prob, wanted.accept_prob, rtol=1e-5)
    stays = timing.looped(verify, 4, lambda same, i, verdict: same)(key, inputs())
    same = np.allclose(stays.accept_prob, wanted.accept_prob, rtol=1e-5)
    assert not (same and np.array_equal(stays.tokens, wanted.tokens))


def test_a_turn_changes_every_row_of_both_models():
    before, verdict = inputs(), Verdict(None, jnp.array([[3]]), None)
    after = timing.turned(before, jnp.int32(2), verdict)
    for old, new in ((before.p, after.p), (before.q, after.q)):
        assert ((old != new).sum(-1) == 1).all()
    assert (after.start == before.start + 1).all()


def test_times_are_of_every_method_and_gamma():
    chosen = [methods.baseline(), methods.exact()]
    times = timing.verification(chosen, {None: [inputs(2)]}, rounds=2, loops=2)
    assert set(times) == {("baseline", 2), ("exact", 2)}
    assert all(each.shape == (2,) and (each > 0).all() for each in times.values())
    spread = timing.spread(np.array([1.0, 2.0, 3.0, 10.0]))
    assert spread["median"] == 2.5 and spread["low"] == 1.75 and spread["high"] == 4.75


def test_what_xla_says_of_a_program():
    small, large = (timing.program(methods.exact(), inputs(g)) for g in (2, 8))
    assert large.accessed > small.accessed > 0 and large.operations > small.operations
    assert large.peak > small.peak >= small.temporary


def sample(new_tokens: int = 6) -> runs.Sample:
    return runs.sampled("unconditional", 1.0, 4, 0, new_tokens)


def test_a_sample_is_a_share_by_its_seed():
    first, same, other = (
        runs.sampled("docs", 0.1, 10, seed, 100) for seed in (0, 0, 1)
    )
    assert (
        len(first.prompts.tokens) == len(first.references) == 12 and first.count == 120
    )
    assert first.references == same.references != other.references
    whole = runs.sampled("docs", 1.0, 1, 0, 100)
    at = whole.references.index(first.references[0])
    assert whole.prompts.inputs[at] == first.prompts.inputs[0]
    for wrong in ((0.0, 1), (1.5, 1), (1.0, 0)):
        with pytest.raises(ValueError, match="need a share"):
            runs.sampled("docs", *wrong, 0, 100)


@functools.cache
def decoded(name: str, gamma: int, new_tokens: int = 6) -> runs.Run:
    return runs.decode(pair(), METHODS[name], gamma, sample(new_tokens), 2)


def test_exact_methods_write_the_same_texts():
    base, exact, lossy = (decoded(name, 3) for name in ("baseline", "exact", "always"))
    assert all(map(np.array_equal, exact.texts, base.texts))
    assert runs.kept(base) == runs.kept(exact)
    assert not all(map(np.array_equal, lossy.texts, base.texts))


def test_the_control_keeps_all_that_is_tested():
    control = runs.kept(decoded("always", 3))
    assert control["acceptance_tested"] == 1 > control["acceptance"] > 0
    assert runs.kept(decoded("exact", 3))["acceptance_tested"] < 1
    assert control["drafted_per_call"] == 3


def test_the_schedule_begins_at_5_and_grows_by_2():
    """Everything is kept: drafts of 5, then 7 of which the limit of 8 needs 2."""
    counts = decoded("always", runs.SCHEDULE, 8).counts
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
        return runs.kept(runs.Run(Counts(*each), texts), claimed)["acceptance_se"]

    assert error(1, 1) == error(4, 4) == pytest.approx(wanted)
    assert error(4, 1) < 0.6 * wanted  # as if they were


def test_rouge_of_the_references_themselves():
    pieces = runs.sentencepiece.SentencePieceProcessor(
        model_file=str(runs.tasks.T5_TOKENIZER)
    )
    few = runs.sampled("docs", 0.03, 2, 0, 100)
    ids = [np.array([*pieces.encode(it), few.prompts.ends[0]]) for it in few.references]
    perfect = runs.Run(Counts(*[np.ones(8)] * 4), ids * 2)
    assert runs.rouge1(perfect, few)["rouge1"] > 0.95
    turned = perfect._replace(texts=(ids[1:] + ids[:1]) * 2)
    assert runs.rouge1(turned, few)["rouge1"] < 0.5
    assert runs.rouge1(perfect, sample()) == {}


def test_what_a_main_row_reports(monkeypatch):
    monkeypatch.setattr(rows, "STEPS", (1,))
    names = ["baseline", "exact", "sigmoid_1e4"]
    chosen, sample = [METHODS[name] for name in names], rows.sample_of(SMALL)
    row = rows.measured(rows.texts, pair(), SMALL, chosen, sample)
    json.dumps(row, allow_nan=False)
    assert row["methods"] == names and row["texts"] == 4
    for name in names:
        ours = [line.quantity for line in lines_of("wagner_text", "docs_small")]
        for key in (key for key in ours if key.endswith(f"_{name}")):
            assert key in row or key.startswith("rouge1")
        assert f"acceptance_{name}_g2" in row or name == "baseline"
    assert row["guarantees"]["sigmoid_1e4"].startswith("lossy")
    assert set(row["kernels"]) == set(names)
    assert row["kernels"]["exact"]["verify"] == "reference"
    assert row["acceptance_baseline"] == row["acceptance_exact"]
    assert 0 < row["step_share_g1"]
    records = {"wagner_text": {"code": {"measured": row}}}
    (table,) = details.of("wagner_text", records)
    assert len(table[2]) == 3 and all(len(x) == len(table[1]) for x in table[2])


def test_reductions_are_against_the_baseline_of_the_same_filter():
    chosen = [methods.baseline(), methods.exact(), methods.baseline(50)]
    chosen.append(methods.by_sigmoid(1e4, top_k=50))
    row = {}
    for method, us, calls in zip(
        chosen, (10.0, 8.0, 20.0, 5.0), (4, 4, 4, 8), strict=True
    ):
        row |= {f"us_{method.name}": us, f"calls_{method.name}": calls}
    reductions = rows.profile(row, chosen)
    assert reductions["step_reduction_exact"] == pytest.approx(20)
    assert reductions["step_reduction_sigmoid_1e4_top50"] == pytest.approx(75)
    assert reductions["profile_reduction_sigmoid_1e4_top50"] == pytest.approx(50)
    assert reductions["profile_reduction_baseline_top50"] == 0


def test_a_row_of_times():
    chosen = [METHODS["baseline"], METHODS["exact"]]
    row = rows.times(pair(), SMALL._replace(rounds=2), chosen, sample())
    assert row["gamma"] == [2] and len(row["median_us_exact"]) == 1
    assert row["us_exact_g2"] == row["median_us_exact"][0] > 0


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
    ours = {line.quantity for line in lines_of("wagner_scale", "docs_small")}
    assert ours >= {f"acceptance_{name}" for name in names}
    assert len(names) == 2 * (2 * 4 + 2)


@pytest.mark.parametrize("folder", TABLES)
def test_rows_have_lines(folder):
    table = catalogue.named(TABLES[folder])
    ours = [line for line in table.lines if line.needs is None]
    others = {"wagner_data", "wagner_paper"}  # of decoders
    assert all(line.folder == folder for line in ours)
    assert {line.folder for line in table.lines} <= {folder, *others}
    assert not any(line.published for line in ours)
    for name, file in records.rows(folder).items():
        measure = configs.build(file).row.measurement
        setting = measure.run.args[2]
        if folder == "wagner_text":
            ours = lines_of(folder, name)
            kept = [line for line in ours if "of all, g" in line.what]
            ends = {line.quantity.rpartition("_g")[2] for line in kept}
            assert ends == {*map(str, setting.gammas)}
        assert measure.module == "experiments.papers.wagner.rows"
        assert len(measure.inputs) >= 4  # two models, texts, a tokenizer


def test_published_numbers_are_the_papers():
    published = json.loads(PUBLISHED.read_text())["wagner2024"]
    seven = published["table7_sigmoid_scale"]["rows"]
    assert len(seven) == 6 * 5
    two = {
        (task.startswith("xsum"), beta): (metric, time)
        for task, _, beta, metric, time in published["table2_sigmoid_scale"]["rows"]
    }
    for model, _, scale, *rest in seven:
        if model in ("whisper_small_en", "llama2_7b"):
            assert two[model == "llama2_7b", scale] == tuple(rest)
    every = (line.published for line in catalogue.named("wagner_scale").lines)
    printed = [value for value in every if value is not None]
    wanted = [x for row in seven for x in row[3:] if x is not None]
    assert sorted(printed) == sorted(wanted)
    lines = catalogue.named("wagner_text").lines
    told = [line for line in lines if line.published is not None]
    assert len(told) == 18 + 45 and all(line.needs for line in told)


def test_a_suffix_follows_what_the_encoder_reads():
    plain, more = (runs.sampled("docs", 0.05, 1, 0, 9, s) for s in ("", "Summary:"))
    for ids, longer in zip(plain.prompts.inputs, more.prompts.inputs, strict=True):
        assert longer[-1] == ids[-1] == 1  # the end
        assert longer[: len(ids) - 1] == ids[:-1] and len(longer) > len(ids)
    with pytest.raises(ValueError, match="an encoder reads"):
        runs.sampled("unconditional", 1.0, 1, 0, 9, "Summary:")
