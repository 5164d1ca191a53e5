"""Whisper of real weights, on recordings of people, by three engines.

Seconds of each recording, word errors against its transcript, and where the ids of two
engines part.
"""

import csv
import json
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import specjax
from experiments.rivals import agreement
from experiments.rivals.real import child, exports, turns
from experiments.rivals.real.child import Refused
from experiments.tasks import word_errors
from specjax import checkpoints, native
from specjax.checkpoints import published
from specjax.models import whisper
from specjax.speech import logmel
from specjax.speech.pair import Listeners, opened
from specjax.speech.sequential import Options
from specjax.speech.transcripts import frames
from specjax.types import Features

OURS, DIGITS = "specjax", 4
# Engine, arithmetic, and what a record calls it.
LISTENERS = (
    ("ours", "float32", OURS),
    ("ours", "int8", "specjax_int8"),
    ("faster_whisper", "float32", "faster_whisper"),
    ("faster_whisper", "int8", "faster_whisper_int8"),
    ("transformers", "float32", "transformers"),
)


class SpeechSetting(NamedTuple):
    """split: of those that transcripts.tsv names, where it names any. recordings: the
    first so many of each folder. draft: of ours, besides alone; empty for none."""

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


def measure(
    setting: SpeechSetting, folders: list[Path], work: Path, texts_to: Path | None
) -> dict[str, dict]:
    """What the row measured. texts_to: a folder for what everyone wrote down."""
    heard = [each for folder in folders for each in recordings(folder, setting)]
    groups = [(str(each.file.resolve()),) for each in heard]
    asked, beside, refusals = {}, {}, {}
    with ExitStack() as children:
        for module, kind, name in LISTENERS:
            try:
                programs = open_one(setting, work, module, kind, name)
            except Refused as error:
                refusals[name] = str(error)
                continue
            children.callback(programs[name][0].close)
            asked |= programs
            of_kind = OURS if kind == "float32" else f"{OURS}_{kind}"
            beside |= dict.fromkeys(programs, of_kind)
        taken = turns.take(
            asked, groups, groups[:1], setting.rounds, setting.pause, setting.model
        )
    result = {"setting": setting._asdict(), "batch": 1, "recordings": len(heard)}
    result |= {"refusals": refusals | taken.refusals, "beside": {}}
    result["heard"] = round(sum(each.seconds for each in heard), 1)
    result["seconds"] = {k: v.round(DIGITS).tolist() for k, v in taken.seconds.items()}
    lasting = np.array([each.seconds for each in heard])
    for name, seconds in taken.seconds.items():
        # Milliseconds of work for each second of sound.
        spent = float(seconds.sum() / len(seconds) / lasting.sum())
        result[f"ms_{name}"] = 1e3 * spent
        if name != beside[name] and beside[name] in taken.seconds:
            pair = (taken.seconds[x] for x in (name, beside[name]))
            result |= turns.over(*((x, lasting) for x in pair), f"over_{name}")
            result["beside"][name] = beside[name]
    texts = {name: [text for text, _ in rows] for name, rows in taken.values.items()}
    true = [each.text for each in heard]
    result["word_errors"] = {
        name: word_errors.score(true, said)._asdict() for name, said in texts.items()
    }
    result |= compared(setting, heard, taken.values)
    if texts_to is not None:
        texts_to.mkdir(parents=True, exist_ok=True)
        file = texts_to / f"{setting.model}.json"
        file.write_text(json.dumps(texts, indent=1, ensure_ascii=False))
    return {setting.model: result}


def recordings(folder: Path, setting: SpeechSetting) -> list[Recording]:
    with open(folder / "transcripts.tsv", encoding="utf-8") as opened:
        lines = [*csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE)]
    kept = [x for x in lines if x.get("split", setting.split) == setting.split]
    return [
        Recording(folder / x["file"], x["transcript"], float(x["seconds"]))
        for x in kept[: setting.recordings]
    ]


def open_one(
    setting: SpeechSetting, work: Path, module: str, kind: str, name: str
) -> dict[str, tuple[child.Child, str]]:
    place = published.path(setting.model)
    if place is None:
        raise Refused(f"{setting.model} is not here: specjax fetch {setting.model}")
    path = folder(place, work) if module == "transformers" else place
    drafts = {"drafted": setting.draft} if setting.draft else {}
    options = dict(path=str(path), kind=kind, threads=setting.threads, drafts=drafts)
    module = f"{__package__}.listeners.{module}"
    started = child.start(module, options, setting.threads)
    return {
        name if program == "plain" else f"{name}_{program}": (started, program)
        for program in started.programs
    }


def folder(place: Path, work: Path) -> Path:
    """The folder of Hugging Face, with what generation_config.json would say."""

    def make(path: Path) -> None:
        model = specjax.load(place)
        checkpoints.save(path, model)
        (path / "tokenizer.json").write_bytes((place / "tokenizer.json").read_bytes())
        (path / "special.json").write_text(json.dumps(said(opened(model, None))))

    return exports.made(work / "whisper_huggingface", make)


def said(pair: Listeners) -> dict:
    """Special ids and limits, by the names of transformers."""
    tokens, limits = pair.tokens, pair.limits
    return {
        "decoder_start_token_id": tokens.start,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.end,
        "bos_token_id": tokens.end,
        "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous,
        "is_multilingual": bool(tokens.languages),
        "lang_to_id": {f"<|{x}|>": i for x, i in tokens.languages.items()},
        "task_to_id": dict(tokens.tasks),
        "suppress_tokens": list(limits.suppressed),
        "begin_suppress_tokens": list(limits.at_first),
        "max_length": pair.target.config.positions,
    }


def compared(
    setting: SpeechSetting, heard: list[Recording], values: dict[str, list]
) -> dict:
    """Whose ids are ours, and by how much ours was likelier where two first part: by
    our logits in float32, behind the ids that both wrote."""
    result = {"same_texts": {}, "differences": []}
    if OURS not in values:
        return result
    pair = opened(specjax.load(setting.model), None)

    def plain(ids: list[int]) -> list[int]:
        return [i for i in ids if i < pair.tokens.end]

    rows = {name: [plain(ids) for _, ids in each] for name, each in values.items()}
    for name, theirs in rows.items():
        both = [*zip(rows[OURS], theirs, strict=True)]
        result["same_texts"][name] = sum(a == b for a, b in both)
        for each, (a, b) in zip(heard, both, strict=True):
            if a != b:
                about = {"engine": name, "file": each.file.name}
                result["differences"].append(about | parting(pair, each, a, b))
    return result


def parting(pair: Listeners, each: Recording, ours: list[int], theirs: list[int]):
    """Where two texts part, what each has there, and the nats that ours is likelier."""
    end = pair.tokens.end
    a, b = [*ours, end], [*theirs, end]
    at = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    options = Options("en", None, False, (), False)
    prompt = options.prompt(pair.tokens)
    config, params = pair.target.config, pair.target.params
    sound, _ = frames(each.file, config.bands)
    window = Features(jnp.asarray(logmel.cut(sound, 0))[None])
    read = jnp.asarray([[*prompt, *ours[:at]]])
    with native.products(native.XLA):
        logits = np.asarray(whisper.logits(config, params, window, read))[0, -1]
    margin = float(logits[a[at]] - logits[b[at]])
    words = (pair.read([x]) if x != end else "the end" for x in (a[at], b[at]))
    kind = "tie" if abs(margin) <= agreement.ROUNDING else "difference"
    return dict(zip(("ours", "theirs"), words, strict=True)) | {
        "place": at,
        "margin": margin,
        "kind": kind,
    }
