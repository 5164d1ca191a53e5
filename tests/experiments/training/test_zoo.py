"""The commands that train the bundled models, whole, on tiny models and little text."""

import json
import shutil

import pytest
from sentencepiece import SentencePieceProcessor

import specjax
from experiments.training import counts, loop, zoo_code, zoo_llama, zoo_t5
from experiments.training.drafts import code as code_drafts
from experiments.training.drafts import copying, written
from experiments.training.drafts import dialogues as dialogue_drafts
from experiments.training.drafts import t5 as t5_drafts
from experiments.training.targets import code as code_targets
from experiments.training.targets import dialogues as dialogue_targets
from experiments.training.targets import t5 as t5_targets
from experiments.training.targets import t5_seed
from experiments.training.texts import dialogues as dialogue_texts
from experiments.training.texts import packages
from specjax import checkpoints, generate, zoo
from specjax.models import gpt, llama, t5

SHORT = loop.Recipe(3, 1, batch=2, length=16, warmup=1, evaluate_every=2)
FUNCTION = "def add(a, b):\n    # {}\n    return a + b\n"
PAIRS = [(f"This is sentence {i}.", f"Dies ist Satz {i}.") for i in range(1100)]


def stages(size):
    """Recipes of both stages of a target."""
    return {"small": size._replace(decay=0), "grown": size}


@pytest.fixture
def folders(tmp_path):
    runs, export = tmp_path / "runs", tmp_path / "export"
    runs.mkdir()
    export.mkdir()
    return runs, export


def refuse(*arguments):
    raise AssertionError("this was done before")


def start(monkeypatch, main, runs, export, *more):
    arguments = ["train", "--runs", str(runs), "--export", str(export), *more]
    monkeypatch.setattr("sys.argv", arguments)
    main()


def again_finds_everything_done(monkeypatch, main, runs, export, *more):
    """No step is taken, no text written and none scored; the recipes are the same."""
    monkeypatch.setattr(loop, "build_step", lambda loss, rule: refuse)
    monkeypatch.setattr(generate, "autoregressive", refuse)
    monkeypatch.setattr(written, "_scored", refuse)
    recipes = {path: path.read_bytes() for path in export.glob("*recipes.json")}
    assert recipes
    start(monkeypatch, main, runs, export, *more)
    assert all(path.read_bytes() == content for path, content in recipes.items())


@pytest.mark.slow
def test_the_code_models(monkeypatch, folders):
    runs, export = folders
    shutil.copy(zoo.FOLDER / "tokenizer.model", runs)
    texts = {
        name: [FUNCTION.format(f"{name} {i}") for i in range(20)]
        for name in ("library", "others", "held_out", "packages")
    }
    monkeypatch.setattr(code_targets, "documents", lambda: (texts, {"python": "3"}))
    monkeypatch.setattr(zoo_code, "SEED", gpt.Config(8192, 16, 32, 1, 2))
    monkeypatch.setattr(zoo_code, "SEED_RECIPE", SHORT)
    monkeypatch.setattr(code_targets, "SMALL", gpt.Config(8192, 16, 32, 1, 2))
    monkeypatch.setattr(code_targets, "LARGE", gpt.Config(8192, 32, 64, 2, 4))
    monkeypatch.setattr(code_targets, "SIZE", SHORT)
    monkeypatch.setattr(code_targets, "RECIPES", stages(SHORT))
    monkeypatch.setattr(code_drafts, "DRAFT", gpt.Config(8192, 8, 16, 1, 2))
    monkeypatch.setattr(code_drafts, "KL", SHORT)
    monkeypatch.setattr(code_drafts, "AFTER", SHORT)
    monkeypatch.setattr(code_drafts, "LONGER", SHORT)
    for name, value in (("PROMPT", 8), ("NEW", 8), ("LENGTH", 16), ("BATCH", 4)):
        monkeypatch.setattr(code_drafts, name, value)
    for name in ("GREEDY", "SAMPLED", "READ", "HELD_OUT"):
        monkeypatch.setattr(code_drafts, name, 4)
    monkeypatch.setattr(written, "KEPT", 8)

    start(monkeypatch, zoo_code.main, runs, export)
    for name, config in (("target", code_targets.LARGE), ("small", code_drafts.DRAFT)):
        assert checkpoints.load(export / f"code_{name}.safetensors").config == config
    about = json.loads((export / "recipes.json").read_text())
    assert about["curves"].keys() == zoo_code.CURVES.keys()
    assert about["text"].startswith("functions in the library of Python 3 and")
    shipped, order = zoo_code.SHIPPED
    assert about["code_small"][shipped] == SHORT._replace(seed=order)._asdict()
    again_finds_everything_done(monkeypatch, zoo_code.main, runs, export)


