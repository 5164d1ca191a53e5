"""The tokenizer in a GGUF file, with the results of llama.cpp (extra `gguf`).

Byte-level pairs are split by the file's `tokenizer.ggml.pre`; pieces of SentencePiece
are merged by their scores. Both run in the tokenizers library. Where a file lacks a
key, llama.cpp's default is taken (src/llama-vocab.cpp).
"""

import reprlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from specjax.tokenizers import converted, huggingface, merges
from specjax.tokenizers.folder import GENERIC, Coder, Special, TokenizerConfig, token
from specjax.tokenizers.gguf_file import Contents, open_file
from specjax.tokenizers.gguf_vocabulary import (
    AT,
    BYTE,
    CONTROL,
    NAMED,
    NORMAL,
    OWN,
    PAIRS,
    PIECES,
    UNKNOWN,
    read_list,
    read_value,
    vocabulary,
)
from specjax.tokenizers.merges import Split

TEMPLATE = "tokenizer.chat_template"


class Cut(NamedTuple):
    """The way in which texts are split before their bytes are merged.

    whole: whether a word that is a token stays one, whatever the merges say. starts:
    whether a text starts with BOS where the file does not say.
    """

    split: Split
    whole: bool = False
    starts: bool = False


# By `tokenizer.ggml.pre`. llama.cpp composes no characters, whatever a model's own
# tokenizer does.
DIGITS = Split((r"\p{N}", merges.WORDS))
DEFAULT = Split(
    (r"[\p{P}\$\+<=>\^~\|]+", merges.WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
)
LIKE = {
    "default": Cut(DEFAULT),
    "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum"
    " modern-bert mpt olmo jais trillion granite-docling exaone4": Cut(merges.GPT2),
    "smollm codeshell exaone minerva-7b mellum2": Cut(DIGITS),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    " jina-v5-nano": Cut(merges.LLAMA3, whole=True, starts=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open megrez": Cut(
        merges.QWEN2._replace(composed=False)
    ),
}
CUTS = {name: cut for names, cut in LIKE.items() for name in names.split()}


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads a tokenizer.

    Raises ValueError, with the name of the kind, for a file without a tokenizer or with
    one of an unknown kind."""
    held = open_file(file)
    kind = held.fields.get(f"{AT}model")
    known = {PAIRS: byte_pairs, PIECES: scored_pieces}
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(
            f"{file}: {AT}model is {reprlib.repr(kind)}; known are {', '.join(known)}:"
            " name a tokenizer by --tokenizer or specjax.load(name, tokenizer=FILE)"
        )
    for name in ("tokens", "merges") if kind == PAIRS else ("tokens",):
        if AT + name not in held.fields:
            raise ValueError(f"{file} lacks {AT}{name}: copy or download it again")
        read_list(held, AT + name, str)
    library = huggingface.tokenizers(file)
    backend = known[kind](library, held, config)
    backend.add_tokens(huggingface.added_tokens(library, config._replace(named={})))

    def added_token(name: str) -> list[tuple[str, int]]:
        if (
            not config.fields[f"add_{name}_token"]
            or f"{name}_token" not in config.named
        ):
            return []
        text = config.named[f"{name}_token"]["content"]
        return [(text, backend.token_to_id(text))]

    first, last = added_token("bos"), added_token("eos")
    huggingface.set_around(library, backend, first=first, last=last)
    start = -1 if special.start is None else special.start
    if not config.added.get(start, {}).get("special"):
        special = special._replace(start=None)  # a word that llama.cpp starts with
    return huggingface.make_coder(backend, special)


def config(held: Contents) -> TokenizerConfig:
    """Returns the contents of the files that would describe this tokenizer in a
    folder."""
    texts, kinds, ids, _ = vocabulary(held)
    named = {
        f"{name}_token": token(texts[ids[name]])
        for name in NAMED
        if name in ids and ids[name] < len(texts)
    }
    added = {
        i: token(texts[i], special=kind != OWN) | {"normalized": False}
        for i, kind in enumerate(kinds)
        if kind in (UNKNOWN, CONTROL, OWN)
    }
    spaced = held.fields.get(f"{AT}model") == PIECES
    cut = CUTS.get(_pre_tokenizer(held))
    starts = spaced or (cut is not None and cut.starts)
    fields = {
        "add_bos_token": read_value(held, f"{AT}add_bos_token", bool, starts),
        "add_eos_token": read_value(held, f"{AT}add_eos_token", bool, False),
        "add_prefix_space": read_value(held, f"{AT}add_space_prefix", bool, spaced),
        "chat_template": _templates(held),
    }
    return TokenizerConfig(
        GENERIC, fields, named, extra=None, older=[], added=added, described=True
    )


def _templates(held: Contents) -> dict[str, str]:
    """Returns the templates of conversations by their names."""
    at = f"{TEMPLATE}."
    keys = {x.removeprefix(at): x for x in held.fields if x.startswith(at)}
    keys["default"] = TEMPLATE
    named = {name: read_value(held, key, str, "") for name, key in keys.items()}
    # Some name a template of llama.cpp's own, such as "chatml".
    return {name: text for name, text in named.items() if "{" in text}


def without_around(text: str, config: TokenizerConfig) -> str:
    """Removes from a conversation the start and the end that encoding adds: a template
    may have written them too, and llama.cpp allows each only once."""
    if config.fields["add_bos_token"] and "bos_token" in config.named:
        text = text.removeprefix(config.named["bos_token"]["content"])
    if config.fields["add_eos_token"] and "eos_token" in config.named:
        text = text.removesuffix(config.named["eos_token"]["content"])
    return text


def _pre_tokenizer(held: Contents) -> str:
    return read_value(held, f"{AT}pre", str, "default") or "default"


def byte_pairs(library: ModuleType, held: Contents, config: TokenizerConfig) -> Any:
    """Returns the backend of byte-level pairs, like GPT-2's, without special tokens.
    Raises ValueError for an unknown way of splitting."""
    del config
    pre = _pre_tokenizer(held)
    if pre not in CUTS:
        raise ValueError(
            f"{held.path}: {AT}pre is {reprlib.repr(pre)}, and how that cuts a text is"
            f" not known ({', '.join(CUTS)} are): name a tokenizer by --tokenizer"
        )
    vocab = {text: i for i, text in enumerate(vocabulary(held).texts)}
    pairs = [tuple(pair.split(" ", 1)) for pair in held.fields[f"{AT}merges"]]
    words = library.models.BPE(vocab, pairs, ignore_merges=CUTS[pre].whole)
    backend = library.Tokenizer(words)
    CUTS[pre].split.apply(library, backend, spaced=False)
    return backend


def scored_pieces(library: ModuleType, held: Contents, config: TokenizerConfig) -> Any:
    """Returns the backend of pieces with scores, as in a SentencePiece model, without
    special tokens. Raises ValueError for too few scores."""
    texts, kinds, _, _ = vocabulary(held)
    scores = read_list(held, f"{AT}scores", float, int) or [0.0] * len(texts)
    if len(scores) < len(texts):
        raise ValueError(f"{held.path}: {AT}scores is shorter than {AT}tokens")
    model = converted.new_model()
    for text, score, kind in zip(texts, scores, kinds, strict=False):
        kind = kind if NORMAL <= kind <= BYTE else NORMAL
        model.pieces.add(piece=text, score=score, type=kind)
    trained, normal = model.trainer_spec, model.normalizer_spec
    trained.model_type, trained.byte_fallback = converted.PAIRS, "<0x0A>" in texts
    unknown = [x.piece for x in model.pieces if x.type == UNKNOWN]
    trained.unk_piece = next(iter(unknown), "<unk>")
    normal.add_dummy_prefix = config.fields["add_prefix_space"]
    normal.remove_extra_whitespaces = False
    return converted.build_from_model(library, model, config)
