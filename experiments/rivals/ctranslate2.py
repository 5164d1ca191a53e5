"""CTranslate2: its own converter on the folder of Hugging Face, then its translator.

It has no speculative decoding.
Axes: N texts, I input tokens, T new tokens.
"""

from collections.abc import Callable
from pathlib import Path

import ctranslate2
import numpy as np
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

# ids 0, 1, 2
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def convert(folder: Path, vocab: int) -> Path:
    """The folder of its own format, made beside `folder` unless it is there."""
    converted = folder.with_name(f"{folder.name}.ctranslate2")
    if not converted.exists():
        # The converter reads a tokenizer for its words: ids as decimal numbers.
        words = {str(i): i for i in range(len(SPECIAL), vocab)}
        words |= {word: i for i, word in enumerate(SPECIAL.values())}
        level = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
        named = PreTrainedTokenizerFast(tokenizer_object=level, **SPECIAL)
        named.save_pretrained(folder)
        TransformersConverter(str(folder)).convert(str(converted))
    return converted


def load(folder: Path, vocab: int, threads: int, kind: str) -> ctranslate2.Translator:
    """A model of arithmetic `kind`, "float32" or "int8"; int8 weights are made here."""
    converted = convert(folder, vocab)
    options = dict(inter_threads=1, intra_threads=threads, compute_type=kind)
    return ctranslate2.Translator(str(converted), device="cpu", **options)


def decoder(
    target: ctranslate2.Translator, inputs: np.ndarray, new_tokens: int, batch: int
) -> Callable[[], np.ndarray]:
    """A program that writes the greedy texts [N, T] of inputs [N, I], by `batch`."""
    named_inputs = named(inputs)
    groups = [named_inputs[i : i + batch] for i in range(0, len(inputs), batch)]
    length = dict(max_decoding_length=new_tokens, min_decoding_length=new_tokens)

    special = {word: i for i, word in enumerate(SPECIAL.values())}

    def program() -> np.ndarray:
        written = [
            [special[word] if word in special else int(word) for word in words]
            for group in groups
            for result in target.translate_batch(group, beam_size=1, **length)
            for words in result.hypotheses[:1]
        ]
        return np.array(written)

    return program


def likelihood(
    target: ctranslate2.Translator, inputs: np.ndarray, texts: np.ndarray
) -> np.ndarray:
    """The logarithm of that of each token of texts [N, T]: [N, T]."""
    scored = target.score_batch(named(inputs), named(texts))
    return np.array([score.log_probs[: texts.shape[1]] for score in scored])


def named(tokens: np.ndarray) -> list[list[str]]:
    special = dict(enumerate(SPECIAL.values()))
    return [[special.get(i, str(i)) for i in row] for row in tokens.tolist()]
