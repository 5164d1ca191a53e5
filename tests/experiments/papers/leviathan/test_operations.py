"""XLA's counts of operations equal products counted by hand: 2 m n k for [m, k] and [k,
n]."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments import tasks
from experiments.papers.leviathan import operations
from experiments.papers.leviathan.operations import Cost, Costs, OperationsSetting
from specjax.decode_config import change
from specjax.drafters import ngram
from specjax.drafts import counts, retrieval
from specjax.drafts.models import model_source
from specjax.drafts.source import TABLE, DraftSource, recipe
from specjax.measure import texts as decoding
from specjax.measure.texts import Calls, Protocol
from specjax.models import gpt
from specjax.native import product
from specjax.theory import closed_forms
from tests.support import bare, tiny
from tests.support.settings import make

pytestmark = pytest.mark.slow

# Wide enough that products are nearly all there is.
TARGET = gpt.Config(vocab=320, dim=96, mlp_dim=384, num_layers=2, num_heads=2)
DRAFT = TARGET._replace(num_layers=1)
GAMMA, SLOTS = 4, 24
SETTING = OperationsSetting(GAMMA, batch=1, slots=SLOTS)
PROTOCOL = make(
    Protocol, task="tiny", temperature=1.0, gamma=GAMMA, new_tokens=12, batch=4
)


@pytest.fixture(scope="module")
def pair():
    target, draft = (tiny.weights(config, 0, scale=1.0) for config in (TARGET, DRAFT))
    return [
        bare.target("target", gpt.build(TARGET), target),
        bare.draft("draft", gpt.build(DRAFT), draft),
    ]


@pytest.fixture(scope="module")
def costs(pair):
    """Where thin products would be used, of which XLA counts no operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "LEAST", 1)
        return operations.count(*pair, SETTING)


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    known = decoding.Prompts([[1], [1, 5, 9]])
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(known, [], ()))


def expected_operations(config, tokens, read):
    """Returns the operations of projections, of both products of attention and of
    feed-forward layers, and of `read` tokens of which logits are computed."""
    square, wide = config.dim**2, config.dim * config.mlp_dim
    each = 4 * square + 2 * wide + 2 * SLOTS * config.dim
    return 2 * (tokens * config.num_layers * each + read * config.dim * config.vocab)


def test_calls_cost_what_one_counts_by_hand(costs):
    for cost, tokens in ((costs.alone, 1), (costs.target, GAMMA + 1)):
        least = expected_operations(TARGET, tokens, tokens)
        assert least < cost.operations < 1.1 * least
    further, first = (expected_operations(DRAFT, tokens, 1) for tokens in (1, 2))
    assert costs.next.operations == pytest.approx(further, rel=0.1)
    # The first is fed the last two tokens, of which one is read out.
    assert costs.first.operations == pytest.approx(first, rel=0.1)
    # A step is its calls, and little more.
    drafted = costs.first.operations + (GAMMA - 1) * costs.next.operations
    calls, alone = costs.target.operations + drafted, costs.alone.operations
    assert calls < costs.step.operations < 1.1 * calls
    assert alone < costs.step_alone.operations < 1.1 * alone


def test_every_row_of_a_batch_costs_the_same(pair, costs):
    many = operations.count(*pair, SETTING._replace(batch=3))
    for single, batched in zip(costs, many, strict=True):
        assert batched.operations == pytest.approx(3 * single.operations, rel=0.02)
    # Not the bytes: the weights are read once for all rows, and once by a call.
    assert many.alone.bytes < 2 * costs.alone.bytes
    read = operations.weight_bytes(pair[0]) - 4 * TARGET.vocab * TARGET.dim
    assert read < costs.alone.bytes < 1.5 * read
    assert costs.target.bytes < 1.5 * costs.alone.bytes


def test_a_table_is_not_read_whole(pair):
    texts = np.random.default_rng(0).integers(3, TARGET.vocab, (40, 200))
    fitted, vocab = ngram.fit(texts.tolist(), TARGET.vocab), TARGET.vocab
    factory = recipe(ngram.build, vocab=vocab)
    bigram = DraftSource("bigram", factory, fitted, vocab, TABLE)
    costs = operations.count(pair[0], bigram, SETTING)
    assert costs.first.bytes < operations.weight_bytes(bigram) / 2
    assert costs.next.operations < 0.1 * costs.alone.operations


