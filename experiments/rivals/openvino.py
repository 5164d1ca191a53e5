"""OpenVINO GenAI: its pipeline, alone and with prompt lookup.

In eight bits it computes as it does by default; in float32 nothing is rounded, neither
factors nor the cache. A prompt that it has seen before is read again.
"""

from collections.abc import Callable

import numpy as np
import openvino
import openvino_genai

from experiments.rivals import padding

NGRAM = 3
AT_ONCE = 4096  # tokens of a prompt
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    options = {"INFERENCE_NUM_THREADS": threads}
    options |= EXACT if kind == "float32" else {}
    scheduled = openvino_genai.SchedulerConfig()
    scheduled.enable_prefix_caching = False
    scheduled.max_num_batched_tokens = AT_ONCE
    options["scheduler_config"] = scheduled

    def program(pipeline, **way) -> Callable:
        def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            arrays = padding.pad_left(prompts, pad=ends[0])
            tensors = map(openvino.Tensor, map(np.ascontiguousarray, arrays))
            asked = openvino_genai.GenerationConfig(
                max_new_tokens=new_tokens, do_sample=False, apply_chat_template=False
            )
            asked.update_generation_config(stop_token_ids=set(ends), **way)
            asked.set_eos_token_id(ends[0])
            return pipeline.generate(
                openvino_genai.TokenizedInputs(*tensors), asked
            ).tokens

        return run

    plain = openvino_genai.LLMPipeline(path, "CPU", **options)
    lookup = openvino_genai.LLMPipeline(path, "CPU", prompt_lookup=True, **options)
    way = dict(num_assistant_tokens=gamma, max_ngram_size=NGRAM)
    return {"plain": program(plain), "lookup": program(lookup, **way)}
