"""The tokenizer within a GGUF file, as llama.cpp reads it (extra `gguf`).

Byte-level pairs are cut as the file's `tokenizer.ggml.pre` says; pieces of
SentencePiece are merged by their scores. Both run in the tokenizers library.
"""

import reprlib
from pathlib import Path

from specjax.tokenizers import converted, huggingface, merges
from specjax.tokenizers.folder import GENERIC, Coder, Special, TokenizerConfig, token
from specjax.tokenizers.gguf_file import open_file

AT = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
UNKNOWN, CONTROL, OWN, BYTE = 2, 3, 4, 6  # kinds of tokens
NAMES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
# How a text is cut before bytes are merged, by `tokenizer.ggml.pre`.
CUTS = {
    "gpt-2": merges.GPT2,
    "smollm": merges.Split(digits=True),
    "llama-bpe": merges.LLAMA3,
    "qwen2": merges.QWEN2,
}


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Raises ValueError for a file without a tokenizer, or with one of a kind that is
    not known, by its name."""
    fields = open_file(file).fields
    kind = fields.get(f"{AT}model")
    known = {"gpt2": of_pairs, "llama": of_pieces}
    if kind not in known:
        raise ValueError(
            f"{file}: {AT}model is {reprlib.repr(kind)}; known are {', '.join(known)}:"
            " name a tokenizer by --tokenizer or specjax.load(name, tokenizer=FILE)"
        )
    needed = "tokens", "token_type", "merges" if kind == "gpt2" else "scores"
    for name in needed:
        if not isinstance(fields.get(AT + name), list):
            raise ValueError(f"{file} lacks {AT}{name}: copy or download it again")
    return known[kind](file, special, config)


def config(file: Path) -> TokenizerConfig:
    """What a folder's files would say of its tokenizer."""
    fields = open_file(file).fields
    texts, kinds = (fields.get(AT + x, []) for x in ("tokens", "token_type"))
    ids = {x: fields.get(f"{AT}{name}_token_id") for name, x in NAMES.items()}
    named = {
        f"{name}_token": token(texts[i])
        for name, i in ids.items()
        if i is not None and i < len(texts)
    }
    added = {
        i: token(texts[i], kind == CONTROL) | {"normalized": False}
        for i, kind in enumerate(kinds)
        if kind in (CONTROL, OWN)
    }
    spaced = fields.get(f"{AT}model") == "llama"  # what either kind does by itself
    asked = {
        "add_bos_token": fields.get(f"{AT}add_bos_token", spaced),
        "add_eos_token": fields.get(f"{AT}add_eos_token", False),
        "add_prefix_space": fields.get(f"{AT}add_space_prefix", spaced),
        "chat_template": fields.get(TEMPLATE),
    }
    return TokenizerConfig(GENERIC, asked, named, None, [], added, True)


def of_pairs(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Byte-level pairs, as GPT-2's."""
    library, fields = huggingface.tokenizers(file), open_file(file).fields
    pre = fields.get(f"{AT}pre")
    if pre not in CUTS:
        raise ValueError(
            f"{file}: {AT}pre is {reprlib.repr(pre)}, and how that cuts a text is not"
            f" known ({', '.join(CUTS)} are): name a tokenizer by --tokenizer"
        )
    vocab = {text: i for i, text in enumerate(fields[f"{AT}tokens"])}
    pairs = [tuple(pair.split(" ", 1)) for pair in fields[f"{AT}merges"]]
    whole = pre.startswith("llama")  # a word that is a token is not merged to others
    words = library.models.BPE(vocab, pairs, ignore_merges=whole)
    backend = library.Tokenizer(words)
    CUTS[pre].apply(library, backend, config.fields["add_prefix_space"])
    huggingface.extend(library, file, backend, config)
    return huggingface.of_backend(backend, special)


def of_pieces(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Pieces with scores, as a SentencePiece model has them."""
    library, fields = huggingface.tokenizers(file), open_file(file).fields
    model, kinds = converted.formats.ModelProto(), fields[f"{AT}token_type"]
    stored = fields[f"{AT}tokens"], fields[f"{AT}scores"], kinds
    for text, score, kind in zip(*stored, strict=True):
        model.pieces.add(piece=text, score=score, type=kind)
    trained, normal = model.trainer_spec, model.normalizer_spec
    trained.model_type, trained.byte_fallback = converted.PAIRS, BYTE in kinds
    unknown = [x.piece for x in model.pieces if x.type == UNKNOWN]
    trained.unk_piece = next(iter(unknown), "<unk>")
    normal.add_dummy_prefix = config.fields["add_prefix_space"]
    normal.remove_extra_whitespaces = False
    return converted.of_model(library, model, file, special, config)
