"""Byte-level pairs: `vocab.json` and `merges.txt`, split as the folder's class does."""

from pathlib import Path
from types import ModuleType
from typing import Any

from specjax.tokenizers import huggingface
from specjax.tokenizers.folder import END, Coder, Special, TokenizerConfig

MERGES = "merges.txt"
# How Qwen cuts a text before merging: contractions; letters with a sign before them;
# digits one by one; signs; line ends; spaces but for the last before a word. Llama 3
# differs in that it takes up to three digits.
DIGIT = r"\p{N}"
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    rf"|{DIGIT}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Raises ValueError as `huggingface.read`, without `merges.txt`, and for a class
    that is not known."""
    library, merges = huggingface.tokenizers(file), file.with_name(MERGES)
    if not merges.is_file():
        raise ValueError(f"{merges} is missing: {file.name} means nothing without it")
    split = SPLITS.get(config.kind)
    if split is None:
        raise ValueError(
            f"{file.parent} names tokenizer_class {config.kind}, and how that splits"
            f" {file.name} is not known ({', '.join(filter(None, SPLITS))} are): put"
            " the tokenizer.json there that AutoTokenizer.save_pretrained writes"
        )
    try:
        vocab, pairs = library.models.BPE.read_file(str(file), str(merges))
        backend = library.Tokenizer(library.models.BPE(vocab, pairs))
    except Exception as error:  # the library raises no class of its own
        raise ValueError(f"{file} and {MERGES} are no tokenizer: {error}") from None
    split(library, backend, bool(config.fields.get("add_prefix_space")))
    backend.decoder = library.decoders.ByteLevel()
    huggingface.extend(library, file, backend, config, config.older)
    if config.kind is None and END in vocab:
        backend.add_special_tokens([END])
    if config.kind == "Qwen2Tokenizer":  # how they are found is not the folder's to say
        listed = (*config.named.values(), *(config.extra or config.older))
        backend.add_special_tokens([value["content"] for value in listed])
    if config.kind == "RobertaTokenizer":
        names = (config.named[f"{x}_token"]["content"] for x in ("cls", "sep"))
        pairs = ([(name, backend.token_to_id(name))] for name in names)
        huggingface.set_around(library, backend, *pairs)
    return huggingface.of_backend(backend, special)


def gpt2(library: ModuleType, backend: Any, spaced: bool) -> None:
    split = library.pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    backend.pre_tokenizer = split


def qwen2(library: ModuleType, backend: Any, spaced: bool) -> None:
    """Unlike GPT-2's: other cuts, and composed characters."""
    backend.normalizer = library.normalizers.NFC()
    place = library.pre_tokenizers
    cut = place.Split(library.Regex(QWEN), behavior="isolated")
    spell = place.ByteLevel(add_prefix_space=spaced, use_regex=False)
    backend.pre_tokenizer = place.Sequence([cut, spell])


SPLITS = {
    None: gpt2,  # nothing says
    "GPT2Tokenizer": gpt2,
    "RobertaTokenizer": gpt2,
    "WhisperTokenizer": gpt2,
    "Qwen2Tokenizer": qwen2,
}
