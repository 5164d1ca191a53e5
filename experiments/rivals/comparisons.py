"""The rows of the bench: what is compared with what, and the checks that make it a
comparison; and one that compares with nobody, v of a target call.

Everyone reads the same two folders of Hugging Face, decodes greedily in float32 (and
CTranslate2 also in int8) on the same cores, and writes the same number of tokens.
Axes: N texts, I input tokens, T new tokens.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.rivals import agreement, ours, ratios, t5x, weights
from specjax import native
from specjax.checkpoints import Pretrained
from specjax.measure.row import Measurement

OURS = "specjax"
LOOPS = 20  # calls in one program that times them


class EngineSetting(NamedTuple):
    """size: of `weights.SIZES`. gamma: of every engine that drafts; Theorem 3.8's best
    for the alpha and the share of bytes that the draft of "small" has (.78, .29).
    texts: of `inputs` tokens each, a batch of all of them or one after another.
    rounds: of programs in turns, `pause` seconds before each."""

    size: str = "small"
    gamma: int = 3
    inputs: int = 32
    new_tokens: int = 64
    texts: int = 8
    rounds: int = 9
    pause: float = 0.5
    threads: int = 2
    seed: int = 0


class Place(NamedTuple):
    """The setting, its folders, and what the encoder reads, [N, I]."""

    setting: EngineSetting
    target: Path
    draft: Path
    inputs: np.ndarray

    @property
    def vocab(self) -> int:
        return weights.SIZES[self.setting.size].target.config.vocab


def place(setting: EngineSetting, folder: Path) -> Place:
    """Writes the weights into an empty folder. Raises ValueError for what cannot be."""
    if setting.size not in weights.SIZES:
        known = ", ".join(weights.SIZES)
        raise ValueError(f"size must be one of {known}; got {setting.size!r}")
    low = min(setting.gamma, setting.inputs, setting.texts, setting.threads)
    if low < 1 or setting.rounds < 2 or setting.new_tokens < 2:
        raise ValueError(
            "gamma, inputs, texts and threads must be at least 1, rounds and new_tokens"
            f" at least 2; got {setting}"
        )
    pair = weights.SIZES[setting.size]
    paths = weights.write(pair, folder, setting.seed)
    count, length, vocab = setting.texts, setting.inputs, pair.target.config.vocab
    return Place(setting, *paths, weights.prompts(count, length, vocab, setting.seed))


class Reference(NamedTuple):
    """Our own model, its greedy texts [N, T], and their log-likelihoods [N, T]."""

    model: Pretrained
    texts: np.ndarray
    law: np.ndarray


def reference(where: Place) -> Reference:
    model = ours.load(where.target, where.vocab)
    length = where.setting.new_tokens
    written = ours.decoder(model, where.inputs, length, len(where.inputs))()
    texts = ours.texts(written, length)
    return Reference(model, texts, ours.likelihood(model, where.inputs, texts))


def compare(where: Place, own: Reference, engine: str, texts: np.ndarray) -> int:
    """`agreement.check_texts`, with every token's law only where it is needed."""
    if texts.shape == own.texts.shape and (texts == own.texts).all():
        return len(texts)
    law = ours.law(own.model, where.inputs, own.texts)
    return agreement.check_texts(engine, texts, own.texts, law)


def rows(where: Place) -> dict[str, Measurement]:
    """What each row is called, and how it is measured; those of T5X if it is here.
    One that ends in "_xla" is by XLA's own products."""
    setting, runs = where.setting, {}
    both = 1, setting.texts
    for batch in both:
        runs[f"plain_b{batch}"] = partial(plain, where, batch)
    for batch in both:
        runs[f"speculative_b{batch}"] = partial(speculative, where, batch)
    runs["speculative_b1_xla"] = partial(speculative, where, 1)
    runs["target_call_b1"] = partial(target_call, where)
    for batch in both if t5x.importable() else ():
        runs[f"t5x_b{batch}"] = partial(beside_t5x, where, batch)
    common = dict(inputs=(native.SOURCE,), dtype="float32", seed=setting.seed)
    return {name: Measurement(run, __name__, **common) for name, run in runs.items()}


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


def target_call(where: Place) -> dict:
    """v(gamma) = t_p(gamma + 1) / t_p(1) of our target, and the readout's share."""
    setting = where.setting
    model = ours.load(where.target, where.vocab)
    asked = where.inputs, setting.new_tokens
    programs = {}
    for gamma in (0, setting.gamma):
        name = f"{gamma + 1}"
        programs[f"call_{name}"] = ours.target_calls(model, *asked, gamma, LOOPS)
        programs[f"readout_{name}"] = ours.readouts(model, gamma, LOOPS)
    seconds = ratios.measure(programs, setting.rounds, setting.pause, "target call")
    result = ratios.milliseconds(seconds, LOOPS)
    many = f"{setting.gamma + 1}"
    result |= ratios.over(seconds, "call_1", f"call_{many}", "v")
    result |= ratios.over(seconds, "readout_1", f"readout_{many}", "v_readout")
    for name in ("1", many):
        call, readout = f"call_{name}", f"readout_{name}"
        result |= ratios.over(seconds, call, readout, f"share_{name}")
    return result | {"setting": setting._asdict(), "batch": 1}


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
