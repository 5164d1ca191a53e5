"""Names that other libraries give to settings, and the names of the same settings
here."""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# The names that transformers, vLLM, llama.cpp and OpenAI give to each setting of ours.
# Of two settings with one foreign name, the last is that of most functions.
FOREIGN = {
    "width": "num_beams beam_size beam_width beams n_beams use_beam_search",
    "best": "num_return_sequences num_hypotheses",
    "new_tokens": "max_new_tokens max_tokens max_completion_tokens max_length"
    " n_predict",
    "temperature": "do_sample temp greedy use_greedy sampling_temperature",
    "top_k": "topk",
    "top_p": "topp nucleus",
    "min_p": "minp",
    "samples": "n num_return_sequences num_samples best_of",
    "stop": "stop_sequences stop_strings stop_words stop_sequence stops",
    "seed": "random_seed rng key generator prng",
    "gamma": "num_assistant_tokens num_speculative_tokens num_draft_tokens k K draft_n",
    "draft": "draft_model assistant_model speculative_model drafter assistant",
    "target": "model model_name target_model",
    "prompts": "prompt inputs input text texts messages input_ids prompt_token_ids",
    "logprobs": "output_scores return_logprobs top_logprobs",
    "rules": "repetition_penalty presence_penalty frequency_penalty logits_processor",
    "schema": "json_schema response_format guided_json output_schema",
    "regex": "guided_regex pattern",
    "grammar": "guided_grammar guided_decoding structured_outputs gbnf ebnf lark",
    "policy": "num_assistant_tokens_schedule dynamic_draft",
}
OURS = {name: ours for ours, names in FOREIGN.items() for name in names.split()}
NOTES = {
    "new_tokens": "new_tokens, which counts no token of the prompt",
    "temperature": "temperature, which is greedy at 0 and samples above it",
    "samples": "samples, texts of each prompt",
    "gamma": "gamma, tokens drafted for each call of the target",
    "prompts": "prompts, a list of texts, ids or messages",
    "width": "width, beams that are kept after each token",
    "best": "best, texts of each prompt, the best first",
    "rules": "rules, such as specjax.models.penalties.build(repetition=1.1)",
}

# Flags whose names differ from those of their settings, in some command.
FLAGS = {
    "new_tokens": ["--tokens"],
    "gamma": ["--gamma", "--gammas"],
    "prompts": ["--prompt", "--data"],
}


def refuse_unknown(
    like: Callable | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator by which a function raises a one-line error for unknown
    settings, and for arguments in another order than its own.

    like: the function whose settings are the known ones; None means the decorated one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = [*inspect.signature(like or function).parameters]
        signature = inspect.signature(function)
        order = ", ".join(
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        )

        @functools.wraps(function)
        def call(*arguments: P.args, **settings: P.kwargs) -> R:
            caller = f"{function.__name__}()"
            check(caller, settings, known)
            try:
                signature.bind(*arguments, **settings)
            except TypeError as error:
                message = f"{caller} takes {order}, in this order: {error}"
                raise TypeError(message) from None
            return function(*arguments, **settings)

        return call

    return decorate


def check(caller: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError for an unknown setting, and suggests the name that is probably
    meant.

    caller: the name that the message begins with."""
    for name in settings:
        if name not in known:
            raise ValueError(f"{caller} has no {name}: {suggest(name, known)}")


def suggest(name: str, known: Sequence[str]) -> str:
    """Returns advice on what to write in place of an unknown name."""
    for ours, names in FOREIGN.items():
        if name in names.split() and ours in known:
            return f"write {NOTES.get(ours, ours)}"
    if OURS.get(name) == "width":
        return "write specjax.generate_beams, which searches with beams"
    near = difflib.get_close_matches(name, known, 1, 0.7)
    return f"write {near[0]}" if near else f"it has {', '.join(known)}"


def suggest_flag(flag: str, flags: Sequence[str]) -> str | None:
    """Returns the flag of a command that is probably meant by an unknown one.

    It is the flag of the setting that other libraries give this name, or one with a
    similar spelling; None where there is neither."""
    name = flag.lstrip("-").replace("-", "_")
    ours = name if name in FOREIGN else OURS.get(name)
    if ours is None:
        return next(iter(difflib.get_close_matches(flag, flags, 1, 0.7)), None)
    for each in FLAGS.get(ours, [f"--{ours.replace('_', '-')}", f"--{ours}s"]):
        if each in flags:
            return each
    function = "generate_beams" if ours in ("width", "best") else "generate_text"
    return f"specjax.{function}, which has {NOTES.get(ours, ours)}"
