"""The commands that train the bundled models run from start to end, with tiny recipes
and little text."""

import json
import lzma
import shutil

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2 as formats

import specjax
from experiments.tasks import digits
from experiments.training import (
    pipeline,
    zoo_code,
    zoo_digits,
    zoo_eagle3,
    zoo_llama,
    zoo_smollm2,
    zoo_speech,
    zoo_t5,
    zoo_whisper,
)
from experiments.training.texts import code as code_texts
from experiments.training.texts import documentation, packages, tasks
from experiments.training.voices import sentences, synthesis
from specjax import checkpoints, drafts, generate, zoo
from specjax.models import llama, whisper
from specjax.speech import logmel, pair, tokens
from specjax.speech.transcripts import transcribe
from specjax.training import loop, written
from tests.support import gguf_files, speech_folders, tiny_llama

pytestmark = pytest.mark.slow

SHORT = {"steps": 3, "decay": 1, "batch": 2, "length": 16, "warmup": 1}
SHORT |= {"evaluate_every": 2}
FUNCTION = "def add(a, b):\n    # {}\n    return a + b\n"
PAIRS = [(f"This is sentence {i}.", f"Dies ist Satz {i}.") for i in range(1100)]


@pytest.fixture
def folders(tmp_path):
    runs, export = tmp_path / "runs", tmp_path / "export"
    runs.mkdir()
    export.mkdir()
    return runs, export


def shorten(monkeypatch, name: str, recipe: dict, models: dict, **settings) -> None:
    """Makes `pipeline.read` give a recipe with other sizes, lengths and settings."""
    whole = {**pipeline.read(name), **settings}
    sizes = {key: whole["models"][key] | it for key, it in models.items()}
    stages = {k: v for k, v in whole["stages"].items() if v["model"] in models}
    for folder, stage in stages.items():
        own = {"decay": 0} if folder == "target/small" else {}
        own |= {"length": 16} if stage["data"] == "copying" else {}
        stage["recipe"] = {**recipe, **own}
    whole |= {"models": sizes, "stages": stages}
    monkeypatch.setattr(pipeline, "read", lambda asked: {name: whole}[asked])
    monkeypatch.setattr(written, "KEPT", 8)


def start(monkeypatch, module, *arguments):
    monkeypatch.setattr("sys.argv", ["train", *map(str, arguments)])
    module.main()


def check(folder, recipes: str, models: dict) -> dict:
    """Returns the recipes that were written beside models of these sizes."""
    for name, sizes in models.items():
        path = folder / f"{name}.safetensors"
        config = checkpoints.load(path if path.exists() else folder / name).config
        assert sizes.items() <= config._asdict().items(), name
    content = json.loads((folder / recipes).read_text())
    assert content["curves"].keys() == content["recipe"]["stages"].keys()
    return content


def test_the_code_models(monkeypatch, folders):
    runs, export = folders
    shutil.copy(zoo.FOLDER / "tokenizer.model", runs)
    names = "library", "others", "held_out", "packages"
    texts = {it: [FUNCTION.format(f"{it} {i}") for i in range(20)] for it in names}
    monkeypatch.setattr(code_texts, "documents", lambda: (texts, {"python": "3"}))
    small = {"dim": 16, "mlp_dim": 32, "num_layers": 1, "num_heads": 2}
    large = {"dim": 32, "mlp_dim": 64, "num_layers": 2, "num_heads": 4}
    models = {"seed": small | {"dtype": "float32"}, "small": small, "large": large}
    models["draft"] = small | {"dim": 8, "mlp_dim": 16}
    plan = dict.fromkeys(("greedy", "sampled", "read", "held_out", "batch"), 4)
    plan |= {"prompt": 8, "new": 8, "clipped": True}
    shorten(monkeypatch, "code", SHORT, models, written=plan)
    flags = "--runs", runs, "--export", export
    start(monkeypatch, zoo_code, *flags)
    written_as = {"code_target": large, "code_small": models["draft"]}
    content = check(export, "recipes.json", written_as)
    assert content["text"] == {"python": "3"}
    assert content["held_out"].keys() == {"alpha_t0", "alpha_t1"}
    # Again, no step is taken, no text written and none scored.
    monkeypatch.setattr(loop, "build_step", lambda loss, rule, state: pytest.fail)
    monkeypatch.setattr(generate, "autoregressive", pytest.fail)
    monkeypatch.setattr(written, "_score", pytest.fail)
    start(monkeypatch, zoo_code, *flags)
    assert check(export, "recipes.json", written_as) == content


