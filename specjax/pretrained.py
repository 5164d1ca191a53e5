"""A model with its weights and its tokenizer, by any name it goes by."""

import reprlib
from pathlib import Path
from typing import Any, NamedTuple

from specjax import checkpoints, tokenizers, zoo
from specjax.models import whisper, widened
from specjax.tokenizers import Tokenizer
from specjax.tokenizers.folder import special_ids
from specjax.types import Model

RENAMED = 0.01  # of a vocabulary's tokens, which a fine-tuned model may call otherwise


class Pretrained(NamedTuple):
    """What `load` reads: either side of a pair that decodes.

    config: sizes. params: weights as `model` takes them. dtype: of weights, activations
    and cache, or "int8", see `load`. files: what they were read from. start: id that a
    text begins with, None where nothing names one. ends: ids that each end it, empty
    where nothing names any. tokenizer_file: None where there is none.
    """

    name: str
    config: checkpoints.Config
    model: Model
    params: Any
    dtype: str
    files: tuple[Path, ...]
    start: int | None
    ends: tuple[int, ...]
    tokenizer_file: Path | None

    @property
    def tokenizer(self) -> Tokenizer:
        """Read when it is first asked for. Raises ValueError where it cannot be."""
        if self.tokenizer_file is None:
            raise ValueError(
                f"{self.name} has no tokenizer beside its weights: name one, by"
                " --tokenizer or specjax.load(name, tokenizer=file), or write prompts"
                ' as {"tokens": [ids]}'
            )
        around = self.start, self.ends
        return tokenizers.read(self.tokenizer_file, *around, self.model.encodes)


def load(
    name: str | Path, dtype: str = "float32", tokenizer: str | Path | None = None
) -> Pretrained:
    """A pretrained model, ready to decode as target or draft.

    Args:
      name: a bundled model (`specjax.zoo.MODELS`, `T5_MODELS`, `SPEECH_MODELS`); a
        folder of Hugging Face (GPT-2, T5, Llama, Mistral, Qwen, Gemma, Whisper); a
        checkpoint of T5X or its gs:// URL; a .safetensors file of `specjax.zoo.save`;
        an id "org/name" of the Hugging Face hub (extra `hf`).
      dtype: of weights, activations and cache; any float of numpy or bfloat16. Or
        "int8": large matrices are rounded to whole numbers of eight bits with a scale
        for each output, and all else is float32. What is decoded is then the law of
        the rounded weights: a target of its own, to which drafts make no difference.
      tokenizer: a file or folder; None, what lies beside the weights, or the bundled
        one of the same vocabulary.

    Raises:
      ValueError: there is no such model, or it is damaged, said in one message before
        any weight is read.
    """
    checkpoint = checkpoints.load(name, dtype)
    file = Path(tokenizer) if tokenizer is not None else beside(checkpoint)
    start, ends = checkpoint.start, checkpoint.ends
    if file is not None and (start is None or not ends):
        first, last = special_ids(file if file.is_dir() else file.parent)
        start = first if start is None else start
        ends = ends or (() if last is None else (last,))
    sizes = (
        checkpoint.name,
        checkpoint.config,
        checkpoint.model,
        checkpoint.params,
        str(dtype),
    )
    return Pretrained(*sizes, checkpoint.files, start, ends, file)


def paired(target: Pretrained, draft: Pretrained) -> tuple[Pretrained, Pretrained]:
    """The pair with the vocabulary of its target, where both know the same tokens.

    Vocabularies of one tokenizer are filled up to multiples that differ within a
    family: Qwen2.5 has 152,064 rows from 7B on and 151,936 below. And fine-tuned models
    have added tokens that others lack. The draft then never proposes what it does not
    know, and the target's law is its own, with every id (`models.widened`). A pair
    whose tokenizers cannot be read, or that listens, comes back as it is.

    Raises:
      ValueError: ids are other tokens.
    """
    hears = any(isinstance(side.config, whisper.Config) for side in (target, draft))
    if not check_tokens(target, draft) or hears:
        return target, draft
    model = widened.widened(draft.model, target.model.vocab)
    return target, draft if model is draft.model else draft._replace(model=model)


def check_tokens(target: Pretrained, draft: Pretrained) -> bool:
    """Whether the ids that both sides know are the same tokens to both.

    Some may differ: fine-tuned models rename tokens that were reserved. False where a
    tokenizer cannot be read, for prompts may be ids.

    Raises ValueError, in one line, for a pair whose ids are other tokens.
    """
    try:
        first, second = target.tokenizer, draft.tokenizer
    except ValueError:
        return False
    known, unlike = tokenizers.compared(first, second)
    if len(unlike) <= RENAMED * known:
        return True
    named = [reprlib.repr(side.token(unlike[0])) for side in (first, second)]
    raise ValueError(
        f"{target.name} and {draft.name} have other tokenizers: id {unlike[0]} is"
        f" {named[0]} to one, {named[1]} to the other, and so for {len(unlike)} of"
        f" {known} ids: name a pair with one tokenizer, or put {first.file.name} of"
        f" {target.name} beside the draft's weights if they were trained with it"
    )


def beside(checkpoint: checkpoints.Checkpoint) -> Path | None:
    """The tokenizer that lies beside weights, else, for weights in the bundled format,
    the bundled one of this vocabulary."""
    first = checkpoint.files[0]
    folders = [first, first.parent] if first.is_dir() else [first.parent]
    if zoo.FOLDER not in folders:
        for file in filter(None, map(tokenizers.beside, folders)):
            return file
    bundled = first.suffix == ".safetensors"
    return zoo.tokenizer_file(checkpoint.config.vocab) if bundled else None
