"""XLA's counts against products counted by hand, on models that compile fast.

A product of [m, k] and [k, n] is 2 m n k operations.
"""

import jax
import numpy as np
import pytest

from experiments import tasks
from experiments.papers.leviathan import operations
from experiments.papers.leviathan.operations import Cost, Costs, OperationsSetting
from experiments.records import records
from specjax import configs, sides
from specjax.drafters import ngram
from specjax.measure import texts as decoding
from specjax.measure.texts import Calls, Protocol
from specjax.models import gpt
from specjax.native import product
from specjax.theory import closed_forms
from tests.support import tiny

pytestmark = pytest.mark.slow

# Wide enough that products are nearly all there is.
TARGET = gpt.Config(vocab=320, dim=96, mlp_dim=384, num_layers=2, num_heads=2)
DRAFT = TARGET._replace(num_layers=1)
GAMMA, SLOTS = 4, 24
SETTING = OperationsSetting(GAMMA, batch=1, slots=SLOTS)
PROTOCOL = Protocol("tiny", 1.0, gamma=GAMMA, new_tokens=12, batch=4)


def player(name, config):
    model = gpt.build(config)
    return sides.of_model(name, model, tiny.weights(config, 0, scale=1.0))


@pytest.fixture(scope="module")
def target():
    return player("target", TARGET)


@pytest.fixture(scope="module")
def draft():
    return player("draft", DRAFT)


