"""Rows at the paper's sizes: simulated acceptances give Eq. 1, and a tiny row runs from
start to end."""

import functools
import re
from types import SimpleNamespace

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue, run
from experiments.gpu.paper_size import row as chip
from experiments.gpu.paper_size import stand_ins
from experiments.records import records
from experiments.records.table import published_rows
from specjax import configs, fused, probs
from specjax.decode_config import change
from specjax.inputs import check_shapes, make_sampling
from specjax.measure import costs, jsonl
from specjax.models import gpt, llama, t5
from specjax.theory import closed_forms, predict
from specjax.types import Draft, Verdict, Verifier
from specjax.verifiers import token
from tests.support import bare, tiny
from tests.support.settings import make

ROWS = records.rows("chip")
TINY = t5.Config(64, 16, 32, 1, 2, 2, 8, pieces=60)
HALF = TINY._replace(dtype="bfloat16")
SETTING = make(
    chip.PaperSizeSetting,
    temperature=1.0,
    alpha=0.7,
    gamma=3,
    input_tokens=4,
    gammas=(1, 3),
    new_tokens=16,
    texts=2,
    others=2,
    rounds=2,
    loops=2,
    copied=1024,
    read=64,
)
ALPHA, GAMMA, VOCAB, MANY = 0.7, 4, 5, 4000


def verify_many(verifier: Verifier, num: int | np.ndarray = GAMMA) -> Verdict:
    """Returns the verdict of a verifier on MANY rows, with `num` drafted tokens
    each."""
    z = 2 * np.random.default_rng(0).normal(size=(MANY, GAMMA + 1, VOCAB))
    law = probs.standardize(jnp.float32(z), make_sampling(MANY, 1.0))
    tokens = jax.random.randint(jax.random.key(2), (MANY, GAMMA), 0, VOCAB)
    key = jax.random.split(jax.random.key(3), MANY)
    noise = token.noise(key, jnp.zeros(MANY, int), GAMMA, VOCAB)
    draft = Draft(tokens, jnp.broadcast_to(jnp.int32(num), MANY), None)
    return jax.device_get(jax.jit(verifier.verify)(law, draft, noise))


def is_eq_1(n: np.ndarray) -> bool:
    """Returns whether n has the law that Eq. 1 assumes, each part within 4 standard
    errors."""
    law = np.append(ALPHA ** np.arange(GAMMA) * (1 - ALPHA), ALPHA**GAMMA)
    share = np.bincount(n, minlength=GAMMA + 1) / MANY
    near = np.abs(share - law) < 4 * np.sqrt(law * (1 - law) / MANY)
    mean = abs(n.mean() + 1 - closed_forms.expected_tokens(ALPHA, GAMMA))
    return bool(near.all() and mean < 4 * n.std() / MANY**0.5)


def test_drawn_acceptance_and_no_other_is_that_of_eq_1():
    drawn, real = map(
        verify_many, (stand_ins.simulate_acceptance(ALPHA), token.verifier)
    )
    assert is_eq_1(drawn.num_accepted) and not is_eq_1(real.num_accepted)
    rows = np.arange(MANY)
    extra = real.tokens[rows, real.num_accepted]  # paid for, and used
    np.testing.assert_array_equal(drawn.tokens[rows, drawn.num_accepted], extra)
    drafted = rows % (GAMMA + 1)
    every = verify_many(stand_ins.simulate_acceptance(1.0), drafted)
    np.testing.assert_array_equal(every.num_accepted, drafted)


def test_whole_texts_take_the_calls_of_their_coins():
    world, count = tiny.tables(), 40
    target = bare.target("", world.target, world.target_weights)
    draft = bare.draft("", world.draft, world.draft_weights)
    drawn = fused.reference(stand_ins.simulate_acceptance(ALPHA))
    pair = costs.Pair(target, draft, 24, drawn)
    run_text = costs.decode(pair, 3)
    config = TINY._replace(vocab=4, pieces=None)
    texts = (chip.text(config, SETTING, i) for i in range(count))
    calls = [int(run_text(*text).counts.calls[0]) for text in texts]
    law = predict.calls_law(np.full(SETTING.decode.new_tokens, ALPHA), 3)
    whole = chip.GammaTimes(np.ones(count), np.array(calls), 0.0)
    record = chip.text_numbers(SETTING._replace(texts=count), 3, {3: whole})
    expected, deviation = record["expected_calls"], record["expected_calls_sd"]
    np.testing.assert_allclose(expected, count * law @ np.arange(law.size))
    assert abs(record["calls"] - expected) < 4 * deviation < 0.4 * expected


