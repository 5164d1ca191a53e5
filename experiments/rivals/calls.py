"""The time of a target call on several tokens relative to that on a single token, in
each arithmetic.

It is v(gamma) of Leviathan et al. (2023), Section 3.3, with real weights.
"""

from functools import partial

import numpy as np

from experiments.rivals.ratios import ratio_of_medians
from specjax import inputs, pretrained
from specjax.drafts import retrieval
from specjax.keys import root_key
from specjax.measure import costs, timing

DTYPES = "float32", "bfloat16", "int8", "int8_dynamic"
GAMMAS = 4, 7
ROUNDS = 7


def measure(model: str, prompt: list[int], new_tokens: int) -> dict:
    """Returns v_4_float32 and so on, each with an interval over rounds in which all
    programs take turns; and the milliseconds of one token.
    """
    programs = {}
    for dtype in DTYPES:
        programs |= calls(model, dtype, prompt, new_tokens)
    seconds = timing.time_in_turns(programs, ROUNDS, f"{model}, calls")
    found = {
        "gammas": list(GAMMAS),
        "rounds": ROUNDS,
        "slots": slots(prompt, new_tokens),
    }
    for dtype in DTYPES:
        one = seconds[dtype, 0]
        found[f"t_{dtype}_ms"] = 1e3 * float(np.median(one)) / timing.LOOPS
        for gamma in GAMMAS:
            several = seconds[dtype, gamma]
            name = f"v_{gamma}_{dtype}"
            found[name] = ratio_of_medians(several, one)
            found[f"{name}_ci"] = timing.interval(ratio_of_medians, (several, one))
    return found


def calls(model: str, dtype: str, prompt: list[int], new_tokens: int) -> dict:
    """Returns programs of calls on 1 and on gamma + 1 tokens, in the middle of a text
    of `new_tokens`.
    """
    target = pretrained.load(model, dtype)
    pair = costs.Pair(target, retrieval.copying(), slots(prompt, new_tokens))
    given = inputs.make_prompt([prompt])
    sampling = inputs.make_sampling(1, temperature=0.0)
    request = inputs.make_request(root_key(0), given, new_tokens, sampling)
    state, programs = costs.begin(pair, 0, given, request), {}
    for gamma in (0, *GAMMAS):
        loops = costs.target_calls(pair, gamma, timing.LOOPS)
        programs[dtype, gamma] = partial(loops, request, state)
    return programs


def slots(prompt: list[int], new_tokens: int) -> int:
    return len(prompt) + new_tokens + max(GAMMAS) + 1
