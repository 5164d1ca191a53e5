"""Byte-level pairs: `vocab.json` and `merges.txt`, split in the way that the folder's
class does."""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from specjax.tokenizers import huggingface
from specjax.tokenizers.folder import END, Coder, Special, TokenizerConfig

MERGES = "merges.txt"


class Split(NamedTuple):
    """The way in which a text is split before its bytes are merged.

    patterns: each splits further what those before it left; () is GPT-2's. composed:
    whether characters are composed first.
    """

    patterns: tuple[str, ...] = ()
    composed: bool = False

    def apply(self, library: ModuleType, backend: Any, *, spaced: bool) -> None:
        """Makes a backend split texts in this way, and join them again. spaced: whether
        a space is put before a text."""
        place = library.pre_tokenizers
        steps: list[Any] = []
        for pattern in self.patterns:
            steps.append(place.Split(library.Regex(pattern), behavior="isolated"))
        usual = dict(add_prefix_space=spaced, use_regex=not self.patterns)
        backend.pre_tokenizer = place.Sequence([*steps, place.ByteLevel(**usual)])
        backend.decoder = library.decoders.ByteLevel()
        if self.composed:
            backend.normalizer = library.normalizers.NFC()


# The split of GPT-2: contractions, letters, digits, signs, spaces.
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The split of Qwen: contractions; letters with a sign before them; digits one by one;
# signs; line ends; spaces except the last before a word. Llama 3 takes up to three
# digits at a time.
CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2, LLAMA3 = Split(), Split((CUT % "{1,3}",))
QWEN2 = Split((CUT % "",), composed=True)
SPLITS = {
    None: GPT2,  # nothing says
    "GPT2Tokenizer": GPT2,
    "RobertaTokenizer": GPT2,
    "WhisperTokenizer": GPT2,
    "Qwen2Tokenizer": QWEN2,
}


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads a tokenizer. Raises ValueError as `huggingface.read` does, where
    `merges.txt` is missing, and for an unknown class."""
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
        raise ValueError(f"{file} and {MERGES} are not a tokenizer: {error}") from None
    spaced = bool(config.fields.get("add_prefix_space"))
    split.apply(library, backend, spaced=spaced)
    huggingface.extend(backend, config, library=library, file=file, extra=config.older)
    if config.kind is None and END in vocab:
        backend.add_special_tokens([END])
    if (
        config.kind == "Qwen2Tokenizer"
    ):  # the class, not the folder, says how to find them
        listed = (*config.named.values(), *(config.extra or config.older))
        backend.add_special_tokens([value["content"] for value in listed])
    if config.kind == "RobertaTokenizer":
        names = (config.named[f"{x}_token"]["content"] for x in ("cls", "sep"))
        first, last = ([(name, backend.token_to_id(name))] for name in names)
        huggingface.set_around(library, backend, first=first, last=last)
    return huggingface.make_coder(backend, special)
