"""Hugging Face transformers, PyTorch: `generate`, alone and by prompt lookup."""

from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM

from experiments.rivals.real.engines import padding


def load(
    path: str, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def program(**way) -> Callable:
        def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            ids, mask = map(torch.from_numpy, padding.left(prompts, pad=ends[0]))
            options = dict(
                max_new_tokens=new_tokens, do_sample=False, eos_token_id=ends
            )
            options |= dict(pad_token_id=ends[0], **way)
            with torch.inference_mode():
                texts = model.generate(ids, attention_mask=mask, **options)
            return texts[:, ids.shape[1] :].tolist()

        return run

    return {"plain": program(), "lookup": program(prompt_lookup_num_tokens=gamma)}
