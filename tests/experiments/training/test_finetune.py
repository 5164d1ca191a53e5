"""A T5 is fine-tuned: it learns, continues after a stop, and its files are a model."""

import json
import shutil
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments.tasks
from experiments.tasks import recipes
from experiments.training import finetune, pairs
from specjax import checkpoints, zoo
from specjax.models import gpt, t5
from specjax.training import accumulation, loop
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory, init, task):
    """A run that was never killed: its folder, and the one of its model."""
    folder = tmp_path_factory.mktemp("whole")
    runs, model = folder / "run", folder / "model"
    return runs, run(init, task, runs, *SHORT, "--export", model)


def test_it_learns_what_can_be_learned(init, task, tmp_path):
    """There are four equally likely letters, then the end: a model that copies has no
    loss, and one that guesses loses log 4 on 7 of 8 tokens."""
    flags = "--steps 150 --rate 0.03 --decay 50 --evaluate-every 150".split()
    run(init, task, tmp_path / "run", *flags)
    held_out = json.loads((tmp_path / "run/curve.jsonl").read_text())["held_out"]
    guessing = 7 / 8 * np.log(4)
    assert held_out < 0.5 * guessing


def test_a_finished_run_is_written_again_without_training(
    init, task, whole, tmp_path, monkeypatch
):
    """This works wherever its files have been moved, and however its steps were saved
    and divided."""
    runs, model = whole
    monkeypatch.setattr(loop, "build_step", lambda *_: pytest.fail)
    moved = shutil.copytree(init, tmp_path / "moved"), shutil.copy(task, tmp_path)
    often = "--checkpoint-every", "1", "--parts", "4"
    again = run(*moved, runs, *SHORT, *often, "--export", tmp_path / "again")
    written = (folder / "model.safetensors" for folder in (again, model))
    assert len({path.read_bytes() for path in written}) == 1
    with pytest.raises(ValueError, match=r"model exists: name another.*--export"):
        run(init, task, runs, *SHORT, "--export", model)


# The loss, computed by hand.

PAIRS = [([5, 6, 7, END], [9, 10, END]), ([8, END], [11, 12, 13, 14, 15, END])]


def mean_nats(config, params) -> float:
    """Returns the mean nats per target token, computed for one pair after the other."""
    nats = []
    for source, target in PAIRS:
        text = [t5.PAD, *target[:-1]]
        inputs = t5.Inputs(jnp.array([source]), jnp.array([len(source)]))
        logits = t5.logits(config, params, inputs, jnp.array([text]))
        log_p = jax.nn.log_softmax(logits[0])
        nats += [-log_p[i, label] for i, label in enumerate(target)]
    return float(np.mean(nats))


def test_the_loss_is_that_of_the_target_tokens():
    config = tiny_t5.TARGET._replace(pieces=None)  # padding ids are ids in training
    params = tiny_t5.weights(config, 3, sharp=1.0)
    weight = lambda rows: rows.weight.sum()  # noqa: E731
    loss = accumulation.in_parts(pairs.cross_entropy(tiny_t5.TARGET), 2, weight)
    value = float(tiny_t5.quick_jit(loss)(params, pairs.pad(PAIRS, 8, 8)))
    assert value == pytest.approx(mean_nats(config, params), abs=NEAR)


