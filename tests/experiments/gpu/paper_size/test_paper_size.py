"""Rows at the paper's sizes: coins give Eq. 1, and a tiny row runs whole."""

import functools
import json
from collections.abc import Callable
from types import SimpleNamespace

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue, run
from experiments.gpu.kernels.timing import bandwidth
from experiments.gpu.paper_size import drawn_acceptance, random_weights
from experiments.gpu.paper_size import row as chip
from experiments.records import records
from experiments.records.table import rows_of
from specjax import configs, probs, sides
from specjax.inputs import check_shapes, make_sampling
from specjax.measure import costs, jsonl
from specjax.models import t5
from specjax.theory import closed_forms, predict
from specjax.types import Draft, Verdict, Verifier
from specjax.verifiers import token
from tests.support import gin_rows, tiny

CONFIGS = run.ROOT / "gin_configs"
ROWS = records.rows("chip")
MODELS = {
    "t5_1_1_small": 76_961_152,
    "t5_1_1_base": 247_577_856,
    "t5_1_1_large": 783_150_080,
    "t5_1_1_xl": 2_849_757_184,
    "t5_1_1_xxl": 11_135_332_352,
    "t5_1_0_small": 60_506_624,
    "t5_1_0_base": 222_903_552,
    "t5_1_0_large": 737_668_096,
    "t5_1_0_3b": 2_851_598_336,
    "t5_1_0_11b": 11_307_321_344,
}
TINY = t5.Config(64, 16, 32, 1, 2, 2, 8, pieces=60)
HALF = TINY._replace(dtype="bfloat16")
SETTING = chip.PaperSizeSetting(1.0, 0.7, 3, 4, (1, 3), 16, 2, 2, 2, 2, 1024)
ALPHA, GAMMA, VOCAB, MANY = 0.7, 4, 5, 4000


@functools.cache
def drafted_rows() -> tuple:
    """Laws, drafted tokens and noise of MANY rows."""
    z = 2 * np.random.default_rng(0).normal(size=(MANY, GAMMA + 1, VOCAB))
    law = probs.standardize(jnp.float32(z), make_sampling(MANY, 1.0))
    tokens = jax.random.randint(jax.random.key(2), (MANY, GAMMA), 0, VOCAB)
    key = jax.random.split(jax.random.key(3), MANY)
    return law, tokens, token.noise(key, jnp.zeros(MANY, int), GAMMA, VOCAB)


def verdict(verifier: Verifier, num: int | np.ndarray = GAMMA) -> Verdict:
    """What a verifier makes of these rows, `num` tokens of each drafted."""
    law, tokens, noise = drafted_rows()
    draft = Draft(tokens, jnp.broadcast_to(jnp.int32(num), MANY), None)
    return jax.device_get(jax.jit(verifier.verify)(law, draft, noise))


def is_eq_1(verifier: Verifier) -> bool:
    """Whether n has the law of the coins that Eq. 1 assumes, each part to 4 errors."""
    n = verdict(verifier).num_accepted
    law = np.append(ALPHA ** np.arange(GAMMA) * (1 - ALPHA), ALPHA**GAMMA)
    share = np.bincount(n, minlength=GAMMA + 1) / MANY
    near = np.abs(share - law) < 4 * np.sqrt(law * (1 - law) / MANY)
    mean = abs(n.mean() + 1 - closed_forms.expected_tokens(ALPHA, GAMMA))
    return bool(near.all() and mean < 4 * n.std() / MANY**0.5)


def counted(count: Callable) -> Verifier:
    """A verifier whose n is a function of the coins [B, G]."""

    def verify(target, draft, noise, keep_residual=False):
        real = token.verify(target, draft, noise, keep_residual)
        n = count(noise.accept < ALPHA).astype(jnp.int32)
        return real._replace(num_accepted=n)

    return Verifier(token.noise, verify)


def test_drawn_acceptance_is_that_of_eq_1():
    assert is_eq_1(drawn_acceptance.build(ALPHA))


@pytest.mark.parametrize(
    "broken",
    [
        token.verifier,
        drawn_acceptance.build(ALPHA + 0.05),
        counted(lambda coins: coins.sum(1)),  # the first failure does not end it
        counted(lambda coins: GAMMA * coins[:, 0]),  # one coin for the whole draft
        counted(lambda coins: jnp.cumprod(coins[:, 1:], 1).sum(1)),  # a coin too few
    ],
)
def test_other_acceptances_are_not(broken):
    assert not is_eq_1(broken)


