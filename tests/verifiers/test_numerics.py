"""Greedy identity on four rungs: what rounding explains, and that it explains no more.

Tables of logits are the same in calls of any shape; `halves` rounds by the shape of a
call on every machine, and its largest two logits are often nearly tied; the
transformers are real.
Axes: N texts, B rows of a batch, T generated tokens, G = gamma, L buffer, V vocabulary.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import run
from experiments.exactness import microscope as row
from experiments.exactness import microscope_table
from experiments.report import tables
from specjax import generate
from specjax.bench import players
from specjax.bench.players import Player
from specjax.bench.texts import Prompts
from specjax.commands import microscope
from specjax.drafters import nothing
from specjax.exactness import divergence, rungs
from specjax.exactness.divergence import DivergenceSetting, Found, Report
from specjax.exactness.rungs import Oracle, Places, Rung
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, t5
from specjax.step import Decoder
from specjax.types import Model, Params, Verdict, Verifier
from specjax.verifiers import token
from tests.support import tiny, tiny_t5

pytestmark = pytest.mark.slow

GAMMA, NEW = 3, 16
PROMPTS = Prompts([[i, 3 * i % 4] for i in range(4)], None, -1)
TABLES = DivergenceSetting((GAMMA,), texts=4, tokens=NEW, batch=4)
SLOTS = 2 + NEW + GAMMA + 1


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Programs run for milliseconds and compile for seconds."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def table_pair(dtype: str = "float32") -> tuple[Player, Player]:
    world = tiny.tables()
    model = world.target._replace(shapes=None)
    weights = world.target_weights, world.draft_weights
    named = zip("pq", weights, strict=True)
    return tuple(players.of_model(n, model, w.astype(dtype)) for n, w in named)


# A model that rounds by the shape of a call.

WIDTH, VOCAB = 16, 256


def halves() -> Model:
    """Weights are two tables of logits [2, V, V]: of calls of one token, and others."""
    model = tiny.markov(VOCAB)

    def apply(params, tokens, start, cache):
        return model.apply(params[min(tokens.shape[1] - 1, 1)], tokens, start, cache)

    return model._replace(apply=apply, shapes=None)


def sums(embedding: jax.Array, readout: jax.Array) -> jax.Array:
    """Logits of both kinds: sums of products, rounded to bfloat16 after each, from the
    first on and from the last on."""
    terms = jnp.moveaxis(embedding[:, :, None] * readout, 1, 0)
    add = functools.partial(functools.reduce, lambda sum, term: sum + term)
    return jnp.stack([add(terms), add(terms[::-1])]).astype(jnp.float32)


@functools.cache
def halves_pair() -> tuple[Player, Player]:
    """Random ones, the draft the target with noise."""

    def draw(seed: int) -> list[jax.Array]:
        keys, shapes = jax.random.split(jax.random.key(seed)), [(VOCAB, WIDTH)]
        shapes.append(shapes[0][::-1])
        both = zip(keys, shapes, strict=True)
        return [jax.random.normal(*one, jnp.bfloat16) for one in both]

    target = draw(3)
    draft = tiny.mixed(target, draw(4), 0.2)
    model = halves()
    named = zip(("target", "draft"), (sums(*target), sums(*draft)), strict=True)
    return tuple(players.of_model(name, model, logits) for name, logits in named)


HALVES = Prompts([[i] for i in range(16)], None, -1)
MANY = DivergenceSetting((GAMMA,), texts=16, tokens=NEW, batch=4)


@functools.cache
def parted() -> Report:
    return divergence.look(halves_pair(), HALVES, MANY)


# The ladder.


def test_rung_1_texts_of_tables_are_identical():
    found = divergence.look(table_pair(), PROMPTS, TABLES).rungs[0]
    for one in (found.matched, found.natural):
        assert one.identical == one.texts == 4 and one.places == 4 * NEW
        assert one.equal == 1 and one.eps_max == one.tv_bound == one.observed == 0
    assert found.oracle == Oracle(4 * NEW, 0, 0.0)
    assert not divergence.failures(found, strict=True)


def test_rung_1_in_float64():
    with jax.enable_x64(True):
        (target, draft), (prompt, request) = table_pair("float64"), case(jnp.int64)
        sizes, params = (SLOTS, NEW), Params(target.params, draft.params)
        speculative = Decoder(target.model, draft.drafter(GAMMA))
        one, other = (
            divergence.build_text(
                parts,
                sizes,
                divergence.build_read(target.model, sizes, rows),
                divergence.in_order(NEW),
            )(params, prompt, request)
            for parts, rows in ((Decoder(target.model), 1), (speculative, GAMMA + 1))
        )
        found = rungs.rung(rungs.compare(one, other))
    assert one.logits.dtype == np.float64
    assert found.identical == 4 and found.lost == found.eps_max == 0


def case(dtype=jnp.int32):
    """The prompts of the tables and a greedy request. dtype: of lengths."""
    prompt = make_prompt(PROMPTS.tokens)
    prompt = prompt._replace(length=prompt.length.astype(dtype))
    sampling = make_sampling(4, 0.0)
    return prompt, make_request(jax.random.key(0), prompt, NEW, sampling)


def real_pair(name: str, dtype: str) -> tuple[tuple[Player, Player], Prompts]:
    """A tiny transformer, and a draft that copies."""
    if name == "t5":
        model = t5.build(tiny_t5.SMALL._replace(dtype=dtype))
        weights, inputs = tiny_t5.world().draft_weights, [[5, 9, 2, 17, 11], [4]]
        prompts = Prompts([[0], [0]], inputs, -1)
    else:
        model = gpt.build(tiny.SHALLOW._replace(dtype=dtype))
        weights = tiny.transformers().shallow_weights
        prompts = Prompts([[1, 2, 3, 4, 5], [7]], None, -1)
    target = players.of_model(name, model, cast(weights, dtype))
    return (target._replace(dtype=dtype), players.copied()), prompts


def cast(weights, dtype: str):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), weights)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_rungs_2_to_4_of_transformers(name, dtype):
    pair, prompts = real_pair(name, dtype)
    found = divergence.look(pair, prompts, DivergenceSetting((GAMMA,), 2, NEW)).rungs[0]
    assert found.matched.identical == 2 and found.matched.places == 2 * NEW
    assert found.matched.equal == 1 and found.matched.eps_max == 0
    assert found.natural.unexplained == found.natural.lost == found.oracle.below == 0
    assert not divergence.failures(found, strict=True)


def test_rung_3_near_ties_part_texts_and_are_explained():
    found = parted().rungs[0]
    assert 0 < found.natural.identical < 16 and found.natural.unexplained == 0
    assert found.natural.explained == 16 - found.natural.identical
    assert found.natural.eps_max > 0 and found.natural.equal < 1
    assert 0 < found.natural.observed <= found.natural.bound
    assert 0 < found.natural.expected <= found.natural.bound
    assert found.natural.tv_max <= found.natural.tv_bound
    assert found.matched.identical == 16 and found.matched.equal == 1
    assert found.oracle.below == 0 and parted().margins.shape == (16 * NEW,)
    assert not divergence.failures(found, strict=True)


# Broken twins.


def credulous(target, draft, noise, keep_residual=False) -> Verdict:
    """Algorithm 1 that accepts whatever was drafted."""
    right = token.verify(target, draft, noise, keep_residual)
    extra = jnp.take_along_axis(right.tokens, right.num_accepted[:, None], axis=1)[:, 0]
    return right._replace(
        num_accepted=draft.num, tokens=token.emit(draft, draft.num, extra)
    )


@pytest.mark.parametrize("world", ["tables", "halves"])
def test_a_verifier_that_accepts_a_wrong_token_is_unexplained(world):
    worlds = {"tables": (table_pair(), PROMPTS, TABLES)}
    worlds["halves"] = halves_pair(), HALVES, MANY._replace(tokens=8)
    wrong = players.reference(Verifier(token.noise, credulous))
    found = divergence.look(*worlds[world], wrong).rungs[0]
    assert found.natural.unexplained > 0 and found.matched.unexplained > 0
    assert found.oracle.below > 0
    said = " ".join(divergence.failures(found, strict=False))
    assert "unexplained in natural" in said and "unexplained in matched" in said
    assert "below the full forward" in said


def texts_of(parts: Decoder, wrong_prefix: bool = False) -> rungs.Text:
    """A text of the tables, whose logits are the right model's."""
    (target, draft), (prompt, request) = table_pair(), case()
    rows, sizes = parts.drafter.gamma + 1, (SLOTS, NEW)
    right = divergence.build_read(target.model, sizes, rows)

    def read(params, prompt, whole, begins):
        whole = jnp.roll(whole, 1, axis=1) if wrong_prefix else whole
        return right(params, prompt, whole, begins)

    begins = divergence.at_every_row(NEW, rows)
    text = divergence.build_text(parts, sizes, read, begins)
    return text(Params(target.params, draft.params), prompt, request)


