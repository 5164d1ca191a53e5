"""A T5 is fine-tuned: it learns, resumes bitwise, and what it wrote is a model."""

import io
import json
import shutil
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sentencepiece

import experiments.tasks
from experiments.tasks import examples, recipes
from experiments.training import finetune, finetune_data, loop, pairs
from specjax import checkpoints, zoo
from specjax.models import gpt, t5
from tests.support import tiny_t5

pytestmark = pytest.mark.slow

CONFIG = t5.Config(32, 16, 32, 1, 1, num_heads=2, head_width=8)
SIZES = "--batch 8 --inputs-length 16 --targets-length 16 --held-out 16".split()
SHORT = "--steps 7 --checkpoint-every 3 --evaluate-every 2 --rate 0.01".split()
LETTERS, END = range(5, 9), t5.END
NEAR = 1e-4


class Killed(BaseException):
    """As Ctrl-C or a lost machine would end a run."""


def write(path: Path, inputs, targets=None, **about) -> str:
    """A prepared file of pairs, copies of their inputs unless told otherwise."""
    made = dict(task="wmt_ende", split="train", tokenizer="none", eos=END, prefix="")
    made |= dict(length=None, truncate=False, limit=None, source=[]) | about
    targets, none = inputs if targets is None else targets, [""] * len(inputs)
    found = examples.Examples(inputs, targets, made.pop("texts", none), none)
    examples.write(path, found, examples.About(**made))
    return str(path)


def copies(count: int, length: int = 7) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [[*rng.choice(LETTERS, length).tolist(), END] for _ in range(count)]


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


def run(init, task: str, runs: Path, *more: str) -> Path:
    flags = "--init", str(init), "--task", task, "--runs", str(runs), *SIZES, *more
    return finetune.finetune(finetune.parse([str(flag) for flag in flags]))


def same(one, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def curve(folder: Path, name: str) -> list:
    lines = (folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, init, task):
    """A run that was never killed: its folder, and the one of its model."""
    runs = tmp_path_factory.mktemp("whole")
    return runs, run(init, task, runs, *SHORT)


@pytest.mark.parametrize("copied", [True, False])
def test_it_learns_what_can_be_learned(init, tmp_path, copied):
    """Four equally likely letters, then the end: who copies pays nothing, and who
    cannot, as the targets are of other inputs, pays log 4 for 7 of 8 tokens."""
    texts = copies(200)
    targets = texts if copied else [*texts[1:], texts[0]]
    task = write(tmp_path / "pairs.npz", texts, targets)
    flags = "--steps 150 --rate 0.03 --decay 50 --evaluate-every 150".split()
    run(init, task, tmp_path / "run", *flags)
    (held_out,) = curve(tmp_path / "run", "held_out")
    guessing = 7 / 8 * np.log(4)
    assert held_out < 0.5 * guessing if copied else held_out > 0.9 * guessing


def test_a_killed_run_ends_with_the_same_model(
    init, task, whole, tmp_path, monkeypatch
):
    """Killed in step 5, after the checkpoint of step 3."""
    sampler = pairs.sampler

    def until_killed(found):
        def batch(seed):
            if seed == (0, 4):
                raise Killed
            return sampler(found)(seed)

        return batch

    monkeypatch.setattr(pairs, "sampler", until_killed)
    with pytest.raises(Killed):
        run(init, task, tmp_path, *SHORT)
    monkeypatch.undo()
    assert not (tmp_path / "model").exists() and curve(tmp_path, "step") == [2, 4]

    runs, model = whole
    folder = run(init, task, tmp_path, *SHORT)
    same(checkpoints.load(folder).params, checkpoints.load(model).params)
    assert curve(tmp_path, "held_out") == curve(runs, "held_out")
    assert curve(tmp_path, "step") == [2, 4, 6, 7]


def test_another_seed_ends_with_another_model(init, task, whole, tmp_path):
    other = checkpoints.load(run(init, task, tmp_path, *SHORT, "--seed", "1")).params
    with pytest.raises(AssertionError):
        same(other, checkpoints.load(whole[1]).params)


def test_a_finished_run_is_written_again_without_training(
    init, task, whole, tmp_path, monkeypatch
):
    runs, model = whole
    monkeypatch.setattr(loop, "build_step", lambda *_: pytest.fail)
    again = run(init, task, runs, *SHORT, "--export", tmp_path / "again")
    same(checkpoints.load(again).params, checkpoints.load(model).params)
    with pytest.raises(ValueError, match=r"model exists: name another.*--export"):
        run(init, task, runs, *SHORT)


def test_the_model_is_a_whole_folder(init, whole):
    runs, model = whole
    names = {path.name for path in model.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer_config.json"}
    found = checkpoints.load(model)
    assert found.config == CONFIG and (found.start, found.end) == (t5.PAD, END)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found.params))
    before = jax.tree.leaves(checkpoints.load(init).params)
    after = jax.tree.leaves(found.params)
    assert all((a != b).any() for a, b in zip(after, before, strict=True))
    assert not list(runs.glob(".*")), "a temporary folder was left"


