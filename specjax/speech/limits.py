"""The tokens that a checkpoint never writes, in every format.

Hugging Face stores lists beside the weights. OpenAI's files have none, because its
decoder derives them from the vocabulary (https://github.com/openai/whisper,
`DecodingTask`)."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax.speech.tokens import CONFIG, GENERATION, Tokens
from specjax.tokenizers.folder import read_json

SUPPRESSED, FIRST = "suppress_tokens", "begin_suppress_tokens"
FIRST_TIME = "max_initial_timestamp_index"
SUPPRESSED_CT2, FIRST_CT2 = "suppress_ids", "suppress_ids_begin"
# What stands in subtitles and is not spoken: as it is, and with a space before it. Of
# notes and accidentals all that begin with their first token.
SYMBOLS = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』']
SYMBOLS += "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
MUSIC = "♩♪♫♬♭♮♯"
BEFORE_A_WORD = " -", " '"  # within a word they are written


class Limits(NamedTuple):
    """The ids that are never written.

    suppressed: at no place; at_first: not as a row's first token either. first_time:
    the latest timestamp that a row may begin with, in steps of 0.02 s, None for any."""

    suppressed: Sequence[int] = ()
    at_first: Sequence[int] = ()
    first_time: int | None = 50


def read(folder: str | Path) -> Limits:
    """Returns the limits of a Hugging Face folder, with the rules of transformers.

    They are those of generation_config.json alone if it exists, else the lists of
    config.json; a list that is absent limits nothing. Raises ValueError for values that
    are not lists of ids."""
    folder = Path(folder)
    if (folder / GENERATION).is_file():
        fields = read_json(folder / GENERATION)
    elif (folder / CONFIG).is_file():
        fields = read_json(folder / CONFIG) | {FIRST_TIME: None}
        if SUPPRESSED_CT2 in fields:  # CTranslate2's, which limits a first time too
            fields[SUPPRESSED] = fields[SUPPRESSED_CT2]
            fields |= {FIRST: fields.get(FIRST_CT2), FIRST_TIME: 50}
    else:
        return Limits()
    never, at_first = (_ids(folder, fields, key) for key in (SUPPRESSED, FIRST))
    latest = fields.get(FIRST_TIME)
    if latest is not None and (type(latest) is not int or latest < 0):
        raise ValueError(
            f"{folder}: {FIRST_TIME} is {latest!r}: write a number of steps of 0.02 s"
        )
    return Limits(never, at_first, latest)


def _ids(folder: Path, fields: Mapping[str, Any], key: str) -> tuple[int, ...]:
    ids = fields.get(key) or []
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise ValueError(
            f"{folder}: {key} is {json.dumps(ids)[:40]}: write a list of ids"
        )
    return tuple(i for i in ids if i >= 0)  # -1 names no token


def openai_limits(tokens: Tokens, encode: Callable[[str], Sequence[int]]) -> Limits:
    """Returns the limits of OpenAI's own decoder.

    Special tokens and symbols that nobody speaks are never written; a text begins with
    a word, within its first second. encode: text -> ids; special ones among them are
    left out."""

    def ids(text: str) -> list[int]:
        return [i for i in encode(text) if i < tokens.end]

    spelled = [form for symbol in SYMBOLS for form in (symbol, f" {symbol}")]
    unspoken = {each[0] for each in map(ids, spelled) if len(each) == 1}
    notes = [form for note in MUSIC for form in (note, f" {note}")]
    unspoken |= {i for form in (*notes, *BEFORE_A_WORD) for i in ids(form)[:1]}
    special = {tokens.start, *range(min(tokens.tasks.values()), tokens.no_speech + 1)}
    return Limits(tuple(sorted(unspoken | special)), (*ids(" "), tokens.end))
