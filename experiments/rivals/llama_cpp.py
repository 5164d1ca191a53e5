"""llama.cpp by its Python package, alone and with that package's prompt lookup."""

from collections.abc import Callable
from itertools import islice

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

CONTEXT = 4096
NGRAM = 2  # of its own default


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    options = dict(n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads)
    if kind == "float32":  # its cache is in float16 else
        of_cache = llama_cpp.GGML_TYPE_F32
        options |= dict(type_k=of_cache, type_v=of_cache)

    def program(**way) -> Callable:
        model = llama_cpp.Llama(model_path=path, verbose=False, **options, **way)

        def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            if len(prompts) > 1:
                raise ValueError("its Python interface decodes one text at a time")
            (prompt,) = prompts
            model.reset()  # else a prompt that it has seen is not read again
            greedy = dict(temp=0.0, top_k=1, repeat_penalty=1.0)
            written = []
            for token in islice(model.generate(prompt, **greedy), new_tokens):
                written.append(token)
                if token in ends:
                    break
            return [written]

        return run

    lookup = LlamaPromptLookupDecoding(max_ngram_size=NGRAM, num_pred_tokens=gamma)
    return {"plain": program(), "lookup": program(draft_model=lookup)}
