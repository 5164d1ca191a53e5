"""Whisper's special tokens: languages, tasks and times.

A prompt is `<|startoftranscript|>`, a language and a task, optionally after the end of
an earlier text (Radford et al., 2022, Section 2.3); English-only models have the first
alone. The tokens are read from files beside the weights."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax.speech import languages, tiktoken
from specjax.tokenizers.folder import OPENAI, read_json
from specjax.tokenizers.folder import read as described

STEP = 0.02  # seconds between two timestamps
STEPS = 1500  # of a window of 30 s
CONTEXT = 448  # tokens of a text with its prompt
TASKS = ("transcribe", "translate")
MULTILINGUAL = 51865  # ids, and more; an English-only model has one less
GENERATION, CONFIG = "generation_config.json", "config.json"
FORCED = "forced_decoder_ids"  # pairs of a place in the prompt and an id
ENGLISH = (
    "this model transcribes English only: leave language and task out, or name a"
    " multilingual model"
)


class Tokens(NamedTuple):
    """The ids that are not text, and the defaults of a prompt.

    end: `<|endoftext|>`. start: `<|startoftranscript|>`. previous: `<|startofprev|>`,
    before an earlier text. no_speech, no_timestamps. tasks: the ids of `TASKS`.
    languages: code -> id, none in an English-only model. first_time: `<|0.00|>`; each
    of the next 1500 is 0.02 s later. Text is below `end`, and after the last time where
    a fine-tune has added words. language, task: those that a checkpoint was tuned for,
    by its own files; None where they say nothing."""

    end: int
    start: int
    previous: int
    no_speech: int
    no_timestamps: int
    tasks: Mapping[str, int]
    languages: Mapping[str, int]
    first_time: int
    language: str | None = None
    task: str | None = None


def is_time(tokens: Tokens, ids: Any) -> Any:
    """Returns whether ids are timestamps: a bool for a number, an array for an
    array."""
    return (ids >= tokens.first_time) & (ids <= tokens.first_time + STEPS)


def is_text(tokens: Tokens, ids: Any) -> Any:
    """Returns whether ids are text, including added words; for the types see
    `is_time`."""
    return (ids < tokens.end) | (ids > tokens.first_time + STEPS)


def read(folder: str | Path) -> Tokens:
    """Returns the special tokens of a checkpoint's folder.

    They come from `tokenizer.json`, else `vocab.json` with `added_tokens.json`, else a
    file `*.tiktoken`. Whether the model has one language follows from
    generation_config.json or the number of ids in config.json; its defaults are those
    of `set_defaults`. Raises ValueError for a missing file, or one that is not
    Whisper's.
    """
    folder = Path(folder)
    ids = names(folder)
    generation, config = read_json(folder / GENERATION), read_json(folder / CONFIG)
    several = generation.get("is_multilingual")
    if not isinstance(several, bool):
        count = config.get("vocab_size")
        several = count >= MULTILINGUAL if isinstance(count, int) else None
    try:
        tokens = make_tokens(ids, several)
        return set_defaults(tokens, generation, config) if tokens.languages else tokens
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def set_defaults(tokens: Tokens, generation: Mapping, config: Mapping) -> Tokens:
    """Returns the tokens with the language and the task of a fine-tuned model as
    defaults.

    They are `language` and `task` of generation_config.json, else the ids that its
    forced_decoder_ids, or those of config.json, name at places 1 and 2."""
    spoken, task = generation.get("language"), generation.get("task")
    if spoken is None and task is None:
        forced = generation.get(FORCED)
        forced = config.get(FORCED) if forced is None else forced
        pairs = forced if isinstance(forced, list) else ()
        ids = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2]
        spoken = next((x for x, i in tokens.languages.items() if i in ids), None)
        task = next((x for x, i in tokens.tasks.items() if i in ids), None)
    if task is not None and task not in TASKS:
        raise ValueError(
            f"{GENERATION} names the task {task!r}: write one of {', '.join(TASKS)}"
        )
    if spoken is not None:
        if not isinstance(spoken, str):
            raise ValueError(
                f'{GENERATION}: language is {spoken!r}: write a code, such as "de"'
            )
        spoken = languages.code(spoken, tokens.languages)
    return tokens._replace(language=spoken, task=task)


def names(folder: Path) -> dict[str, int]:
    """Returns the special tokens of a folder's tokenizer by name, `<|...|>`."""
    fields = read_json(folder / "tokenizer.json")
    added = fields.get("added_tokens")
    pairs = [entry for entry in added or () if isinstance(entry, dict)]
    ids = {entry.get("content"): entry.get("id") for entry in pairs}
    if not fields:
        more = described(folder).added.items()
        ids = read_json(folder / "vocab.json") | {x["content"]: i for i, x in more}
    file = next(iter(sorted(folder.glob(OPENAI))), None)
    if not ids and file is not None:
        return _tiktoken_ids(file, read_json(folder / CONFIG).get("vocab_size"))
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