def test_a_drawn_verdict_is_cut_at_what_was_drafted():
    rows, slots = np.arange(MANY), np.arange(GAMMA + 1)
    num = rows % (GAMMA + 1)
    every, none = (verdict(drawn_acceptance.build(a), num) for a in (1.0, 0.0))
    real = verdict(token.verifier, num)
    np.testing.assert_array_equal(every.num_accepted, num)
    np.testing.assert_array_equal(every.accept_prob.sum(1), num)
    np.testing.assert_array_equal(none.num_accepted, 0)
    extra = real.tokens[rows, real.num_accepted]  # paid for, and used
    np.testing.assert_array_equal(none.tokens[:, 0], extra)
    drafted = np.pad(drafted_rows()[1], ((0, 0), (0, 1)))
    wanted = np.where(slots < num[:, None], drafted, 0)
    wanted[rows, num] = extra
    np.testing.assert_array_equal(every.tokens, wanted)


def test_whole_texts_take_the_calls_of_their_coins():
    world, count = tiny.tables(), 40
    both = (world.target, world.target_weights), (world.draft, world.draft_weights)
    drawn = sides.reference(drawn_acceptance.build(ALPHA))
    pair = costs.Pair(*(sides.of_model("", *side) for side in both), 24, drawn)
    run_text = costs.decode(pair, 3)
    config = TINY._replace(vocab=4, pieces=None)
    calls = []
    for i in range(count):
        text = chip.text(config, SETTING, i)
        calls.append(int(run_text(*text).counts.calls[0]))
        assert calls[-1] == calls_of(text.request)
    law = predict.calls_law(np.full(SETTING.new_tokens, ALPHA), 3)
    whole = chip.Timed(np.ones(count), np.array(calls), 0.0)
    record = chip.decoded(SETTING._replace(texts=count), 3, {3: whole})
    expected, deviation = record["expected_calls"], record["expected_calls_sd"]
    np.testing.assert_allclose(expected, count * law @ np.arange(law.size))
    assert abs(record["calls"] - expected) < 4 * deviation < 0.4 * expected


def calls_of(request) -> int:
    """Calls that a text takes, from its coins alone."""
    length, end = int(request.start[0]), int(request.limit[0])
    noise = jax.jit(token.noise, static_argnums=(2, 3))
    coins = noise(jnp.repeat(request.key, end), jnp.arange(end), 3, 4).accept < ALPHA
    kept, calls = np.cumprod(coins, axis=1).sum(1), 0
    while length < end:
        length += int(kept[length]) + 1
        calls += 1
    return calls


def test_a_drafter_stops_at_the_budget():
    world = tiny.tables()
    side = sides.of_model("", world.draft, world.draft_weights)
    alone = costs.Pair(side, side, 24)
    text = chip.text(TINY._replace(vocab=4, pieces=None), SETTING, 0)
    state = costs.begin(alone, 5, *text)._replace(budget=jnp.full(1, 2, jnp.int32))
    tokens, num, law = costs.drafts(alone, 5, 2)(text.request, state)
    assert num[0] == 2 and tokens.shape == (1, 5)
    written = np.asarray(law.logits[0]).any(1)
    np.testing.assert_array_equal(written, [True, True, False, False, False])


def parameters(config: t5.Config) -> int:
    """By hand: (attention, feed-forward, norms) a layer, biases, tables, last norms."""
    width = config.num_heads * config.head_width
    attention, mlp = 4 * config.dim * width, (2 + config.gated) * config.dim
    encoder = attention + mlp * config.mlp_dim + 2 * config.dim
    decoder = 2 * attention + mlp * config.mlp_dim + 3 * config.dim
    tables = (1 if config.tied else 2) * config.vocab * config.dim
    rest = tables + 2 * 32 * config.num_heads + 2 * config.dim
    return config.encoder_layers * encoder + config.decoder_layers * decoder + rest


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_papers_sizes(name):
    gin.clear_config()
    gin.parse_config_file(str(CONFIGS / f"models/{name[:6]}.gin"))
    with gin.config_scope(name):
        config = gin.get_configurable(t5.Config)()
    assert parameters(config) == MODELS[name]
    few = config._replace(encoder_layers=1, decoder_layers=2)
    assert t5.num_params(few) == parameters(few)
    assert (config.vocab, config.pieces, config.dtype) == (32128, 32100, "bfloat16")


