"""ONNX Runtime GenAI: its generator, alone and with its lookup of n-grams."""

import json
from collections.abc import Callable

import onnxruntime_genai

from experiments.rivals import padding

NGRAM = 3


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    config = onnxruntime_genai.Config(path)
    session = {"session_options": {"intra_op_num_threads": threads}}
    said = {"decoder": session, "eos_token_id": ends}
    config.overlay(json.dumps({"model": said}))
    model = onnxruntime_genai.Model(config)

    def program(**way) -> Callable:
        def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            ids, _ = padding.pad_right(prompts, pad=ends[0])  # as its tokenizer does
            params = onnxruntime_genai.GeneratorParams(model)
            params.set_search_options(
                do_sample=False,
                batch_size=len(prompts),
                max_length=ids.shape[1] + new_tokens,
            )
            if way:
                params.set_speculative_options(**way)
            generator = onnxruntime_genai.Generator(model, params)
            generator.append_tokens(ids.astype("int32"))
            while not generator.is_done():
                generator.generate_next_token()
            rows = (generator.get_sequence(i) for i in range(len(prompts)))
            return [row[ids.shape[1] :].tolist() for row in rows]

        return run

    lookup = program(ngram_size=NGRAM, max_draft_tokens=gamma)
    return {"plain": program(), "lookup": lookup}