def test_every_published_row_is_there():
    papers = published_rows("table4_expected_vs_measured")
    rows = {f"{it['task']}_{it['draft'][3:]}_t{it['temperature']}": it for it in papers}
    again = "ende_small_t0_h100"  # of another card
    assert len(rows) == 12 and {*rows, again} == ROWS.keys()
    for name, file in ROWS.items():
        row = rows[name.removesuffix("_h100")]
        target, draft, setting = configs.build(file).row.measurement.run.args
        assert (target.dim, target.decoder_layers) == (4096, 24)
        assert draft.dim == {"small": 512, "base": 768, "large": 1024}[row["draft"][3:]]
        how = setting.decode
        chosen = setting.alpha, how.gamma, how.temperature, how.new_tokens
        assert chosen == (row["alpha"], row["gamma"], row["temperature"], 64)
        assert setting.input_tokens == {"ende": 64, "cnndm": 512}[row["task"]]
    lines = catalogue.find_table("chip").lines
    lines = [line for line in lines if line.row != again]
    shown = [line.published for line in lines if line.published is not None]
    columns = ("c", "expected", "measured")
    assert shown == [row[name] for row in papers for name in columns]


def test_weights_are_the_models_and_finite():
    model, params = t5.build(HALF), stand_ins.make(HALF)
    check_shapes("target", params, model.shapes)
    sizes = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    assert sizes == stand_ins.weight_bytes(HALF)
    prompt, _ = chip.text(HALF, SETTING, 0)
    inputs = params, t5.Inputs(*prompt.inputs), prompt.tokens
    logits = np.asarray(jax.jit(functools.partial(t5.logits, HALF))(*inputs))
    assert (
        np.isfinite(logits[..., : HALF.pieces]).all() and 0.1 < logits[..., :60].std()
    )


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_that_a_step_reads_by_hand(tied):
    config = HALF._replace(tied=tied, gated=not tied)
    prompt, width = chip.text(config, SETTING, 0).prompt, 2 * 8
    mlp = (2 if tied else 3) * 16 * 32
    layer = 4 * 16 * width + 2 * 16 * width + mlp + 3 * 16  # across: query and out
    weights = 2 * layer + 32 * 2 + 16 + 64 * 16  # biases, last norm, readout
    read = 2 * 2 * width * SETTING.input_tokens  # layers, keys and values
    step = stand_ins.step_bytes(config, prompt, 24)
    assert step == 2 * (weights + read)


