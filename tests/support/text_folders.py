"""Small folders as of the hub: a GPT-2 and a T5 with a tokenizer, and a Whisper."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np

from specjax import checkpoints, pretrained, zoo
from specjax.checkpoints import Pretrained
from specjax.models import gpt, t5
from tests.support import tiny_t5, tiny_whisper

END = "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)
GPT2 = gpt.Config(300, 16, 32, 1, 2, positions=64, learned=True, tied=True)
T5 = tiny_t5.SMALL._replace(vocab=6016, pieces=None)
TEXTS = ["def add(a, b):\n    return a + b\n", "class Stack:\n    def pop(self):\n"]


def code_pair(folder: Path, config: gpt.Config) -> list[Pretrained]:
    """Two models of the bundled code tokenizer, as they are read from files."""
    sides = []
    for seed in (0, 1):
        path = folder / f"m{seed}.safetensors"
        zoo.save(path, config, weights(gpt.abstract_params(config), seed))
        sides.append(pretrained.load(path))
    return sides


def bpe(texts=TEXTS):
    """A byte-level tokenizer of the tokenizers library, as GPT-2's."""
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
    """Random weights; those of another seed are near them, so that drafts are kept."""
    rng, other = np.random.default_rng(0), np.random.default_rng(seed)

    def draw(leaf):
        noise = 0.2 * other.standard_normal(leaf.shape)
        drawn = 0.3 * (rng.standard_normal(leaf.shape) + noise)
        return jax.numpy.asarray(drawn, leaf.dtype)

    return jax.tree.map(draw, shapes)


def gpt2(folder: Path, seed: int = 0) -> Path:
    """config.json, model.safetensors, tokenizer.json, tokenizer_config.json."""
    checkpoints.save(folder, (GPT2, weights(gpt.abstract_params(GPT2), seed)))
    bpe().save(str(folder / "tokenizer.json"))
    told = {"bos_token": END, "eos_token": {"content": END}, "chat_template": TEMPLATE}
    told["added_tokens_decoder"] = {"0": {"content": END}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def t5_folder(folder: Path, seed: int = 0) -> Path:
    """config.json, model.safetensors, spiece.model."""
    checkpoints.save(folder, (T5, weights(t5.abstract_params(T5), seed)))
    shutil.copy(zoo.FOLDER / "t5.model", folder / "spiece.model")
    return folder


def whisper_folder(folder: Path) -> Path:
    """config.json, model.safetensors; no tokenizer."""
    config = tiny_whisper.TARGET
    checkpoints.save(folder, (config, tiny_whisper.weights(config, 0)))
    return folder