def test_transformers_computes_the_same_loss(whole):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(whole[1]).eval()
    rows = pairs.pad([(ids, ids) for ids in copies(3)], 8, 8)
    ids = torch.tensor(rows.inputs, dtype=torch.long)
    with torch.no_grad():
        wanted = float(theirs(input_ids=ids, labels=ids).loss)
    params = checkpoints.load(whole[1]).params
    ours = float(tiny_t5.quick_jit(pairs.cross_entropy(CONFIG))(params, rows))
    assert ours == pytest.approx(wanted, abs=NEAR)


# The loss, computed by hand.

PAIRS = [([5, 6, 7, END], [9, 10, END]), ([8, END], [11, 12, 13, 14, 15, END])]


def by_hand(config, params, shift=0, start=t5.PAD, padding=False) -> float:
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


@pytest.fixture(scope="module")
def loss():
    """What is trained on: its value for PAIRS."""
    config = tiny_t5.TARGET._replace(pieces=None)  # padding ids are ids in training
    params = tiny_t5.weights(config, 3, sharp=1.0)
    rows = pairs.pad(PAIRS, 8, 8)
    measure = finetune.in_parts(pairs.cross_entropy(tiny_t5.TARGET), 2)
    return float(tiny_t5.quick_jit(measure)(params, rows)), config, params


def test_the_loss_is_that_of_the_target_tokens(loss):
    value, config, params = loss
    assert value == pytest.approx(by_hand(config, params), abs=NEAR)


@pytest.mark.parametrize("wrong", [dict(shift=1), dict(start=END), dict(padding=True)])
def test_a_wrong_loss_is_another(loss, wrong):
    value, config, params = loss
    assert abs(value - by_hand(config, params, **wrong)) > 50 * NEAR


def test_parts_change_neither_loss_nor_gradient():
    params = tiny_t5.weights(CONFIG, 3, sharp=1.0)
    texts = [copies(1, length)[0] for length in (2, 7, 3, 5)]
    rows = pairs.pad([(ids, ids) for ids in texts], 8, 8)
    each = pairs.cross_entropy(CONFIG)
    whole, parts = (
        tiny_t5.quick_jit(jax.value_and_grad(loss))(params, rows)
        for loss in (each, finetune.in_parts(each, 4))
    )
    near = dict(rtol=1e-4, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **near), whole, parts)
    # The mean of the parts' means is another: their targets are not as long.
    alone = [jax.tree.map(lambda x, i=i: x[i : i + 1], rows) for i in range(4)]
    one = tiny_t5.quick_jit(each)
    mean = np.mean([float(one(params, row)) for row in alone])
    assert abs(mean - float(whole[0])) > 10 * NEAR


def test_activations_in_bfloat16_leave_float32_weights(init, task, tmp_path):
    flags = "--steps 2 --dtype bfloat16 --export".split()
    found = checkpoints.load(run(init, task, tmp_path / "run", *flags, tmp_path / "it"))
    before = checkpoints.load(init).params
    for one, other in zip(*map(jax.tree.leaves, (found.params, before)), strict=True):
        assert one.dtype == jnp.float32 and np.abs(one - other).max() < 0.1
        assert (one != one.astype(jnp.bfloat16)).any()
    half = json.loads((tmp_path / "run" / "recipe.json").read_text())["config"]
    assert half["dtype"] == "bfloat16"


# Data.


def chosen(task: str, *more: str):
    return finetune.parse(["--init", "x", "--task", task, "--runs", "x", *SIZES, *more])


def test_batches_of_shorter_texts_have_more_rows(init, tmp_path):
    """As many tokens each, so that parts of a batch are whole."""
    lengths = (1, 3, 7, 15)
    texts = [text for length in lengths for text in copies(20, length)]
    random = np.random.default_rng(0).permutation(len(texts))
    task = write(tmp_path / "a.npz", [texts[i] for i in random])
    found = finetune_data.load(chosen(task), checkpoints.load(init))
    shapes = {found.batch((0, step)).inputs.shape for step in range(60)}
    assert shapes == {(64, 2), (32, 4), (16, 8), (8, 16)}
    held_out = [tuple(text) for text in (texts[i] for i in random)][:16]
    rows = [found.batch((0, step)) for step in range(60)] + found.held_out
    seen = [
        {tuple(ids[:n]) for ids, n in zip(it.inputs, it.length, strict=True)}
        for it in rows
    ]
    assert all(ids <= set(held_out) for ids in seen[60:]) and len(seen[60:]) == 2
    long = {ids for ids in held_out if len(ids) == 16}
    assert long and not any(ids & long for ids in seen[:60])