def test_a_run_that_reads_what_is_wrong_is_unexplained():
    """In calls of several tokens it takes the logits of the token before."""
    target, draft = table_pair()
    right = target.model

    def apply(params, tokens, start, cache):
        late = jnp.roll(tokens, 1, axis=1) if tokens.shape[1] == GAMMA + 1 else tokens
        return right.apply(params, late, start, cache)

    broken = right._replace(apply=apply)
    base = texts_of(Decoder(right))
    for model, wrong in ((right, 0), (broken, 4)):
        text = texts_of(Decoder(model, draft.drafter(GAMMA)))
        assert rungs.rung(rungs.compare(base, text)).unexplained == wrong


def test_an_eps_of_another_prefix_is_noticed():
    """It would explain anything."""
    (target, draft), wrong = table_pair(), Verifier(token.noise, credulous)
    base = texts_of(Decoder(target.model))
    parts = Decoder(target.model, draft.drafter(GAMMA), wrong)
    text = texts_of(parts, wrong_prefix=True)
    places = rungs.compare(base, text)
    found = rungs.rung(places)
    assert found.identical == 0
    honest = rungs.rung(rungs.compare(base, texts_of(parts)))
    assert honest.unexplained > found.unexplained and honest.eps_max == 0
    assert found.eps_max > 1 and found.lost > found.places / 2
    said = divergence.failures(Found(GAMMA, found, found, Oracle(1, 0, 0.0)), True)
    assert any("not what their logits say" in one for one in said)


