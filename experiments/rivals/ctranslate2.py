"""CTranslate2: its converter for folders of Hugging Face, its translator and generator,
and faster-whisper, which has its own features and windows.

It has no speculative decoding. Axes: N texts, I input tokens, T new tokens.
"""

import json
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import numpy as np

# ids 0, 1, 2
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def convert(folder: Path, vocab: int) -> Path:
    """Returns the folder in CTranslate2's format, which is converted beside `folder`
    unless it exists.
    """
    converted = folder.with_name(f"{folder.name}.ctranslate2")
    if not converted.exists():
        from ctranslate2.converters import TransformersConverter
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        # The converter reads a tokenizer for its words: ids as decimal numbers.
        words = {str(i): i for i in range(len(SPECIAL), vocab)}
        words |= {word: i for i, word in enumerate(SPECIAL.values())}
        level = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
        named = PreTrainedTokenizerFast(tokenizer_object=level, **SPECIAL)
        named.save_pretrained(folder)
        TransformersConverter(str(folder)).convert(str(converted))
    return converted


def load(
    folder: Path, vocab: int, *, threads: int, kind: str
) -> ctranslate2.Translator:
    """Loads a model with arithmetic `kind`, "float32" or "int8"; int8 weights are made
    here.
    """
    converted = convert(folder, vocab)
    options = dict(inter_threads=1, intra_threads=threads, compute_type=kind)
    return ctranslate2.Translator(str(converted), device="cpu", **options)


def decoder(
    target: ctranslate2.Translator, inputs: np.ndarray, *, new_tokens: int, batch: int
) -> Callable[[], np.ndarray]:
    """Returns a program that writes the greedy texts [N, T] for inputs [N, I], `batch`
    at a time.
    """
    named_inputs = token_names(inputs)
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
    """Returns the log-probability of each token of texts [N, T]: [N, T]."""
    scored = target.score_batch(token_names(inputs), token_names(texts))
    return np.array([score.log_probs[: texts.shape[1]] for score in scored])


def token_names(tokens: np.ndarray) -> list[list[str]]:
    special = dict(enumerate(SPECIAL.values()))
    return [[special.get(i, str(i)) for i in row] for row in tokens.tolist()]


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    options = dict(compute_type=kind, inter_threads=1, intra_threads=threads)
    model = ctranslate2.Generator(path, device="cpu", **options)
    words = json.loads((Path(path) / "vocabulary.json").read_text())

    def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        named = [[words[i] for i in prompt] for prompt in prompts]
        found = model.generate_batch(
            named,
            max_length=new_tokens,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=ends,
        )
        return [each.sequences_ids[0] for each in found]

    return {"plain": run}


def speech(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    from faster_whisper import WhisperModel

    options = dict(device="cpu", cpu_threads=threads, num_workers=1)
    model = WhisperModel(path, compute_type=kind, **options)
    same = dict(language="en", beam_size=1, temperature=0.0, without_timestamps=True)

    def run(file: str) -> tuple[str, list[int]]:
        found, _ = model.transcribe(file, condition_on_previous_text=False, **same)
        segments = [*found]  # which is what decodes
        text = "".join(segment.text for segment in segments).strip()
        return text, [i for segment in segments for i in segment.tokens]

    return {"plain": run}