def test_what_is_reported_by_hand():
    calls = Cost(100, 50), Cost(410, 56), Cost(30, 7), Cost(15, 6)
    costs = Costs(*calls, step_alone=Cost(110, 60), step=Cost(500, 90))
    text = {"alpha": 0.5, "alpha_se": 0.01}
    text |= {"tokens_per_call": 2.5, "tokens_per_call_se": 0.05}
    row = operations.per_token(costs, OperationsSetting(3, 2, 24), text)
    tokens = 1.875  # Eq. 1: (1 - 1 / 16) / (1 - 1 / 2), and not 2.5
    # A draft is 30 + 2 * 15 = 60 operations and 7 + 2 * 6 = 19 bytes. Eq. 1 grows by
    # 1 + 2 / 2 + 3 / 4 = 2.75 with alpha.
    theorem, factor = (3 * 0.2 + 4) / tokens, 4.7 / 2.5
    wanted = {
        "c_hat": 0.2,
        "operations_per_token_autoregressive": 50.0,
        "operations_per_token": 470 / 2 / 2.5,
        "operations_factor": factor,
        "operations_factor_se": factor * 0.02,
        "operations_factor_theorem": theorem,
        "operations_factor_theorem_se": theorem / tokens * 2.75 * 0.01,
        "bytes_per_token_autoregressive": 25.0,
        "bytes_per_token": 75 / 2 / 2.5,
        "bytes_factor": 1.5 / 2.5,
        "bytes_factor_expected": 1 / tokens,
    }
    assert row == pytest.approx(wanted, rel=1e-3)


def test_a_given_alpha_is_not_measured(pair, monkeypatch):
    monkeypatch.setattr(operations, "pairs", None)
    row = operations.build(*pair, PROTOCOL, batch=1, slots=SLOTS, alpha=0.6).run()
    assert row["tokens_per_call"] == closed_forms.expected_tokens(0.6, GAMMA)
    # What the theorem leaves out is how a call of several tokens differs from several.
    theorem = row["operations_factor_theorem"]
    assert row["operations_factor"] == pytest.approx(theorem, rel=0.03)


def test_alpha_and_the_tokens_per_call_are_measured_apart(pair, monkeypatch):
    """Three texts accept 2 of 3 tested tokens; with the target as its own draft alpha
    is 1."""
    calls, accepted = np.array([10, 20, 10]), np.array([10, 25, 25])
    tested, tokens = np.array([20, 40, 30]), np.array([19, 50, 29])

    def decode(*pair, kernels, seen):
        info = SimpleNamespace(accepted=np.array([2, 1]), tested=np.array([3, 2]))
        seen(np.array([True, True]), None, info)
        yield None, Calls(calls, accepted, tested, tokens, [])

    monkeypatch.setattr(operations.pairs, "decode", decode)
    row = operations.decode(pair[0], model_source(pair[0]), change(PROTOCOL, tokens=40))
    assert row["tokens_per_call"] == pytest.approx(2.5)  # uncut: 100 / 40, not 98
    assert row["tokens_per_call_se"] > 0
    assert row["alpha"] == pytest.approx(1, abs=1e-5)
    assert [row[f"alpha_{i}"] for i in (1, 2, 3)] == [1, 0.5, 0]
    assert row["tokens_per_call_eq1"] == pytest.approx(GAMMA + 1, abs=1e-3)
    implied = row["estimates"]["implied_alpha"]["value"]
    assert implied == pytest.approx(closed_forms.implied_alpha(2.5, GAMMA))


REFUSED = [
    (dict(batch=0), "batch must be at least 1"),
    (dict(protocol=change(PROTOCOL, gamma=0)), "gamma and batch"),
    (dict(slots=GAMMA + 1), "slots must be at least gamma"),
    (dict(draft=counts.random(8)), "one tokenizer"),
    (dict(target=counts.random(8)), "only drafts"),
    (dict(draft=retrieval.copying()), "no law at every position"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_counted_is_refused(pair, change, message):
    arguments = dict(target=pair[0], draft=pair[1], protocol=PROTOCOL, slots=SLOTS)
    with pytest.raises(ValueError, match=message):
        operations.build(**{**arguments, **change})
