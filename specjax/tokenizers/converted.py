"""SentencePiece models in folders of Hugging Face, in the way that the folder's class
reads them.

transformers does not run SentencePiece on them: it moves their pieces into its own
tokenizers library, where added tokens are found first. This module does the same.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as formats

from specjax.tokenizers import huggingface
from specjax.tokenizers.folder import (
    GENERIC,
    Coder,
    Special,
    TokenizerConfig,
    extra_ids,
    token,
)

NORMAL, CONTROL, OWN = 1, 3, 4  # kinds of pieces; an OWN one is always one token
UNIGRAM, PAIRS = 1, 2  # kinds of models
SPACE = "\u2581"


def new_model() -> Any:
    """Returns an empty SentencePiece model, whose type the library declares only when
    it is imported."""
    return formats.ModelProto()  # type: ignore[attr-defined]


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads a tokenizer. Raises ValueError as `huggingface.read` does, and for an
    unknown class."""
    library = huggingface.tokenizers(file)
    build = CLASSES.get(config.kind)
    if build is None:
        raise ValueError(
            f"{file.parent} names tokenizer_class {config.kind}, and how that reads"
            f" {file.name} is not known ({', '.join(filter(None, CLASSES))} are): put"
            " the tokenizer.json there that AutoTokenizer.save_pretrained writes"
        )
    model = new_model().FromString(file.read_bytes())
    # Pieces kept free for later get the tokens that the folder gives their ids to.
    names = {piece.piece for piece in model.pieces}
    for number, value in config.added.items():
        if number < len(model.pieces) and value["content"] not in names:
            model.pieces[number].piece = value["content"]
    if build is build_from_model:
        config = _with_model_tokens(model, config)
    backend = build(library, model, config)
    tokens = [piece for piece in model.pieces if piece.type in (CONTROL, OWN)]
    extra = [token(x.piece, special=x.type == CONTROL) for x in tokens]
    extra = [value | {"normalized": False} for value in extra]
    if config.kind == "T5Tokenizer":
        extra += map(token, sentinels(config))
    huggingface.extend(backend, config, library=library, file=file, extra=extra)
    if config.kind == "T5Tokenizer":
        end = config.named["eos_token"]["content"]
        last = [(end, backend.token_to_id(end))]
        huggingface.set_around(library, backend, first=[], last=last)
    return huggingface.make_coder(backend, special)


def _with_model_tokens(model: Any, config: TokenizerConfig) -> TokenizerConfig:
    """Adds the special tokens of the model itself; added tokens are matched in the text
    before any space is put in front of it."""
    trained, named = model.trainer_spec, dict(config.named)
    for name in ("bos", "eos", "unk"):
        known = getattr(trained, f"{name}_id") >= 0
        if known and f"{name}_token" not in config.fields:
            named[f"{name}_token"] = token(getattr(trained, f"{name}_piece"))
    added = config.added
    if model.normalizer_spec.add_dummy_prefix:
        added = {i: value | {"normalized": False} for i, value in added.items()}
    return config._replace(named=named, added=added)


def llama(library: ModuleType, model: Any, config: TokenizerConfig) -> Any:
    """Returns the backend of Llama's class: spaces are marked before the text is split;
    pairs are merged in the order of ids."""
    spaced = config.fields.get("add_prefix_space") is not False
    scheme = "always" if config.fields.get("legacy") else "first"
    backend = library.Tokenizer(_pairs(library, model))
    backend.pre_tokenizer = library.pre_tokenizers.Metaspace(
        prepend_scheme=scheme if spaced else "never", split=False
    )
    backend.decoder = _decoder(library, bytewise=True, stripped=spaced)
    return backend


def gemma(library: ModuleType, model: Any, config: TokenizerConfig) -> Any:
    """Returns the backend of Gemma's class, which adds no space before a text."""
    unknown = config.named["unk_token"]["content"]
    backend = library.Tokenizer(_pairs(library, model, unk_token=unknown))
    backend.normalizer = library.normalizers.Replace(" ", SPACE)
    split = library.pre_tokenizers.Split(" ", "merged_with_previous")
    backend.pre_tokenizer = split
    backend.decoder = _decoder(library, bytewise=True, stripped=False)
    return backend


def t5(library: ModuleType, model: Any, config: TokenizerConfig) -> Any:
    """Returns the backend of T5's class: words are divided at any white space; the
    sentinels follow the pieces."""
    vocab = [(piece.piece, piece.score) for piece in model.pieces]
    vocab += [(name, 0.0) for name in reversed(sentinels(config))]
    backend = library.Tokenizer(library.models.Unigram(vocab, 2, False))
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        backend.normalizer = library.normalizers.Precompiled(charsmap)
    place = library.pre_tokenizers
    backend.pre_tokenizer = place.Sequence([place.WhitespaceSplit(), place.Metaspace()])
    backend.decoder = library.decoders.Metaspace()
    return backend


