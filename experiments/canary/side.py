"""The process of one of the two versions: it times programs and answers in JSON.

It times the pair whenever a line comes in. It is run as a file, by a Python that finds
the package to be timed first. It uses only what every version has: a bundled pair, a
decoder, the three functions of a model.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

import specjax
from specjax import generate
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.types import Params

GAMMA, NEW, LOOPS = 5, 64, 32
TEXT = "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median("


def programs(target: str, draft: str) -> dict:
    """Returns the programs to time, by name.

    They are a whole text by the target alone and with the draft, a call of the target
    on 1 and on gamma + 1 tokens, and a call of the draft.
    """
    p, q = specjax.load(target), specjax.load(draft)
    prompt = make_prompt([[p.start, *p.tokenizer.encode(TEXT)]])
    sampling = make_sampling(1, 0.0)
    request = make_request(jax.random.key(0), prompt, NEW, sampling)
    slots = prompt.tokens.shape[1] + NEW + GAMMA + 1

    def text(decoder: Decoder, params: Params):
        run = generate.build(decoder, slots)
        return lambda: run(params, prompt, request)

    drafter = autoregressive.build(q.model, GAMMA)
    return {
        "alone": text(Decoder(p.model), Params(p.params)),
        "drafted": text(Decoder(p.model, drafter), Params(p.params, q.params)),
        "target_1": call(p, prompt, slots, 1),
        f"target_{GAMMA + 1}": call(p, prompt, slots, GAMMA + 1),
        "draft_1": call(q, prompt, slots, 1),
    }


def call(side, prompt, slots: int, tokens: int):
    """Returns a program that calls a model LOOPS times on `tokens` tokens, one call
    after another.
    """
    block = jnp.zeros((1, tokens), jnp.int32)

    @jax.jit
    def loop(params):
        def body(i, carry):
            cache, block = carry
            features, cache = side.model.apply(params, block, prompt.length, cache)
            logits = side.model.readout(params, features)
            return cache, jnp.argmax(logits, -1).astype(jnp.int32)

        cache = side.model.init(params, prompt, slots)
        return jax.lax.fori_loop(0, LOOPS, body, (cache, block))[1]

    return lambda: loop(side.params)


def main() -> None:
    timed = programs(*sys.argv[1:])
    for program in timed.values():
        jax.block_until_ready(program())
    print(json.dumps({"package": specjax.__file__}), flush=True)
    for _ in sys.stdin:
        seconds = {}
        for name, program in timed.items():
            begun = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name] = time.perf_counter() - begun
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
