"""Greedy identity: what rounding explains, what it does not, and the command.

Tables of logits are the same in calls of any shape, but for one that rounds by the
shape of a call on every machine. Transformers are `tests/cli/test_families.py`'s.
Axes: N texts, B rows of a batch, T generated tokens, G = gamma, L buffer, V vocabulary.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue
from experiments.exactness import microscope as row
from experiments.report import details
from specjax import fused, generate, pretrained
from specjax.checkpoints import Pretrained
from specjax.cli import microscope
from specjax.drafters import nothing
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftSource
from specjax.exactness import divergence
from specjax.exactness.divergence import (
    Comparison,
    DivergenceSetting,
    GammaReport,
    Oracle,
    Places,
    Report,
)
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.prompts import Prompts
from specjax.step import Decoder
from specjax.types import Params, Verdict, Verifier
from specjax.verifiers import token
from tests.exactness.test_other_engines import EPS, GAP, make_target
from tests.support import bare, tiny
from tests.support.settings import make

pytestmark = pytest.mark.slow

GAMMA, NEW = 3, 16
PROMPTS = Prompts([[i, 3 * i % 4] for i in range(4)], None, ())
TABLES = make(DivergenceSetting, gammas=(GAMMA,), texts=4, new_tokens=NEW, batch=4)
SLOTS = 2 + NEW + GAMMA + 1


def table_pair(dtype: str = "float32") -> tuple[Pretrained, DraftSource]:
    world = tiny.tables()
    model = world.target._replace(shapes=None)
    weights = world.target_weights, world.draft_weights
    named = zip("pq", weights, strict=True)
    target, draft = (
        bare.target(name, model, weights.astype(dtype)) for name, weights in named
    )
    return target, model_source(draft)


@functools.cache
def make_tied_table() -> Report:
    """Returns the report on a target in which id i is followed by i + 1, 5 by 0 and 7
    by 6. After 2 the ids 3 and 4 are nearly tied, and calls of several tokens order
    them the other way round."""
    one = 5 * np.eye(8, dtype=np.float32)[[1, 2, 3, 4, 5, 0, 7, 6]]
    one[2, 4] = 5 - GAP
    many = one.copy()
    many[2, 4] += EPS
    both = make_target(one, many)
    setting = make(DivergenceSetting, gammas=(GAMMA,), texts=8, new_tokens=NEW, batch=4)
    return divergence.examine(
        (both, model_source(both)), Prompts([[i] for i in range(8)], None, ()), setting
    )


# The ladder.


def test_rung_1_texts_of_tables_are_identical():
    rung = divergence.examine(table_pair(), PROMPTS, TABLES).found[0]
    for part in (rung.matched, rung.natural):
        assert part.identical == part.texts == 4 and part.places == 4 * NEW
        assert part.equal == 1 and part.eps_max == part.tv_bound == part.observed == 0
    assert rung.oracle == Oracle(4 * NEW, 0, 0.0)
    assert not divergence.failures(rung, strict=True)


def case():
    """Returns the prompts of the tables and a greedy request."""
    prompt, sampling = make_prompt(PROMPTS.tokens), make_sampling(4, 0.0)
    return prompt, make_request(jax.random.key(0), prompt, NEW, sampling)


def test_rung_3_near_ties_part_texts_and_are_explained():
    rung = make_tied_table().found[0]
    told = rung.natural
    assert (told.identical, told.explained, told.unexplained) == (2, 6, 0)
    assert told.eps_max == pytest.approx(EPS, rel=1e-2) and told.equal < 1
    assert 0 < told.observed <= told.bound and 0 < told.expected <= told.bound
    assert told.tv_max <= told.tv_bound
    assert rung.matched.identical == 8 and rung.matched.equal == 1
    assert rung.oracle.below == 0 and make_tied_table().margins.shape == (8 * NEW,)
    assert not divergence.failures(rung, strict=True)
    json.dumps(row.numbers(make_tied_table()), allow_nan=False)  # a record's


# Broken twins.


def accept_everything(target, draft, noise, keep_residual=False) -> Verdict:
    """Returns the verdict of Algorithm 1 with every drafted token accepted."""
    right = token.verify(target, draft, noise, keep_residual)
    extra = jnp.take_along_axis(right.tokens, right.num_accepted[:, None], axis=1)[:, 0]
    tokens = token.emit(draft, draft.num, extra)
    return right._replace(num_accepted=draft.num, tokens=tokens)


def test_a_verifier_that_accepts_a_wrong_token_is_unexplained():
    wrong = fused.reference(Verifier(token.noise, accept_everything))
    rung = divergence.examine(table_pair(), PROMPTS, TABLES, wrong).found[0]
    assert rung.natural.unexplained > 0 and rung.matched.unexplained > 0
    assert rung.oracle.below > 0
    failed = " ".join(divergence.failures(rung, strict=False))
    assert "unexplained in natural" in failed and "unexplained in matched" in failed
    assert "below the full forward" in failed


def table_texts(decoder: Decoder, wrong_prefix: bool = False) -> divergence.Text:
    """Returns texts of the tables, with the right model's logits."""
    (target, draft), (prompt, request) = table_pair(), case()
    rows, sizes = decoder.drafter.gamma + 1, (SLOTS, NEW)
    right = divergence.build_read(target.model, sizes, rows)

    def read(params, prompt, whole, begins):
        whole = jnp.roll(whole, 1, axis=1) if wrong_prefix else whole
        return right(params, prompt, whole, begins)

    begins = divergence.starts_at_every_row(NEW, rows)
    text = divergence.build_text(decoder, sizes, read, begins)
    return text(Params(target.params, draft.params), prompt, request)


