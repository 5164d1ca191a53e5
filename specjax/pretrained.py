"""Loads a model with its weights and its tokenizer, by any of its names."""

import reprlib
from pathlib import Path
from typing import Any

from specjax import checkpoints, tokenizers, zoo
from specjax.checkpoints import Pretrained, huggingface
from specjax.models import families, int8_cache, pad_vocab
from specjax.tokenizers import gguf_file
from specjax.tokenizers.folder import special_ids


class OtherTokens(ValueError):
    """The error that two models have different tokenizers."""


WINDOW = "window:"  # of a cache, and then how many tokens
MOST = 2**30  # tokens, below which a window is: slots are counted in int32
RENAMED = 0.01  # of a vocabulary's tokens, which a fine-tuned model may call otherwise


def load(
    name: str | Path,
    dtype: str = "float32",
    tokenizer: str | Path | None = None,
    cache: str | None = None,
) -> Pretrained:
    """Returns a pretrained model, ready to decode as target or draft.

    Args:
      name: a bundled model (`specjax.zoo.MODELS`, `T5_MODELS`, `SPEECH_MODELS`,
        `IMAGE_MODELS`); one that `specjax fetch` fetched, such as "smollm2"; a folder
        of Hugging Face (GPT-2, T5, Llama, Mistral, Qwen, Gemma, Whisper) or of
        faster-whisper; a GGUF file (extra `gguf`), whose weights are multiplied out; a
        checkpoint of T5X or its gs:// URL; a .safetensors file of `specjax.zoo.save`;
        an id "org/name" of the Hugging Face hub (extra `hf`).
      dtype: the dtype of weights, activations and cache; any float of numpy or
        bfloat16. Or "int8": large matrices are rounded to whole numbers of eight bits
        with a scale for each output, and all else is float32. What is decoded is then
        the law of the rounded weights: a target of its own, to which drafts make no
        difference.
        "int8_dynamic" also rounds what multiplies these matrices, row by row, to whole
        numbers of sixteen bits, and is faster on a CPU: again a target of its own. Its
        logits depend more on how many tokens a call has (see the guide on measuring).
      tokenizer: a file or folder; None, what lies beside the weights, or the bundled
        one of the same vocabulary.
      cache: "int8" keeps keys and values of a GPT or a Llama in eight bits, and
        "window:128" those of a Llama's last 128 tokens alone, as `with_cache`; None,
        all of them in `dtype`.

    Raises:
      ValueError: there is no such model, or it is damaged, said in one message before
        any weight is read.
    """
    check_cache(cache)
    return with_tokenizer(with_cache(checkpoints.load(name, dtype), cache), tokenizer)


def describe(name: str | Path, dtype: str = "float32") -> Pretrained:
    """Returns the model that `load` returns, without its weights.

    This is enough to read prompts, and to tell which files a model is made of. Raises
    ValueError like `load`.
    """
    return with_tokenizer(checkpoints.describe(name, dtype))


def with_tokenizer(
    model: Pretrained, tokenizer: str | Path | None = None
) -> Pretrained:
    """Returns the same model with the given tokenizer, or the one next to its weights.

    If the weights do not name the ids that begin and end a text, those of the tokenizer
    are used.
    """
    file = Path(tokenizer) if tokenizer is not None else tokenizer_of_weights(model)
    start, ends = model.start, model.ends
    if file is not None and (start is None or not ends):
        first, last = special_ids(file if file.is_dir() else file.parent)
        start = first if start is None else start
        ends = ends or (() if last is None else (last,))
    return model._replace(start=start, ends=ends, tokenizer_file=file)


def use_tokenizer(model: Pretrained, tokenizer: str | Path | None) -> Pretrained:
    """Returns the model with this tokenizer, if one is given.

    The ids around a text stay those of the model.
    """
    if tokenizer is None:
        return model
    return model._replace(tokenizer_file=Path(tokenizer))


def with_cache(model: Pretrained, cache: str | None) -> Pretrained:
    """Returns the same weights with another kind of cache; a target then has its own
    kind, whatever drafts for it.

    "int8": keys and values in eight bits (`models.int8_cache`); where rounding decides,
    a number may become either of two integers, depending on how many tokens a call has.
    "window:128": every layer sees only the last 128 tokens, which a Llama may not have
    been trained for. Raises ValueError for a family that has only one kind of cache,
    and for a window where layers have a narrower one, or one with positions of its own.
    """
    if cache is None:
        return model
    check_cache(cache)
    config: Any = model.required_config
    fields: dict[str, Any] = {"cache": cache}
    if cache.startswith(WINDOW):
        every = tuple(range(getattr(config, families.of(config).layers)))
        fields = {"window": int(cache.removeprefix(WINDOW)), "local": every}
    if not fields.keys() <= {*config._fields}:
        able = (x for x in families.FAMILIES if fields.keys() <= {*x.config._fields})
        needs = " or ".join(family.called for family in able)
        raise ValueError(
            f"{model.name} is a {model.family}, which has no such cache: leave out"
            f" cache={cache!r}, or name {needs}"
        )
    if cache.startswith(WINDOW):
        narrower = config.local and fields["window"] > config.window
        if narrower or config.local_rotation is not None:
            raise ValueError(
                f"{model.name} has windows of {config.window} tokens of its own: leave"
                f" out cache={cache!r}"
            )
    config = config._replace(**fields)
    name = f"{model.name}, {cache} cache"
    return model._replace(name=name, config=config, model=families.build(config))