# What cannot be done is said before anything is.


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--rate 0.02", r"another recipe \(.*rate is 0.01 there and 0.02 here"),
        ("--task {other}.npz", r"recipe \(pairs is \w+ there and \w+ here\)"),
        ("--init {model}", r"recipe \(init is \w+ there and \w+ here\)"),
        ("--batch 12", "--batch must be a multiple of 8; got 12"),
        ("--held-out 0", "--held-out must be at least 1; got 0"),
        ("--parts 3", "--parts must divide --batch 8; got 3"),
        ("--rate 0", "--rate must be positive"),
        ("--seed -1", "--seed, --warmup and --decay must not be negative"),
        ("--steps 9 --warmup 5 --decay 5", "must fit into --steps 9"),
        ("--task nothing", "no task 'nothing': choose one of wmt_ende, .*npz file"),
        ("--tokenizer a.model", "--tokenizer and --data-dir are for a data set"),
        ("--init {other}/gpt", "gpt is not a T5 but of the family gpt: name a"),
        ("--init {other}/t5", "begins texts with id 2"),
    ],
)
def test_what_cannot_be_done_is_refused(init, task, whole, others, flags, message):
    runs, model = whole
    flags = flags.format(other=others, model=model).split()
    with pytest.raises(ValueError, match=message):
        run(init, task, runs, *SHORT, *flags)


@pytest.fixture(scope="module")
def others(tmp_path_factory, untrained):
    """Other pairs, a model that is not a T5, and a T5 that begins texts otherwise."""
    folder = tmp_path_factory.mktemp("in") / "others"
    config = gpt.Config(13, 8, 16, 1, 2, positions=8, learned=True, tied=True)
    shapes = gpt.abstract_params(config)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    checkpoints.save(folder / "gpt", (config, params))
    checkpoints.save(folder / "t5", untrained._replace(start=2))
    write(folder.with_suffix(".npz"), copies(201))
    return folder


def test_the_command(init, task, untrained, tmp_path, monkeypatch, capsys):
    """Activations are in bfloat16 and leave the weights in float32."""
    flags = ["--init", str(init), "--task", task, "--runs", str(tmp_path), *SIZES]
    flags += ["--dtype", "bfloat16", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["train", *flags])
    finetune.main()
    line = f"{tmp_path / 'model'}: {init} after 2 steps on {task}\n"
    assert capsys.readouterr().out == line
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer_config.json"}
    assert not list(tmp_path.glob(".*")), "a temporary folder was left"
    trained = checkpoints.load(tmp_path / "model")
    assert (trained.start, trained.ends) == (t5.PAD, (END,))
    weights = trained.params, untrained.params
    for after, before in zip(*map(jax.tree.leaves, weights), strict=True):
        assert after.dtype == jnp.float32 and (after != before).any()
        assert np.abs(after - before).max() < 0.1
        assert (after != after.astype(jnp.bfloat16)).any()
    with pytest.raises(SystemExit, match=r"error: .*model exists"):
        finetune.main()


# What it is trained on.


def parse_task(task: str, *more: str):
    return finetune.parse(["--init", "x", "--task", task, "--runs", "x", *SIZES, *more])


def set_of_texts(rows: pairs.PairRows) -> set[tuple]:
    return {tuple(ids[:n]) for ids, n in zip(rows.inputs, rows.length, strict=True)}


def test_batches_of_shorter_texts_have_more_rows(untrained, tmp_path):
    """All batches have as many tokens, so that they can be divided into equal parts."""
    texts = [text for length in (1, 3, 7, 15) for text in copies(20, length)]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    data = finetune.load(parse_task(write(tmp_path / "a.npz", texts)), untrained)
    batches = [data.batch((0, step)) for step in range(60)]
    shapes = {rows.inputs.shape for rows in batches}
    assert shapes == {(64, 2), (32, 4), (16, 8), (8, 16)}
    jax.tree.map(np.testing.assert_array_equal, batches[3], data.batch((0, 3)))
    held_out = set(map(tuple, texts[:16]))
    assert all(
        set_of_texts(rows) <= held_out
        for each in data.held_out.values()
        for rows in each
    )
    long = {ids for ids in held_out if len(ids) == 16}
    assert long and not any(set_of_texts(rows) & long for rows in batches)


