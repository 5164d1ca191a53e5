"""What parameters are set to, against what their signatures ask for.

gin binds any value to any parameter. Each is compared with its annotation, and one that
has the name of a flag with what that flag takes, before anything is built: a macro of
another type would fail in the midst of a measurement, or change it without a word.
"""

import argparse
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from specjax.configs.unread import MACRO, ConfigError, scoped
from specjax.runtime import console

COUNTS = "batch", "texts", "tokens", "new_tokens", "rounds", "samples", "repeats"
# What numbers of these names must be, as on command lines.
BOUNDS = {
    **dict.fromkeys(COUNTS, console.count),
    **dict.fromkeys(("gamma", "gammas", "K"), console.gamma),
    "temperature": console.temperature,
    "seed": console.seed,
}
SEVERAL = tuple, list, Sequence
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text in quotes",
    types.NoneType: "None",
}


class Field(NamedTuple):
    """A parameter that is set. name: of the macro that sets it, or its own."""

    name: str
    parameter: str
    value: Any
    wanted: Any


def check(gin) -> None:
    """Raises ConfigError, which names the macro, for the first value that its parameter
    cannot be."""
    for field in fields(gin):
        wanted = unmet(gin, field)
        if wanted is not None:
            raise ConfigError(f"{field.name} must be {wanted}; got {field.value!r}")


def unmet(gin, field: Field) -> str | None:
    """What a value must be and is not, in words."""
    if not suits(gin, field.value, field.wanted):
        return said(field.wanted)
    several = isinstance(field.value, list | tuple)
    for value in field.value if several else [field.value]:
        if field.parameter in BOUNDS and isinstance(value, int | float):
            try:
                BOUNDS[field.parameter](repr(value))
            except argparse.ArgumentTypeError as error:
                return str(error).removeprefix("must be ").rpartition(";")[0]
    return None


def fields(gin) -> Iterator[Field]:
    """Every parameter that has an annotation and a value."""
    config, registry = gin.config._CONFIG, gin.config._REGISTRY
    for (scope, selector), values in config.items():
        if selector == MACRO:
            continue
        hints = annotations(registry[selector].wrapped)
        for parameter, value in values.items():
            if parameter in hints:
                name = scoped(scope, f"{selector.rpartition('.')[2]}.{parameter}")
                name, value = resolved(gin, name, value)
                yield Field(name, parameter, value, hints[parameter])


def annotations(of: Callable) -> dict[str, Any]:
    """By parameter; none of what cannot be looked up here."""
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError):
        return {}


def resolved(gin, name: str, value: Any) -> tuple[str, Any]:
    """What a chain of macros ends in, by the name of its first."""
    chain = []
    while isinstance(value, gin.config.ConfigurableReference):
        macro = "/".join(value.scopes)
        bound = gin.config._CONFIG.get((macro, MACRO), {})
        if value.selector != MACRO or "value" not in bound:
            break
        if macro in chain:
            raise ConfigError(f"{' = %'.join([*chain, macro])} names itself")
        chain.append(macro)
        value = bound["value"]
    return (*chain, name)[0], value


def suits(gin, value: Any, wanted: Any) -> bool:
    """Whether a value can be what an annotation says; of what is built later, and of
    annotations that say more, it is not asked."""
    if value is gin.REQUIRED or isinstance(value, gin.config.ConfigurableReference):
        return True
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(suits(gin, value, each) for each in inner)
    if origin in SEVERAL:
        each = inner[0] if inner[-1] is Ellipsis or len(inner) == 1 else Any
        several = isinstance(value, origin) and not isinstance(value, str)
        return several and all(suits(gin, x, each) for x in value)
    kind = origin or wanted
    if not isinstance(kind, type):
        return True
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind in (bool, object)
    # A named tuple may be spelled as one without names.
    kinds = {float: (int, float)}.get(kind, tuple if issubclass(kind, tuple) else kind)
    return isinstance(value, kinds)


def said(wanted: Any) -> str:
    """An annotation in words."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(said, inner))
    if origin in SEVERAL:
        return f"(VALUE, VALUE), each {said(inner[0])}"
    if wanted in WORDS:
        return WORDS[wanted]
    return f"a {getattr(wanted, '__name__', wanted)}, by %NAME or @name()"
