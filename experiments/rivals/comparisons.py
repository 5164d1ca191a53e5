"""The rows of the bench: comparisons of engines, the checks that they do the same work,
and v of our own target calls.

All engines read the same two folders of Hugging Face, decode greedily in float32 (and
CTranslate2 also in int8) on the same cores, and write the same number of tokens. Axes:
N texts, I input tokens, T new tokens.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.rivals import agreement, ours, ratios, turns, weights, worker
from experiments.rivals.journal import Journal
from specjax.checkpoints import Pretrained
from specjax.measure.row import Measurement
from specjax.native import library

OURS = "specjax"
LOOPS = 20  # calls in one program that times them


class EngineSetting(NamedTuple):
    """The setting of the rows that compare engines.

    Attributes:
        size: one of `weights.SIZES`.
        gamma: the gamma of every engine that drafts; Theorem 3.8's best for the alpha
            and the share of bytes of the draft of "small" (.78, .29).
        texts: the number of texts of `inputs` tokens each, in one batch or one after
            another.
        rounds: the number of rounds of programs in turns, `pause` seconds before each.
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
    """The setting, its folders, and the encoder's inputs [N, I]."""

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
    """Calls `agreement.check_texts`, and computes the law of every token only if it is
    needed.
    """
    if texts.shape == own.texts.shape and (texts == own.texts).all():
        return len(texts)
    law = ours.law(own.model, where.inputs, own.texts)
    return agreement.check_texts(engine, texts, ours=own.texts, law=law)


Row = Callable[[Journal], dict]  # measures it, with the calls that were measured before


def rows(where: Place) -> dict[str, tuple[Row, Measurement]]:
    """Returns the rows by name, and the origin of their numbers.

    A row that ends in "_xla" uses XLA's own products.
    """
    setting, runs = where.setting, {}
    both = sorted({1, setting.texts})
    for batch in both:
        runs[f"plain_b{batch}"] = partial(measure_greedy, where, batch)
    for batch in both:
        runs[f"speculative_b{batch}"] = partial(measure_speculative, where, batch)
    runs["speculative_b1_xla"] = partial(measure_speculative, where, 1)
    runs["target_call_b1"] = partial(target_call, where)
    common = dict(inputs=library.sources(), dtype="float32", seed=setting.seed)
    origin = Measurement(dict, __name__, **common)
    return {name: (run, origin) for name, run in runs.items()}


class Engines(NamedTuple):
    """The engines of a row, with their loaded programs.

    Attributes:
        programs: by their names in a record.
        written: what each wrote, [N, T].
        refusals: the reasons why others give no number.
    """

    programs: dict[str, Callable]
    written: dict[str, np.ndarray]
    refusals: dict[str, str]

    def add(self, engine: str, load: Callable[[], dict[str, Callable]]) -> None:
        """Loads an engine's programs and runs each once; a failure becomes a reason in
        `refusals`.

        Raises:
            Disagreement: the engine decodes another model.
        """
        turns.say(f"{engine}: loading")
        try:
            for name, program in load().items():
                self.written[name] = program()
                self.programs[name] = program
        except agreement.Disagreement:
            raise
        except Exception as error:  # whatever an engine raises
            self.refusals[engine] = worker.reason(error)
            turns.say(f"{engine} gives no number: {self.refusals[engine]}")


def measure_greedy(where: Place, batch: int, kept: Journal) -> dict:
    """Measures greedy decoding by the target alone, by each engine that is
    installed.
    """
    own, setting, inputs = reference(where), where.setting, where.inputs
    length, threads = setting.new_tokens, setting.threads
    size, nats = {"new_tokens": length, "batch": batch}, {}
    engines = Engines({}, {}, {})

    def transformers() -> dict[str, Callable]:
        from experiments.rivals import huggingface

        model = huggingface.load(where.target, threads)
        law = huggingface.likelihood(model, inputs, own.texts)
        nats["huggingface"] = agreement.check_law("huggingface", law, own.law)
        return {"huggingface": huggingface.decoder(model, inputs, **size)}

    def translators() -> dict[str, Callable]:
        from experiments.rivals import ctranslate2

        load = partial(ctranslate2.load, where.target, where.vocab, threads=threads)
        whole, rounded = load(kind="float32"), load(kind="int8")
        law = ctranslate2.likelihood(whole, inputs, own.texts)
        nats["ctranslate2"] = agreement.check_law("ctranslate2", law, own.law)
        return {
            "ctranslate2": ctranslate2.decoder(whole, inputs, **size),
            "ctranslate2_int8": ctranslate2.decoder(rounded, inputs, **size),
        }

    engines.add(OURS, lambda: {OURS: ours.decoder(own.model, inputs, **size)})
    engines.add("huggingface", transformers)
    engines.add("ctranslate2", translators)
    written = dict(engines.written)
    if OURS in written:
        written[OURS] = ours.texts(written[OURS], length)
    rounded = written.pop("ctranslate2_int8", None)
    result = {
        "nats_apart": nats,
        "same_texts": {
            k: compare(where, own, engine=k, texts=written[k]) for k in written
        },
    }
    if rounded is not None:
        result["int8_same_prefix"] = agreement.same_prefix(rounded, own.texts)
    return result | time_ratios(setting, engines, batch, kept)