def test_every_published_row_is_there():
    papers = rows_of("table4_expected_vs_measured")
    sizes = [row["draft"].removeprefix("t5_") for row in papers]
    rows = {
        f"{row['task']}_{size}_t{row['temperature']}": row
        for row, size in zip(papers, sizes, strict=True)
    }
    assert len(rows) == 12 and rows.keys() == ROWS.keys()
    for name, file in ROWS.items():
        row = rows[name]
        target, draft, setting = configs.build(file).row.measurement.run.args
        assert parameters(target) == MODELS["t5_1_1_xxl"]
        assert parameters(draft) == MODELS[row["draft"].replace("t5", "t5_1_1")]
        chosen = setting.alpha, setting.gamma, setting.temperature, setting.new_tokens
        assert chosen == (row["alpha"], row["gamma"], row["temperature"], 64)
        assert setting.input_tokens == {"ende": 64, "cnndm": 512}[row["task"]]
        paper = f"c = {row['c']}, exp = {row['expected']}, speedup = {row['measured']}"
        assert paper in gin_rows.printed(file)


def test_every_line_says_that_acceptance_is_drawn():
    table = catalogue.named("chip")
    assert "Acceptance is not measured" in table.note
    assert all("drawn at alpha = 0." in line.what for line in table.lines)
    assert not any(line.quantity == "alpha" for line in table.lines)
    paper = rows_of("table4_expected_vs_measured")
    shown = [line.published for line in table.lines if line.published is not None]
    columns = ("c", "expected", "measured")
    assert shown == [row[name] for row in paper for name in columns]


def test_weights_are_the_models_and_finite():
    model, params = t5.build(HALF), random_weights.make(HALF)
    check_shapes("target", params, model.shapes)
    leaves = jax.tree.leaves(params)
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("bfloat16")}
    assert sum(leaf.nbytes for leaf in leaves) == random_weights.weight_bytes(HALF)
    kernel = np.float32(params["decoder"]["logits_dense"]["kernel"])
    np.testing.assert_allclose(kernel.std(), HALF.dim**-0.5, rtol=0.1)
    prompt, _ = chip.text(HALF, SETTING, 0)
    inputs = params, t5.Inputs(*prompt.inputs), prompt.tokens
    logits = np.asarray(jax.jit(functools.partial(t5.logits, HALF))(*inputs))
    assert np.isfinite(logits[..., : HALF.pieces]).all()
    assert np.isneginf(logits[..., HALF.pieces :]).all()
    other = jax.tree.leaves(random_weights.make(HALF, seed=1))
    assert any((a != b).any() for a, b in zip(leaves, other, strict=True))


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_that_a_step_reads_by_hand(tied):
    config = HALF._replace(tied=tied, gated=not tied)
    prompt, width = chip.text(config, SETTING, 0).prompt, 2 * 8
    mlp = (2 if tied else 3) * 16 * 32
    layer = 4 * 16 * width + 2 * 16 * width + mlp + 3 * 16  # across: query and out
    weights = 2 * layer + 32 * 2 + 16 + 64 * 16  # biases, last norm, readout
    read = 2 * 2 * width * SETTING.input_tokens  # layers, keys and values
    step = random_weights.step_bytes(config, prompt, 24)
    assert step == 2 * (weights + read)
    longer = chip.text(config, SETTING._replace(input_tokens=5), 0).prompt
    assert random_weights.step_bytes(config, longer, 24) - step == 2 * 2 * 2 * width


def device(limit: int) -> SimpleNamespace:
    """One that tells how much of its memory is taken."""
    stats = {"bytes_limit": limit, "bytes_in_use": 1000}
    return SimpleNamespace(memory_stats=lambda: stats)


def test_what_does_not_fit_is_said_before_it_is_made(monkeypatch):
    monkeypatch.setattr(random_weights, "make", lambda *_, **__: pytest.fail())
    weights = 2 * random_weights.weight_bytes(TINY)
    monkeypatch.setattr(jax, "devices", lambda: [device(weights)])
    with pytest.raises(ValueError, match=r"needs 0\.0 GB .* use a device with 80 GB"):
        chip.measure(TINY, TINY, SETTING)
    monkeypatch.setattr(jax, "devices", lambda: [device(2 * weights)])
    chip.check_memory(TINY, TINY, SETTING, chip.text(TINY, SETTING, 0).prompt)
    random_weights.check_room(10**12, None)  # a CPU does not tell


