"""Whisper with real weights, on recordings of people, in three engines.

Measured are the seconds of each recording, word errors against its transcript, and the
positions where the ids of two engines differ.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.rivals import agreement, children, exports, journal, ratios, turns
from experiments.rivals.journal import Journals
from experiments.rivals.turns import Program
from experiments.tasks import word_errors
from specjax import pretrained
from specjax.checkpoints import published
from specjax.models import whisper
from specjax.speech import audio, logmel, transcripts
from specjax.speech.pair import Listeners, load_pair
from specjax.speech.sequential import Options, cut_window
from specjax.types import Features

OURS, BANDS = "specjax", 80
# A module's engine, arithmetic, and what a record calls it.
LISTENERS = (
    ("ours", "float32", OURS),
    ("ours", "int8", "specjax_int8"),
    ("ctranslate2", "float32", "faster_whisper"),
    ("ctranslate2", "int8", "faster_whisper_int8"),
    ("huggingface", "float32", "transformers"),
)


class SpeechSetting(NamedTuple):
    """The setting of a row that compares engines on speech.

    Attributes:
        split: one that transcripts.tsv names, if it names any.
        recordings: the number of recordings of each folder, from the first on.
        draft: for a second run of ours; empty for none.
    """

    model: str = "whisper-base"
    split: str = "test"
    recordings: int = 10
    draft: str = ""
    rounds: int = 2
    pause: float = 0.3
    threads: int = 2


class Recording(NamedTuple):
    file: Path
    text: str
    seconds: float


def rows(setting: SpeechSetting) -> list[str]:
    return [setting.model]


def check(setting: SpeechSetting) -> None:
    """Raises ValueError for a setting without recordings."""
    if setting.recordings < 1:
        raise ValueError(f"--recordings {setting.recordings}: ask for at least 1")


def inputs(setting: SpeechSetting, folders: list[Path]) -> tuple[Path, ...]:
    """Returns the files that the measurement depends on. Raises ValueError for a
    missing model."""
    heard = [each.file for x in folders for each in recordings(x, setting)]
    return (*heard, *pretrained.files_of(pretrained.describe(setting.model)))


def measure(
    setting: SpeechSetting,
    folders: list[Path],
    *,
    work: Path,
    texts_folder: Path | None = None,
    row_names: Sequence[str] | None = None,
    journals: Journals = journal.memory_journal,
) -> Iterator[tuple[str, dict]]:
    """Yields the row's name and numbers.

    Args:
        work: a folder for the weights in each engine's format.
        texts_folder: a folder for the transcripts of every engine.
        row_names: some of `rows`; None for all.
        journals: opens the journal of a row.
    """
    if row_names is not None and setting.model not in row_names:
        return
    heard = [each for folder in folders for each in recordings(folder, setting)]
    groups = [(str(each.file.resolve()),) for each in heard]
    asked, beside, refusals = {}, {}, {}
    with ExitStack() as stack:
        for module, kind, name in LISTENERS:
            turns.say(f"{setting.model}: {name}, loading; its weights are made once")
            try:
                programs = open_engine(
                    setting, work, name, module=module, kind=kind, stack=stack
                )
            except Exception as error:  # of its converter, whatever it raises
                refusals[name] = children.refusal(error)
                turns.say(f"{setting.model}: {name} gives no number: {refusals[name]}")
                continue
            asked |= programs
            of_kind = OURS if kind == "float32" else f"{OURS}_{kind}"
            beside |= dict.fromkeys(programs, of_kind)
        kept = journals(setting.model)
        taken = turns.collect(
            asked,
            groups,
            groups[:1],
            rounds=setting.rounds,
            pause=setting.pause,
            label=setting.model,
            journal=kept,
        )
    result = {"setting": setting._asdict(), "batch": 1, "texts": len(heard)}
    result["refusals"] = refusals | taken.refusals
    result |= {"peak_mb": taken.peak_mb, "sittings": len(kept.sittings)}
    lasting = np.array([each.seconds for each in heard])
    result["heard"] = round(float(lasting.sum()), 1)
    result |= ratios.time_numbers(taken.seconds, dict.fromkeys(asked, lasting), beside)
    texts = {name: [text for text, _ in rows] for name, rows in taken.values.items()}
    true = [each.text for each in heard]
    result["word_errors"] = {
        name: word_errors.score(true, said)._asdict() for name, said in texts.items()
    }
    result |= compare_ids(setting, heard, taken.values)
    if texts_folder is not None:
        texts_folder.mkdir(parents=True, exist_ok=True)
        file = texts_folder / f"{setting.model}.json"
        file.write_text(json.dumps(texts, indent=1, ensure_ascii=False))
    yield setting.model, result


def recordings(folder: Path, setting: SpeechSetting) -> list[Recording]:
    with open(folder / "transcripts.tsv", encoding="utf-8") as opened:
        lines = [*csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE)]
    kept = [x for x in lines if x.get("split", setting.split) == setting.split]
    return [
        Recording(folder / x["file"], x["transcript"], float(x["seconds"]))
        for x in kept[: setting.recordings]
    ]


def open_engine(
    setting: SpeechSetting,
    work: Path,
    name: str,
    *,
    module: str,
    kind: str,
    stack: ExitStack,
) -> dict[str, Program]:
    """Returns an engine's programs by name; `stack` closes the engine.

    Args:
        work: the folder of files made for engines.
        name: the name of the engine, as in the table.
        module: the worker that runs it.
        kind: the kind of its products, as the worker names them.

    Raises:
        Refused: the model was not fetched.
    """
    place = published.path(setting.model)
    if place is None:
        raise children.Refused(
            f"{setting.model} is not here: specjax fetch {setting.model}"
        )
    make, path = exports.WHISPER.get(module), place
    if make is not None:
        path = make(
            place, exports.format_folder(work, setting.model, place / "model.bin")
        )
    drafts = {"drafted": setting.draft} if setting.draft else {}
    options = dict(path=str(path), kind=kind, threads=setting.threads, drafts=drafts)
    loader = f"{__package__}.{module}:speech"
    started = children.start(loader, options, setting.threads)
    stack.callback(started.close)
    return {
        name if program == "plain" else f"{name}_{program}": partial(
            started.ask, program
        )
        for program in started.programs
    }


def compare_ids(
    setting: SpeechSetting, heard: list[Recording], values: dict[str, list]
) -> dict:
    """Returns whose ids equal ours, and where the others first differ."""
    result = {"same_texts": {}, "differences": []}
    if OURS not in values:
        return result
    pair = load_pair(pretrained.load(setting.model), None)

    def text_ids(ids: list[int]) -> list[int]:
        return [i for i in ids if i < pair.tokens.end]

    rows = {name: [text_ids(ids) for _, ids in each] for name, each in values.items()}
    for name, theirs in rows.items():
        both = [*zip(rows[OURS], theirs, strict=True)]
        result["same_texts"][name] = sum(a == b for a, b in both)
        for each, (a, b) in zip(heard, both, strict=True):
            if a != b:
                about = {"engine": name, "file": each.file.name}
                result["differences"].append(
                    about | first_difference(pair, each, name, a, b)
                )
    return result


def first_difference(
    pair: Listeners, recording: Recording, name: str, ours: list[int], theirs: list[int]
) -> dict:
    """Describes the first difference between two texts: the position, both tokens, and
    by how many nats ours is more likely.

    The likelihood comes from our logits in float32 after the ids that both wrote, for
    the recording as we read it, and as they do. kind: "tie" is within rounding,
    "window" comes from the input behind the recording's end, "int8" from rounded
    weights; else "difference".
    """
    end = pair.tokens.end
    a, b = [*ours, end], [*theirs, end]
    at = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    prompt = Options("en", None, False, (), False).prompt(pair.tokens)
    config, params = pair.target.config, pair.target.params

    def margin(window: np.ndarray) -> float:
        read = jnp.asarray([[*prompt, *ours[:at]]])
        sound = Features(jnp.asarray(window)[None])
        logits = np.asarray(whisper.logits(config, params, sound, read))[0, -1]
        return float(logits[a[at]] - logits[b[at]])

    frames, _ = transcripts.frames(recording.file, config.bands)
    margins = (
        margin(cut_window(frames, 0, config.frames)),
        margin(engine_features(name, recording)),
    )
    kinds = {
        "tie": abs(margins[0]) <= agreement.ROUNDING,
        "int8": name.endswith("int8"),
        "window": margins[1] <= agreement.ROUNDING,
        "difference": True,
    }
    words = (pair.read([x]) if x != end else "the end" for x in (a[at], b[at]))
    found = dict(zip(("ours", "theirs"), words, strict=True)) | {"place": at}
    found |= dict(zip(("margin", "margin_theirs"), margins, strict=True))
    return found | {"kind": next(kind for kind, is_so in kinds.items() if is_so)}


def engine_features(name: str, each: Recording) -> np.ndarray:
    """Returns the features that an engine computes for a recording of one window, [T,
    M].

    Ours ends in silence; that of faster-whisper in zeros, as in Whisper's own
    transcription; transformers computes its features with the silence behind the sound.
    """
    if name.startswith("transformers"):
        samples = np.concatenate([*audio.blocks(each.file)])
        return logmel.features(samples)
    frames, _ = transcripts.frames(each.file, BANDS)
    if name.startswith("faster_whisper"):
        return logmel.cut(frames, 0)
    return cut_window(frames, 0, logmel.FRAMES)