def measure_speculative(where: Place, batch: int, kept: Journal) -> dict:
    """Measures decoding with a draft at the same gamma, by us and by assisted
    generation.

    Assisted generation decodes one text at a time; for more texts its error message is
    recorded.
    """
    own, setting = reference(where), where.setting
    length, gamma, inputs = setting.new_tokens, setting.gamma, where.inputs
    size, made_calls = {"new_tokens": length, "batch": batch}, {}
    engines = Engines({}, {}, {})

    def our_decoders() -> dict[str, Callable]:
        draft = ours.load(where.draft, where.vocab)
        return {
            OURS: ours.decoder(own.model, inputs, **size, draft=draft, gamma=gamma),
            f"{OURS}_plain": ours.decoder(own.model, inputs, **size),
        }

    def plain_decoders() -> dict[str, Callable]:
        from experiments.rivals import huggingface

        target = huggingface.load(where.target, setting.threads)
        return {"huggingface_plain": huggingface.decoder(target, inputs, **size)}

    def assisted() -> dict[str, Callable]:
        from experiments.rivals import huggingface

        both = where.target, where.draft
        target, draft = (huggingface.load(path, setting.threads) for path in both)
        options = dict(size, draft=draft, gamma=gamma)
        program = huggingface.decoder(target, inputs, **options)
        if batch == 1:
            made_calls["huggingface"] = huggingface.calls(target, program)
        return {"huggingface": program}

    engines.add(OURS, our_decoders)
    engines.add("huggingface", assisted)
    engines.add("huggingface_plain", plain_decoders)
    result, written = {}, {}
    if OURS in engines.written:
        outputs = engines.written[OURS]
        written[OURS] = ours.texts(outputs, length)
        result |= acceptance(outputs, own.texts.size)
        made_calls[OURS] = result["target_calls"]
    if batch == 1:
        result["calls"] = made_calls
        if "huggingface" in engines.written:
            written["huggingface"] = engines.written["huggingface"]
    result["same_texts"] = {
        k: compare(where, own, engine=k, texts=written[k]) for k in written
    }
    return result | time_ratios(setting, engines, batch, kept)


def acceptance(outputs: list, tokens: int) -> dict:
    """Returns alpha among tested tokens, and tokens per target call."""
    totals = ours.counts(outputs)
    return {
        "alpha": totals.accepted / totals.tested,
        "target_calls": totals.calls,
        "tokens_per_call": tokens / totals.calls,
        "tokens": tokens,
    }


def target_call(where: Place, kept: Journal) -> dict:
    """Returns v(gamma) = t_p(gamma + 1) / t_p(1) of our target, and the share of the
    readout.
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
        programs,
        rounds=setting.rounds,
        pause=setting.pause,
        label="target call",
        kept=kept,
    ).seconds
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
    setting: EngineSetting, engines: Engines, batch: int, kept: Journal
) -> dict:
    """Returns the milliseconds per token of each engine, and how many times as fast as
    each we are.
    """
    taken = ratios.measure(
        engines.programs,
        rounds=setting.rounds,
        pause=setting.pause,
        label=f"{setting.size}, batch {batch}",
        kept=kept,
    )
    seconds, tokens = taken.seconds, setting.texts * setting.new_tokens
    result = {"setting": setting._asdict(), "batch": batch, "tokens": tokens}
    result |= {"sittings": len(kept.sittings)}
    if refusals := engines.refusals | taken.refusals:
        result["refusals"] = refusals
    result |= ratios.milliseconds(seconds, tokens)
    for name in seconds:
        if name != OURS and OURS in seconds:
            result |= ratios.speed_ratio(
                seconds, fast=OURS, slow=name, name=f"over_{name}"
            )
    if {"huggingface", "huggingface_plain"} <= seconds.keys():
        result |= ratios.speed_ratio(
            seconds,
            fast="huggingface",
            slow="huggingface_plain",
            name="huggingface_over_plain",
        )
    return result