def test_the_pair_of_images(monkeypatch, folders):
    runs, export = folders
    shades = np.random.default_rng(0).integers(0, digits.SHADES, (40, 8, 8))
    some = digits.Images(shades, np.arange(40) % 10)
    monkeypatch.setattr(digits, "load", lambda: {"train": some, "held_out": some})
    large = {"dim": 16, "mlp_dim": 32, "num_layers": 2, "num_heads": 4}
    draft = large | {"dim": 8, "num_layers": 1, "num_heads": 2}
    plan = {"greedy": 4, "sampled": 4, "read": 0, "held_out": 4, "batch": 4}
    plan |= {"prompt": 1, "new": digits.PIXELS}
    whole = SHORT | {"length": digits.PIXELS}
    shorten(
        monkeypatch, "digits", whole, {"large": large, "draft": draft}, written=plan
    )
    monkeypatch.setattr(written, "KEPT", 64)  # more than there are ids
    start(monkeypatch, zoo_digits, "--runs", runs, "--export", export)
    models = dict(zip(zoo.IMAGE_MODELS, (large, draft), strict=True))
    content = check(export, "digits_recipes.json", models)
    assert content["held_out"].keys() == {"alpha_t0", "alpha_t1"}


def test_the_pair_of_dialogues(monkeypatch, folders):
    runs, data = folders
    texts = [(f"Ann: Is it {i}?\nBob: Yes, {i}.", f"It is {i}.") for i in range(300)]
    texts = [json.dumps({"article": a, "summary": b}) + "\n" for a, b in texts]
    for name in zoo_llama.SETS:
        for side in ("train", "valid"):
            (data / f"{name}.{side}.jsonl").write_text("".join(texts))
    small = {"vocab": 300, "dim": 16, "mlp_dim": 24, "num_layers": 1, "num_heads": 4}
    small |= {"key_heads": 2, "head_width": 4}
    large = small | {"dim": 32, "num_layers": 2}
    draft = small | {"dim": 8, "num_heads": 2, "key_heads": 1}
    models = {"small": small, "large": large, "draft": draft}
    plan = {"greedy": 4, "sampled": 4, "read": 0, "held_out": 4, "batch": 4}
    plan |= {"prompt": 8, "new": 8}
    shorten(monkeypatch, "llama", SHORT, models, written=plan)
    start(monkeypatch, zoo_llama, "--runs", runs, "--dialogues", data, "--texts", "6")
    content = check(runs, "recipes.json", {"target": large, "draft": draft})
    assert content["recipe"]["written"]["sampled"] == 6
    pair = specjax.load(runs / "target"), specjax.load(runs / "draft")
    assert pair[0].tokenizer.encode("Ann: 1")[0] == pair[0].start == zoo.START
    output = specjax.generate_text(*pair, ["Ann: Is"], gamma=2, new_tokens=3)
    assert len(output.texts) == 1


def test_the_draft_of_a_model_that_was_fetched(monkeypatch, folders, tmp_path):
    runs, export = folders
    proto = (zoo.FOLDER / "tokenizer.model").read_bytes()
    pieces = formats.ModelProto.FromString(proto).pieces
    kinds = {"tokens": "piece", "scores": "score", "token_type": "type"}
    keys = {f"ggml.{k}": [getattr(x, v) for x in pieces] for k, v in kinds.items()}
    keys |= {"ggml.model": "llama", "ggml.add_space_prefix": False}
    keys["chat_template"] = "{% for m in messages %}Ask: {{ m.content }}{% endfor %}?"
    config = tiny_llama.LLAMA._replace(vocab=len(pieces), tied=True)
    plain = dict.fromkeys(("biased", "out_biased", "mlp_biased"), False)
    config = config._replace(rotation=llama.Rotation(100.0), **plain)
    params = tiny_llama.weights(config, 1)
    target = gguf_files.write(tmp_path / "a.gguf", config, params, tokenizer=keys)
    several = [f"Das hier ist der Satz Nummer {i}." for i in range(90)]
    texts = [json.dumps({"prompt": text, "article": text}) for text in several]
    lines = {zoo_smollm2.GSM8K: texts, zoo_smollm2.ABSTRACTS: texts}
    lines[f"{zoo_smollm2.PAIRS}.de.xz"] = several
    lines[f"{zoo_smollm2.PAIRS}.src.xz"] = [zoo_smollm2.TATOEBA] * 90
    for name, content in lines.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with lzma.open(tmp_path / name, "wt") as file:
            file.write("\n".join(content) + "\n")
    monkeypatch.setattr(documentation, "pairs", lambda side: [("It adds.", "Add.")] * 9)
    monkeypatch.setattr(zoo_smollm2, "TARGET", str(target))
    draft = {"vocab": 50, "dim": 16, "mlp_dim": 20, "num_heads": 4, "key_heads": 2}
    draft |= {"head_width": 6}
    asking = {"shares": {"maths": 1, "itself": 1, "translation": 1}, "batches": 3}
    asking |= {"held_out": 1, "first": 2, "question": 6, "longest": 40}
    sizes = {"asked": asking, "answers": {"new": 5, "kept": 6, "batch": 4}}
    shorten(monkeypatch, "smollm2", SHORT, {"draft": draft}, **sizes)
    where = "--data", tmp_path, "--runs", runs, "--export", export
    start(monkeypatch, zoo_smollm2, *where, "--write", "1/2")
    assert [x.name for x in (runs / "answers").iterdir()] == ["0001.npz"]
    start(monkeypatch, zoo_smollm2, *where)
    made = check(export, "smollm2_draft.json", {})
    assert made["held_out"].keys() == {"alpha_t0", "alpha_t1"}
    target = specjax.load(target)
    made = str(export / "smollm2_draft.safetensors")
    side = drafts.load_draft(made, target)
    assert side.params["ids"].size == 50 and side.vocab == config.vocab


