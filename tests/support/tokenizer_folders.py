"""Folders with a small tokenizer of each kind, as Hugging Face's have them."""

import io
import json
from functools import cache
from pathlib import Path

from sentencepiece import SentencePieceTrainer

from tests.support import text_folders

CORPUS = [
    "the quick brown fox jumps over the lazy dogs tails",
    "it's 2024 we'll see a b c d 678 90 and\tthe rest",
    "ein zwei drei vier größer é <tag> {x} 漢字",
] * 50


@cache
def pieces(kind: str, order: str, **options) -> bytes:
    """Returns a SentencePiece model. order: the control pieces, such as "unk bos
    eos"."""
    ids = {f"{name}_id": -1 for name in ("unk", "bos", "eos", "pad")}
    ids |= {f"{name}_id": i for i, name in enumerate(order.split())}
    written = io.BytesIO()
    asked = dict(vocab_size=400, hard_vocab_limit=False, minloglevel=2) | ids
    asked |= {"model_type": kind, "character_coverage": 1.0} | options
    lines = iter(CORPUS)
    SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, num_threads=1, **asked
    )
    return written.getvalue()


AS_IS = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
GEMMA = dict(add_dummy_prefix=False, bos_piece="<bos>", eos_piece="<eos>")
GEMMA |= dict(user_defined_symbols="<start>,<end>,\n\n", byte_fallback=True)


def llama() -> bytes:
    return pieces("bpe", "unk bos eos", byte_fallback=True, split_digits=True, **AS_IS)


def gemma() -> bytes:
    return pieces("bpe", "pad eos bos unk", **AS_IS, **GEMMA)


def t5(byte_fallback: bool = False) -> bytes:
    size = 380 if byte_fallback else 110
    options = dict(byte_fallback=byte_fallback, vocab_size=size)
    return pieces("unigram", "pad eos unk", **options)


def token(content: str, **flags) -> dict:
    names = "lstrip", "rstrip", "normalized", "single_word", "special"
    return {"content": content} | dict.fromkeys(names, False) | flags


def write(folder: Path, **files) -> Path:
    """Writes files that are named with "_" for the last dot: bytes, a text, or an
    object."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        stem, _, suffix = name.rpartition("_")
        if isinstance(value, dict):
            value = json.dumps(value)
        raw = value.encode() if isinstance(value, str) else value
        (folder / f"{stem}.{suffix}").write_bytes(raw)
    return folder


def vocabulary(name: str) -> dict:
    """Returns the files of a small vocabulary, for the class of transformers with this
    name."""
    match name:
        case "LlamaTokenizer" | "PreTrainedTokenizerFast":
            return {"tokenizer_model": llama()}
        case "GemmaTokenizer":
            return {"tokenizer_model": gemma()}
        case "T5Tokenizer":
            return {"spiece_model": t5()}
        case "ByT5Tokenizer":
            return {}
        case "RobertaTokenizer":
            return pairs(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
        case _:
            return pairs()


def pairs(first: tuple[str, ...] = ()) -> dict:
    """Returns vocab.json and merges.txt. first: tokens before all others."""
    tokenizer = text_folders.bpe(CORPUS)
    model = json.loads(tokenizer.to_str())["model"]
    names = [*first, *model["vocab"]]
    merges = [x if isinstance(x, str) else " ".join(x) for x in model["merges"]]
    return {
        "vocab_json": {name: i for i, name in enumerate(names)},
        "merges_txt": "\n".join(["#version: 0.2", *merges, ""]),
    }
