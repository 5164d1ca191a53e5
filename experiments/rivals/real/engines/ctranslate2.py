"""CTranslate2: its generator. It has no speculative decoding."""

import json
from collections.abc import Callable
from pathlib import Path

import ctranslate2


def load(
    path: str, kind: str, room: int, gamma: int, ends: list[int], threads: int
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