def test_the_head_of_the_code_model(monkeypatch, folders):
    runs, export = folders
    lines = [f"def f{i}(a):\n" for i in range(16)]
    monkeypatch.setattr(zoo_eagle3, "beginnings", lambda target, **sizes: lines)
    sizes = {"texts": 4, "new": 4, "longest": 16, "held_out": 2, "part": 4}
    whole = pipeline.read("eagle3") | {"written": sizes, "turns": 1}
    whole["stages"]["training"]["recipe"] = SHORT
    monkeypatch.setattr(pipeline, "read", lambda asked: {"eagle3": whole}[asked])
    start(monkeypatch, zoo_eagle3, "--runs", runs, "--export", export)
    assert len(check(export, "code_eagle3.json", {})["prompts"]) == 64
    target = specjax.load("code_target")
    head = drafts.load_draft(str(export / "code_eagle3"), target)
    trained = drafts.load_draft(str(runs / "head"), target)
    made, before = (x.params["head"]["readout"] for x in (head, trained))
    np.testing.assert_allclose(made, before, rtol=2**-8)
    assert made.shape[-1] == whole["vocab"]


def test_the_draft_of_a_whisper_that_was_fetched(monkeypatch, folders, tmp_path):
    runs, export = folders
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("tokenizers")
    target = speech_folders.folders(tmp_path)["target"]
    heard = tmp_path / "heard"
    heard.mkdir()
    table = "file\tspeaker\tseconds\ttranscript\tsplit\n"
    for i, split in enumerate(("train", "train", "test")):
        soundfile.write(heard / f"{i}.flac", speech_folders.sound(4.0, i), logmel.RATE)
        table += f"{i}.flac\tann\t4.0\tw3\t{split}\n"
    (heard / "transcripts.tsv").write_text(table)
    (tmp_path / "texts.txt").write_text("w3\nw7\n")
    monkeypatch.setattr(zoo_whisper, "TARGET", target)
    plan = {"synthesised": 3, "seconds": 2.0, "batches": 3, "held_out": 1}
    plan |= {"batch": 4, "longest": 24}
    draft = speech_folders.TARGET._asdict() | {"mlp_dim": 48, "vocab": 900}
    sizes = {"draft": draft | {"family": "whisper"}}
    settings = {"heard": plan, "first_layers": [0, 1]}
    shorten(monkeypatch, "whisper_base", SHORT, sizes, **settings)
    where = "--runs", runs, "--export", export, "--recordings", heard
    where += "--said", heard, "--texts", tmp_path / "texts.txt"
    start(monkeypatch, zoo_whisper, *where)
    texts = np.load(runs / "heard" / "0001.npz")
    sounds = json.loads(str(texts["about"]))["sounds"]
    assert not any("2.flac" in name for name in sounds)
    assert texts["begun"].tolist() == [3, 3, 4, 4]  # with times and without
    made = check(export, "whisper_base_draft.json", {})
    assert made["held_out"].keys() == {"alpha_t0", "alpha_t1"}
    path = export / "whisper_base_draft.safetensors"
    both = pair.load_pair(target, path)
    assert both.draft.params["ids"].size == 900 and both.draft.config.mlp_dim == 48
    files, greedy = [heard / "0.flac"], {"temperatures": (0.0,)}
    texts = [transcribe(x, None, files, **greedy).transcripts for x in (both, target)]
    assert texts[0][0].text == texts[1][0].text


