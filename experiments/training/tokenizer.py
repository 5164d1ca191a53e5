"""Trains the subword tokenizers of the bundled models with SentencePiece."""

import hashlib
import io
from collections.abc import Callable, Iterable
from pathlib import Path

import sentencepiece

from specjax.training import storage


def keep(path: Path, make: Callable[[], bytes]) -> sentencepiece.SentencePieceProcessor:
    if not path.exists():
        storage.replace(path, make())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def identity(pieces: sentencepiece.SentencePieceProcessor) -> dict[str, str]:
    """Returns what identifies the tokenizer, for `storage.keep`."""
    model = pieces.serialized_model_proto()
    return {"tokenizer": hashlib.sha256(model).hexdigest()}


def train(documents: Iterable[str], vocab: int) -> bytes:
    """Returns a BPE model that reproduces any text: unknown characters become bytes.

    Only U+2581, its own sign for a space, is decoded as a space. Newlines are pieces.
    Ids: 0 padding, 1 start, 2 end of document.
    """
    ids = dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3)
    kept = dict(add_dummy_prefix=False, remove_extra_whitespaces=False)
    kept |= dict(allow_whitespace_only_pieces=True)
    return _train(documents, vocab, model_type="bpe", **ids, **kept)


def train_t5(documents: Iterable[str], vocab: int) -> bytes:
    """Returns a unigram model like T5's: a word begins with a space, and several spaces
    become one.

    Unknown characters become bytes, newlines are pieces. Ids: 0 padding, 1 end.
    """
    ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return _train(documents, vocab, model_type="unigram", **ids)


def _train(documents: Iterable[str], vocab: int, **options) -> bytes:
    lines, model = (x for text in documents for x in text.split("\n")), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=filter(None, lines),
        model_writer=model,
        vocab_size=vocab,
        user_defined_symbols=["\n"],
        normalization_rule_name="identity",
        split_digits=True,
        byte_fallback=True,
        character_coverage=1.0,
        max_sentence_length=20_000,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()