@pytest.mark.slow
def test_the_pair_of_dialogues(monkeypatch, folders):
    runs, data = folders
    texts = [
        {"article": f"Ann: Is it {i}?\nBob: Yes, {i}.", "summary": f"It is {i}."}
        for i in range(300)
    ]
    for name in dialogue_texts.SETS:
        for side in ("train", "valid"):
            lines = "".join(json.dumps(line) + "\n" for line in texts)
            (data / f"{name}.{side}.jsonl").write_text(lines)
    small = llama.Config(300, 16, 24, 1, 4, 2, 4)
    large = small._replace(dim=32, num_layers=2)
    draft = small._replace(dim=8, num_heads=2, key_heads=1)
    monkeypatch.setattr(dialogue_targets, "VOCAB", 300)
    monkeypatch.setattr(dialogue_targets, "SMALL", small)
    monkeypatch.setattr(dialogue_targets, "LARGE", large)
    monkeypatch.setattr(dialogue_targets, "SIZE", SHORT)
    monkeypatch.setattr(dialogue_drafts, "DRAFT", draft)
    recipes = stages(SHORT) | dict.fromkeys(dialogue_drafts.RECIPES, SHORT)
    monkeypatch.setattr(zoo_llama, "RECIPES", recipes)
    for name, value in (("PROMPT", 8), ("NEW", 8), ("LENGTH", 16)):
        monkeypatch.setattr(dialogue_drafts, name, value)
    for name in ("BATCH", "HELD_OUT"):
        monkeypatch.setattr(dialogue_drafts, name, 4)
    monkeypatch.setattr(written, "KEPT", 8)

    more = "--dialogues", str(data), "--texts", "6"
    arguments = ["train", "--runs", str(runs), *more]
    monkeypatch.setattr("sys.argv", arguments)
    zoo_llama.main()
    pair = specjax.load(runs / "target"), specjax.load(runs / "draft")
    sizes = [side.config._replace(positions=None) for side in pair]
    assert sizes == [large, draft]
    assert pair[0].tokenizer.encode("Ann: 1")[0] == pair[0].start == zoo.START
    assert pair[0].ends == (zoo.END,)
    output = specjax.generate_text(*pair, ["Ann: Is"], gamma=2, new_tokens=3)
    assert len(output.texts) == 1
    about = (runs / "recipes.json").read_bytes()
    assert json.loads(about)["curves"].keys() == zoo_llama.CURVES.keys()
    monkeypatch.setattr(loop, "build_step", lambda loss, rule: refuse)
    monkeypatch.setattr(generate, "autoregressive", refuse)
    zoo_llama.main()
    assert (runs / "recipes.json").read_bytes() == about


@pytest.mark.slow
def test_the_t5_family(monkeypatch, folders):
    runs, export = folders
    shutil.copy(zoo.FOLDER / "t5.model", runs / "tokenizer.model")
    pieces = SentencePieceProcessor(model_file=str(runs / "tokenizer.model"))
    monkeypatch.setattr(t5_seed, "sentences", lambda folder: PAIRS)
    monkeypatch.setattr(t5_targets, "validation", lambda folder: PAIRS[:300])
    monkeypatch.setattr(packages, "NAMES", ("optax",))
    texts = [(f"The value {i} is kept as it was.\n", "Keep it.") for i in range(40)]
    monkeypatch.setattr(zoo_t5.documentation, "pairs", lambda side: texts)
    passages = [" ".join([f"The value {i} is kept as it was."] * 10) for i in range(40)]
    monkeypatch.setattr(t5_targets, "passages", lambda pieces, side: passages)
    assert len(pieces.encode(passages[0])) > t5_targets.LEAST

    sizes = {"joined": ((144, 112),), "correct": ((144, 112),)}
    sizes |= {"sentences": ((64, 48),), "docs": ((64, 48),)}
    monkeypatch.setattr(t5_targets, "SIZES", sizes)  # a shape is a compilation
    monkeypatch.setattr(t5_seed, "SENTENCES", ((64, 48),))
    monkeypatch.setattr(t5_seed, "DOCUMENTS", ((64, 48),))
    small = t5.Config(6016, 16, 32, 1, 1, 2, 8, pieces=6000)
    short = SHORT._replace(optimizer="scaled", batch=1, length=256)
    monkeypatch.setattr(t5_seed, "SEED", small)
    monkeypatch.setattr(t5_seed, "RECIPE", short)
    monkeypatch.setattr(t5_targets, "SMALL", small)
    large = small._replace(dim=32, mlp_dim=64, decoder_layers=2, num_heads=4)
    monkeypatch.setattr(t5_targets, "LARGE", large)
    monkeypatch.setattr(t5_targets, "RECIPES", stages(short))
    monkeypatch.setattr(t5_targets, "SCALED", short)
    drafts = {"t5_small": small, "t5_decoder": gpt.Config(6016, 8, 16, 1, 2)}
    monkeypatch.setattr(t5_drafts, "DRAFTS", drafts)
    monkeypatch.setattr(t5_drafts, "KL", dict.fromkeys(drafts, short))
    lengths = {"steps": 2, "decay": 1}
    monkeypatch.setattr(t5_drafts, "AFTER", lengths)
    monkeypatch.setattr(t5_drafts, "LONGER", dict.fromkeys(drafts, lengths))
    monkeypatch.setattr(copying, "RECIPE", short._replace(length=16))
    parts = {
        name: part._replace(texts=8, targets=6)
        for name, part in t5_drafts.PARTS.items()
    }
    monkeypatch.setattr(t5_drafts, "PARTS", parts)
    for name, value in (("BATCH", 4), ("HELD_OUT", 4)):
        monkeypatch.setattr(t5_drafts, name, value)
    monkeypatch.setattr(written, "KEPT", 8)

    start(monkeypatch, zoo_t5.main, runs, export, "--pairs", "nowhere")
    for name, config in {"t5_target": large, **drafts}.items():
        assert checkpoints.load(export / f"{name}.safetensors").config == config
    about = json.loads((export / "t5_recipes.json").read_text())
    assert about["drafts"].keys() == set(drafts)
    for name in "t5_small, hybrid", "t5_small, hybrid_longer":
        assert name in about["curves"]
    stages_of = about["drafts"]["t5_small"]
    assert stages_of["kl"] == short._asdict()
    slower = short._replace(rate=t5_drafts.SLOWER * short.rate, **lengths)
    assert stages_of["hybrid"] == stages_of["hybrid_longer"] == slower._asdict()
    assert about["t5_bigram"] == counts.COUNTS
    for side in "train", "valid":
        assert about["text"][side] == json.loads((runs / f"{side}.json").read_text())
    more = "--pairs", "nowhere"
    again_finds_everything_done(monkeypatch, zoo_t5.main, runs, export, *more)
