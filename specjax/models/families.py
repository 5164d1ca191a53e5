"""The registry of model families: one entry for each, and the functions that look one
up.

An entry names everything by which one family differs from another outside of its own
file: how its models are built, which fields hold its sizes, where the names of its
checkpoints are. Code that serves all families asks `of(config)`, which raises an error
for a configuration that no entry has; nothing falls through to some family by default.
To add a family, write its model file, a file of names in `specjax.checkpoints`, and an
entry here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax import Array

from specjax.models import gpt, llama, t5, whisper
from specjax.types import Features, Model

Config = gpt.Config | t5.Config | llama.Config | whisper.Config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models, as the rest of the package sees it.

    Attributes:
      name: the name in files' metadata and in `Pretrained.family`, such as "gpt".
      called: a model of it in a message, with its article, such as "a GPT".
      names: the module of `specjax.checkpoints` with the names that published
        checkpoints give to tensors and sizes.
      config: the NamedTuple of a model's sizes.
      build: (config) -> Model.
      init_params: (key, config) -> fresh parameters, each leaf boxed with the logical
        names of its axes.
      abstract_params: (config) -> the parameters' shapes and dtypes; none is made.
      partition_specs: (config) -> the logical names of each parameter's axes.
      num_params: (config) -> the number of parameters.
      check: (config) -> None. Raises ValueError for sizes that do not go together.
      layers: the field that counts the decoder's layers.
      divided: the fields whose sizes a mesh divides, by what a message calls them.
      first_layers: (config, layers) -> the configuration of a decoder's first layers,
        which reads the parameters of the whole.
      first_caches: (cache, layers) -> the caches of a decoder's first layers.
      untie: (config) -> the same with a readout apart from the embedding. None where a
        model has one table for both.
      draft_params: (config) -> shapes and dtypes of the parameters of a draft with a
        reduced vocabulary (`models.reduced_vocab`), None for sizes that cannot draft
        so.
      encode: (config, params, Features) -> `Encoded`, in families that listen: the
        encoder, which may serve several models at once. None in all others.
    """

    name: str
    called: str
    names: str
    config: Any
    build: Callable[[Any], Model]
    init_params: Callable[[Array, Any], Any]
    abstract_params: Callable[[Any], Any]
    partition_specs: Callable[[Any], Any]
    num_params: Callable[[Any], int]
    check: Callable[[Any], None]
    layers: str
    divided: dict[str, str]
    first_layers: Callable[[Any, int], Any]
    first_caches: Callable[[Any, int], Any]
    untie: Callable[[Any], Any] | None = None
    draft_params: Callable[[Any], Any] = lambda config: None
    encode: Callable[[Any, Any, Features], Any] | None = None

    @property
    def listens(self) -> bool:
        """Returns whether the family's models read recordings of sound."""
        return self.encode is not None


DIVIDED = {"ids": "vocab", "heads": "num_heads", "hidden features": "mlp_dim"}

GPT = Family(
    name="gpt",
    called="a GPT",
    names="names_gpt2",
    config=gpt.Config,
    build=gpt.build,
    init_params=gpt.init_params,
    abstract_params=gpt.abstract_params,
    partition_specs=gpt.partition_specs,
    num_params=gpt.num_params,
    check=gpt.check,
    layers="num_layers",
    divided=DIVIDED,
    first_layers=lambda config, layers: config._replace(num_layers=layers, taps=()),
    first_caches=lambda cache, layers: cache[:layers],
    untie=lambda config: config._replace(tied=False),
)
T5 = Family(
    name="t5",
    called="a T5",
    names="names_t5",
    config=t5.Config,
    build=t5.build,
    init_params=t5.init_params,
    abstract_params=t5.abstract_params,
    partition_specs=t5.partition_specs,
    num_params=t5.num_params,
    check=t5.check,
    layers="decoder_layers",
    divided=DIVIDED,
    first_layers=lambda config, layers: config._replace(decoder_layers=layers),
    first_caches=t5.first_caches,
    untie=lambda config: config._replace(tied=False, scaled=True),
)
LLAMA = Family(
    name="llama",
    called="a model of Llama's kind",
    names="names_llama",
    config=llama.Config,
    build=llama.build,
    init_params=llama.init_params,
    abstract_params=llama.abstract_params,
    partition_specs=llama.partition_specs,
    num_params=llama.num_params,
    check=llama.check,
    layers="num_layers",
    divided=DIVIDED | {"heads of keys": "key_heads"},
    first_layers=llama.first_layers,
    first_caches=lambda cache, layers: cache[:layers],
    untie=lambda config: config._replace(tied=False),
    draft_params=lambda config: llama.abstract_params(config) if config.tied else None,
)
WHISPER = Family(
    name="whisper",
    called="a Whisper",
    names="names_whisper",
    config=whisper.Config,
    build=whisper.build,
    init_params=whisper.init_params,
    abstract_params=whisper.abstract_params,
    partition_specs=whisper.partition_specs,
    num_params=whisper.num_params,
    check=whisper.check,
    layers="decoder_layers",
    divided=DIVIDED,
    first_layers=lambda config, layers: config._replace(decoder_layers=layers),
    first_caches=whisper.first_caches,
    draft_params=lambda config: {"decoder": whisper.abstract_params(config)["decoder"]},
    encode=whisper.encode,
)
FAMILIES = (GPT, T5, LLAMA, WHISPER)
BY_NAME = {family.name: family for family in FAMILIES}
BY_CONFIG = {family.config: family for family in FAMILIES}


def of(config: Any) -> Family:
    """Returns the family of a configuration. Raises ValueError where no family has
    it."""
    if (family := BY_CONFIG.get(type(config))) is None:
        kind = f"{type(config).__module__}.{type(config).__qualname__}"
        raise ValueError(
            f"{kind} is the configuration of no family of models; known are"
            f" {', '.join(BY_NAME)}: add an entry to {__name__}"
        )
    return family


def by_name(name: str) -> Family:
    """Returns the family of this name. Raises ValueError where no family has it."""
    if name not in BY_NAME:
        raise ValueError(f"its family is {name!r}; known are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def build(config: Config) -> Model:
    """Returns the model of these sizes, whatever its family. Raises ValueError as `of`
    does."""
    return of(config).build(config)


def first_layers(config: Config, layers: int) -> Model:
    """Returns the model of a decoder's first `layers` layers, which reads the
    parameters of the whole model. Raises ValueError as `of` does."""
    return build(of(config).first_layers(config, layers))