# Numbers by hand.


def places(**given) -> Places:
    """Two texts of four places; the first parts at its third."""
    live = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
    differ = np.array([[0, 0, 1, 0], [0, 0, 0, 0]], bool)
    zero = np.zeros((2, 4))
    usual = dict(margin=zero + 1, gap=zero, eps=zero, shift=zero, tv=zero)
    return Places(live, differ, **usual | {"lost": zero} | given)


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
    found = rungs.rung(places(eps=np.array([eps, other]), gap=gaps))
    assert (found.explained, found.unexplained) == (explained, 1 - explained)
    assert found.texts == 2 and found.identical == 1 and found.places == 7
    assert found.observed == 1 / 7


def test_rates_of_flips():
    margin = np.array([[0.1, 0.2, 0.3, 0.0], [0.4, 0.5, 0.6, 0.7]])
    shift = np.array([[-0.3, 0.25, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    eps = np.array([[0.0, 0.15, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    found = rungs.rung(places(margin=margin, shift=shift, eps=eps))
    assert found.bound == pytest.approx(3 / 7)  # 0.1, 0.2 and 0.3 are within 0.3
    # 0.25 beats 0.1 and 0.2, and 0.1 beats 0.1.
    assert found.expected == pytest.approx(3 / 49)
    assert found.eps_max == 0.15 and found.eps_mean == pytest.approx(0.25 / 7)
    assert found.equal == pytest.approx(5 / 7)


def test_a_law_moves_by_no_more_than_its_bound():
    rng = np.random.default_rng(0)
    for eps in (0.01, 0.3, 2.0):
        base = rng.normal(size=(1, 50, 3)).astype(np.float32)
        moved = base + eps * rng.choice([-1, 1], base.shape).astype(np.float32)
        ids = np.zeros((1, 50), int)
        one, other = (rungs.Text(None, ids, z[None]) for z in (base, moved))
        compared = rungs.compare(one, other)
        found = rungs.rung(compared)
        assert found.eps_max == pytest.approx(eps, rel=1e-4)
        assert found.tv_max <= found.tv_bound
        assert found.tv_bound == pytest.approx(min(np.expm1(2 * eps) / 2, 1), rel=1e-3)
        law = np.exp(np.stack([base, moved]))
        law /= law.sum(-1, keepdims=True)
        tv = np.abs(law[0] - law[1]).sum(-1) / 2
        np.testing.assert_allclose(compared.tv, tv, atol=1e-6)


def test_every_place_has_every_row():
    for tokens, rows in ((16, 4), (7, 3), (3, 8), (5, 1)):
        found = [set() for _ in range(tokens)]
        for begins in divergence.at_every_row(tokens, rows):
            assert len(begins) <= tokens + 1
            row_of = {at + i: i for at in begins for i in range(rows)}
            for at in range(tokens):
                found[at].add(row_of[at])
        for at in range(tokens):
            assert found[at] == set(range(min(at + 1, rows)))


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
    parts = Decoder(model, nothing.build(GAMMA))
    got = generate.build(parts, SLOTS)(Params(target.params), prompt, request)
    assert set(widths) == {2, GAMMA + 1}
    wanted = generate.autoregressive(target.model, SLOTS)
    wanted = wanted(Params(target.params), prompt, request)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    np.testing.assert_array_equal(got.counts.calls, np.full(4, NEW))
    assert not np.any(got.counts.drafted)


def test_padded_refuses_fewer_than_no_slots():
    with pytest.raises(ValueError, match="at least 0"):
        nothing.build(-1)


# The command, the row and its lines.

GOOD = Rung(4, 4, 0, 0, 64, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
APART = GOOD._replace(identical=3, explained=1, equal=0.5, eps_max=2e-5)
FOUND = Found(4, GOOD, APART, Oracle(64, 0, 1e-5))
WRONG = {
    "unexplained in natural": FOUND._replace(natural=APART._replace(unexplained=2)),
    "unexplained in matched": FOUND._replace(matched=APART._replace(unexplained=2)),
    "below the full": FOUND._replace(oracle=Oracle(64, 1, 1e-5)),
}
STRICT = {
    "differ in matched": FOUND._replace(matched=APART),
    "not what their logits": FOUND._replace(natural=APART._replace(lost=3)),
}


@pytest.mark.parametrize("strict", [True, False])
def test_what_fails(strict):
    assert divergence.failures(FOUND, strict) == []
    for said, found in (WRONG | STRICT).items():
        failed = divergence.failures(found, strict)
        assert any(said in one for one in failed) == (strict or said in WRONG)


@pytest.fixture
def models_read_once(monkeypatch):
    monkeypatch.setattr(players, "model", read_once)


read_once = functools.cache(players.model)


def run_command(monkeypatch, found: Found) -> int:
    """The command, with this in the place of what is measured."""
    report = Report(np.linspace(0, 1, 64), [found])
    monkeypatch.setattr(microscope, "look", lambda *_: report)
    return microscope.main(["--dtype", "float32"])


def test_the_command_prints_and_fails(models_read_once, monkeypatch, capsys):
    assert run_command(monkeypatch, FOUND) == 0
    said = capsys.readouterr().out
    assert "code_9m with code_05m, float32" in said and "2.0e-05" in said
    assert "Nothing differs by more" in said and "Not a CPU" not in said
    for wrong, found in (WRONG | STRICT).items():
        assert run_command(monkeypatch, found) == 1
        assert wrong in capsys.readouterr().out
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for found in STRICT.values():
        assert run_command(monkeypatch, found) == 0
        assert "Not a CPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--target t5_target --draft t5_small", "name its inputs with --data"),
        ("--target absent", "no checkpoint at 'absent'"),
        ("--target bigram", "only drafts"),
        ("--draft t5_small", "one tokenizer"),
        ("--batch 3", "16 texts do not fill batches of 3"),
        ("--data absent.jsonl", "absent.jsonl"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    models_read_once, flags, message, capsys
):
    with pytest.raises(SystemExit) as stopped:
        microscope.main(flags.split())
    said = capsys.readouterr().err.strip()
    assert stopped.value.code == 2 and message in said and "\n" not in said


def test_a_row_is_plain_numbers_and_fills_its_lines():
    made = row.numbers(parted())
    json.dumps(made, allow_nan=False)
    natural = parted().rungs[0].natural
    assert made["identical_percent"] == 100 * natural.identical / 16
    assert made["matched_percent"] == made["matched_percent_g3"] == 100
    assert made["explained"] == natural.explained and made["unexplained"] == 0
    assert made["eps_max"] == made["eps_max_g3"] == natural.eps_max
    assert made["margin_min"] <= made["margin_10%"] <= made["margin_50%"]
    table = microscope_table.microscope()
    assert {line.quantity for line in table.lines} <= set(made)
    assert all(cells[-1] == "not run" for cells in tables.rows(table, {}))


def test_every_row_of_the_table_is_a_file():
    files = sorted((run.ROOT / "gin_configs" / "microscope").glob("*.gin"))
    lines = microscope_table.microscope().lines
    assert {path.stem for path in files} == {line.row for line in lines}
    for path in files:
        measurement = run.build(path).row.measurement
        assert measurement.module == "experiments.exactness.microscope"
        assert path.stem.endswith(measurement.dtype)
        assert f"gin_configs/microscope/{path.name}" in path.read_text()


def test_gammas_are_lines_of_their_own():
    made = row.numbers(parted()) | {"target": "p", "draft": "q"}
    record = {"measured": made, "provenance": {"dtype": "bfloat16"}}
    (cells,) = microscope_table.by_gamma({"halves": record})
    assert len(cells) == len(microscope_table.HEAD)
    assert cells[:3] == ["p with q, bfloat16", "3", "100 %"]


def test_a_row_refuses_sizes_that_mean_nothing():
    with pytest.raises(ValueError, match="gammas must be at least 1"):
        row.build(*table_pair(), "code", (), 4, 4)
