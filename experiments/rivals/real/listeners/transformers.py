"""Hugging Face transformers: its features, its Whisper and `generate`."""

from collections.abc import Callable
from pathlib import Path

import soundfile
import torch
from transformers import (
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
)


def load(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    torch.set_num_threads(threads)
    model = WhisperForConditionalGeneration.from_pretrained(path, dtype=torch.float32)
    words = WhisperTokenizerFast(tokenizer_file=str(Path(path) / "tokenizer.json"))
    hears, rate = WhisperFeatureExtractor(), 16_000
    model.eval()

    @torch.inference_mode()
    def run(file: str) -> tuple[str, list[int]]:
        sound, found = soundfile.read(file, dtype="float32")
        if found != rate or len(sound) > 30 * rate:
            raise ValueError(f"{file} must be of {rate} a second and up to 30 s")
        heard = hears(sound, sampling_rate=rate, return_tensors="pt").input_features
        same = dict(language="en", task="transcribe", return_timestamps=False)
        ids = model.generate(heard, do_sample=False, num_beams=1, **same)[0].tolist()
        return words.decode(ids, skip_special_tokens=True).strip(), ids

    return {"plain": run}
