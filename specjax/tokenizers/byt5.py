"""ByT5's tokenizer, which has no vocabulary: an id for each byte, after three special
ids.

Xue et al. (2022), https://arxiv.org/abs/2105.13626. The folder names only its class, in
`tokenizer_config.json`.
"""

from pathlib import Path

from specjax.tokenizers import huggingface
from specjax.tokenizers.folder import Coder, Special, TokenizerConfig, extra_ids, token

KIND = "ByT5Tokenizer"
FIRST = ("pad_token", "eos_token", "unk_token")  # ids 0, 1 and 2


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads the tokenizer. Raises ValueError for a folder of another class, or without
    the library."""
    if config.kind != KIND:
        raise ValueError(
            f"{file} is not a tokenizer: name a SentencePiece model (.model) or a"
            " tokenizer.json"
        )
    library = huggingface.tokenizers(file)
    stripping = {"lstrip": True, "rstrip": True}  # where the folder says nothing else
    named = {name: stripping | value for name, value in config.named.items()}
    names = [named[name]["content"] for name in FIRST]
    names += [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {name: i for i, name in enumerate(names)}
    backend = library.Tokenizer(library.models.BPE(vocab, [], byte_fallback=True))
    steps = [library.decoders.ByteFallback(), library.decoders.Fuse()]
    backend.decoder = library.decoders.Sequence(steps)
    count = extra_ids(config, 125)
    extra = config.older or [token(f"<extra_id_{i}>") for i in range(count)]
    config = config._replace(named=named)
    huggingface.extend(backend, config, library=library, file=file, extra=extra)
    coder = huggingface.make_coder(backend, special, broken="ignore")
    end = backend.token_to_id(named["eos_token"]["content"])

    def encode(text: str) -> list[int]:
        ids = coder.bare(text)
        return ids if ids[-1:] == [end] else [*ids, end]

    return coder._replace(encode=encode)
