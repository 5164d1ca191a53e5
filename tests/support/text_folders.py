"""Small folders as on the hub: decoders of each family and a T5, with a tokenizer, and
a Whisper without one."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np

from specjax import checkpoints, pretrained, zoo
from specjax.checkpoints import Pretrained
from specjax.models import gpt, llama, t5
from specjax.models.llama import Rotation
from tests.support import tiny, tiny_llama, tiny_t5, tiny_whisper

END = "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)
GPT2 = gpt.Config(300, 16, 32, 1, 2, positions=64, learned=True, tied=True)
LLAMA = llama.Config(300, 16, 32, 1, 4, 2, 8, rotation=Rotation(500.0))
# Windows are shorter than the texts that are decoded.
GEMMA3 = LLAMA._replace(style="gemma3", tied=True, scale=0.25, rotation=Rotation())
GEMMA3 = GEMMA3._replace(window=6, local=(0,), local_rotation=Rotation(50.0))
T5 = tiny_t5.SMALL._replace(vocab=6016, pieces=None)
TEXTS = ["def add(a, b):\n    return a + b\n", "class Stack:\n    def pop(self):\n"]


def code_pair(folder: Path, config: gpt.Config) -> list[Pretrained]:
    """Returns two models of the bundled code tokenizer, read from files."""
    sides = []
    for seed in (0, 1):
        path = folder / f"m{seed}.safetensors"
        zoo.save(path, config, weights(gpt.abstract_params(config), seed))
        sides.append(pretrained.load(path))
    return sides


def bpe(texts=TEXTS):
    """Returns a byte-level tokenizer of the tokenizers library, as GPT-2 has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    asked = dict(vocab_size=GPT2.vocab, special_tokens=[END], show_progress=False)
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **asked)
    tokenizer.train_from_iterator(texts * 3, trainer)
    return tokenizer


def weights(shapes, seed: int):
    """Returns random weights; those of another seed are near them, so that drafts are
    kept."""
    rng, other = np.random.default_rng(0), np.random.default_rng(seed)

    def draw(leaf):
        noise = 0.2 * other.standard_normal(leaf.shape)
        drawn = 0.3 * (rng.standard_normal(leaf.shape) + noise)
        return jax.numpy.asarray(drawn, leaf.dtype)

    return jax.tree.map(draw, shapes)


def gpt2(folder: Path, seed: int = 0) -> Path:
    """Writes config.json, model.safetensors, tokenizer.json and
    tokenizer_config.json."""
    checkpoints.save(folder, (GPT2, weights(gpt.abstract_params(GPT2), seed)))
    bpe().save(str(folder / "tokenizer.json"))
    told = {"bos_token": END, "eos_token": {"content": END}, "chat_template": TEMPLATE}
    told["added_tokens_decoder"] = {"0": {"content": END}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def t5_folder(folder: Path, seed: int = 0) -> Path:
    """Writes config.json, model.safetensors and spiece.model."""
    checkpoints.save(folder, (T5, weights(t5.abstract_params(T5), seed)))
    shutil.copy(zoo.FOLDER / "t5.model", folder / "spiece.model")
    return folder


def llama_folder(folder: Path, config: llama.Config, seed: int) -> None:
    """Writes config.json, model.safetensors and tokenizer.json."""
    target, other = (tiny_llama.weights(config, number) for number in (1, 2))
    checkpoints.save(folder, (config, tiny.add_share(target, other, 0.1 * seed)))
    bpe().save(str(folder / "tokenizer.json"))


def pair(family: str, folder: Path) -> list[str]:
    """Writes a target, and a draft near it, below a folder, and returns the flags that
    name them."""
    flags = []
    for seed, side in enumerate(("target", "draft")):
        flags += [f"--{side}", str(folder / side)]
        match family:
            case "gpt2":
                gpt2(folder / side, seed)
            case "t5":
                t5_folder(folder / side, seed)
            case _:
                config = LLAMA if family == "llama" else GEMMA3
                llama_folder(folder / side, config, seed)
    return flags


def whisper_folder(folder: Path) -> Path:
    """Writes config.json and model.safetensors, and no tokenizer."""
    config = tiny_whisper.TARGET
    checkpoints.save(folder, (config, tiny_whisper.weights(config, 0)))
    return folder
