"""The rows of beam search: a pair on the texts of a task, or on recordings."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jax
import numpy as np

from experiments.beams.measure import (
    BeamSetting,
    Search,
    SearchResult,
    check_setting,
    compare,
)
from specjax import beam, zoo
from specjax.beam.settings import BeamConfig
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafts import pair as open_pair
from specjax.drafts.source import DraftLike, check_pair, pair_files, record_names
from specjax.measure.pairs import Read
from specjax.measure.row import Measurement
from specjax.prompts import Prompts
from specjax.speech import beams, sequential, transcripts
from specjax.speech.pair import Listeners, load_pair
from specjax.speech.sequential import Decode, Options
from specjax.text.programs import Pair

BUNDLED = zoo.FOLDER / "speech" / "speech.flac"
LANGUAGE = "en"  # of recordings, where a model has several


def text_row(
    target: Pretrained,
    draft: DraftLike,
    *,
    task: str,
    read: Read,
    setting: BeamSetting,
) -> Measurement:
    """Returns the measurement of a pair on the texts of a task.

    Args:
        target, draft: M_p and M_q; the draft is a model.
        task, read: the name of a task, and how a task of that name is read.
        setting: the setting of the row.

    Raises:
        ValueError: the pair or the setting cannot search.
    """
    check_setting(setting)
    pair = open_pair(target, draft)
    check_pair(*pair, with_alpha=False)
    about = read(task, target)
    files = *pair_files(*pair), *about.files

    def run() -> dict:
        texts = read_texts(about.prompts)[: setting.texts]
        search = text_search(pair, texts, new_tokens=setting.new_tokens)
        return record_names(*pair) | compare(search, setting, texts=len(texts))

    return Measurement(run, __name__, files, target.dtype)


def read_texts(prompts: Prompts) -> list[list[int]]:
    """Returns the ids of each prompt, or those that its encoder reads."""
    read = prompts.tokens if prompts.inputs is None else prompts.inputs
    return [[int(i) for i in ids] for ids in read]


def text_search(pair: Pair, texts: list[list[int]], *, new_tokens: int) -> Search:
    """Returns the search of texts, all padded to the longest, so that each width has
    one program."""
    target, draft = pair

    @cache
    def prepare(config: BeamConfig, has_draft: bool) -> beam.Job:
        drafter = draft if has_draft else None
        return beam.prepare((target, drafter), texts, config, new_tokens=new_tokens)

    def search(i: int, config: BeamConfig, has_draft: bool) -> SearchResult:
        found = beam.decode(take_row(prepare(config, has_draft), i), config.width)
        return SearchResult(found.ids[0], found.calls, found.seconds)

    return search


def take_row(job: beam.Job, i: int) -> beam.Job:
    """Returns the job that decodes one row of another job."""
    prompt = jax.tree.map(lambda rows: rows[i : i + 1], job.prompt)
    limits = job.limits
    limits = limits._replace(most=limits.most[i : i + 1], eos=limits.eos[i : i + 1])
    return job._replace(prompt=prompt, limits=limits)


def speech_row(
    target: Pretrained,
    draft: DraftLike,
    *,
    setting: BeamSetting,
    folder: str = "",
) -> Measurement:
    """Returns the measurement of a pair of Whispers, on the first window of each
    recording.

    Args:
        target, draft: M_p and M_q.
        setting: the setting of the row; its new_tokens is not read.
        folder: the recordings in FLAC; "" is the bundled one.

    Raises:
        ValueError: the pair or the setting cannot search, or there is no recording.
    """
    check_setting(setting)
    sides = open_pair(target, draft)
    if sides[1].pretrained is None:
        raise ValueError(f"{sides[1].name} drafts no beams of speech: name a Whisper")
    pair = load_pair(target, sides[1].pretrained)
    files = recordings(folder)[: setting.texts]

    def run() -> dict:
        search = speech_search(pair, files)
        return record_names(*sides) | compare(search, setting, texts=len(files))

    inputs = *pair_files(*sides), *files
    return Measurement(run, __name__, inputs, target.dtype)


def recordings(folder: str) -> list[Path]:
    """Returns the recordings of a folder in the order of their names, or the bundled
    recording. Raises ValueError if the folder has none."""
    files = sorted(Path(folder).glob("*.flac")) if folder else [BUNDLED]
    if not files:
        raise ValueError(f"no file *.flac in {folder}: put recordings there")
    return files


def speech_search(pair: Listeners, files: Sequence[Path]) -> Search:
    """Returns the search of the first window of each recording, of which only the best
    beam is returned."""
    size = pair.config.frames
    sounds = [transcripts.frames(file, pair.config.bands)[0] for file in files]
    windows = [np.stack([sequential.cut_window(sound, 0, size)]) for sound in sounds]
    spoken = LANGUAGE if pair.tokens.languages else None
    head = Options().prompt(pair.tokens, spoken)
    spent: list[beams.Spent] = []

    @cache
    def build(config: BeamConfig, has_draft: bool) -> Decode:
        using = pair if has_draft else pair._replace(draft=None, shared=False)
        return beams.build(using, DecodeConfig(), config, on_batch=spent.append)

    def search(i: int, config: BeamConfig, has_draft: bool) -> SearchResult:
        decoded = build(config, has_draft)(windows[i], [head], np.zeros(1))
        work = spent.pop()
        return SearchResult(decoded.tokens, work.calls, work.seconds, work.encoding)

    return search
