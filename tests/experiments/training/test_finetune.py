"""A T5 is fine-tuned: it learns, goes on, and what it wrote is a model."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments.tasks
from experiments.training import finetune, loop, pairs
from specjax import checkpoints
from specjax.models import gpt, t5
from tests.support import tiny_t5
from tests.support.prepared_texts import END, copies, write

pytestmark = pytest.mark.slow

CONFIG = t5.Config(32, 16, 32, 1, 1, num_heads=2, head_width=8)
SIZES = "--batch 8 --inputs-length 16 --targets-length 16 --held-out 16".split()
SHORT = "--steps 7 --rate 0.01".split()
NEAR = 1e-4


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return write(tmp_path_factory.mktemp("task") / "copies.npz", copies(200))


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """A folder of Hugging Face, with files that belong to a tokenizer."""
    folder = tmp_path_factory.mktemp("init") / "tiny"
    checkpoints.save(folder, (CONFIG, tiny_t5.weights(CONFIG, 0, sharp=1.0)))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "README.md").write_text("of the model that training began with")
    return folder


@pytest.fixture(scope="module")
def untrained(init):
    return checkpoints.load(init)


def run(init, task: str, runs: Path, *more: str) -> Path:
    flags = "--init", str(init), "--task", task, "--runs", str(runs), *SIZES, *more
    return finetune.finetune(finetune.parse([str(flag) for flag in flags]))


def same(folder: Path, other: Path) -> None:
    """Asserts that two folders hold the same weights, to the bit."""
    params = (checkpoints.load(each).params for each in (folder, other))
    jax.tree.map(np.testing.assert_array_equal, *params)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, init, task):
    """A run that was never killed: its folder, and the one of its model."""
    folder = tmp_path_factory.mktemp("whole")
    runs, model = folder / "run", folder / "model"
    return runs, run(init, task, runs, *SHORT, "--export", model)


@pytest.mark.parametrize("copied", [True, False])
def test_it_learns_what_can_be_learned(init, tmp_path, copied):
    """Four equally likely letters, then the end: who copies pays nothing, and who
    cannot, as the targets are of other inputs, pays log 4 for 7 of 8 tokens."""
    texts = copies(200)
    targets = texts if copied else [*texts[1:], texts[0]]
    task = write(tmp_path / "pairs.npz", texts, targets)
    flags = "--steps 150 --rate 0.03 --decay 50 --evaluate-every 150".split()
    run(init, task, tmp_path / "run", *flags)
    held_out = json.loads((tmp_path / "run/curve.jsonl").read_text())["held_out"]
    guessing = 7 / 8 * np.log(4)
    assert held_out < 0.5 * guessing if copied else held_out > 0.9 * guessing


def test_a_finished_run_is_written_again_without_training(
    init, task, whole, tmp_path, monkeypatch
):
    """Wherever its files are by now, and however its steps were saved and divided."""
    runs, model = whole
    monkeypatch.setattr(loop, "build_step", lambda *_: pytest.fail)
    moved = shutil.copytree(init, tmp_path / "moved"), shutil.copy(task, tmp_path)
    often = "--checkpoint-every", "1", "--parts", "4"
    same(run(*moved, runs, *SHORT, *often, "--export", tmp_path / "again"), model)
    with pytest.raises(ValueError, match=r"model exists: name another.*--export"):
        run(init, task, runs, *SHORT, "--export", model)


def test_the_model_is_a_whole_folder(untrained, whole):
    _, model = whole
    names = {path.name for path in model.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer_config.json"}
    trained = checkpoints.load(model)
    assert trained.config == CONFIG and (trained.start, trained.ends) == (
        t5.PAD,
        (END,),
    )
    before, after = map(jax.tree.leaves, (untrained.params, trained.params))
    assert all(leaf.dtype == jnp.float32 for leaf in after)
    assert all((a != b).any() for a, b in zip(after, before, strict=True))
    assert not list(model.parent.glob(".*")), "a temporary folder was left"


def test_transformers_computes_the_same_loss(whole):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.T5ForConditionalGeneration.from_pretrained(whole[1]).eval()
    rows = pairs.pad([(ids, ids) for ids in copies(3)], 8, 8)
    ids = torch.tensor(rows.inputs, dtype=torch.long)
    with torch.no_grad():
        wanted = float(model(input_ids=ids, labels=ids).loss)
    params = checkpoints.load(whole[1]).params
    ours = float(tiny_t5.quick_jit(pairs.cross_entropy(CONFIG))(params, rows))
    assert ours == pytest.approx(wanted, abs=NEAR)


# The loss, computed by hand.

PAIRS = [([5, 6, 7, END], [9, 10, END]), ([8, END], [11, 12, 13, 14, 15, END])]


def by_hand(config, params, shift=False, start=t5.PAD, padding=False) -> float:
    """Mean nats a target token, in numpy, and three ways of getting it wrong: targets
    that are the tokens read, another start, padding that counts."""
    nats = []
    for source, target in PAIRS:
        target = target + [t5.PAD] * (6 - len(target)) * padding
        text = [start, *target][: len(target)]
        logits = tiny_t5.logits_by_hand(config, params, source, text)
        peak = logits.max(-1, keepdims=True)
        log_p = logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))
        labels = text if shift else target
        nats += [-log_p[i, label] for i, label in enumerate(labels)]
    return float(np.mean(nats))


def test_the_loss_is_that_of_the_target_tokens():
    config = tiny_t5.TARGET._replace(pieces=None)  # padding ids are ids in training
    params = tiny_t5.weights(config, 3, sharp=1.0)
    loss = finetune.in_parts(pairs.cross_entropy(tiny_t5.TARGET), 2)
    value = float(tiny_t5.quick_jit(loss)(params, pairs.pad(PAIRS, 8, 8)))
    assert value == pytest.approx(by_hand(config, params), abs=NEAR)
    for wrong in (dict(shift=True), dict(start=END), dict(padding=True)):
        assert abs(value - by_hand(config, params, **wrong)) > 50 * NEAR, wrong


def test_parts_change_neither_loss_nor_gradient():
    params = tiny_t5.weights(CONFIG, 3, sharp=1.0)
    texts = [copies(1, length)[0] for length in (2, 7, 3, 5)]
    rows = pairs.pad([(ids, ids) for ids in texts], 8, 8)
    loss = pairs.cross_entropy(CONFIG)
    whole, parts = (
        tiny_t5.quick_jit(jax.value_and_grad(each))
        for each in (loss, finetune.in_parts(loss, 4))
    )
    near = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(near, parts(params, rows), whole(params, rows))
    # The mean of the parts' means is another: their targets are not as long.
    alone = [rows._replace(weight=rows.weight * row[:, None]) for row in np.eye(4)]
    mean = np.mean([float(whole(params, row)[0]) for row in alone])
    assert abs(mean - float(whole(params, rows)[0])) > 10 * NEAR


def test_activations_in_bfloat16_leave_float32_weights(init, task, untrained, tmp_path):
    model = run(init, task, tmp_path, *"--steps 2 --dtype bfloat16".split())
    weights = checkpoints.load(model).params, untrained.params
    for after, before in zip(*map(jax.tree.leaves, weights), strict=True):
        assert after.dtype == jnp.float32 and np.abs(after - before).max() < 0.1
        assert (after != after.astype(jnp.bfloat16)).any()


# What cannot be done is said before anything is.


def test_without_seqio_it_is_said_what_to_install(init, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)
    monkeypatch.delitem(sys.modules, "experiments.tasks.paper", raising=False)
    monkeypatch.delattr(experiments.tasks, "paper", raising=False)
    flags = "--init", str(init), "--task", "wmt_ende", "--runs", str(tmp_path / "run")
    with pytest.raises(SystemExit, match=r"error: .*\.\[data\].*local files"):
        finetune.main([*flags, *SIZES])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--rate 0.02", "rate is 0.01 there and 0.02 here"),
        ("--seed 3", "seed is 0 there and 3 here"),
        ("--held-out 8", "held_out is 16 there and 8 here"),
        ("--dtype bfloat16", "dtype is float32 there and bfloat16 here"),
        ("--targets-length 8 --inputs-length 24", r"inputs_length is 16 .*targets_le"),
    ],
)
def test_a_run_with_other_flags_is_refused(init, task, whole, flags, message):
    with pytest.raises(ValueError, match=rf"another recipe \(.*{message}"):
        run(init, task, whole[0], *SHORT, *flags.split())


def test_other_pairs_and_other_weights_are_refused(init, task, whole, tmp_path):
    other = write(tmp_path / "other.npz", copies(201))
    with pytest.raises(ValueError, match=r"recipe \(pairs is \w+ there and \w+ here\)"):
        run(init, other, whole[0], *SHORT)
    with pytest.raises(ValueError, match=r"recipe \(init is \w+ there and \w+ here\)"):
        run(whole[1], task, whole[0], *SHORT)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--batch 12", "--batch must be a multiple of 8; got 12"),
        ("--inputs-length 0", "--inputs-length must be a multiple of 8; got 0"),
        ("--held-out 0", "--held-out must be at least 1; got 0"),
        ("--parts 3", "--parts must divide --batch 8; got 3"),
        ("--rate 0", "--rate must be positive"),
        ("--seed -1", "--seed, --warmup and --decay must not be negative"),
        ("--steps 9 --warmup 5 --decay 5", "must fit into --steps 9"),
        ("--task nothing", "no task 'nothing': choose one of wmt_ende, .*npz file"),
        ("--task lm1b", "no task 'lm1b'"),
        ("--task absent.npz", "no file absent.npz: make it with"),
        ("--tokenizer a.model", "--tokenizer and --data-dir are for a data set"),
        ("--init nowhere", "no checkpoint at 'nowhere'"),
    ],
)
def test_flags_that_cannot_be_are_refused(init, task, tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        run(init, task, tmp_path / "run", *flags.split())
    assert not (tmp_path / "run").exists()


def test_only_a_t5_is_fine_tuned(untrained, task, tmp_path):
    config = gpt.Config(13, 8, 16, 1, 2, positions=8, learned=True, tied=True)
    shapes = gpt.abstract_params(config)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    checkpoints.save(tmp_path / "gpt", (config, params))
    with pytest.raises(ValueError, match=r"gpt is no T5 but of the family gpt: name a"):
        run(tmp_path / "gpt", task, tmp_path / "run")
    checkpoints.save(tmp_path / "other", untrained._replace(start=2))
    with pytest.raises(ValueError, match="begins texts with id 2"):
        run(tmp_path / "other", task, tmp_path / "run")


def test_the_command(init, task, tmp_path, monkeypatch, capsys):
    flags = ["--init", str(init), "--task", task, "--runs", str(tmp_path), *SIZES]
    monkeypatch.setattr(sys, "argv", ["train", *flags, "--steps", "1"])
    finetune.main()
    line = f"{tmp_path / 'model'}: {init} after 1 steps on {task}\n"
    assert capsys.readouterr().out == line
    with pytest.raises(SystemExit, match=r"error: .*model exists"):
        finetune.main()
