"""Trains the subword tokenizer of the bundled models with SentencePiece."""

import io
from collections.abc import Iterable

import sentencepiece


def train(documents: Iterable[str], vocab: int) -> bytes:
    """A BPE model that gives text back unchanged: unknown characters become bytes.

    Only U+2581, its own sign for a space, comes back as a space. Newlines are pieces.
    Ids: 0 padding, 1 start, 2 end of document.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(
            line for text in documents for line in text.split("\n") if line
        ),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        user_defined_symbols=["\n"],
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        byte_fallback=True,
        character_coverage=1.0,
        max_sentence_length=20_000,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
