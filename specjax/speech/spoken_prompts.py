"""Recordings as prompts of the commands that measure, audit and compare rounding.

A line of --data is {"audio": "file.flac"}, with an optional language and task; the file
is looked for beside the data. The features lie in a table beside the weights, and the
input of a prompt is its row there, so that any code which decodes prompts also decodes
recordings. The target encodes as part of decoding, as usual; a draft with the same
encoder reads its states. Axes: N recordings, F frames, M bands, S states of the
encoder, E features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.checkpoints import Pretrained
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftSource
from specjax.models.constrained import constrained
from specjax.prompts import Prompts, text_files
from specjax.prompts.fields import parse, quote
from specjax.speech import audio, decoding, logmel, rules, tokens
from specjax.speech.pair import Listeners, load_pair
from specjax.types import Encoded, Features, Model, Prompt

Pair = tuple[Pretrained, DraftSource]
FIELDS = ("audio", "language", "task")
FORM = 'write {"audio": file}, and optionally "language" and "task"'


def is_whisper(model: Pretrained | None) -> bool:
    """Returns whether a target or a draft is a Whisper, whose prompts are
    recordings."""
    return model is not None and model.listens


def read(path: str | Path, pair: Pair) -> tuple[Pair, Prompts]:
    """Returns a pair that reads the recordings of a file of JSON lines, and the
    prompts.

    Raises ValueError naming the path, the line and the fix, OSError for a file that
    cannot be read."""
    lines, numbers = [], []
    for number, line in text_files.numbered_lines(path):
        numbers.append(f"{path}, line {number}")
        lines.append(_parse_line(line, numbers[-1]))
    if not lines:
        raise ValueError(f'{path} is empty: write {{"audio": file}}, one per line')
    return from_list(lines, pair, Path(path).parent, numbers)


def from_list(
    lines: Sequence[dict[str, Any]],
    pair: Pair,
    folder: Path = Path(),
    names: Sequence[str] = (),
) -> tuple[Pair, Prompts]:
    """Returns the same for lines in a list. names: those of the lines, for error
    messages."""
    target, draft = pair
    if not is_whisper(draft.pretrained):
        raise ValueError(
            f"{draft.name} reads no recordings: name a Whisper with the same tokens as"
            " the draft"
        )
    both = load_pair(target, draft.pretrained)
    heads, sounds = [], []
    for i, line in enumerate(lines):
        try:
            heads.append(make_head(line, both))
            sounds.append(frames(line, both, folder))
        except ValueError as error:
            place = names[i] if names else f"prompt {i}"
            raise ValueError(f"{place}: {error}") from None
    most = both.config.vocab
    if len(lines) > most:
        raise ValueError(f"{len(lines)} recordings: give at most {most} at once")
    inputs = [[i] for i in range(len(lines))]
    prompts = Prompts(heads, inputs, (both.tokens.end,))
    return use_table(pair, both, jnp.asarray(np.stack(sounds))), prompts


def _parse_line(line: bytes, name: str) -> dict[str, Any]:
    try:
        fields = parse(line)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if "audio" not in fields or not fields.keys() <= {*FIELDS}:
        raise ValueError(f"{name}: {FORM}; got {quote(fields)}")
    return fields


def make_head(line: dict[str, Any], pair: Listeners) -> list[int]:
    """Returns the prompt of one recording, without timestamps."""
    language, task = line.get("language"), line.get("task")
    return tokens.prompt(pair.tokens, language, task, timestamps=False)


def frames(line: dict[str, Any], pair: Listeners, folder: Path) -> np.ndarray:
    """Returns the features of one recording, [F, M]. Raises ValueError for a missing
    file, or one that is too long."""
    file, config = line["audio"], pair.config
    if not isinstance(file, str):
        raise ValueError(f"audio must be the name of a file; got {quote(file)}")
    samples = audio.read(folder / file).samples
    most = config.frames * logmel.HOP
    if len(samples) > most:
        raise ValueError(
            f"{file} has {len(samples) / logmel.RATE:.1f} s and {pair.target.name}"
            f" reads {most / logmel.RATE:g} s at once: cut it, or use `transcribe`"
        )
    return logmel.features(samples, config.bands, config.frames)


def use_table(pair: Pair, both: Listeners, sounds: Array) -> Pair:
    """Returns the pair with models whose prompts name rows of `sounds` [N, F, M]."""
    target, draft = both.target, both.draft
    assert draft is not None
    ruled = rules.build(both.tokens, both.limits, both.config.vocab, False)

    def with_table(model: Pretrained, kind: type, table: Array) -> Pretrained:
        changed = constrained(from_table(model.model, kind, table), ruled)
        params = {"model": model.params, "heard": table}
        return model._replace(model=changed, params=params)

    if not both.shared:
        heard = with_table(draft, Features, sounds)
    else:
        listen = decoding.encoder(both.config)
        states = [listen(target.params, sound[None])[0] for sound in sounds]
        heard = with_table(draft, Encoded, jnp.stack(states))
    # No configuration builds the model that reads the table.
    source = model_source(heard._replace(name=pair[1].name, config=None))
    source = source._replace(files=pair[1].files, pretrained=pair[1].pretrained)
    return with_table(target, Features, sounds), source


def from_table(model: Model, kind: type, table: Array) -> Model:
    """Returns the same model, which looks up its features in a table, by the one id of
    a prompt's input.

    kind: the kind of the rows of `table`, `Features` or `Encoded`."""

    def sound(heard: Array, prompt: Prompt) -> Features | Encoded:
        return kind(heard[prompt.inputs[0][:, 0]])

    shape = jax.ShapeDtypeStruct(table.shape, table.dtype)
    shapes = {"model": model.shapes, "heard": shape}
    return decoding.with_inputs(model, sound)._replace(shapes=shapes, reads=())
