"""What is measured of a pair of Whispers: word errors by verifier, speed by batch.

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
    """folder, split, share: of the recordings, see `utterances.read`. language: that is
    spoken. gammas: the first is that of texts whose words are counted; of the others
    acceptance is told. scales: -alpha = beta of sigmoids. sigmoids: their rules. batch:
    recordings decoded together where words are counted. batches: of which the speed is
    measured, on `timed` recordings in `rounds` rounds."""

    folder: str
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
    seed: int = 0
    kernels: str = "auto"


def errors_row(
    target: Pretrained, draft: DraftLike, setting: ListeningSetting
) -> Measurement:
    """Word errors and acceptance of every method. Raises ValueError for no pair of
    Whispers, recordings that are not there, or a setting that cannot be measured."""
    return built(target, draft, setting, measure_errors)


def speed_row(
    target: Pretrained, draft: DraftLike, setting: ListeningSetting
) -> Measurement:
    """Speed of exact verification by batch, greedy. Raises as `errors_row`."""
    return built(target, draft, setting, measure_speed)


def source(target: Pretrained, draft: DraftLike) -> DraftSource:
    """Returns what drafts, by its name or a model; `opened` says whether it suits."""
    if isinstance(draft, str):
        return drafts.load_draft(draft, target)
    return model_source(draft) if isinstance(draft, Pretrained) else draft


def built(
    target: Pretrained, draft: DraftLike, setting: ListeningSetting, run
) -> Measurement:
    draft = source(target, draft)
    if not isinstance(target, Pretrained) or draft.pretrained is None:
        raise ValueError("both sides must be Whispers with weights")
    pair = load_pair(target, draft.pretrained)
    counts = setting.gammas, setting.batches, (setting.batch, setting.timed)
    if not all(counts) or min(*map(min, counts), setting.rounds) < 1:
        raise ValueError("gammas, batches, batch, timed and rounds must be at least 1")
    for gamma in setting.gammas:
        decoding.check(pair, DecodeConfig(gamma))
    spoken = read(setting.folder, setting.split, setting.share, setting.seed)
    compared = methods.of_errors(setting.scales, setting.sigmoids)
    rules = {method.rule for method in compared if method.rule}
    files = *pair_files(target, draft), *spoken.files, spoken.table
    inputs = *files, *own_files(*sorted(rules))
    run = partial(run, pair, spoken, setting)
    return Measurement(run, __name__, inputs, target.dtype, setting.seed)


def measure_errors(
    pair: Listeners, spoken: Utterances, setting: ListeningSetting
) -> dict:
    """By method: WER in per cent with its interval, share of drafts kept, tokens a
    call; the share for every other gamma too."""
    frames, numbers = described(pair, spoken)
    compared, samples = methods.of_errors(setting.scales, setting.sigmoids), {}
    for method in progress.track(compared, "methods"):
        first, *others = setting.gammas if method.rule else (ALONE,)
        outcome = heard(pair, frames, method, first, setting)
        both = spoken.references, outcome.texts
        score = word_errors.score(*both, setting.language, setting.seed)
        samples[method.name] = outcome.texts[:3]
        numbers |= {
            f"wer_{method.name}": 100 * score.rate,
            f"wer_ci_{method.name}": [100 * score.low, 100 * score.high],
            **counted(outcome, method.name),
        }
        for gamma in others:
            outcome = heard(pair, frames, method, gamma, setting)
            numbers |= counted(outcome, f"{method.name}_g{gamma}")
    return numbers | {"words": score.words, "samples": samples}


def heard(
    pair,
    frames,
    method,
    gamma: int,
    setting: ListeningSetting,
    batch: int | None = None,
) -> Outcome:
    """Texts have the same room at every gamma."""
    config = DecodeConfig(
        gamma,
        temperature=method.temperature,
        top_k=method.top_k,
        rule=method.rule or "token",
        seed=setting.seed,
        kernels=setting.kernels,
    )
    return hearing.hear(
        pair,
        frames,
        config,
        language=setting.language,
        batch=batch or setting.batch,
        reserve=max(setting.gammas),
    )


def counted(outcome: Outcome, name: str) -> dict:
    """Tokens a call, and the shares of drafts that were kept: of those decided on, with
    its standard error over batches."""
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
    """By batch: seconds of all recordings without and with a draft, greedy, and their
    ratio with its interval over rounds; the same of decoding, without the encoder."""
    some = spoken._replace(files=spoken.files[: setting.timed])
    frames, numbers = described(pair, some)
    gammas, greedy = (ALONE, setting.gammas[0]), methods.Method("", "token", None, 0.0)
    for batch in progress.track(setting.batches, "batches"):
        # Sides; all, and what encoding takes of it; rounds.
        taken, texts = np.zeros((2, 2, setting.rounds)), [[], []]
        for turn in range(-1, setting.rounds):  # the first is not counted
            for side, gamma in enumerate(gammas):
                spoken_so = heard(pair, frames, greedy, gamma, setting, batch)
                texts[side] = spoken_so.texts
                if turn >= 0:
                    each = [(x.seconds, x.encoding) for x in spoken_so.spent]
                    taken[side, :, turn] = np.sum(each, axis=0)
        same = sum(a == b for a, b in zip(*texts, strict=True))
        numbers |= counted(spoken_so, f"b{batch}") | {f"same_texts_b{batch}": same}
        numbers |= timed("", f"b{batch}", taken[:, 0])
        numbers |= timed("decoding_", f"b{batch}", taken[:, 0] - taken[:, 1])
    return numbers


def timed(what: str, name: str, seconds: np.ndarray) -> dict:
    """seconds [2, R]: without and with a draft."""
    return {
        f"{what}speedup_{name}": speedup(*seconds),
        f"{what}speedup_ci_{name}": list(timing.interval(speedup, tuple(seconds))),
        f"{what}alone_s_{name}": float(np.median(seconds[0])),
        f"{what}drafted_s_{name}": float(np.median(seconds[1])),
    }


def speedup(alone: np.ndarray, drafted: np.ndarray) -> float:
    """Of seconds [R] of the same rounds."""
    return float(np.median(alone) / np.median(drafted))


def described(pair: Listeners, spoken: Utterances) -> tuple[list[np.ndarray], dict]:
    """What is heard of each file, [T, M], and who heard what."""
    bands = pair.target.config.bands
    frames = [transcripts.frames(file, bands)[0] for file in spoken.files]
    return frames, {
        "target": pair.target.name,
        "draft": pair.draft.name,
        "shared_encoder": pair.shared,
        "recordings": len(spoken.files),
        "seconds_of_sound": sum(map(len, frames)) / 100,
    }