def with_taps(model: Pretrained, taps: tuple[int, ...]) -> Pretrained:
    """Returns the same model, which also gives the hidden states at these places
    (`types.Hidden`). Raises ValueError for a family whose layers are not tapped, or
    places that the model lacks."""
    if not taps:
        return model
    config: Any = model.required_config
    if "taps" not in config._fields:
        able = (x for x in families.FAMILIES if "taps" in x.config._fields)
        needs = " or ".join(family.called for family in able)
        raise ValueError(
            f"{model.name} is a {model.family}, whose layers are not tapped: name"
            f" {needs}"
        )
    config = config._replace(taps=taps)
    families.of(config).check(config)
    return model._replace(config=config, model=families.build(config))


def check_cache(cache: str | None) -> None:
    """Raises ValueError for a name that is not a cache."""
    size = (cache or "").removeprefix(WINDOW)
    counts = size != cache and size.isdecimal() and len(size) <= len(str(MOST))
    if cache in int8_cache.KINDS or (counts and 0 < int(size) < MOST):
        return
    raise ValueError(
        f"unknown cache {reprlib.repr(cache)}: it is int8, or a window of fewer than"
        f" 2**30 tokens, such as {WINDOW}128"
    )


def match_vocab(target: Pretrained, draft: Pretrained) -> tuple[Pretrained, Pretrained]:
    """Returns a pair whose draft has its target's vocabulary. Raises ValueError if
    their tokens differ.

    Vocabularies of one tokenizer are padded to multiples that differ within a family:
    Qwen2.5 has 152,064 rows from 7B on and 151,936 below. Fine-tuned models also have
    added tokens that others lack. The draft then never proposes a token that it does
    not know, and the target keeps its law with every id (`models.pad_vocab`). A pair
    whose tokenizers cannot be read, or a pair for speech, is returned unchanged.

    Raises:
      OtherTokens: if the ids are different tokens.
    """
    hears = target.listens or draft.listens
    if not check_tokens(target, draft) or hears:
        return target, draft
    model = pad_vocab.pad_vocab(draft.model, target.model.vocab)
    return target, draft if model is draft.model else draft._replace(model=model)


def check_tokens(target: Pretrained, draft: Pretrained) -> bool:
    """Returns whether the ids that both models have are the same tokens in both.

    Some may differ: fine-tuned models rename tokens that were reserved. The result is
    False if a tokenizer cannot be read, because prompts may be ids. Raises OtherTokens,
    in one line, for a pair whose ids are different tokens.
    """
    try:
        first, second = target.tokenizer, draft.tokenizer
    except ValueError:
        return False
    known, unlike = tokenizers.compare(first, second)
    if len(unlike) <= RENAMED * known:
        return True
    named = [reprlib.repr(side.token(unlike[0])) for side in (first, second)]
    raise OtherTokens(
        f"{target.name} and {draft.name} have other tokenizers: id {unlike[0]} is"
        f" {named[0]} to one, {named[1]} to the other, and so for {len(unlike)} of"
        f" {known} ids: name a pair with one tokenizer, or put {first.file.name} of"
        f" {target.name} beside the draft's weights if they were trained with it"
    )


def files_of(model: Pretrained) -> tuple[Path, ...]:
    """Returns all files that determine what a model writes.

    They are those of its weights, all files of a folder, and those of a tokenizer that
    does not come with this package.
    """
    inside = (sorted(p.rglob("*")) if p.is_dir() else [p] for p in model.files)
    found = [file for files in inside for file in files]
    found += [file.with_name(huggingface.GENERATION) for file in model.files]
    tokenizer = model.tokenizer_file
    if tokenizer is not None and not tokenizer.is_relative_to(zoo.FOLDER):
        place = tokenizers.find_file(tokenizer) if tokenizer.is_dir() else tokenizer
        found += [] if place is None else tokenizers.files(place)
    return tuple(file for file in dict.fromkeys(found) if file.is_file())


def tokenizer_of_weights(model: Pretrained) -> Path | None:
    """Returns the tokenizer next to the weights.

    Without one, for weights in the bundled format, it is the bundled one of this
    vocabulary.
    """
    first = model.files[0]
    if gguf_file.is_gguf(first):
        return first
    folders = [first, first.parent] if first.is_dir() else [first.parent]
    if zoo.FOLDER not in folders:
        for file in filter(None, map(tokenizers.find_file, folders)):
            return file
    bundled = first.suffix == ".safetensors"
    return zoo.tokenizer_file(model.vocab) if bundled else None