def test_what_does_not_fit_is_said_before_it_is_made(monkeypatch):
    monkeypatch.setattr(stand_ins, "make", lambda *_, **__: pytest.fail())
    weights = 2 * stand_ins.weight_bytes(TINY)
    stats = {"bytes_limit": weights, "bytes_in_use": 1000}
    device = SimpleNamespace(memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    with pytest.raises(ValueError, match=r"needs 0\.0 GB .* use a device with 80 GB"):
        chip.measure(TINY, TINY, SETTING)
    stats["bytes_limit"] *= 2
    chip.check_memory(
        TINY, TINY, setting=SETTING, prompt=chip.text(TINY, SETTING, 0).prompt
    )
    stand_ins.check_room(10**12, None)  # a CPU does not tell


def test_the_parts_of_a_step_by_hand():
    """A call of the target takes 2 ms on one token and 3 ms on four, a draft 0.2 ms,
    the rest of a step 0.4 ms, that of a step without drafts 0.5 ms; prefill takes 5 and
    6 ms."""
    setting = change(SETTING, alpha=0.0, gammas=(1, 3), new_tokens=10)
    alone = chip.GammaTimes(np.full(2, 5 + 10 * 2.5), np.full(2, 10), 5.0)
    steps = np.array([4, 6])
    drafts = chip.GammaTimes(6 + 4.0 * steps, steps, 6.0)
    call, drafted = {0: 2.0, 1: 2.5, 3: 3.0}, {1: 0.2, 3: 0.6}
    whole = {0: alone, 3: drafts}
    columns = chip.gamma_columns(
        setting, call_ms=call, draft_ms=drafted, rest_times=whole
    )
    wanted = {"c": [0.1, 0.1], "v": [1.25, 1.5], "exp": [1 / 1.1, 1 / 1.3]}
    wanted |= {"overhead": 0.2, "overhead_alone": 0.25}
    wanted["predicted"] = [30 / (6 + 10 * (0.2 + 2.5 + 0.4)), 30 / (6 + 10 * 4.0)]
    for name, values in wanted.items():
        np.testing.assert_allclose(columns[name], values, err_msg=name)
    best = chip.gamma_numbers("best_", setting, gamma=3, columns=columns, whole=whole)
    np.testing.assert_allclose(best["best_speedup"], 60 / (12 + 40))
    # Without a coin that comes up heads every token takes a call.
    np.testing.assert_allclose(best["best_speedup_expected"], 30 / (6 + 10 * 4.0))
    assert best["best_speedup_ci"] == pytest.approx((30 / 30, 30 / 22))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"alpha": 1.2}, "alpha must be in"),
        ({"gamma": 2}, "gamma = 2 must be among"),
        ({"gammas": (3, 1)}, "gammas must ascend"),
        ({"gammas": (0, 3)}, "gammas must ascend"),
        ({"texts": 0}, "texts must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        chip.build(TINY, TINY, change(SETTING, **changed))
    with pytest.raises(ValueError, match="name a pair with one tokenizer"):
        chip.build(TINY, TINY._replace(vocab=63), SETTING)


@pytest.mark.slow
def test_a_row_runs_from_its_file_to_a_record_of_every_line(tmp_path):
    """The row has two layers of 16 features in float32."""
    models = {"t5_1_1_xxl": TINY, "t5_1_1_large": TINY._replace(decoder_layers=1)}
    small = [
        f"{model}/t5.Config.{name} = {value!r}"
        for model, config in models.items()
        for name, value in config._asdict().items()
        if name not in ("gated", "tied")
    ]
    small += ["NEW_TOKENS = 32", "TEXTS = 3", "OTHERS = 2", "ROUNDS = 3", "LOOPS = 2"]
    own = {"gammas": (1, 3), "copied": 2**20, "input_tokens": 4}
    own["read"] = 2**20
    small += [f"chip.PaperSizeSetting.{name} = {value}" for name, value in own.items()]
    run.measure([records.row("chip", "ende_large_t1", small)], tmp_path)
    (record,) = jsonl.read(tmp_path / "chip.jsonl")
    it = record["measured"]
    assert record["scale"] == "chip" and it["weights"] == "random"
    assert it["acceptance"].startswith("drawn") and it["exactness"].startswith("none")
    gammas = sorted({0, 3, it["best_gamma"]})
    assert [text["gamma"] for text in it["decoded"]] == gammas
    assert it["decoded"][0]["calls"] == it["decoded"][0]["expected_calls"] == 96
    ms = {text["gamma"]: text["ms"] for text in it["decoded"]}
    assert it["speedup"] == pytest.approx(ms[0] / ms[3])
    assert it["exp"] == pytest.approx(closed_forms.walltime_factor(0.71, 3, it["c"]))
    own = [it for it in catalogue.find_table("chip").lines if it.row == "ende_large_t1"]
    assert len(own) == 12
    for line in own:
        assert it[line.quantity] is not None
        assert line.error is None or it[line.error] >= 0


# Models of the papers: their sizes.

FAMILIES = ("llama2", "qwen1_5", "gemma", "gpt2", "chinchilla", "lamda", "llama3")
FAMILIES += ("qwen3", "gemma3", "t5_1_0", "t5_1_1")
MACRO = "gin.macro.value"
# What their authors call them, in billions of parameters.
CALLED = {"lamda_137b": 137, "lamda_8b": 8, "lamda_2b": 2, "lamda_100m": 0.1}
CALLED |= {"chinchilla_70b": 70, "chinchilla_4b": 4}


def read_sizes(family: str) -> dict:
    """Returns by name the number of parameters that a comment states, and the
    configuration."""
    text = (run.ROOT / f"gin_configs/models/{family}.gin").read_text()
    pattern = r"^#.*?([\d,]+) parameters.*?^((\w+?)(?:_SIZES)?) = @"
    try:
        with gin.unlock_config():
            gin.parse_config(text)
        return {
            name.lower(): (
                int(count.replace(",", "")),
                gin.query_parameter(f"{macro}/{MACRO}").scoped_configurable_fn(),
            )
            for count, macro, name in re.findall(pattern, text, re.M | re.S)
        }
    finally:
        gin.clear_config()


def parameters(config) -> int:
    """Computes the count from one layer and from two, because tracing many takes
    seconds."""
    if isinstance(config, t5.Config):
        one, more, both = (
            t5.num_params(config._replace(encoder_layers=e, decoder_layers=d))
            for e, d in ((1, 1), (2, 1), (1, 2))
        )
        encoders, decoders = config.encoder_layers - 1, config.decoder_layers - 1
        return one + encoders * (more - one) + decoders * (both - one)
    kind = llama if isinstance(config, llama.Config) else gpt
    few = {"local": ()} if kind is llama else {}
    one, two = (
        kind.num_params(config._replace(num_layers=count, **few)) for count in (1, 2)
    )
    return one + (config.num_layers - 1) * (two - one)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_parameters_that_its_file_states(family):
    sizes = read_sizes(family)
    assert len(sizes) == (5 if "t5" in family else len(sizes)) >= 2
    for name, (count, config) in sizes.items():
        assert parameters(config) == count, name
        if name in CALLED:
            assert count / 1e9 == pytest.approx(CALLED[name], rel=0.1)
