"""The check of parameter values against the annotations of their functions.

gin binds any value to any parameter. Before anything is built, each value is compared
with the annotation of its parameter, and a parameter that has the name of a flag with
the range of that flag. A macro of another type would otherwise fail during a
measurement, or change it silently."""

import types
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from specjax.configs.unread import MACRO, ConfigError, add_scope
from specjax.decode_config import PER_PROMPT, check_setting, check_whole

NUMBERS = "gamma", *PER_PROMPT  # settings of `DecodeConfig`
COUNTS = "batch", "texts", "tokens", "rounds", "samples", "repeats"
# What numbers of these names must be, as on command lines.
BOUNDS = {
    **{name: partial(check_setting, name) for name in NUMBERS},
    **dict.fromkeys(COUNTS, partial(check_whole, "count")),
    **dict.fromkeys(("gammas", "K"), partial(check_setting, "gamma")),
}
SEQUENCES = tuple, list, Sequence
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text in quotes",
    types.NoneType: "None",
}


class Field(NamedTuple):
    """A parameter that is set. name: that of the macro that sets it, or its own."""

    name: str
    parameter: str
    value: Any
    wanted: Any


def check(gin: Any) -> None:
    """Raises ConfigError, naming the macro, for the first value that does not fit."""
    for field in fields(gin):
        wanted = explain_mismatch(gin, field)
        if wanted is not None:
            raise ConfigError(f"{field.name} must be {wanted}; got {field.value!r}")


def explain_mismatch(gin: Any, field: Field) -> str | None:
    """Returns in words the values that a parameter can have, or None if its value
    fits."""
    if not matches_annotation(gin, field.value, field.wanted):
        return describe(field.wanted)
    several = isinstance(field.value, list | tuple)
    for value in field.value if several else [field.value]:
        if field.parameter in BOUNDS and isinstance(value, int | float):
            try:
                BOUNDS[field.parameter](value)
            except ValueError as error:
                return str(error).partition("must be ")[2].rpartition(";")[0]
    return None


def fields(gin: Any) -> Iterator[Field]:
    """Yields every parameter that has an annotation and a value."""
    config, registry = gin.config._CONFIG, gin.config._REGISTRY
    for (scope, selector), values in config.items():
        if selector == MACRO:
            continue
        hints = annotations(registry[selector].wrapped)
        for parameter, value in values.items():
            if parameter in hints:
                name = add_scope(scope, f"{selector.rpartition('.')[2]}.{parameter}")
                name, value = resolve(gin, name, value)
                yield Field(name, parameter, value, hints[parameter])


def annotations(of: Callable) -> dict[str, Any]:
    """Returns annotations by parameter; {} where they cannot be resolved."""
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError):
        return {}


def resolve(gin: Any, name: str, value: Any) -> tuple[str, Any]:
    """Returns the value at the end of a chain of macros, and the name of its first
    macro."""
    chain: list[str] = []
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


def matches_annotation(gin: Any, value: Any, wanted: Any) -> bool:
    """Returns whether a value fits an annotation.

    It is True for values that are built later, and for annotations that are not types.
    """
    if value is gin.REQUIRED or isinstance(value, gin.config.ConfigurableReference):
        return True
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(matches_annotation(gin, value, each) for each in inner)
    if origin in SEQUENCES:
        each = inner[0] if inner[-1] is Ellipsis or len(inner) == 1 else Any
        several = isinstance(value, origin) and not isinstance(value, str)
        return several and all(matches_annotation(gin, x, each) for x in value)
    kind = origin or wanted
    if kind is Any or not isinstance(kind, type):
        return True
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind in (bool, object)
    # A named tuple may be spelled as one without names.
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, tuple if issubclass(kind, tuple) else kind)


def describe(wanted: Any) -> str:
    """Returns an annotation in words."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(describe, inner))
    if origin in SEQUENCES:
        return f"(VALUE, VALUE), each {describe(inner[0])}"
    if wanted in WORDS:
        return WORDS[wanted]
    return f"a {getattr(wanted, '__name__', wanted)}, by %NAME or @name()"
