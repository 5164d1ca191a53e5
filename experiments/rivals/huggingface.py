"""Hugging Face transformers on PyTorch: `generate` alone, assisted by a draft, and by
prompt lookup; for speech, its features and its Whisper.

It is what a user gets from the published interface, with its own defaults for
everything that does not decide which tokens come out. Axes: N texts, I input tokens, T
new tokens.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    T5ForConditionalGeneration,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
    logging,
)

from experiments.rivals import padding


def load(folder: Path, threads: int) -> T5ForConditionalGeneration:
    """Loads a model in float32, without an end token, so that no text ends early."""
    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model.eval()


def decoder(
    target: T5ForConditionalGeneration,
    inputs: np.ndarray,
    *,
    new_tokens: int,
    batch: int,
    draft: T5ForConditionalGeneration | None = None,
    gamma: int = 0,
) -> Callable[[], np.ndarray]:
    """Returns a program that writes the greedy texts [N, T] for inputs [N, I], `batch`
    at a time.

    With a draft it drafts gamma tokens at every step, regardless of their probability.
    """
    options = dict(max_new_tokens=new_tokens, do_sample=False, num_beams=1)
    if draft is not None:
        draft.generation_config.num_assistant_tokens = gamma
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        options["assistant_model"] = draft
    groups = torch.from_numpy(inputs).long().split(batch)

    def program() -> np.ndarray:
        written = [
            target.generate(group, attention_mask=torch.ones_like(group), **options)
            for group in groups
        ]
        return torch.cat(written)[:, 1:].numpy()  # the start token is given

    return program


def calls(target: T5ForConditionalGeneration, program: Callable) -> int:
    """Returns how often a program calls the target's decoder."""
    seen = []
    hook = target.decoder.register_forward_hook(lambda *_: seen.append(1))
    try:
        program()
    finally:
        hook.remove()
    return len(seen)


@torch.inference_mode()
def likelihood(
    target: T5ForConditionalGeneration, inputs: np.ndarray, texts: np.ndarray
) -> np.ndarray:
    """Returns the log-probability of each token of texts [N, T]: [N, T]."""
    text = torch.from_numpy(texts.astype(np.int64))
    before = torch.cat([torch.zeros_like(text[:, :1]), text[:, :-1]], dim=1)
    read = torch.from_numpy(inputs).long()
    logits: Tensor = target(input_ids=read, decoder_input_ids=before).logits
    return logits.log_softmax(-1).gather(2, text[..., None])[..., 0].numpy()


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def program(**way) -> Callable:
        def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            ids, mask = map(torch.from_numpy, padding.pad_left(prompts, pad=ends[0]))
            options = dict(
                max_new_tokens=new_tokens, do_sample=False, eos_token_id=ends
            )
            options |= dict(pad_token_id=ends[0], **way)
            with torch.inference_mode():
                texts = model.generate(ids, attention_mask=mask, **options)
            return texts[:, ids.shape[1] :].tolist()

        return run

    return {"plain": program(), "lookup": program(prompt_lookup_num_tokens=gamma)}


def speech(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    import soundfile

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