def compare_texts(base, text) -> divergence.Comparison:
    return divergence.summarize(divergence.compare(base, text))


def test_a_run_that_reads_what_is_wrong_is_unexplained():
    """In calls of several tokens it takes the logits of the token before."""
    target, draft = table_pair()
    right = target.model

    def apply(params, tokens, start, cache):
        late = jnp.roll(tokens, 1, axis=1) if tokens.shape[1] == GAMMA + 1 else tokens
        return right.apply(params, late, start, cache)

    broken = right._replace(apply=apply)
    base = table_texts(Decoder(right))
    for model, wrong in ((right, 0), (broken, 4)):
        text = table_texts(Decoder(model, draft.drafter(GAMMA)))
        assert compare_texts(base, text).unexplained == wrong


def test_an_eps_of_another_prefix_is_noticed():
    """A wrong eps would explain any difference."""
    (target, draft), wrong = table_pair(), Verifier(token.noise, accept_everything)
    base = table_texts(Decoder(target.model))
    decoder = Decoder(target.model, draft.drafter(GAMMA), wrong)
    rung = compare_texts(base, table_texts(decoder, wrong_prefix=True))
    assert rung.identical == 0
    honest = compare_texts(base, table_texts(decoder))
    assert honest.unexplained > rung.unexplained and honest.eps_max == 0
    assert rung.eps_max > 1 and rung.lost > rung.places / 2
    failed = divergence.failures(
        GammaReport(GAMMA, rung, rung, Oracle(1, 0, 0.0)), True
    )
    assert any("not what their logits say" in line for line in failed)


# The padded baseline.


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padded_is_autoregression_in_longer_calls(temperature):
    (target, _), (prompt, request) = table_pair(), case()
    sampling = make_sampling(4, temperature)
    request, widths = request._replace(sampling=sampling), []

    def apply(params, tokens, start, cache):
        widths.append(tokens.shape[1])
        return target.model.apply(params, tokens, start, cache)

    model = target.model._replace(apply=apply)
    decoder = Decoder(model, nothing.build(GAMMA))
    got = generate.build(decoder, SLOTS)(Params(target.params), prompt, request)
    assert set(widths) == {2, GAMMA + 1}
    wanted = generate.autoregressive(target.model, SLOTS)
    wanted = wanted(Params(target.params), prompt, request)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    np.testing.assert_array_equal(got.counts.calls, np.full(4, NEW))
    assert not np.any(got.counts.drafted)


# Numbers by hand.


def places(**fields) -> Places:
    """Returns two texts of four places, the first of which differs from its third place
    on."""
    live = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
    differ = np.array([[0, 0, 1, 0], [0, 0, 0, 0]], bool)
    zero = np.zeros((2, 4))
    usual = dict(margin=zero + 1, gap=zero, eps=zero, shift=zero, tv=zero)
    return Places(live, differ, **usual | {"lost": zero} | fields)


@pytest.mark.parametrize(
    ("eps", "gap", "explained"),
    [
        ([0.0, 0.0, 0.5, 0.0], 1.0, 1),  # gap = 2 eps
        ([0.0, 0.0, 0.5, 0.0], 1.01, 0),
        ([0.5, 0.0, 0.1, 0.0], 1.0, 1),  # eps of an earlier place
        ([0.0, 0.0, 0.1, 9.0], 1.0, 0),  # eps after the divergence
        ([0.0, 0.0, np.nan, 0.0], 0.0, 0),
        ([0.0, 0.0, 0.5, 0.0], np.inf, 0),  # the text ended
    ],
)
def test_what_is_explained(eps, gap, explained):
    gaps = np.array([[0, 0, gap, 0], [0, 0, 0, 0]])
    other = np.full(4, 100.0)  # the eps of another text
    rung = divergence.summarize(places(eps=np.array([eps, other]), gap=gaps))
    assert (rung.explained, rung.unexplained) == (explained, 1 - explained)
    assert rung.texts == 2 and rung.identical == 1 and rung.places == 7
    assert rung.observed == 1 / 7