def test_longer_texts_are_refused_or_cut_before_their_end(init, tmp_path, capsys):
    texts = copies(20)
    texts[3], texts[7] = copies(2, 16)
    task = write(tmp_path / "long.npz", texts, [ids[:8] for ids in texts])
    tiny = checkpoints.load(init)
    said = r"2 of 20 inputs are longer than 16 tokens.* example 4: .*--inputs-length"
    with pytest.raises(ValueError, match=said):
        finetune_data.load(chosen(task), tiny)
    flags = chosen(task, "--truncate")
    finetune_data.load(flags, tiny)
    assert capsys.readouterr().out == "cut 2 of 20 inputs to 16 tokens\n"
    source = finetune_data.read(flags, None)
    pair = finetune_data.encoded(source, flags)[3]
    assert pair[0] == [*texts[3][:15], END]
    assert pair[1] == [*texts[3][:8], END]  # targets that lacked the end have it


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(targets=[[5, END]] * 19 + [[]]), "1 of 20 targets are empty.*example 20"),
        (dict(inputs=[[END]] * 20), "20 of 20 inputs are empty"),
        (dict(inputs=[[5, 32, END]] * 20), r"ids 1 to 32, tiny 0 to 31: prepare"),
        (dict(inputs=[[5, -3, END]] * 20), r"ids -3 to 5"),
        (dict(eos=9), "end with id 9, those of tiny with 1"),
        (dict(inputs=copies(16)), "--held-out 16 leaves nothing of 16 pairs"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused(init, tmp_path, change, said):
    made = dict(inputs=[[5, 9, END]] * 20) | change
    task = write(tmp_path / "bad.npz", **made)
    with pytest.raises(ValueError, match=said):
        run(init, task, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_padding_of_the_vocabulary_is_no_text(tmp_path):
    """29 pieces of 32: id 28 is text, id 29 is not, and the readout keeps its rows."""
    params = tiny_t5.weights(tiny_t5.TARGET, 0)
    zoo.save(tmp_path / "padded.safetensors", tiny_t5.TARGET, params)
    padded = checkpoints.load(tmp_path / "padded.safetensors")
    task = write(tmp_path / "last.npz", [[28, END]] * 20)
    finetune_data.load(chosen(task), padded)
    task = write(tmp_path / "beyond.npz", [[29, END]] * 20)
    with pytest.raises(ValueError, match="ids 1 to 29, padded 0 to 28"):
        finetune_data.load(chosen(task), padded)


def trained_tokenizer(path: Path, words: list[str]) -> Path:
    written = io.BytesIO()
    ids = dict(pad_id=0, eos_id=END, unk_id=2, bos_id=-1)
    limits = dict(vocab_size=24, hard_vocab_limit=False, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 9), model_writer=written, **ids, **limits
    )
    path.write_bytes(written.getvalue())
    return path


def test_ids_of_another_tokenizer_are_refused(init, tmp_path):
    words = ["bad cab", "dab a cad", "a bad dab"]
    own = trained_tokenizer(tmp_path / "spiece.model", words)
    encode = recipes.load(own).encode
    texts, ids = words * 8, [[*encode(word), END] for word in words * 8]
    ids[0] = [*ids[0][:1], END]  # as --truncate of the preparation leaves it
    for digest in ("of the same pieces in another file", recipes.load(own).digest):
        task = write(tmp_path / "own.npz", ids, texts=texts, tokenizer=digest)
        finetune_data.check_tokenizer(own, finetune_data.read(chosen(task), None))
    other = trained_tokenizer(tmp_path / "other.model", ["xyz zyx", "yy zz x"])
    with pytest.raises(ValueError, match=r"are not what .*other\.model makes"):
        finetune_data.check_tokenizer(other, finetune_data.read(chosen(task), None))


@pytest.fixture
def paper(monkeypatch):
    """The module of seqio's tasks, with pairs of its own; and what it was asked for."""
    asked = []

    def rows(*given):
        asked.append(given)
        for ids in copies(20):
            yield recipes.TaskRow(ids, ids, "", "", "somewhere")

    fake = types.ModuleType("experiments.tasks.paper")
    fake.rows = rows
    fake.subwords = lambda name: recipes.Subwords(None, END, "of " + name)
    monkeypatch.setitem(sys.modules, "experiments.tasks.paper", fake)
    monkeypatch.setattr(experiments.tasks, "paper", fake, raising=False)
    return asked


@pytest.mark.parametrize("name", ["wmt_ende", "cnn_dailymail", "cnndm"])
def test_a_data_set_is_read_through_seqio(paper, tmp_path, name):
    flags = chosen(name, "--data-dir", "there")
    found = finetune_data.read(flags, tmp_path)
    whole = "cnn_dailymail" if name == "cnndm" else name
    assert (found.task, found.split, found.eos) == (whole, "train", END)
    assert finetune_data.encoded(found, flags) == [(ids, ids) for ids in copies(20)]
    (tmp_path / "spiece.model").write_text("the checkpoint's own")
    finetune_data.read(flags, tmp_path)
    finetune_data.read(chosen(name, "--tokenizer", "mine"), tmp_path)
    own = str(tmp_path / "spiece.model")
    assert [given[2] for given in paper] == [recipes.T5_TOKENIZER, own, "mine"]
    assert {given[:2] for given in paper} == {(whole, "train")}


def test_without_seqio_it_is_said_what_to_install(init, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)
    monkeypatch.delitem(sys.modules, "experiments.tasks.paper", raising=False)
    monkeypatch.delattr(experiments.tasks, "paper", raising=False)
    flags = "--init", str(init), "--task", "wmt_ende", "--runs", str(tmp_path / "run")
    with pytest.raises(SystemExit, match=r"error: .*specjax\[data\].*local files"):
        finetune.main([*flags, *SIZES])


# What cannot be done is said before anything is.


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--rate 0.02", "rate is 0.01 there and 0.02 here"),
        ("--steps 8", "steps is 7 there and 8 here"),
        ("--seed 3", "seed is 0 there and 3 here"),
        ("--held-out 8", "held_out is 16 there and 8 here"),
        ("--dtype bfloat16", "dtype is float32 there and bfloat16 here"),
        ("--targets-length 8 --inputs-length 24", r"inputs_length is 16 .*targets_le"),
    ],
)
def test_a_run_with_other_flags_is_refused(init, task, whole, tmp_path, flags, said):
    export = "--export", str(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"holds another run: .*{said}.* --runs"):
        run(init, task, whole[0], *SHORT, *export, *flags.split())


