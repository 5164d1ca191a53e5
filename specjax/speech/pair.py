"""A Whisper and perhaps another that drafts for it, with their tokens and limits."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

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

ALONE = "none"  # what a command calls no draft


class Listeners(NamedTuple):
    """draft: None to decode without one. tokens, limits: the target's special tokens,
    and what it never writes. read: ids of text -> text. write: text -> its ids, a space
    before it and nothing special among them. shared: whether both hear by the same
    encoder, whose states then serve both, from one copy of its weights."""

    target: Pretrained
    draft: Pretrained | None
    tokens: Tokens
    limits: Limits
    read: Callable[[Iterable[int]], str]
    write: Callable[[str], list[int]]
    shared: bool


def opened(
    target: str | Path | Pretrained,
    draft: str | Path | Pretrained | None,
    dtype: str = "float32",
) -> Listeners:
    """Reads a pair by its names. Raises ValueError, naming the fix, for models that are
    no Whispers, that do not write the same tokens or hear the same windows, or without
    a tokenizer beside them. draft: also a file of `checkpoints.reduced_vocab`, or
    early_exit:1, the target's own first layers."""
    target = _whisper(target, dtype)
    place = folder(target)
    tokens, coder = special.read(place), tokenizer(target, place)
    limits = limits_of(target, place, tokens, coder.encode)

    def write(text: str) -> list[int]:
        return special.text_ids(tokens, coder.encode(f" {text.strip()}"))

    heard = tokens, limits, coder.decode, write
    if draft is None:
        return Listeners(target, None, *heard, False)
    draft = _drafting(draft, target, dtype)
    if reduced_vocab.is_reduced(draft.params):
        return Listeners(target, draft, *heard, True)
    check(target, draft, tokens)
    shared = whisper.same_encoder(target.params, draft.params)
    if shared:
        once = draft.params | {"encoder": target.params["encoder"]}
        draft = draft._replace(params=once)
    return Listeners(target, draft, *heard, shared)


def said_before(pair: Listeners, text: str, most: int) -> tuple[int, ...]:
    """The tokens of a text that stands for what was spoken before, at most `most`.
    Raises ValueError for none, for more, or for one that these tokens do not write."""
    ids = pair.write(text)
    if not text.strip():
        raise ValueError("the prompt is empty: write what was said before, or none")
    if (again := pair.read(ids).strip()) != text.strip():
        raise ValueError(
            f"{pair.target.name} reads the prompt as {again[:60]!r}: write it in the"
            " characters of its tokens, without special ones"
        )
    if len(ids) > most:
        raise ValueError(
            f"the prompt has {len(ids)} tokens and {most} are kept, the last, from"
            f" {pair.read(ids[-most:]).strip()[:30]!r} on: shorten it to these"
        )
    return tuple(ids)


def placed(pair: Listeners) -> Listeners:
    """Both on the mesh in use, if there is one, and one copy of what both hear by."""
    target, draft = pair[:2]
    target, source = place_pair(target, draft and model_source(draft))
    if draft is not None:
        params = source.params
        if pair.shared and "encoder" in params:
            params = params | {"encoder": target.params["encoder"]}
        draft = draft._replace(params=params)
    return pair._replace(target=target, draft=draft)


def check(target: Pretrained, draft: Pretrained, tokens: Tokens) -> None:
    """Raises ValueError for a draft that writes other tokens or hears other windows."""
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
    own = special.read(place)._replace(language=tokens.language, task=tokens.task)
    if ids and own != tokens:
        raise ValueError(
            f"{draft.name} has other special tokens than {target.name}: take a draft"
            " of the same version of Whisper"
        )


def folder(model: Pretrained) -> Path:
    """Where the tokens and limits of a model are described: its tokenizer's folder."""
    if model.tokenizer_file is not None:
        file = model.tokenizer_file
        return file if file.is_dir() else file.parent
    first = model.files[0]
    return first if first.is_dir() else first.parent


def tokenizer(model: Pretrained, place: Path) -> Coder | Tokenizer:
    """The one beside the weights, or OpenAI's own."""
    own = next(iter(sorted(place.glob(OPENAI))), None)
    if model.tokenizer_file is None and own is not None:
        return tiktoken.read(own)
    return model.tokenizer


def limits_of(model: Pretrained, place: Path, tokens: Tokens, encode) -> Limits:
    """What a model never writes, by the format that its weights are in."""
    if model.files[0].suffix == openai_whisper.SUFFIX:
        return limited.of_openai(tokens, encode)
    return limited.read(place)


def _drafting(
    draft: str | Path | Pretrained, target: Pretrained, dtype: str
) -> Pretrained:
    """A draft by its name: one of some ids, the target's first layers, or a Whisper."""
    if isinstance(draft, Pretrained):
        return _whisper(draft, dtype)
    name = str(draft)
    if reduced_vocab_files.find(name) is None and not drafts.is_draft_name(name):
        return _whisper(draft, dtype)
    source = drafts.load_draft(name, target)
    if source.pretrained is None or source.law is None:
        raise ValueError(
            f"{name} does not listen: name a Whisper, a draft of some of its ids, or"
            " early_exit:1"
        )
    return source.pretrained


def _whisper(model: str | Path | Pretrained, dtype: str) -> Pretrained:
    if not isinstance(model, Pretrained):
        model = pretrained.load(model, dtype)
    if not isinstance(model.config, whisper.Config):
        raise ValueError(
            f"{model.name} reads no speech: name a Whisper, such as"
            " openai/whisper-small.en with distil-whisper/distil-small.en"
        )
    return model
