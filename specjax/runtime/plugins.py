"""Drafters, rules and policies by name: `name`, `name:options`, `my_module:its_name`.

Options are separated by commas. Each is `key=value`, or a value alone in the order of
the function's parameters: `copying:longest=5`, `early_exit:4`. All values alone go to a
parameter with a star; there a value may itself be a name with an option,
`hierarchy:small,copying:longest=5,gammas=4`."""

import importlib.util
import inspect
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

CUSTOM = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?::(.*))?", re.DOTALL)


def is_custom(name: str) -> bool:
    """Returns whether a name has the form my_module:its_name and is not a path."""
    return bool(CUSTOM.fullmatch(name)) and not Path(name).exists()


def is_module(name: str) -> bool:
    """Returns whether a module of this name can be imported."""
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def load(name: str, kind: type) -> Any:
    """Returns the object that "module:name" names, such as "my_rules:my_verifier".

    Where it is a function, its result is returned instead, called with the options of
    "module:name:options". kind: the class that the object must have."""
    source, options = resolve(name)
    if not isinstance(source, kind) and callable(source):
        source = call_with_options(name, source, options)
    elif options:
        raise ValueError(
            f"{name} takes no options, because it is not a function: leave them out"
        )
    if not isinstance(source, kind):
        have, want = type(source).__name__, f"specjax.types.{kind.__name__}"
        raise ValueError(f"{name} is of class {have}: name an object of class {want}")
    return source


def resolve(name: str) -> tuple[Any, str]:
    """Returns the object that "module:name[:options]" names, and the options as
    text."""
    module, _, rest = name.partition(":")
    attribute, _, options = rest.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} is not a name: write my_module:its_name")
    try:
        source = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{name}: {error}; is its folder on PYTHONPATH?") from None
    except Exception as error:  # whatever a module does when it is imported
        raise ValueError(
            f"{name}: {module} cannot be imported: {describe_error(error)}"
        ) from error
    if not hasattr(source, attribute):
        raise ValueError(f"{name}: {module} has no {attribute}")
    return getattr(source, attribute), options


def module_file(name: str) -> Path:
    """Returns the file of the module that "module:name" names."""
    return Path(str(importlib.import_module(name.partition(":")[0]).__file__))


def call_with_options(
    name: str, build: Callable, options: str, context: Mapping[str, Any] | None = None
) -> Any:
    """Returns the result of `build`, called with the options in a name.

    context: further arguments by name, passed where `build` has them."""
    context, parameters = context or {}, inspect.signature(build).parameters
    free = [each for key, each in parameters.items() if key not in context]
    bare = name.removesuffix(f":{options}")
    arguments = {key: value for key, value in context.items() if key in parameters}
    starred, values = has_star(build), []
    for place, text in enumerate(filter(None, options.split(","))):
        key, equals, value = text.partition("=")
        if starred and (not equals or ":" in key):
            values.append(text)
            continue
        if not equals:
            key, value = free[place].name if place < len(free) else "", text
        if key not in {x.name for x in free if x.kind is not x.VAR_POSITIONAL}:
            wanted = usage(bare, build, context)
            raise ValueError(f"{name!r}: {text!r} is not an option: write {wanted}")
        arguments[key] = parse_value(name, parameters[key], value)
    needed = {each.name for each in free if is_required(each)}
    lacking = needed - {*arguments}
    if lacking:
        wanted = usage(bare, build, context)
        raise ValueError(f"{name!r} lacks {', '.join(lacking)}: write {wanted}")
    try:
        return build(*values, **arguments)
    except ValueError:
        raise
    except Exception as error:  # whatever a custom function raises
        raise ValueError(f"{name} fails: {describe_error(error)}") from error


def usage(name: str, build: Callable, context: Container[str]) -> str:
    """Returns the form of a name, with the options of `build` that are not in
    `context`.

    Options with a default stand by name, the others in capitals."""
    starred = has_star(build)

    def option(key: str, each: inspect.Parameter) -> str:
        if each.kind is each.VAR_POSITIONAL:
            return f"{key.upper()},{key.upper()}"
        if not is_required(each):
            return f"{key}={each.default}"
        return f"{key}={key.upper()}" if starred else key.upper()

    parameters = inspect.signature(build).parameters.items()
    options = [option(key, each) for key, each in parameters if key not in context]
    return f"{name}:{','.join(options)}" if options else name


def has_star(build: Callable) -> bool:
    """Returns whether a function takes any number of positional values."""
    kinds = [each.kind for each in inspect.signature(build).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def is_required(parameter: inspect.Parameter) -> bool:
    """Returns whether an option must be given."""
    starred = parameter.kind is parameter.VAR_POSITIONAL
    return parameter.default is parameter.empty and not starred


def parse_value(
    name: str, parameter: inspect.Parameter, text: str
) -> int | float | str:
    """Returns a value in the type of the parameter's annotation, or else as a number if
    it is one."""
    kind = parameter.annotation
    for each in [kind] if kind in (int, float, str) else [int, float, str]:
        try:
            return each(text)
        except ValueError:
            continue
    what = {int: "a whole number", float: "a number"}[kind]
    raise ValueError(f"{name!r}: {parameter.name} must be {what}; got {text!r}")


def describe_error(error: Exception) -> str:
    """Returns the message of an error in one line."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"