def test_rates_of_flips():
    margin = np.array([[0.1, 0.2, 0.3, 0.0], [0.4, 0.5, 0.6, 0.7]])
    shift = np.array([[-0.3, 0.25, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    eps = np.array([[0.0, 0.15, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    rung = divergence.summarize(places(margin=margin, shift=shift, eps=eps))
    assert rung.bound == pytest.approx(3 / 7)  # 0.1, 0.2 and 0.3 are within 0.3
    # 0.25 beats 0.1 and 0.2, and 0.1 beats 0.1.
    assert rung.expected == pytest.approx(3 / 49)
    assert rung.eps_max == 0.15 and rung.eps_mean == pytest.approx(0.25 / 7)
    assert rung.equal == pytest.approx(5 / 7)


def test_a_law_moves_by_no_more_than_its_bound():
    rng = np.random.default_rng(0)
    for eps in (0.01, 0.3, 2.0):
        base = rng.normal(size=(1, 50, 3)).astype(np.float32)
        moved = base + eps * rng.choice([-1, 1], base.shape).astype(np.float32)
        ids = np.zeros((1, 50), int)
        both = (divergence.Text(None, ids, z[None]) for z in (base, moved))
        compared = divergence.compare(*both)
        rung = divergence.summarize(compared)
        assert rung.eps_max == pytest.approx(eps, rel=1e-4)
        assert rung.tv_max <= rung.tv_bound
        assert rung.tv_bound == pytest.approx(min(np.expm1(2 * eps) / 2, 1), rel=1e-3)
        law = np.exp(np.stack([base, moved]))
        law /= law.sum(-1, keepdims=True)
        tv = np.abs(law[0] - law[1]).sum(-1) / 2
        np.testing.assert_allclose(compared.tv, tv, atol=1e-6)


# What fails, the command and its rows.

GOOD = Comparison(4, 4, 0, 0, 64, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
APART = GOOD._replace(identical=3, explained=1, equal=0.5, eps_max=2e-5)
FOUND = GammaReport(4, GOOD, APART, Oracle(64, 0, 1e-5))
REPORT = Report(np.linspace(0, 1, 64), [FOUND])
WRONG = {
    "unexplained in natural": FOUND._replace(natural=APART._replace(unexplained=2)),
    "unexplained in matched": FOUND._replace(matched=APART._replace(unexplained=2)),
    "below the full": FOUND._replace(oracle=Oracle(64, 1, 1e-5)),
}
STRICT = {
    "differ in matched": FOUND._replace(matched=APART),
    "not what their logits": FOUND._replace(natural=APART._replace(lost=3)),
}


def run_command(monkeypatch, rung: GammaReport) -> int:
    """Runs the command with this in place of the measured rung."""
    report = Report(np.linspace(0, 1, 64), [rung])
    monkeypatch.setattr(microscope, "examine", lambda *_: report)
    return microscope.main(["--dtype", "float32"])


def test_the_command_prints_and_fails(monkeypatch, capsys, refused):
    monkeypatch.setattr(pretrained, "load", functools.cache(pretrained.load))
    assert run_command(monkeypatch, FOUND) == 0
    printed = capsys.readouterr().out
    assert "code_target with code_small, float32" in printed and "2.0e-05" in printed
    assert "Nothing differs by more" in printed and "Not a CPU" not in printed
    for wrong, rung in (WRONG | STRICT).items():
        assert run_command(monkeypatch, rung) == 1
        assert wrong in capsys.readouterr().out
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for rung in STRICT.values():
        assert run_command(monkeypatch, rung) == 0
        assert "Not a CPU" in capsys.readouterr().out
    monkeypatch.undo()
    for flags, told in (
        ("--target t5_target --draft t5_small", "name a file of inputs with --data"),
        ("--batch 3", "16 texts do not fill batches of 3"),
    ):
        assert told in refused(microscope.main, flags.split())


def test_a_row_fills_its_lines():
    numbers = row.numbers(REPORT)
    assert numbers["identical_percent"] == 75
    assert numbers["matched_percent"] == numbers["matched_percent_g4"] == 100
    assert numbers["explained"] == 1 and numbers["unexplained"] == 0
    assert numbers["eps_max"] == numbers["eps_max_g4"] == 2e-5
    assert numbers["margin_min"] <= numbers["margin_10%"] <= numbers["margin_50%"]
    lines = catalogue.find_table("microscope").lines
    assert {line.quantity for line in lines} <= set(numbers)
    record = {"measured": numbers | {"target": "p", "draft": "q"}}
    record["provenance"] = {"dtype": "bfloat16"}  # gammas are lines of their own
    (grid,) = details.microscope({"microscope": {"halves": record}})
    (cells,) = grid.rows
    assert len(cells) == len(grid.head)
    assert cells[:3] == ["p with q, bfloat16", "4", "100 %"]
    with pytest.raises(ValueError, match="gammas must be at least 1"):
        row.build(*table_pair(), task="code", gammas=(), texts=4, tokens=4)