def test_longer_texts_are_refused_or_cut_before_their_end(untrained, tmp_path, capsys):
    texts = copies(20)
    texts[3], texts[7] = copies(2, 16)
    task = write(tmp_path / "long.npz", texts, targets=[ids[:8] for ids in texts])
    message = r"2 of 20 inputs are longer than 16 tokens.* example 4: .*--inputs-length"
    with pytest.raises(ValueError, match=message):
        finetune.load(parse_task(task), untrained)
    flags = parse_task(task, "--truncate")
    finetune.load(flags, untrained)
    assert capsys.readouterr().out == "cut 2 of 20 inputs to 16 tokens\n"
    pair = finetune.encode_pairs(finetune.read_source(flags, None), flags)[3]
    assert pair[0] == [*texts[3][:15], END]
    assert pair[1] == [*texts[3][:8], END]  # targets that lacked the end have it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(targets=[[5, END]] * 19 + [[]]), "1 of 20 targets are empty.*example 20"),
        (dict(inputs=[[END]] * 20), "20 of 20 inputs are empty"),
        (dict(inputs=[[5, -3, END]] * 20), r"ids -3 to 5"),
        # Padding of the vocabulary is not a text: 29 pieces of 32.
        (dict(inputs=[[5, 29, END]] * 20), r"ids 1 to 29, tiny 0 to 28: prepare"),
        (dict(eos=9), "end with id 9, those of tiny with 1"),
        (dict(inputs=copies(16)), "--held-out 16 leaves nothing of 16 pairs"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused(tmp_path, change, message):
    file, config = tmp_path / "tiny.safetensors", tiny_t5.TARGET
    zoo.save(file, config, tiny_t5.weights(config, 0))
    padded = checkpoints.load(file)
    task = write(tmp_path / "bad.npz", **dict(inputs=[[5, 9, END]] * 20) | change)
    with pytest.raises(ValueError, match=message):
        finetune.load(parse_task(task), padded)


def test_ids_of_another_tokenizer_are_refused(tmp_path):
    own, other = zoo.FOLDER / "t5.model", zoo.FOLDER / "tokenizer.model"
    subwords = recipes.load(own)
    texts = ["The house is small.", "Where do you live?", "That is good."]
    ids = [[*subwords.encode(text), END] for text in texts]
    ids[0] = [*ids[0][:1], END]  # as --truncate of the preparation leaves it
    for digest in ("of the same pieces in another file", subwords.digest):
        task = write(tmp_path / "own.npz", ids, texts=texts, tokenizer=digest)
        source = finetune.read_source(parse_task(task), None)
        finetune.check_tokenizer(own, source)
    with pytest.raises(ValueError, match=r"are not what .*tokenizer\.model makes"):
        finetune.check_tokenizer(other, source)


def test_a_data_set_is_read_through_seqio(monkeypatch, tmp_path):
    asked, ids = [], copies(1)[0]

    def rows(name, split, *, tokenizer, data_dir):
        asked.append((name, split, tokenizer, data_dir))
        yield recipes.TaskRow(ids, ids, "", "", "somewhere")

    fake = types.ModuleType("experiments.tasks.paper")
    fake.rows = rows
    fake.subwords = lambda name: recipes.Subwords(None, END, "of " + name)
    monkeypatch.setitem(sys.modules, "experiments.tasks.paper", fake)
    monkeypatch.setattr(experiments.tasks, "paper", fake, raising=False)
    own = tmp_path / "spiece.model"
    flags = parse_task("cnndm", "--data-dir", "there")
    source = finetune.read_source(flags, tmp_path)
    assert (source.task, source.split, source.eos) == ("cnn_dailymail", "train", END)
    assert finetune.encode_pairs(source, flags) == [(ids, ids)]
    own.write_text("the checkpoint's own")
    finetune.read_source(parse_task("wmt_ende"), tmp_path)
    finetune.read_source(parse_task("wmt_ende", "--tokenizer", "mine"), tmp_path)
    places = (recipes.T5_TOKENIZER, "there"), (str(own), None), ("mine", None)
    assert [(name, where) for _, _, name, where in asked] == [*places]