def _tiktoken_ids(file: Path, vocab: object) -> dict[str, int]:
    """Returns the special tokens that follow those of a tiktoken file."""
    count = len(tiktoken.read_ranks(file))
    spoken = vocab - count - tiktoken.OTHERS if isinstance(vocab, int) else 99
    if not 0 < spoken <= len(tiktoken.LANGUAGES):
        raise ValueError(
            f"{file} has {count} tokens and config.json says vocab_size {vocab}: they"
            " belong to different models"
        )
    return tiktoken.special_ids(count, spoken)


def make_tokens(ids: Mapping[str, int], several: bool | None = None) -> Tokens:
    """Returns the special tokens, given the ids by name.

    several: whether the model has several languages; None decides by the highest id,
    51,864 or more. Raises ValueError for names that are not Whisper's."""

    def special_id(*candidates: str) -> int:
        for name in candidates:
            if f"<|{name}|>" in ids:
                return ids[f"<|{name}|>"]
        raise ValueError(
            f"no token <|{candidates[0]}|>: this is not a tokenizer of Whisper; name"
            " the folder of one of its checkpoints"
        )

    names = "endoftext", "startoftranscript", "notimestamps"
    end, start, mute = map(special_id, names)
    tasks = {task: special_id(task) for task in TASKS}
    first = ids.get("<|0.00|>", mute + 1)
    if several is None:
        several = first + STEPS + 1 >= MULTILINGUAL
    between = range(start + 1, min(tasks.values()))
    known = [(name, number) for name, number in ids.items() if number in between]
    languages = {
        name[2:-2]: number for name, number in sorted(known, key=lambda pair: pair[1])
    }
    silence = special_id("nospeech", "nocaptions")
    if not end < start < silence < mute < first:
        raise ValueError("its special tokens are not in Whisper's order: copy it again")
    return Tokens(
        end=end,
        start=start,
        previous=special_id("startofprev"),
        no_speech=silence,
        no_timestamps=mute,
        tasks=tasks,
        languages=languages if several else {},
        first_time=first,
    )


def prompt(
    tokens: Tokens,
    language: str | None = None,
    task: str | None = None,
    timestamps: bool = True,
    *,
    previous: Sequence[int] = (),
    context: int = CONTEXT,
) -> list[int]:
    """Returns the tokens that a text of the model begins with.

    Args:
      tokens: the model's.
      language: code or name of the spoken language, None for the model's own, else
        English.
      task: "transcribe", or "translate" into English; None for the model's own, else
        the first.
      timestamps: whether the text has times.
      previous: tokens of an earlier text; the last 223 count, see `prompt_limit`.
      context: the number of positions of the model.

    Raises:
      ValueError: a language or a task that the model does not have.
    """
    task = task or tokens.task or TASKS[0]
    if task not in TASKS:
        raise ValueError(f"no task {task!r}: choose one of {', '.join(TASKS)}")
    head, spoken = [tokens.start], code(tokens, language)
    if tokens.languages:
        head += [tokens.languages[spoken or "en"], tokens.tasks[task]]
    elif task != TASKS[0]:
        raise ValueError(ENGLISH)
    if not timestamps:
        head.append(tokens.no_timestamps)
    most = prompt_limit(context)
    past = list(previous)[-most:] if most > 0 else []
    return [tokens.previous, *past, *head] if past else head


def prompt_limit(context: int) -> int:
    """Returns how many tokens of earlier text a prompt may have: one less than half of
    the context."""
    return context // 2 - 1


def codes(
    tokens: Tokens, language: str | Sequence[str] | None, count: int
) -> list[str | None]:
    """Returns `code` for each of `count` recordings, from one language for all or one
    for each."""
    if language is None or isinstance(language, str):
        return [code(tokens, language)] * count
    if len(language) != count:
        raise ValueError(
            f"{len(language)} languages for {count} recordings: name one for each, or"
            " one for all"
        )
    return [code(tokens, each) for each in language]


def code(tokens: Tokens, language: str | None) -> str | None:
    """Returns the code of a language, given as code or name.

    It is None where no language is given and the model has no default. Raises
    ValueError for a language that the model does not have."""
    if language is None:
        return tokens.language
    try:
        return languages.code(language, tokens.languages or ("en",))
    except ValueError:
        if tokens.languages:
            raise
        raise ValueError(ENGLISH) from None


def text_ids(tokens: Tokens, ids: Iterable[int]) -> list[int]:
    """Returns the ids that are text, without special tokens and timestamps."""
    return [int(i) for i in ids if is_text(tokens, int(i))]
