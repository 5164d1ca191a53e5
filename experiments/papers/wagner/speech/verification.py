"""The time of verification alone, on laws of speech (Wagner et al., 2024, Figure 3b,
Table 6).

It is timed as for text (`papers.wagner.timing`): from raw logits of both models, after
the text that the target wrote for a recording at T = 1, to tokens. The number of such
steps that a method needs follows from the tokens a call of `rows.errors_row`. Axes: N
recordings, F frames, M bands.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax import Array

from experiments.papers.wagner import rows as wagner
from experiments.papers.wagner import timing
from experiments.papers.wagner.methods import Method, text_methods, with_kernels
from experiments.papers.wagner.runs import Sample
from experiments.papers.wagner.speech import rows
from experiments.papers.wagner.speech.rows import ListeningSetting
from experiments.papers.wagner.speech.utterances import Utterances
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, DraftSource
from specjax.fused import Sizes
from specjax.measure.row import Measurement
from specjax.prompts import Prompts
from specjax.speech import audio, decoding, logmel, spoken_prompts
from specjax.speech.pair import Listeners

LONGEST = 100  # tokens of a text whose logits are timed


def row(target: Pretrained, draft: DraftLike, setting: ListeningSetting) -> Measurement:
    """Returns the measurement of the microseconds of a verification by method and
    gamma. Raises ValueError as `rows.errors_row` does.
    """
    draft = rows.resolve_draft(target, draft)
    run = partial(measure, (target, draft))
    built = rows.build_row(target, draft, setting=setting, run=run)
    return built._replace(module=__name__)


def measure(
    players: tuple[Pretrained, DraftSource],
    pair: Listeners,
    spoken: Utterances,
    setting: ListeningSetting,
) -> dict:
    """Returns, by method and gamma, microseconds, their deviation, KiB at the peak, and
    the reduction of a step's time against the baseline with the same filter, in
    percent.
    """
    files = spoken.files[: setting.timed]
    sides = spoken_prompts.use_table(players, pair, sounds(files, pair))
    sample = make_sample(pair, len(files), setting)
    sizes = Sizes(1, max(setting.gammas), sides[0].vocab, sides[1].regime)
    methods = text_methods(setting.scales[0])
    methods, chosen = with_kernels(methods, setting.decode.kernels, sizes)
    values = {"target": pair.target.name, "draft": pair.draft.name, "kernels": chosen}
    values |= {"recordings": len(files), "gamma": list(setting.gammas)}
    values["guarantees"] = {m.name: m.verifier.guarantee for m in methods}
    for top_k, group in wagner.group_by_filter(methods).items():
        cut = wagner.filter_pair(sides, top_k)
        text = wagner.target_texts(sides, sample, top_k)
        inputs = [timing.text_inputs(cut, text, gamma) for gamma in setting.gammas]
        values |= measure_methods(group, inputs, top_k, setting.rounds)
    return values


def measure_methods(
    methods: list[Method], inputs: list[timing.Inputs], top_k: int | None, rounds: int
) -> dict:
    """Returns the numbers of methods that share a filter; the first method is the
    baseline."""
    seconds, values = timing.verification(methods, {top_k: inputs}, rounds=rounds), {}
    for method in methods:
        for each in inputs:
            gamma = each.tokens.shape[1]
            end, base = f"{method.name}_g{gamma}", f"us_{methods[0].name}_g{gamma}"
            values |= timing.describe(end, seconds[method.name, gamma])
            saved = 1 - values[f"us_{end}"] / values[base]
            values[f"step_reduction_{end}"] = 100 * saved
            values[f"peak_kib_{end}"] = timing.program(method, each).peak / 1024
    return values


def sounds(files: Sequence[Path], pair: Listeners) -> Array:
    """Returns the features of the first window of each recording, [N, F, M]."""
    frames, bands = pair.target.config.frames, pair.target.config.bands
    most = frames * logmel.HOP
    heard = (audio.read(file).samples[:most] for file in files)
    return jnp.stack([logmel.features(each, bands, frames) for each in heard])


def make_sample(pair: Listeners, count: int, setting: ListeningSetting) -> Sample:
    """Returns prompts that name the places of the recordings in the table of sounds."""
    spoken = setting.language if pair.tokens.languages else None
    head = spoken_prompts.make_head({"language": spoken}, pair)
    places = [[i] for i in range(count)]
    prompts = Prompts([head] * count, places, (pair.tokens.end,))
    room = decoding.positions(pair) - len(head) - max(setting.gammas) - 1
    return Sample(prompts, [], 1.0, 1, setting.decode.seed, min(LONGEST, room))
