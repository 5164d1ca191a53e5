"""The tables and figures of Wagner et al. (2024), in kind, on the bundled pairs.

https://arxiv.org/abs/2406.11016. Verification is measured alone and as a part of
decoding, by the baseline, the exact and the sigmoid way, and by a control that keeps
every draft: `time_row` for Figure 3, `text_row` for Tables 1, 3, 5, 6 and 8,
`scale_row` for Tables 2 and 7. Reductions are 1 - ours / baseline in per cent, as
there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments import tasks
from experiments.papers.wagner import distances as wagner_laws
from experiments.papers.wagner import runs, timing
from experiments.papers.wagner.methods import (
    Method,
    filter_pair,
    scale_methods,
    text_methods,
    with_kernels,
)
from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig, record_fields
from specjax.drafts.source import DraftLike, DraftSource, check_pair, pair_files
from specjax.fused import Sizes
from specjax.measure import texts as decoding
from specjax.measure.row import Measurement
from specjax.measure.texts import Protocol, Text

Pair = tuple[Pretrained, DraftSource]
AT = 5  # the gamma at which a step is timed: where the paper's schedule begins
HELD = (1, 5, 10, 15, 20)  # gammas at which a step's memory is asked for
STEPS = (1, 5, 10)  # gammas at which verification is compared with a whole step
SCORED = 2000  # tokens of the target's text on which laws are compared, at least


RECORDED = "new_tokens", "seed", "kernels"  # settings of a record


class WagnerSetting(NamedTuple):
    """The setting of a row after Wagner et al. (2024), which decodes at temperature 1.

    Attributes:
        decode: the settings; each of `gammas`, and the methods' rules, take the place
            of its gamma and rule.
        share: the share of a task's prompts, chosen by the seed, each continued
            `repeats` times, in batches.
        gammas: for which acceptance is counted, or verification timed.
        timed: texts decoded alone for their walltime.
        rounds: the number of rounds of each timing.
        scales: -alpha = beta of the sigmoids; a row of texts takes the first.
        suffix: put after each text that an encoder reads; the paper's is "Summary:".
    """

    task: str
    decode: DecodeConfig = DecodeConfig(temperature=1.0, new_tokens=100)
    scales: tuple[float, ...] = (1e4,)
    gammas: tuple[int, ...] = (3, 5, 10, 15)
    share: float = 1.0
    repeats: int = 1
    batch: int = 40
    timed: int = 120
    rounds: int = 15
    suffix: str = ""


def time_row(
    target: Pretrained, draft: DraftLike, setting: WagnerSetting
) -> Measurement:
    """Returns the measurement of a row of Figure 3.

    Raises:
        ValueError: the pair or the setting cannot be measured.
    """
    return build_row(
        (target, draft), setting, text_methods(setting.scales[0])[:4], measure=times
    )


def text_row(
    target: Pretrained, draft: DraftLike, setting: WagnerSetting
) -> Measurement:
    """Returns the measurement of a row of Tables 1, 3, 5, 6 and 8. Raises ValueError as
    `time_row` does.
    """
    return build_row(
        (target, draft), setting, text_methods(setting.scales[0]), measure=texts
    )


def scale_row(
    target: Pretrained, draft: DraftLike, setting: WagnerSetting
) -> Measurement:
    """Returns the measurement of a row of Tables 2 and 7. Raises ValueError as
    `time_row` does."""
    return build_row(
        (target, draft), setting, scale_methods(setting.scales), measure=scales
    )


def build_row(
    pair: Pair,
    setting: WagnerSetting,
    methods: list[Method],
    *,
    measure: Callable,
    source: tasks.Task | None = None,
    decode: Callable[[list[int]], str] | None = None,
) -> Measurement:
    """Returns the measurement of a row with these methods.

    Args:
        source, decode: the task, and the decoder of its texts; None for a task of the
            bundled families.
    """
    pair = drafts.pair(*pair)
    check_pair(*pair)
    source = tasks.read(setting.task) if source is None else source
    sample = make_sample(setting, source, decode)
    if not setting.gammas or min(setting.gammas) < 1 or max(setting.gammas) > 20:
        raise ValueError(f"gammas must be in 1..20; got {setting.gammas}")
    if min(setting.batch, setting.timed, setting.rounds) < 1:
        raise ValueError("batch, timed and rounds must be at least 1")
    run = partial(
        measure_row, measure, pair, setting=setting, methods=methods, sample=sample
    )
    inputs = *pair_files(*pair), *source.files
    return Measurement(run, __name__, inputs, pair[0].dtype, setting.decode.seed)


def make_sample(setting: WagnerSetting, source: tasks.Task, decode=None) -> runs.Sample:
    return runs.sample_prompts(
        source,
        share=setting.share,
        repeats=setting.repeats,
        seed=setting.decode.seed,
        new_tokens=setting.decode.new_tokens,
        suffix=setting.suffix,
        decode=decode,
    )


def measure_row(
    measure: Callable,
    pair: Pair,
    *,
    setting: WagnerSetting,
    methods: list[Method],
    sample,
) -> dict:
    """Returns the numbers of a row's own function as plain values, and what they were
    measured on.
    """
    target, draft = pair
    sizes = Sizes(setting.batch, max(*setting.gammas, AT), target.vocab, draft.regime)
    methods, records = with_kernels(methods, setting.decode.kernels, sizes)
    return {
        "target": target.name,
        "draft": draft.name,
        "vocabulary": target.vocab,
        **record_fields(setting, RECORDED),
        "kernels": records,
        "prompts": len(sample.prompts.tokens),
        "texts": sample.count,
        "methods": [method.name for method in methods],
        "guarantees": {m.name: m.verifier.guarantee for m in methods},
        "peak_in_use": timing.peak_in_use(),
        **measure(pair, setting, methods, sample),
    }


def times(pair: Pair, setting: WagnerSetting, methods: list[Method], sample) -> dict:
    """Returns the microseconds of a verification by gamma: lists, and the key of
    each."""
    text = target_texts(pair, sample, None)
    inputs = {None: [timing.text_inputs(pair, text, gamma) for gamma in setting.gammas]}
    seconds = timing.verification(methods, inputs, rounds=setting.rounds)
    values = {"gamma": list(setting.gammas)}
    for method in methods:
        each = [timing.spread(seconds[method.name, g]) for g in setting.gammas]
        for part in ("median", "deviation", "low", "high"):
            values[f"{part}_us_{method.name}"] = [us[part] for us in each]
        for gamma, us in zip(setting.gammas, each, strict=True):
            values[f"us_{method.name}_g{gamma}"] = us["median"]
            values[f"us_{method.name}_g{gamma}_sd"] = us["deviation"]
    return values | memory(pair, setting, methods, sample)


def memory(pair: Pair, setting: WagnerSetting, methods: list[Method], sample) -> dict:
    """Returns the KiB that a compiled step of decoding needs at its peak, by method and
    gamma: arguments, including weights, results and temporaries.
    """
    values, begun = {}, runs.sample_batch(sample, [0])
    for method in methods:
        for gamma in (gamma for gamma in HELD if gamma in setting.gammas):
            peak = timing.step_peak(pair, method, gamma=gamma, begun=begun)
            values[f"step_peak_kib_{method.name}_g{gamma}"] = peak / 1024
    return values


def texts(pair: Pair, setting: WagnerSetting, methods: list[Method], sample) -> dict:
    """Returns all numbers of a main row, under names of a quantity, a method and a
    gamma."""
    values = scales(pair, setting, methods, sample)
    plain = [method for method in methods if method.top_k is None]
    for method in plain[1:]:  # the baseline keeps what `exact` does
        for gamma in setting.gammas:
            run = runs.decode(
                pair, method, gamma=gamma, sample=sample, batch=setting.batch
            )
            for key, value in runs.kept_shares(run, sample.repeats).items():
                values[f"{key}_{method.name}_g{gamma}"] = value
    values |= walltimes_at_batch_1(pair, setting, plain[:3], sample, values)
    return values | steps(pair, setting, plain[1], sample)


def scales(pair: Pair, setting: WagnerSetting, methods: list[Method], sample) -> dict:
    """Returns all numbers of a row of scales, under flat names."""
    values = profile_verification(pair, setting, methods, sample)
    values |= distances(pair, methods, sample)
    for method in methods:
        values |= count_by_schedule(pair, setting, method, sample)
    return values | reductions_against_baseline(values, methods)


def calls(pair: Pair, setting: WagnerSetting, methods: list[Method], sample) -> dict:
    """Returns the counts of a row of texts decoded by the schedule, without timings,
    under flat names."""
    every = [count_by_schedule(pair, setting, method, sample) for method in methods]
    return {key: value for values in every for key, value in values.items()}


def target_texts(pair: Pair, sample, top_k: int | None) -> Text:
    """Returns texts that the target writes alone, with or without a filter."""
    target, _ = filter_pair(pair, top_k)
    warm = DecodeConfig(temperature=1.0, seed=sample.seed, new_tokens=sample.new_tokens)
    protocol = Protocol("", warm, tokens=SCORED, batch=40)
    return decoding.write(target, sample.prompts, protocol)


def group_by_filter(methods: Sequence[Method]) -> dict[int | None, list[Method]]:
    groups = {}
    for method in methods:
        groups.setdefault(method.top_k, []).append(method)
    return groups


def profile_verification(
    pair: Pair, setting: WagnerSetting, methods: list[Method], sample
) -> dict:
    """Returns time, memory and bytes of one verification at gamma = AT."""
    inputs, values = {}, {}
    for top_k in group_by_filter(methods):
        text = target_texts(pair, sample, top_k)
        inputs[top_k] = [timing.text_inputs(filter_pair(pair, top_k), text, AT)]
    seconds = timing.verification(methods, inputs, rounds=setting.rounds)
    for method in methods:
        name, counted = method.name, timing.program(method, inputs[method.top_k][0])
        values |= timing.describe(name, seconds[name, AT])
        values[f"peak_kib_{name}"] = counted.peak / 1024
        values[f"temporary_kib_{name}"] = counted.temporary / 1024
        values[f"accessed_kib_{name}"] = counted.accessed / 1024
        values[f"gb_s_{name}"] = counted.accessed / values[f"us_{name}"] / 1e3
    return values


def distances(pair: Pair, methods: list[Method], sample) -> dict:
    """Returns the total variations and the shares of kept tokens, by method."""
    flat = {}
    for top_k, group in group_by_filter(methods).items():
        text = target_texts(pair, sample, top_k)
        for name, values in wagner_laws.distances(pair, group, text).items():
            flat |= {f"{key}_{name}": value for key, value in values.items()}
    return flat


def count_by_schedule(
    pair: Pair, setting: WagnerSetting, method: Method, sample
) -> dict:
    """Returns the kept drafted tokens, the calls and ROUGE-1 under the paper's schedule
    of gamma."""
    run = runs.decode(
        pair, method, gamma=runs.SCHEDULE, sample=sample, batch=setting.batch
    )
    values = runs.kept_shares(run, sample.repeats) | runs.rouge1(run, sample)
    return {f"{key}_{method.name}": value for key, value in values.items()}


def reductions_against_baseline(values: dict, methods: list[Method]) -> dict:
    """Returns the reductions against the baseline with the same filter: of a step's
    time, and of the time of all steps that the schedule needed, each at the time of
    gamma = AT.
    """
    reductions = {}
    for method in methods:
        name, top_k = method.name, method.top_k
        base = next(m.name for m in methods if (m.top_k, m.scale) == (top_k, None))
        step = values[f"us_{name}"] / values[f"us_{base}"]
        calls = values[f"calls_{name}"] / values[f"calls_{base}"]
        reductions[f"step_reduction_{name}"] = 100 * (1 - step)
        reductions[f"profile_reduction_{name}"] = 100 * (1 - step * calls)
    return reductions


def walltimes_at_batch_1(
    pair: Pair, setting: WagnerSetting, methods: list[Method], sample, values: dict
) -> dict:
    """Returns the walltime of whole texts at gamma = AT and batch 1, and the share of
    verification in it.

    A method with another law writes other texts, which may be shorter: `wall_reduction`
    is of the time of texts, `wall_token_reduction` of the time of a token. Both have
    errors over prompts.
    """
    seconds = runs.walltimes(
        pair, methods, gamma=AT, sample=sample, count=setting.timed
    )
    base, flat = seconds[methods[0].name], {}
    count = len(sample.prompts.tokens)
    for method in methods:
        name, run = method.name, seconds[method.name]
        flat[f"wall_ms_{name}"] = 1e3 * float(run["seconds"].mean())
        each = runs.reductions(run, base, prompts=count)
        for key, (value, error) in each.items():
            flat[f"wall_{key}_{name}"] = 100 * value
            flat[f"wall_{key}_{name}_se"] = None if error is None else 100 * error
        token_ms = 1e3 * run["seconds"].sum() / run["tokens"].sum()
        flat[f"wall_ms_a_token_{name}"] = float(token_ms)
        verify = 1e-6 * values[f"us_{name}"] * run["calls"].sum()
        flat[f"wall_share_{name}"] = 100 * float(verify / run["seconds"].sum())
    return flat


def steps(pair: Pair, setting: WagnerSetting, method: Method, sample) -> dict:
    """Returns the time of verification and that of a whole step, by gamma."""
    text = target_texts(pair, sample, None)
    inputs = [timing.text_inputs(pair, text, gamma) for gamma in STEPS]
    begun, flat = runs.sample_batch(sample, [0]), {}
    shares = timing.shares(
        pair, method, begun=begun, inputs=inputs, rounds=setting.rounds
    )
    for gamma, parts in shares.items():
        medians = {key: float(np.median(value)) for key, value in parts.items()}
        flat |= {f"step_{key}_us_g{gamma}": value for key, value in medians.items()}
        flat[f"step_share_g{gamma}"] = 100 * medians["verify"] / medians["step"]
    return flat
