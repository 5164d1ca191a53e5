"""Whisper's special tokens: who speaks which language, what to write of it, and when.

A prompt is `<|startoftranscript|>`, a language and a task, before it perhaps the end of
what was said before (Radford et al., 2022, Section 2.3); English-only models have the
first alone. They are read from what lies beside the weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax.speech import tiktoken
from specjax.tokenizers.folder import read_json

STEP = 0.02  # seconds between two timestamps
STEPS = 1500  # of a window of 30 s
CONTEXT = 448  # tokens of a text with its prompt
TASKS = ("transcribe", "translate")
MULTILINGUAL = 51865  # ids, and more; an English-only model has one less
GENERATION, CONFIG = "generation_config.json", "config.json"


class Tokens(NamedTuple):
    """The ids that are no text; text is below `end`.

    end: `<|endoftext|>`. start: `<|startoftranscript|>`. previous: `<|startofprev|>`,
    before what was said earlier. no_speech, no_timestamps. tasks: of `TASKS`.
    languages: code -> id, none in an English-only model. first_time: `<|0.00|>`; each
    of the next 1500 is 0.02 s later.
    """

    end: int
    start: int
    previous: int
    no_speech: int
    no_timestamps: int
    tasks: Mapping[str, int]
    languages: Mapping[str, int]
    first_time: int


def read(folder: str | Path) -> Tokens:
    """The special tokens of a checkpoint's folder.

    From `tokenizer.json`, else `vocab.json` with `added_tokens.json`, else a file
    `*.tiktoken`; whether the model speaks one language is as generation_config.json or
    the number of ids in config.json says.

    Raises:
      ValueError: no such file, or one that is not Whisper's.
    """
    folder = Path(folder)
    ids = names(folder)
    several = read_json(folder / GENERATION).get("is_multilingual")
    if not isinstance(several, bool):
        count = read_json(folder / CONFIG).get("vocab_size")
        several = count >= MULTILINGUAL if isinstance(count, int) else None
    try:
        return of_names(ids, several)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def names(folder: Path) -> dict[str, int]:
    """Special tokens by name, `<|...|>`, as a folder's tokenizer has them."""
    fields = read_json(folder / "tokenizer.json")
    added = fields.get("added_tokens")
    pairs = [entry for entry in added or () if isinstance(entry, dict)]
    ids = {entry.get("content"): entry.get("id") for entry in pairs}
    if not fields:
        ids = read_json(folder / "vocab.json") | read_json(folder / "added_tokens.json")
        decoder = read_json(folder / "tokenizer_config.json").get(
            "added_tokens_decoder"
        )
        for key, entry in (decoder if isinstance(decoder, dict) else {}).items():
            if key.isdecimal() and isinstance(entry, dict):
                ids[entry.get("content")] = int(key)
    file = next(iter(sorted(folder.glob("*.tiktoken"))), None)
    if not ids and file is not None:
        return _after(file, read_json(folder / CONFIG).get("vocab_size"))
    if not ids:
        raise ValueError(
            f"{folder} has no tokenizer.json, no vocab.json and no .tiktoken file: copy"
            " one of them there from where the weights come from"
        )
    return {
        name: number
        for name, number in ids.items()
        if isinstance(name, str) and name.startswith("<|") and isinstance(number, int)
    }


def _after(file: Path, vocab: object) -> dict[str, int]:
    """The special tokens that follow a file's own. vocab: of config.json, if any; what
    the others leave of it are languages, 99 or 100."""
    count = len(tiktoken.ranks(file))
    spoken = vocab - count - tiktoken.OTHERS if isinstance(vocab, int) else 99
    if not 0 < spoken <= len(tiktoken.LANGUAGES):
        raise ValueError(
            f"{file} has {count} tokens and config.json says vocab_size {vocab}: they"
            " belong to different models"
        )
    return tiktoken.special(count, spoken)


def of_names(ids: Mapping[str, int], several: bool | None = None) -> Tokens:
    """The same from names. several: whether the model speaks several languages; None
    is by the highest id, 51,864 or more.

    Raises ValueError for names that are not Whisper's.
    """

    def id_of(*candidates: str) -> int:
        for name in candidates:
            if f"<|{name}|>" in ids:
                return ids[f"<|{name}|>"]
        raise ValueError(
            f"no token <|{candidates[0]}|>: this is no tokenizer of Whisper; name the"
            " folder of one of its checkpoints"
        )

    end, start, mute = (
        id_of(name) for name in ("endoftext", "startoftranscript", "notimestamps")
    )
    tasks = {task: id_of(task) for task in TASKS}
    first = ids.get("<|0.00|>", mute + 1)
    if several is None:
        several = first + STEPS + 1 >= MULTILINGUAL
    between = range(start + 1, min(tasks.values()))
    known = [(name, number) for name, number in ids.items() if number in between]
    languages = {
        name[2:-2]: number for name, number in sorted(known, key=lambda pair: pair[1])
    }
    silence = id_of("nospeech", "nocaptions")
    if not end < start < silence < mute < first:
        raise ValueError("its special tokens are not in Whisper's order: copy it again")
    earlier = id_of("startofprev")
    return Tokens(
        end, start, earlier, silence, mute, tasks, languages if several else {}, first
    )


def prompt(
    tokens: Tokens,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = True,
    previous: Sequence[int] = (),
    context: int = CONTEXT,
) -> list[int]:
    """What a text of the model begins with.

    Args:
      tokens: the model's.
      language: code of what is spoken, None for English.
      task: "transcribe", or "translate" into English.
      timestamps: whether the text shall have times.
      previous: tokens of what was said before; the last 223 count, one less than half
        of the context.
      context: tokens that the model can tell apart.

    Raises:
      ValueError: a language or a task that the model does not have.
    """
    if task not in TASKS:
        raise ValueError(f"no task {task!r}: choose one of {', '.join(TASKS)}")
    head = [tokens.start]
    if tokens.languages:
        code = language or "en"
        if code not in tokens.languages:
            known = ", ".join(tokens.languages)
            raise ValueError(f"no language {code!r}: choose one of {known}")
        head += [tokens.languages[code], tokens.tasks[task]]
    elif language not in (None, "en") or task != "transcribe":
        raise ValueError(
            "this model writes down English alone: leave language and task out, or name"
            " a multilingual one"
        )
    if not timestamps:
        head.append(tokens.no_timestamps)
    most = context // 2 - 1
    past = list(previous)[-most:] if most > 0 else []
    return [tokens.previous, *past, *head] if past else head


def seconds(tokens: Tokens, token: int) -> float:
    """The time that a timestamp names. Raises ValueError for another token."""
    if not tokens.first_time <= token <= tokens.first_time + STEPS:
        raise ValueError(f"{token} is no timestamp")
    return round((token - tokens.first_time) * STEP, 2)


def text_ids(tokens: Tokens, ids: Iterable[int]) -> list[int]:
    """The ids that are text: no special tokens, no timestamps."""
    return [int(i) for i in ids if int(i) < tokens.end]