def test_a_run_on_other_pairs_or_from_other_weights_is_refused(
    init, task, whole, tmp_path
):
    export = "--export", str(tmp_path / "model")
    other = write(tmp_path / "other.npz", copies(201))
    with pytest.raises(ValueError, match=r"run: pairs is \w+ there and \w+ here\. "):
        run(init, other, whole[0], *SHORT, *export)
    with pytest.raises(ValueError, match=r"run: init is \w+ there and \w+ here\. "):
        run(whole[1], task, whole[0], *SHORT, *export)


def test_a_run_goes_on_wherever_its_files_are(init, task, whole, tmp_path):
    moved = shutil.copytree(init, tmp_path / "moved"), shutil.copy(task, tmp_path)
    export = tmp_path / "model"
    often = "--checkpoint-every", "1", "--parts", "4"
    run(*moved, whole[0], *SHORT, *often, "--export", export)
    same(checkpoints.load(export).params, checkpoints.load(whole[1]).params)


@pytest.mark.parametrize(
    ("flags", "said"),
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
def test_flags_that_cannot_be_are_refused(init, task, tmp_path, flags, said):
    with pytest.raises(ValueError, match=said):
        run(init, task, tmp_path / "run", *flags.split())
    assert not (tmp_path / "run").exists()


def test_only_a_t5_is_fine_tuned(init, task, tmp_path):
    config = gpt.Config(13, 8, 16, 1, 2, positions=8, learned=True, tied=True)
    shapes = gpt.abstract_params(config)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    checkpoints.save(tmp_path / "gpt", (config, params))
    with pytest.raises(ValueError, match=r"gpt is no T5 but of the family gpt: name a"):
        run(tmp_path / "gpt", task, tmp_path / "run")
    found = checkpoints.load(init)
    checkpoints.save(tmp_path / "other", found._replace(start=2))
    with pytest.raises(ValueError, match="begins texts with id 2"):
        run(tmp_path / "other", task, tmp_path / "run")


def test_the_command(init, task, tmp_path, monkeypatch, capsys):
    flags = ["--init", str(init), "--task", task, "--runs", str(tmp_path), *SIZES]
    monkeypatch.setattr(sys, "argv", ["train", *flags, "--steps", "1"])
    finetune.main()
    said = f"{tmp_path / 'model'}: {init} after 1 steps on {task}\n"
    assert capsys.readouterr().out == said
    with pytest.raises(SystemExit, match=r"error: .*model exists"):
        finetune.main()