def sentinels(config: TokenizerConfig) -> list[str]:
    """Returns the names of T5's sentinels, of which <extra_id_0> is the last id."""
    return [f"<extra_id_{i}>" for i in range(extra_ids(config, 100))]


def build_from_model(library: ModuleType, model: Any, config: TokenizerConfig) -> Any:
    """Returns the backend that the SentencePiece model itself describes, for folders
    without a class."""
    trained, normal = model.trainer_spec, model.normalizer_spec
    own = [piece.piece for piece in model.pieces if piece.type == OWN]
    legacy = config.fields.get("legacy", True)
    if trained.model_type == UNIGRAM:
        vocab = [(piece.piece, piece.score) for piece in model.pieces]
        words = library.models.Unigram(vocab, trained.unk_id, trained.byte_fallback)
    else:
        words = library.models.BPE(
            {piece.piece: i for i, piece in enumerate(model.pieces)},
            _pairs_by_score(model),
            unk_token=trained.unk_piece,
            fuse_unk=True,
            byte_fallback=trained.byte_fallback,
            ignore_merges=bool(own),
        )
    backend = library.Tokenizer(words)
    place: Any = library.normalizers
    replace = library.normalizers.Replace
    steps: list[Any] = []
    if normal.precompiled_charsmap:
        steps.append(place.Precompiled(normal.precompiled_charsmap))
    if normal.remove_extra_whitespaces:
        steps.append(replace(library.Regex(r"\A +| +\z"), ""))
        steps.append(replace(library.Regex(" {2,}"), " "))
    if normal.escape_whitespaces:
        steps.append(replace(" ", SPACE))
    if normal.add_dummy_prefix and legacy:  # else one that is there already would do
        steps.append(replace(library.Regex(rf"\A{SPACE}"), 2 * SPACE))
    backend.normalizer = place.Sequence(steps)
    place, steps = library.pre_tokenizers, []
    if normal.add_dummy_prefix:
        scheme = "always" if legacy else "first"
        steps.append(place.Metaspace(prepend_scheme=scheme, split=False))
    if own:
        escaped = map(_escape, sorted(own, key=len, reverse=True))
        cut = library.Regex("|".join(escaped))
        steps.append(place.Split(cut, behavior="isolated"))
    if steps:
        backend.pre_tokenizer = place.Sequence(steps)
    spaced = normal.add_dummy_prefix
    backend.decoder = _decoder(library, trained.byte_fallback, stripped=spaced)
    return backend


def _escape(text: str) -> str:
    return "".join(f"\\x{{{ord(character):X}}}" for character in text)


def _pairs(library: ModuleType, model: Any, **options: Any) -> Any:
    """Returns the merges of byte pairs in the order of ids: every two pieces that
    together are a third."""
    vocab = {piece.piece: i for i, piece in enumerate(model.pieces)}
    merges = [(left, right) for _, left, right in _split_pieces(vocab)]
    options |= {"fuse_unk": True, "byte_fallback": True}
    return library.models.BPE(vocab, merges, **options)


def _pairs_by_score(model: Any) -> list[tuple[str, str]]:
    """Returns the merges of byte pairs of normal pieces, in the order of the scores of
    their results."""
    ids = {x.piece: i for i, x in enumerate(model.pieces) if x.type == NORMAL}
    ranked = sorted(
        (-model.pieces[number].score, number, *halves)
        for number, *halves in _split_pieces(ids)
    )
    return [(left, right) for *_, left, right in ranked]


def _split_pieces(ids: dict[str, int]) -> list[tuple[int, str, str]]:
    """Returns every piece that two other pieces make up, by its id, and those two."""
    return [
        (number, name[:at], name[at:])
        for name, number in ids.items()
        for at in range(1, len(name))
        if name[:at] in ids and name[at:] in ids
    ]


def _decoder(library: ModuleType, bytewise: bool, stripped: bool) -> Any:
    place = library.decoders
    steps = [place.Replace(SPACE, " ")]
    steps += [place.ByteFallback()] if bytewise else []
    steps += [place.Fuse()]
    steps += [place.Strip(" ", 1, 0)] if stripped else []
    return place.Sequence(steps)


CLASSES = {
    None: build_from_model,
    GENERIC: build_from_model,
    "LlamaTokenizer": llama,
    "GemmaTokenizer": gemma,
    "T5Tokenizer": t5,
}
