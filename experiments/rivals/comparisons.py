"""The rows of the bench: the comparisons, and the checks that the engines do the same
work; and one row about us alone, v of a target call.

All engines read the same two folders of Hugging Face, decode greedily in float32 (and
CTranslate2 also in int8) on the same cores, and write the same number of tokens. Axes:
N texts, I input tokens, T new tokens.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.rivals import agreement, ours, ratios, weights
from specjax import native
from specjax.checkpoints import Pretrained
from specjax.measure.row import Measurement

OURS = "specjax"
LOOPS = 20  # calls in one program that times them


class EngineSetting(NamedTuple):
    """The setting of the rows that compare engines.

    Attributes:
        size: of `weights.SIZES`.
        gamma: of every engine that drafts; Theorem 3.8's best for the alpha and the
            share of bytes of the draft of "small" (.78, .29).
        texts: of `inputs` tokens each, in one batch or one after another.
        rounds: of programs in turns, `pause` seconds before each.
    """

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
    """The setting, its folders, and the encoder's inputs, [N, I]."""

    setting: EngineSetting
    target: Path
    draft: Path
    inputs: np.ndarray

    @property
    def vocab(self) -> int:
        return weights.SIZES[self.setting.size].target.config.vocab


def write_weights(setting: EngineSetting, folder: Path) -> Place:
    """Writes the weights into an empty folder. Raises ValueError for an invalid
    setting.
    """
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
    return Place(
        setting,
        *paths,
        weights.prompts(count=count, length=length, vocab=vocab, seed=setting.seed),
    )


class Reference(NamedTuple):
    """Our own model, its greedy texts [N, T], and their log-likelihoods [N, T]."""

    model: Pretrained
    texts: np.ndarray
    law: np.ndarray


def reference(where: Place) -> Reference:
    model = ours.load(where.target, where.vocab)
    length = where.setting.new_tokens
    written = ours.decoder(
        model, where.inputs, new_tokens=length, batch=len(where.inputs)
    )()
    texts = ours.texts(written, length)
    return Reference(model, texts, ours.likelihood(model, where.inputs, texts))


def compare(where: Place, own: Reference, *, engine: str, texts: np.ndarray) -> int:
    """Runs `agreement.check_texts`, and computes the law of every token only where it
    is needed.
    """
    if texts.shape == own.texts.shape and (texts == own.texts).all():
        return len(texts)
    law = ours.law(own.model, where.inputs, own.texts)
    return agreement.check_texts(engine, texts, ours=own.texts, law=law)


def rows(where: Place) -> dict[str, Measurement]:
    """Returns the rows by name with their measurements.

    A row that ends in "_xla" uses XLA's own products.
    """
    setting, runs = where.setting, {}
    both = 1, setting.texts
    for batch in both:
        runs[f"plain_b{batch}"] = partial(measure_greedy, where, batch)
    for batch in both:
        runs[f"speculative_b{batch}"] = partial(measure_speculative, where, batch)
    runs["speculative_b1_xla"] = partial(measure_speculative, where, 1)
    runs["target_call_b1"] = partial(target_call, where)
    common = dict(inputs=(native.SOURCE,), dtype="float32", seed=setting.seed)
    return {name: Measurement(run, __name__, **common) for name, run in runs.items()}


def measure_greedy(where: Place, batch: int) -> dict:
    """Measures greedy decoding by the target alone, by four engines."""
    from experiments.rivals import ctranslate2, huggingface

    own, setting, inputs = reference(where), where.setting, where.inputs
    length, threads = setting.new_tokens, setting.threads
    size = {"new_tokens": length, "batch": batch}
    torch_model = huggingface.load(where.target, threads)
    load = partial(ctranslate2.load, where.target, where.vocab, threads=threads)
    engines = {kind: load(kind=kind) for kind in ("float32", "int8")}
    programs = {
        OURS: ours.decoder(own.model, inputs, **size),
        "huggingface": huggingface.decoder(torch_model, inputs, **size),
        "ctranslate2": ctranslate2.decoder(engines["float32"], inputs, **size),
        "ctranslate2_int8": ctranslate2.decoder(engines["int8"], inputs, **size),
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
        "same_texts": {
            k: compare(where, own, engine=k, texts=written[k]) for k in written
        },
        "int8_same_prefix": agreement.same_prefix(rounded, own.texts),
    }
    return result | time_ratios(setting, programs, batch)


