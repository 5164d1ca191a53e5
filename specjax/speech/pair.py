"""A pair of Whispers, a target and perhaps a draft, with their tokens and limits."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from specjax import drafts, pretrained
from specjax.checkpoints import openai_whisper
from specjax.checkpoints import reduced_vocab as reduced_vocab_files
from specjax.drafts.models import model_source
from specjax.drafts.placement import place_pair
from specjax.models import reduced_vocab, whisper
from specjax.pretrained import Pretrained
from specjax.speech import limits as limited
from specjax.speech import tiktoken
from specjax.speech import tokens as special
from specjax.speech.limits import Limits
from specjax.speech.tokens import Tokens
from specjax.tokenizers import Tokenizer
from specjax.tokenizers.folder import OPENAI, Coder


class Listeners(NamedTuple):
    """A pair of Whispers: a target, perhaps a draft, and what both need to transcribe.

    draft: None decodes with the target alone. tokens, limits: the target's special
    tokens, and the ids that it never writes. read: ids of text -> text. write: text ->
    its ids, with a space before it and no special ids. shared: both models use the same
    encoder, so its states serve both, from one copy of its weights."""

    target: Pretrained
    draft: Pretrained | None
    tokens: Tokens
    limits: Limits
    read: Callable[[Iterable[int]], str]
    write: Callable[[str], list[int]]
    shared: bool

    @property
    def config(self) -> whisper.Config:
        """Returns the sizes of the target."""
        return whisper_config(self.target)


def load_pair(
    target: str | Path | Pretrained,
    draft: str | Path | Pretrained | None,
    dtype: str = "float32",
) -> Listeners:
    """Returns the pair with these two names.

    draft: also a file of `checkpoints.reduced_vocab`, or early_exit:1, the target's own
    first layers. Raises ValueError, naming the fix, for models that are not Whispers,
    that differ in tokens or windows, or without a tokenizer beside them."""
    large = _load_whisper(target, dtype)
    place = folder(large)
    tokens, coder = special.read(place), tokenizer(large, place)
    limits = limits_of(large, place, tokens, coder.encode)

    def write(text: str) -> list[int]:
        return special.text_ids(tokens, coder.encode(f" {text.strip()}"))

    pair = Listeners(
        target=large,
        draft=None,
        tokens=tokens,
        limits=limits,
        read=coder.decode,
        write=write,
        shared=False,
    )
    if draft is None:
        return pair
    small = _load_draft(draft, large, dtype)
    if reduced_vocab.is_reduced(small.params):
        return pair._replace(draft=small, shared=True)
    check(large, small, tokens)
    shared = whisper.same_encoder(large.params, small.params)
    if shared:
        once = small.params | {"encoder": large.params["encoder"]}
        small = small._replace(params=once)
    return pair._replace(draft=small, shared=shared)


def encode_prompt(pair: Listeners, text: str, most: int) -> tuple[int, ...]:
    """Returns the tokens of a text that precedes the recording, at most `most` of them.

    Raises ValueError for an empty text, a longer one, or one that these tokens cannot
    write."""
    ids = pair.write(text)
    if not text.strip():
        raise ValueError("the prompt is empty: write a text, or leave the prompt out")
    if (decoded := pair.read(ids).strip()) != text.strip():
        raise ValueError(
            f"{pair.target.name} reads the prompt as {decoded[:60]!r}: write it in the"
            " characters of its tokens, without special ones"
        )
    if len(ids) > most:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, and only the last {most} can be used,"
            f" from {pair.read(ids[-most:]).strip()[:30]!r} on: shorten it to these"
        )
    return tuple(ids)


def place(pair: Listeners) -> Listeners:
    """Returns the pair on the mesh in use, with one copy of an encoder that both
    share."""
    target, draft = pair[:2]
    target, source = place_pair(target, draft and model_source(draft))
    if draft is not None and source is not None:
        params = source.params
        if pair.shared and "encoder" in params:
            params = params | {"encoder": target.params["encoder"]}
        draft = draft._replace(params=params)
    return pair._replace(target=target, draft=draft)


def check(target: Pretrained, draft: Pretrained, tokens: Tokens) -> None:
    """Raises ValueError for a draft with other tokens or other windows than the
    target."""
    for name in ("vocab", "bands", "frames"):
        sizes = (getattr(side.config, name) for side in (target, draft))
        own, other = sizes
        if own != other:
            raise ValueError(
                f"{target.name} has {name} = {own} and {draft.name} {other}: take a"
                " draft that was distilled from this target, of the same version of"
                " Whisper"
            )
    place = folder(draft)
    try:
        ids = special.names(place)
    except ValueError:  # no tokenizer: the target's counts
        return
    others = special.read(place)._replace(language=tokens.language, task=tokens.task)
    if ids and others != tokens:
        raise ValueError(
            f"{draft.name} has other special tokens than {target.name}: take a draft"
            " of the same version of Whisper"
        )


def folder(model: Pretrained) -> Path:
    """Returns the folder of a model's tokenizer, which describes its tokens and
    limits."""
    if model.tokenizer_file is not None:
        file = model.tokenizer_file
        return file if file.is_dir() else file.parent
    first = model.files[0]
    return first if first.is_dir() else first.parent


def tokenizer(model: Pretrained, place: Path) -> Coder | Tokenizer:
    """Returns the tokenizer beside the weights, or OpenAI's own."""
    own = next(iter(sorted(place.glob(OPENAI))), None)
    if model.tokenizer_file is None and own is not None:
        return tiktoken.read(own)
    return model.tokenizer


def limits_of(model: Pretrained, place: Path, tokens: Tokens, encode: Any) -> Limits:
    """Returns the ids that a model never writes, by the format of its weights."""
    if model.files[0].suffix == openai_whisper.SUFFIX:
        return limited.openai_limits(tokens, encode)
    return limited.read(place)


def _load_draft(
    draft: str | Path | Pretrained, target: Pretrained, dtype: str
) -> Pretrained:
    """Returns a draft by name: a reduced vocabulary, the target's first layers, or a
    Whisper."""
    if isinstance(draft, Pretrained):
        return _load_whisper(draft, dtype)
    name = str(draft)
    if reduced_vocab_files.find(name) is None and not drafts.is_draft_name(name):
        return _load_whisper(draft, dtype)
    source = drafts.load_draft(name, target)
    if source.pretrained is None or source.law is None:
        raise ValueError(
            f"{name} reads no recordings: name a Whisper, a draft with a reduced"
            " vocabulary, or early_exit:1"
        )
    return source.pretrained


def whisper_config(model: Pretrained) -> whisper.Config:
    """Returns the sizes of a Whisper. Raises ValueError, with the fix, for another
    model."""
    if not isinstance(model.config, whisper.Config):
        raise ValueError(
            f"{model.name} reads no recordings: name a Whisper, such as"
            " openai/whisper-small.en with distil-whisper/distil-small.en"
        )
    return model.config


def _load_whisper(model: str | Path | Pretrained, dtype: str) -> Pretrained:
    loaded = model if isinstance(model, Pretrained) else pretrained.load(model, dtype)
    whisper_config(loaded)
    return loaded