def test_a_copy_is_made():
    assert 0 < bandwidth(2**26, 1) < 1e12  # forwarded, it would seem to be faster


def test_the_parts_of_a_step_by_hand():
    """A target call takes 2 ms on one token and 3 on four, a draft 0.2 ms, the rest of
    a step 0.4 ms, of one without drafts 0.5 ms; prefill 5 and 6 ms."""
    setting = SETTING._replace(alpha=0.0, gammas=(1, 3), new_tokens=10)
    alone = chip.Timed(np.full(2, 5 + 10 * 2.5), np.full(2, 10), 5.0)
    steps = np.array([4, 6])
    drafts = chip.Timed(6 + 4.0 * steps, steps, 6.0)
    call, drafted = {0: 2.0, 1: 2.5, 3: 3.0}, {1: 0.2, 3: 0.6}
    whole = {0: alone, 3: drafts}
    columns = chip.by_gamma(setting, call, drafted, whole)
    wanted = {"c": [0.1, 0.1], "v": [1.25, 1.5], "exp": [1 / 1.1, 1 / 1.3]}
    wanted |= {"overhead": 0.2, "overhead_alone": 0.25}
    wanted["predicted"] = [30 / (6 + 10 * (0.2 + 2.5 + 0.4)), 30 / (6 + 10 * 4.0)]
    for name, values in wanted.items():
        np.testing.assert_allclose(columns[name], values, err_msg=name)
    best = chip.chosen("best_", setting, 3, columns, whole)
    np.testing.assert_allclose(best["best_speedup"], 60 / (12 + 40))
    assert best["best_speedup_ci"] == pytest.approx((30 / 30, 30 / 22))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1.2}, "alpha must be in"),
        ({"gamma": 2}, "gamma = 2 must be among"),
        ({"gammas": (3, 1)}, "gammas must ascend"),
        ({"gammas": (0, 3)}, "gammas must ascend"),
        ({"texts": 0}, "texts must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        chip.build(TINY, TINY, SETTING._replace(**change))


def test_a_draft_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="the same tokens on both sides"):
        chip.build(TINY, TINY._replace(vocab=63), SETTING)


@pytest.mark.slow
def test_a_row_runs_from_its_file_to_a_record_of_every_line(tmp_path):
    """With two layers of 16 features in float32."""
    models = {"t5_1_1_xxl": TINY, "t5_1_1_large": TINY._replace(decoder_layers=1)}
    small = [
        f"{model}/t5.Config.{name} = {value!r}"
        for model, config in models.items()
        for name, value in config._asdict().items()
        if name not in ("gated", "tied")
    ]
    small += ["TEXTS = 3", "OTHERS = 2", "ROUNDS = 3", "LOOPS = 2"]
    own = {"gammas": (1, 3), "new_tokens": 32, "copied": 2**20, "input_tokens": 4}
    small += [f"chip.PaperSizeSetting.{name} = {value}" for name, value in own.items()]
    run.measure([records.row("chip", "ende_large_t1", small)], tmp_path)
    (record,) = jsonl.read(tmp_path / "chip.jsonl")
    it = record["measured"]
    assert record["scale"] == "chip" and it["weights"] == "random"
    assert it["acceptance"].startswith("drawn") and it["exactness"].startswith("none")
    assert it["kernels"]["verify"] == "reference"
    assert it["target_parameters"] == parameters(TINY)
    assert (it["alpha"], it["gamma"], it["tokens"]) == (0.71, 3, 96)
    assert it["best_gamma"] in it["by_gamma"]["gamma"] == [1, 3]
    for key in ("target_ms", "bandwidth_gb_s", "floor_ms", "c", "v", "speedup"):
        assert it[key] > 0, key
    gammas = sorted({0, 3, it["best_gamma"]})
    assert [text["gamma"] for text in it["decoded"]] == gammas
    assert it["decoded"][0]["calls"] == it["decoded"][0]["expected_calls"] == 96
    ms = {text["gamma"]: text["ms"] for text in it["decoded"]}
    assert it["speedup"] == pytest.approx(ms[0] / ms[3])
    assert it["exp"] == pytest.approx(closed_forms.walltime_factor(0.71, 3, it["c"]))
    assert json.dumps(record, allow_nan=False)
    lines = catalogue.named("chip").lines
    own = [line for line in lines if line.row == "ende_large_t1"]
    assert len(own) == 8
    for line in own:
        assert it[line.quantity] is not None
        assert line.error is None or it[line.error] >= 0