@pytest.fixture(scope="module")
def costs(target, draft):
    """Where thin products would be used of matrices as small as these: XLA counts no
    operation of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "LEAST", 1)
        return operations.count(target, draft, SETTING)


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    known = decoding.Prompts([[1], [1, 5, 9]])
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(known, [], ()))


def layers(config, tokens, slots=SLOTS):
    """Projections, the two products of attention, feed-forward; all the layers."""
    square, wide = config.dim**2, config.dim * config.mlp_dim
    each = 4 * square + 2 * wide + 2 * slots * config.dim
    return 2 * tokens * config.num_layers * each


def readout(config, tokens):
    return 2 * tokens * config.dim * config.vocab


def test_a_target_call(costs):
    for cost, tokens in ((costs.alone, 1), (costs.target, GAMMA + 1)):
        by_hand = layers(TARGET, tokens) + readout(TARGET, tokens)
        assert by_hand < cost.operations < 1.1 * by_hand


def test_a_drafted_token_and_the_catch_up(costs):
    further = layers(DRAFT, 1) + readout(DRAFT, 1)
    assert costs.next.operations == pytest.approx(further, rel=0.1)
    # The first is fed the last two tokens, of which one is read out.
    first = layers(DRAFT, 2) + readout(DRAFT, 1)
    assert costs.first.operations == pytest.approx(first, rel=0.1)


def test_a_loop_would_be_counted_once(draft):
    """Why a drafter of one token is compiled too: a loop costs too little."""

    def counted(gamma):
        drafter = draft.drafter(gamma)
        decoder = operations.Decoder(draft.model, drafter)
        params = operations.Params(draft.params, draft.params)
        inputs = operations.shapes(decoder, params, OperationsSetting(gamma, 1, SLOTS))

        def plain(state, request):
            return drafter.draft(request.key, draft.params, request, state)

        lowered = jax.jit(plain).lower(*reversed(inputs))
        return lowered.compile().cost_analysis()["flops"]

    assert counted(2) == pytest.approx(counted(8), rel=0.02)
    assert counted(1) < 0.8 * counted(2)


def test_a_step_is_its_calls_and_little_more(costs):
    drafted = costs.first.operations + (GAMMA - 1) * costs.next.operations
    calls = costs.target.operations + drafted
    assert calls < costs.step.operations < 1.1 * calls
    alone = costs.alone.operations
    assert alone < costs.step_alone.operations < 1.1 * alone


def test_every_row_of_a_batch_costs_the_same(target, draft, costs):
    many = operations.count(target, draft, SETTING._replace(batch=3))
    for single, batched in zip(costs, many, strict=True):
        assert batched.operations == pytest.approx(3 * single.operations, rel=0.02)
    # Not the bytes: the weights are read once for all rows.
    assert many.alone.bytes < 2 * costs.alone.bytes
    text = {"alpha": 0.5, "alpha_se": None}
    text |= {"tokens_per_call": 2.0, "tokens_per_call_se": None}
    row = [
        operations.per_token(counted, SETTING._replace(batch=batch), text)
        for counted, batch in ((costs, 1), (many, 3))
    ]
    for name in ("operations_per_token", "operations_per_token_autoregressive"):
        assert row[1][name] == pytest.approx(row[0][name], rel=0.02)


def test_a_call_reads_the_weights_once(target, costs):
    read = operations.weight_bytes(target) - 4 * TARGET.vocab * TARGET.dim
    assert read < costs.alone.bytes < 1.5 * read
    assert costs.target.bytes < 1.5 * costs.alone.bytes


def test_a_table_is_not_read_whole(target):
    texts = np.random.default_rng(0).integers(3, TARGET.vocab, (40, 200))
    counts = ngram.fit(texts.tolist(), TARGET.vocab)
    bigram = sides.Side(
        "bigram",
        counts,
        TARGET.vocab,
        lambda gamma: ngram.build(TARGET.vocab, gamma),
        sides.TABLE,
    )
    costs = operations.count(target, bigram, SETTING)
    assert costs.first.bytes < operations.weight_bytes(bigram) / 2
    assert costs.next.operations < 0.1 * costs.alone.operations


def test_what_is_reported_by_hand():
    costs = Costs(
        alone=Cost(100.0, 50.0),
        target=Cost(410.0, 56.0),
        first=Cost(30.0, 7.0),
        next=Cost(15.0, 6.0),
        step_alone=Cost(110.0, 60.0),
        step=Cost(500.0, 90.0),
    )
    text = {"alpha": 0.5, "alpha_se": 0.01}
    text |= {"tokens_per_call": 2.5, "tokens_per_call_se": 0.05}
    setting = OperationsSetting(3, 2, 24)
    row = operations.per_token(costs, setting, text)
    tokens = 1.875  # Eq. 1: (1 - 1 / 16) / (1 - 1 / 2), and not 2.5
    # A draft is 30 + 2 * 15 = 60 operations and 7 + 2 * 6 = 19 bytes. Eq. 1 grows by
    # 1 + 2 / 2 + 3 / 4 = 2.75 with alpha.
    assert row == pytest.approx(
        {
            "c_hat": 0.2,
            "operations_per_token_autoregressive": 50.0,
            "operations_per_token": 470 / 2 / 2.5,
            "operations_factor": 4.7 / 2.5,
            "operations_factor_se": 4.7 / 2.5 * 0.02,
            "operations_factor_theorem": (3 * 0.2 + 4) / tokens,
            "operations_factor_theorem_se": (3 * 0.2 + 4) / tokens**2 * 2.75 * 0.01,
            "bytes_per_token_autoregressive": 25.0,
            "bytes_per_token": 75 / 2 / 2.5,
            "bytes_factor": 1.5 / 2.5,
            "bytes_factor_expected": 1 / tokens,
        },
        rel=1e-3,
    )
    # The theorem does not know the run that it is compared with.
    other = operations.per_token(costs, setting, text | {"tokens_per_call": 3.0})
    for name in ("c_hat", "operations_factor_theorem", "bytes_factor_expected"):
        assert other[name] == row[name]


def test_a_given_alpha_is_not_measured(target, draft, monkeypatch):
    monkeypatch.setattr(operations, "pairs", None)
    row = operations.build(target, draft, PROTOCOL, 1, SLOTS, alpha=0.6).run()
    assert row["alpha"] == 0.6
    assert row["tokens_per_call"] == closed_forms.expected_tokens(0.6, GAMMA)
    assert (row["gamma"], row["batch"], row["slots"]) == SETTING
    # What the theorem leaves out is how a call of several tokens differs from several.
    theorem = row["operations_factor_theorem"]
    assert row["operations_factor"] == pytest.approx(theorem, rel=0.03)
    assert row["operations_per_call"]["target"] > 0
    assert set(row["weight_bytes"]) == {"target", "draft"}


def test_alpha_and_the_tokens_per_call_are_measured_apart(target, draft, monkeypatch):
    """Three texts of 10, 20 and 10 calls, that accept 2 of 3 tested in all; the draft
    is the target, so that alpha is 1 whatever they accepted."""
    calls, accepted = np.array([10, 20, 10]), np.array([10, 30, 20])
    tested, tokens = np.array([20, 40, 30]), np.array([19, 50, 29])

    def speculate(*arguments):
        return Calls(calls, accepted, tested, tokens, [])

    monkeypatch.setattr(operations.pairs, "speculate", speculate)
    short = PROTOCOL._replace(tokens=40)
    row = operations.decode(target, target, short)
    assert row["tokens_per_call"] == pytest.approx(2.5)  # uncut: 100 / 40, not 98
    assert row["tokens_per_call_se"] > 0
    assert row["alpha"] == pytest.approx(1, abs=1e-5)
    assert row["tokens_per_call_eq1"] == pytest.approx(GAMMA + 1, abs=1e-3)
    implied = row["estimates"]["implied_alpha"]["value"]
    assert implied == pytest.approx(closed_forms.implied_alpha(2.5, GAMMA))
    alpha = operations.decode(target, draft, short)["alpha"]
    assert 0 < alpha < 0.99 and abs(alpha - implied) > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(batch=0), "batch must be at least 1"),
        (dict(protocol=PROTOCOL._replace(gamma=0)), "gamma and batch"),
        (dict(slots=GAMMA + 1), "slots must be at least gamma"),
        (dict(draft=sides.random(8)), "one tokenizer"),
        (dict(target=sides.random(8)), "only drafts"),
        (dict(draft=sides.copied()), "no law at every position"),
    ],
)
def test_what_cannot_be_counted_is_refused(target, draft, change, message):
    arguments = dict(target=target, draft=draft, protocol=PROTOCOL, slots=SLOTS)
    with pytest.raises(ValueError, match=message):
        operations.build(**{**arguments, **change})


ROWS = records.rows("operations")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_drafts_what_its_name_says(row):
    built = configs.build(ROWS[row])
    kind, gamma = row.split("_g")
    assert f"\nGAMMA = {gamma}\n" in built.config
    draft = {"small": "CODE_SMALL", "bigram": "BIGRAM"}[kind]
    assert f"\nDRAFT = %{draft}\n" in built.config
