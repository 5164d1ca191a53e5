"""The settings that a text is decoded with, in one type, and their checks.

Everything that decodes holds a `DecodeConfig`: `generate_text`, commands, rows of gin
files, measurements and transcription. `check_setting` says for all of them, in one
line, why a value cannot be.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

import numpy as np

from specjax import policies, probs, truncation, verifiers
from specjax.inputs import make_sampling
from specjax.keys import check_seed
from specjax.runtime import console
from specjax.types import Sampling

T = TypeVar("T", bound=NamedTuple)

# What reads logits, see `specjax.fused`.
KERNELS = "auto", "reference", "onepass", "mosaic_gpu", "mosaic_tpu", "triton"
# Settings that a compiled program takes as arguments: each row may have its own.
PER_PROMPT = *Sampling._fields, "new_tokens", "seed"
# What stands for no limit in the rows of a batch of which others have one.
UNLIMITED = {name: it.unlimited for name, it in truncation.SETTINGS.items()}
MOST_DRAFTED, MOST_TOKENS = 1000, 1_000_000


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The settings that a text is decoded with. It is hashable.

    gamma: tokens drafted for each call of the target, at least 0.
    temperature: 0 is greedy; else 1.18e-38 to 10,000.
    top_k, top_p, min_p: the ids that either law keeps (Section 2.2 of Leviathan et al.
      2023): this many of the most likely, those of at least this mass in (0, 1], those
      of at least this share of the highest probability in [0, 1]; None keeps all.
    rule: the name of what verifies drafts, of `specjax.verifiers`.
    policy: the name of what decides how much of gamma is drafted, of
      `specjax.policies`.
    new_tokens: the most tokens of a text, without its prompt.
    seed: the seed of all randomness, 0 to 2**32 - 1.
    kernels: one of `KERNELS`.
    logprobs: whether log p of each token is measured.

    `text.generate_text` takes a list, with a value for each prompt, in place of the
    settings of `PER_PROMPT`.
    """

    gamma: int = 4
    _: dataclasses.KW_ONLY
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    rule: str = "token"
    policy: str = "none"
    new_tokens: int = 64
    seed: int = 0
    kernels: str = KERNELS[0]
    logprobs: bool = False

    def replace(self, **changed: Any) -> "DecodeConfig":
        """Returns the same settings with some of them changed."""
        return dataclasses.replace(self, **changed)

    def static(self) -> "DecodeConfig":
        """Returns the settings that a program is compiled for: those of `PER_PROMPT`,
        which are arguments of the program, have their default values."""
        default = DecodeConfig()
        return self.replace(**{name: getattr(default, name) for name in PER_PROMPT})

    def truncation(self) -> dict[str, Any]:
        """Returns top_k, top_p and min_p, as `make_sampling` takes them."""
        return {name: getattr(self, name) for name in Sampling._fields[1:]}

    def sampling(self, batch: int) -> Sampling:
        """Returns the temperature, top_k, top_p and min_p of `batch` rows that are all
        alike."""
        return make_sampling(batch, self.temperature, **self.truncation())


NAMES = tuple(field.name for field in dataclasses.fields(DecodeConfig))


def change(setting: T, **fields: Any) -> T:
    """Returns a copy of a setting, a NamedTuple whose field `decode` is a
    `DecodeConfig`, with some fields changed: its own, or those of `decode`."""
    decode = {name: fields.pop(name) for name in NAMES if name in fields}
    before: Any = setting
    return before._replace(decode=before.decode.replace(**decode), **fields)


def record_fields(setting: NamedTuple, names: Collection[str] | None = None) -> dict:
    """Returns the fields of a setting as a record has them, by name.

    Args:
      setting: a NamedTuple whose field `decode` is a `DecodeConfig`.
      names: the settings of `decode` that stand in its place; None is all that may
        change a text.
    """
    if names is None:
        names = [name for name in NAMES if name != "logprobs"]
    fields = setting._asdict()
    decode = fields.pop("decode")
    return fields | {name: getattr(decode, name) for name in names}


def check(config: DecodeConfig, names: Collection[str] = NAMES) -> None:
    """Raises ValueError for the first of the settings `names` that has an invalid
    value."""
    for name in names:
        check_setting(name, getattr(config, name))


def check_setting(name: str, value: Any) -> None:
    """Raises ValueError for a value that a setting cannot have.

    The message is one line, which begins with the setting's name, or says which names
    there are.
    """
    CHECKS[name](name, value)


def check_whole(name: str, value: Any, least: int = 1, most: int = MOST_TOKENS) -> None:
    """Raises ValueError for a value that is not a whole number from `least` to
    `most`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise ValueError(
            f"{name} must be a whole number, at least {least} and at most {most}; got"
            f" {short_repr(value)}"
        )


def check_number(name: str, value: Any) -> None:
    """Raises ValueError for a value outside `probs.RANGES`; None means no limit."""
    if value is None and name in UNLIMITED:
        return
    kinds, word = int | float | np.integer | np.floating, "a number"
    if name == "top_k":
        kinds, word = int | np.integer, "a whole number"
    valid, wanted = probs.RANGES[name]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"{name} must be {word}, {wanted}; got {short_repr(value)}")
    if not valid(value):
        raise ValueError(f"{name} must be {wanted}; got {value}")


def check_name(name: str, value: Any) -> None:
    """Raises ValueError for what is not the name of a rule, or of a policy."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a name, a text; got {short_repr(value)}")
    {"rule": verifiers.find, "policy": policies.find}[name](value)


def check_kernels(name: str, value: Any) -> None:
    """Raises ValueError for a value that is not one of `KERNELS`."""
    if value not in KERNELS:
        choices = ", ".join(KERNELS)
        raise ValueError(f"{name} must be one of {choices}; got {short_repr(value)}")


def check_switch(name: str, value: Any) -> None:
    """Raises ValueError for what is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; got {short_repr(value)}")


def short_repr(value: Any) -> str:
    """Returns a value as Python writes it, shortened so that it fits into a line."""
    if isinstance(value, str):
        return repr(console.shorten(value))
    return console.shorten(repr(value))


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "gamma": lambda name, value: check_whole(name, value, 0, MOST_DRAFTED),
    **dict.fromkeys(probs.RANGES, check_number),
    **dict.fromkeys(("rule", "policy"), check_name),
    "new_tokens": check_whole,
    "seed": lambda _, value: check_seed(value),
    "kernels": check_kernels,
    "logprobs": check_switch,
}


def setting_type(name: str) -> Callable[[str], Any]:
    """Returns the type of a command's flag for a setting: text -> its value.

    The type raises ArgumentTypeError, in the words of `check_setting`.
    """
    hint = DecodeConfig.__annotations__[name]
    kinds = hint, *typing.get_args(hint)
    kind = next(kind for kind in (int, float, str) if kind in kinds)

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = text
        check_setting(name, value)
        return value

    return console.flag_type(parse)