def test_the_t5_family(monkeypatch, folders):
    runs, export = folders
    shutil.copy(zoo.FOLDER / "t5.model", runs / "tokenizer.model")
    monkeypatch.setattr(tasks, "sentences", lambda folder: PAIRS)
    monkeypatch.setattr(tasks, "validation", lambda folder: PAIRS[:300])
    monkeypatch.setattr(packages, "NAMES", ("optax",))
    texts = [(f"The value {i} is kept as it was.\n", "Keep it.") for i in range(40)]
    monkeypatch.setattr(documentation, "pairs", lambda side: texts)
    passages = [" ".join([f"The value {i} is kept as it was."] * 10) for i in range(40)]
    monkeypatch.setattr(tasks, "passages", lambda pieces, side: passages)
    recipe = SHORT | {"optimizer": "scaled", "batch": 1, "length": 256}
    small = {"dim": 16, "mlp_dim": 32, "encoder_layers": 1, "decoder_layers": 1}
    small |= {"num_heads": 2, "head_width": 8}
    large = small | {"dim": 32, "mlp_dim": 64, "decoder_layers": 2, "num_heads": 4}
    models = {"seed": small | {"dtype": "float32"}, "small": small, "large": large}
    models["t5_small"] = small
    models["t5_decoder"] = {"dim": 8, "mlp_dim": 16, "num_layers": 1, "num_heads": 2}
    listed = pipeline.read("t5")["tasks"]
    for name, task in listed.items():  # a shape is a compilation
        task["sizes"] = [[144, 112] if name in ("joined", "correct") else [64, 48]]
        task["written"] |= {"texts": 8, "targets": 6}
    settings = {"tasks": listed, "batch": 4, "held_out": 4}
    shorten(monkeypatch, "t5", recipe, models, **settings)
    start(monkeypatch, zoo_t5, "--pairs", "no", "--runs", runs, "--export", export)
    written_as = {"t5_target": large} | {
        it: models[it] for it in ("t5_small", "t5_decoder")
    }
    content = check(export, "t5_recipes.json", written_as)
    assert content["held_out"]["t5_decoder"].keys() >= {"alpha_docs_t0"}
    for side in ("train", "valid"):
        assert content["text"][side] == json.loads((runs / f"{side}.json").read_text())


def test_the_speech_models(monkeypatch, folders, tmp_path):
    runs, export = folders
    tiny = {"dim": 16, "mlp_dim": 24, "num_heads": 2, "encoder_layers": 1}
    models = {"short": tiny, "whole": tiny, "deep": tiny | {"decoder_layers": 2}}
    counts = {"short": 4, "whole": 4, "recorded": 4, "held_out": 16}
    brief = {"steps": 2, "decay": 0, "batch": 2, "warmup": 1, "weight_decay": 0.0}
    plan = {"texts": 8, "held_out": 16, "batch": 8}
    more = {"windows": counts, "written": plan}
    shorten(monkeypatch, "speech", brief | {"evaluate_every": 2}, models, **more)
    monkeypatch.setattr(written, "KEPT", 64)
    start(monkeypatch, zoo_speech, "--runs", runs, "--export", export)
    target, draft = (
        checkpoints.load(export / f"{name}.safetensors") for name in zoo.SPEECH_MODELS
    )
    assert whisper.same_encoder(target.params, draft.params)
    assert target.start == sentences.START and target.ends == (sentences.END,)
    recipes = json.loads((export / "speech_recipes.json").read_text())
    assert recipes["held_out"]["word_errors"]["recordings"] == 16
    assert {"alpha_t0", "alpha_t1"} <= recipes["held_out"].keys()
    # It learns on recordings, from these weights, into folders that transformers reads.
    soundfile, digits = pytest.importorskip("soundfile"), tmp_path / "digits"
    digits.mkdir()
    table = "file\tspeaker\tseconds\ttranscript\tsplit\n"
    for word in synthesis.DIGITS[:3]:
        rng = np.random.default_rng(0)
        samples = synthesis.say([word], synthesis.Speaker(), rng).samples
        soundfile.write(digits / f"{word}.wav", samples[::2], 8000)
        for split in ("train", "test"):
            table += f"{word}.wav\tann\t0.4\t{word}\t{split}\n"
    (digits / "transcripts.tsv").write_text(table)
    folders = tmp_path / "folders"
    where = "--runs", runs, "--recordings", digits, "--folders", folders
    start(monkeypatch, zoo_speech, *where)
    target, draft = (checkpoints.load(folders / name) for name in ("target", "draft"))
    assert whisper.same_encoder(target.params, draft.params)
    assert tokens.read(folders / "target").first_time == sentences.FIRST_TIME
    assert (folders / "scores.json").is_file()
    with pytest.raises(ValueError, match="exists: name another folder"):
        start(monkeypatch, zoo_speech, *where)
