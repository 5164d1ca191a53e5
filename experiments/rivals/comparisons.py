"""What is compared with what, and the checks that make it a comparison.

Everyone reads the same two folders of Hugging Face, decodes greedily in float32 (and
CTranslate2 also in int8) on the same cores, and writes the same number of tokens.
"""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from experiments.rivals import agreement, ours, ratios, t5x
from experiments.rivals.place import EngineSetting, Place, compare, reference

OURS = "specjax"


def plain(where: Place, batch: int) -> dict:
    """Greedy decoding by the target alone: four engines."""
    from experiments.rivals import ctranslate2, huggingface

    own, setting, inputs = reference(where), where.setting, where.inputs
    length, threads = setting.new_tokens, setting.threads
    asked = inputs, length, batch
    torch_model = huggingface.load(where.target, threads)
    load = partial(ctranslate2.load, where.target, where.vocab, threads)
    engines = {kind: load(kind) for kind in ("float32", "int8")}
    programs = {
        OURS: ours.decoder(own.model, *asked),
        "huggingface": huggingface.decoder(torch_model, *asked),
        "ctranslate2": ctranslate2.decoder(engines["float32"], *asked),
        "ctranslate2_int8": ctranslate2.decoder(engines["int8"], *asked),
    }
    scores = {
        "huggingface": huggingface.likelihood(torch_model, inputs, own.texts),
        "ctranslate2": ctranslate2.likelihood(engines["float32"], inputs, own.texts),
    }
    nats = {k: agreement.check_law(k, law, own.law) for k, law in scores.items()}
    written = {name: programs[name]() for name in programs}
    written[OURS] = ours.texts(written[OURS], length)
    rounded = written.pop("ctranslate2_int8")
    result = {
        "nats_apart": nats,
        "same_texts": {k: compare(where, own, k, written[k]) for k in written},
        "int8_same_prefix": agreement.same_prefix(rounded, own.texts),
    }
    return result | timed(setting, programs, batch)


def speculative(where: Place, batch: int) -> dict:
    """With the draft at the same gamma: ours and assisted generation, which decodes one
    text at a time; what it says of more."""
    from experiments.rivals import huggingface

    own, setting = reference(where), where.setting
    length, gamma = setting.new_tokens, setting.gamma
    asked = where.inputs, length, batch
    both = where.target, where.draft
    target, draft = (huggingface.load(path, setting.threads) for path in both)
    mine = ours.load(where.draft, where.vocab)
    programs = {
        OURS: ours.decoder(own.model, *asked, mine, gamma),
        "huggingface": huggingface.decoder(target, *asked, draft, gamma),
        f"{OURS}_plain": ours.decoder(own.model, *asked),
        "huggingface_plain": huggingface.decoder(target, *asked),
    }
    outputs = programs[OURS]()
    written = {OURS: ours.texts(outputs, length)}
    result = accepted(outputs, own.texts.size)
    if batch == 1:
        written["huggingface"] = programs["huggingface"]()
        calls = huggingface.calls(target, programs["huggingface"])
        result["calls"] = {"huggingface": calls, OURS: result["target_calls"]}
    else:
        result["refusals"] = {"huggingface": refusal(programs.pop("huggingface"))}
    result["same_texts"] = {k: compare(where, own, k, written[k]) for k in written}
    return result | timed(setting, programs, batch)


def refusal(program: Callable) -> str | None:
    """What a program that cannot do a batch says; None if it can."""
    try:
        program()
    except ValueError as error:
        return str(error)
    return None


def accepted(outputs: list, tokens: int) -> dict:
    """alpha among tested tokens, and tokens a target call."""
    totals = ours.counts(outputs)
    return {
        "alpha": totals.accepted / totals.tested,
        "target_calls": totals.calls,
        "tokens_per_call": tokens / totals.calls,
        "tokens": tokens,
    }


def beside_t5x(where: Place, batch: int) -> dict:
    """T5X's decoding and ours, on the very same parameters."""
    own, setting = reference(where), where.setting
    asked = where.inputs, setting.new_tokens, batch
    programs = {OURS: ours.decoder(own.model, *asked)}
    programs["t5x"] = t5x.decoder(own.model, *asked)
    written = np.concatenate(jax.device_get(programs["t5x"]()))
    same = {"t5x": compare(where, own, "t5x", written)}
    return {"same_texts": same} | timed(setting, programs, batch)


def timed(setting: EngineSetting, programs: dict[str, Callable], batch: int) -> dict:
    """Milliseconds a token of each, and how many times as fast as each we are."""
    label = f"{setting.size}, batch {batch}"
    seconds = ratios.measure(programs, setting.rounds, setting.pause, label)
    tokens = setting.texts * setting.new_tokens
    result = {"setting": setting._asdict(), "batch": batch, "tokens": tokens}
    result |= ratios.milliseconds(seconds, tokens)
    for name in programs:
        if name != OURS:
            result |= ratios.over(seconds, OURS, name, f"over_{name}")
    if {"huggingface", "huggingface_plain"} <= programs.keys():
        names = "huggingface", "huggingface_plain"
        result |= ratios.over(seconds, *names, "huggingface_over_plain")
    return result
