"""The measurements of a pair of Whispers: word errors by verifier, speed by batch.

Each row is a `Measurement` of a gin file (`gin_configs/runs/speech_errors.gin`,
`speech_speed.gin`); recordings are a folder of the user's, see `utterances`.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.papers.wagner.runs import error_of_ratio
from experiments.papers.wagner.speech import hearing, methods
from experiments.papers.wagner.speech.hearing import Outcome
from experiments.papers.wagner.speech.utterances import Utterances, read
from experiments.tasks import word_errors
from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftLike, DraftSource, pair_files
from specjax.measure import timing
from specjax.measure.row import Measurement, own_files
from specjax.runtime import progress
from specjax.speech import decoding, transcripts
from specjax.speech.pair import Listeners, load_pair

ALONE = 0  # gamma of decoding without a draft


class ListeningSetting(NamedTuple):
    """The setting of a row that compares methods on speech.

    Attributes:
        folder, split, share: of the recordings, see `utterances.read`.
        decode: the settings; a method has its own rule, temperature and top_k, and each
            of `gammas` takes the place of gamma.
        language: that is spoken.
        gammas: words are counted at the first; acceptance is also counted at the
            others.
        scales: -alpha = beta of sigmoids.
        sigmoids: their rules.
        batch: recordings decoded together where words are counted.
        batches: for which the speed is measured, on `timed` recordings in `rounds`
            rounds.
    """

    folder: str
    decode: DecodeConfig = DecodeConfig()
    split: str = ""
    share: float = 1.0
    language: str = "en"
    gammas: tuple[int, ...] = (5, 3, 10, 15)
    scales: tuple[float, ...] = (1e3,)
    sigmoids: tuple[str, ...] = ("sigmoid",)
    batch: int = 8
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    timed: int = 16
    rounds: int = 5


def errors_row(
    target: Pretrained, draft: DraftLike, setting: ListeningSetting
) -> Measurement:
    """Returns the measurement of word errors and acceptance of every method.

    Raises:
        ValueError: the models are not a pair of Whispers, recordings are missing, or
            the setting cannot be measured.
    """
    return build_row(target, draft, setting=setting, run=measure_errors)


def speed_row(
    target: Pretrained, draft: DraftLike, setting: ListeningSetting
) -> Measurement:
    """Returns the measurement of the speed of exact verification, greedy, by batch.
    Raises ValueError as `errors_row` does.
    """
    return build_row(target, draft, setting=setting, run=measure_speed)


def resolve_draft(target: Pretrained, draft: DraftLike) -> DraftSource:
    """Returns the source of drafts, from a name or a model; `opened` checks whether it
    fits the target.
    """
    if isinstance(draft, str):
        return drafts.load_draft(draft, target)
    return model_source(draft) if isinstance(draft, Pretrained) else draft


def build_row(
    target: Pretrained, draft: DraftLike, *, setting: ListeningSetting, run
) -> Measurement:
    draft = resolve_draft(target, draft)
    if not isinstance(target, Pretrained) or draft.pretrained is None:
        raise ValueError("both sides must be Whispers with weights")
    pair = load_pair(target, draft.pretrained)
    counts = setting.gammas, setting.batches, (setting.batch, setting.timed)
    if not all(counts) or min(*map(min, counts), setting.rounds) < 1:
        raise ValueError("gammas, batches, batch, timed and rounds must be at least 1")
    for gamma in setting.gammas:
        decoding.check(pair, DecodeConfig(gamma))
    spoken = read(
        setting.folder,
        split=setting.split,
        share=setting.share,
        seed=setting.decode.seed,
    )
    compared = methods.error_methods(setting.scales, setting.sigmoids)
    rules = {method.rule for method in compared if method.rule}
    files = *pair_files(target, draft), *spoken.files, spoken.table
    inputs = *files, *own_files(*sorted(rules))
    run = partial(run, pair, spoken, setting)
    return Measurement(run, __name__, inputs, target.dtype, setting.decode.seed)


def measure_errors(
    pair: Listeners, spoken: Utterances, setting: ListeningSetting
) -> dict:
    """Returns, by method, the word error rate in percent with its interval, the share
    of kept drafted tokens, and the tokens per call; the share also for every other
    gamma.
    """
    frames, numbers = describe(pair, spoken)
    compared, samples = methods.error_methods(setting.scales, setting.sigmoids), {}
    for method in progress.track(compared, "methods"):
        first, *others = setting.gammas if method.rule else (ALONE,)
        outcome = transcribe(pair, frames, method=method, gamma=first, setting=setting)
        score = word_errors.score(
            spoken.references,
            outcome.texts,
            language=setting.language,
            seed=setting.decode.seed,
        )
        samples[method.name] = outcome.texts[:3]
        numbers |= {
            f"wer_{method.name}": 100 * score.rate,
            f"wer_ci_{method.name}": [100 * score.low, 100 * score.high],
            **acceptance_numbers(outcome, method.name),
        }
        for gamma in others:
            outcome = transcribe(
                pair, frames, method=method, gamma=gamma, setting=setting
            )
            numbers |= acceptance_numbers(outcome, f"{method.name}_g{gamma}")
    return numbers | {"words": score.words, "samples": samples}


def transcribe(
    pair,
    frames,
    *,
    method,
    gamma: int,
    setting: ListeningSetting,
    batch: int | None = None,
) -> Outcome:
    """Transcribes by one method; buffers have the same number of slots for every
    gamma."""
    config = setting.decode.replace(
        gamma=gamma,
        temperature=method.temperature,
        top_k=method.top_k,
        rule=method.rule or "token",
    )
    return hearing.hear(
        pair,
        frames,
        config,
        language=setting.language,
        batch=batch or setting.batch,
        reserve=max(setting.gammas),
    )


def acceptance_numbers(outcome: Outcome, name: str) -> dict:
    """Returns the tokens per call, and the share of tested tokens that were kept, with
    its standard error over batches.
    """
    columns = zip(*(each[1:5] for each in outcome.spent), strict=True)
    calls, tokens, accepted, tested = map(np.array, columns)
    numbers = {f"tokens_per_call_{name}": float(tokens.sum() / calls.sum())}
    if tested.sum():
        numbers[f"alpha_{name}"] = float(accepted.sum() / tested.sum())
        numbers[f"alpha_se_{name}"] = error_of_ratio(accepted, tested)
    return numbers


def measure_speed(
    pair: Listeners, spoken: Utterances, setting: ListeningSetting
) -> dict:
    """Returns, by batch, the seconds of all recordings without and with a draft,
    greedy, and their ratio with its interval over rounds; the same also for decoding
    without the encoder.
    """
    some = spoken._replace(files=spoken.files[: setting.timed])
    frames, numbers = describe(pair, some)
    gammas, greedy = (ALONE, setting.gammas[0]), methods.Method("", "token", None, 0.0)
    for batch in progress.track(setting.batches, "batches"):
        # Sides; all, and what encoding takes of it; rounds.
        taken, texts = np.zeros((2, 2, setting.rounds)), [[], []]
        for turn in range(-1, setting.rounds):  # the first is not counted
            for side, gamma in enumerate(gammas):
                spoken_so = transcribe(
                    pair,
                    frames,
                    method=greedy,
                    gamma=gamma,
                    setting=setting,
                    batch=batch,
                )
                texts[side] = spoken_so.texts
                if turn >= 0:
                    each = [(x.seconds, x.encoding) for x in spoken_so.spent]
                    taken[side, :, turn] = np.sum(each, axis=0)
        same = sum(a == b for a, b in zip(*texts, strict=True))
        numbers |= acceptance_numbers(spoken_so, f"b{batch}") | {
            f"same_texts_b{batch}": same
        }
        numbers |= time_numbers("", f"b{batch}", taken[:, 0])
        numbers |= time_numbers("decoding_", f"b{batch}", taken[:, 0] - taken[:, 1])
    return numbers


def time_numbers(what: str, name: str, seconds: np.ndarray) -> dict:
    """Returns the numbers that a record has of these times.

    Args:
        seconds: [2, R], without and with a draft.
    """
    return {
        f"{what}speedup_{name}": speedup(*seconds),
        f"{what}speedup_ci_{name}": timing.interval(speedup, tuple(seconds)),
        f"{what}alone_s_{name}": float(np.median(seconds[0])),
        f"{what}drafted_s_{name}": float(np.median(seconds[1])),
    }


def speedup(alone: np.ndarray, drafted: np.ndarray) -> float:
    """Returns the ratio of the median seconds [R] of the same rounds."""
    return float(np.median(alone) / np.median(drafted))


def describe(pair: Listeners, spoken: Utterances) -> tuple[list[np.ndarray], dict]:
    """Returns the frames of each file, [T, M], and a description of the models and
    recordings.
    """
    bands = pair.target.config.bands
    frames = [transcripts.frames(file, bands)[0] for file in spoken.files]
    return frames, {
        "target": pair.target.name,
        "draft": pair.draft.name,
        "shared_encoder": pair.shared,
        "recordings": len(spoken.files),
        "seconds_of_sound": sum(map(len, frames)) / 100,
    }