def measure_speculative(where: Place, batch: int) -> dict:
    """Measures decoding with the draft at the same gamma, by us and by assisted
    generation.

    Assisted generation decodes one text at a time; for more texts its error message is
    recorded.
    """
    from experiments.rivals import huggingface

    own, setting = reference(where), where.setting
    length, gamma, inputs = setting.new_tokens, setting.gamma, where.inputs
    size = {"new_tokens": length, "batch": batch}
    both = where.target, where.draft
    target, draft = (huggingface.load(path, setting.threads) for path in both)
    mine = ours.load(where.draft, where.vocab)
    programs = {
        OURS: ours.decoder(own.model, inputs, **size, draft=mine, gamma=gamma),
        "huggingface": huggingface.decoder(
            target, inputs, **size, draft=draft, gamma=gamma
        ),
        f"{OURS}_plain": ours.decoder(own.model, inputs, **size),
        "huggingface_plain": huggingface.decoder(target, inputs, **size),
    }
    outputs = programs[OURS]()
    written = {OURS: ours.texts(outputs, length)}
    result = acceptance(outputs, own.texts.size)
    if batch == 1:
        written["huggingface"] = programs["huggingface"]()
        calls = huggingface.calls(target, programs["huggingface"])
        result["calls"] = {"huggingface": calls, OURS: result["target_calls"]}
    else:
        result["refusals"] = {"huggingface": refusal(programs.pop("huggingface"))}
    result["same_texts"] = {
        k: compare(where, own, engine=k, texts=written[k]) for k in written
    }
    return result | time_ratios(setting, programs, batch)


def refusal(program: Callable) -> str | None:
    """Returns the error message of a program that cannot do a batch; None if it can."""
    try:
        program()
    except ValueError as error:
        return str(error)
    return None


def acceptance(outputs: list, tokens: int) -> dict:
    """Returns alpha among tested tokens, and tokens a target call."""
    totals = ours.counts(outputs)
    return {
        "alpha": totals.accepted / totals.tested,
        "target_calls": totals.calls,
        "tokens_per_call": tokens / totals.calls,
        "tokens": tokens,
    }


def target_call(where: Place) -> dict:
    """Returns v(gamma) = t_p(gamma + 1) / t_p(1) of our target, and the readout's
    share.
    """
    setting = where.setting
    model = ours.load(where.target, where.vocab)
    programs = {}
    for gamma in (0, setting.gamma):
        name = f"{gamma + 1}"
        programs[f"call_{name}"] = ours.target_calls(
            model,
            where.inputs,
            new_tokens=setting.new_tokens,
            gamma=gamma,
            loops=LOOPS,
        )
        programs[f"readout_{name}"] = ours.readouts(model, gamma, LOOPS)
    seconds = ratios.measure(
        programs, rounds=setting.rounds, pause=setting.pause, label="target call"
    )
    result = ratios.milliseconds(seconds, LOOPS)
    many = f"{setting.gamma + 1}"
    result |= ratios.speed_ratio(seconds, fast="call_1", slow=f"call_{many}", name="v")
    result |= ratios.speed_ratio(
        seconds, fast="readout_1", slow=f"readout_{many}", name="v_readout"
    )
    for name in ("1", many):
        call, readout = f"call_{name}", f"readout_{name}"
        result |= ratios.speed_ratio(
            seconds, fast=call, slow=readout, name=f"share_{name}"
        )
    return result | {"setting": setting._asdict(), "batch": 1}


def time_ratios(
    setting: EngineSetting, programs: dict[str, Callable], batch: int
) -> dict:
    """Returns milliseconds a token of each engine, and how many times as fast as each
    we are.
    """
    label = f"{setting.size}, batch {batch}"
    seconds = ratios.measure(
        programs, rounds=setting.rounds, pause=setting.pause, label=label
    )
    tokens = setting.texts * setting.new_tokens
    result = {"setting": setting._asdict(), "batch": batch, "tokens": tokens}
    result |= ratios.milliseconds(seconds, tokens)
    for name in programs:
        if name != OURS:
            result |= ratios.speed_ratio(
                seconds, fast=OURS, slow=name, name=f"over_{name}"
            )
    if {"huggingface", "huggingface_plain"} <= programs.keys():
        result |= ratios.speed_ratio(
            seconds,
            fast="huggingface",
            slow="huggingface_plain",
            name="huggingface_over_plain",
        )
    return result
