"""Drafters, rules and policies by name: `name`, `name:options`, `my_module:its_name`.

Options are separated by commas, each `key=value` or, in the order of the function that
they are for, a value alone: `copying:longest=5`, `early_exit:4`.
"""

import importlib.util
import inspect
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

OWN = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?::(.*))?", re.DOTALL)


def is_own(name: str) -> bool:
    """Whether a name is of the form my_module:its_name, and no path."""
    return bool(OWN.fullmatch(name)) and not Path(name).exists()


def is_module(name: str) -> bool:
    """Whether a module of this name can be imported."""
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def load(name: str, kind: type) -> Any:
    """The object of "module:name", such as "my_rules:my_verifier"; or what a function
    of that name returns, of its options in "module:name:options". name: the module as
    it is imported, a colon, and a name in it. kind: the class that it must be of."""
    source, options = attribute(name)
    if not isinstance(source, kind) and callable(source):
        source = built(name, source, options)
    elif options:
        raise ValueError(f"{name} takes no options: its module has it as it is")
    if not isinstance(source, kind):
        have, want = type(source).__name__, f"specjax.types.{kind.__name__}"
        raise ValueError(f"{name} is of class {have}: name a {want}")
    return source


def attribute(name: str) -> tuple[Any, str]:
    """What "module:name[:options]" names, and the options as they are written."""
    module, _, rest = name.partition(":")
    attribute, _, options = rest.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} is no name: write my_module:its_name")
    try:
        source = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{name}: {error}; is its folder on PYTHONPATH?") from None
    except Exception as error:  # whatever a module does when it is imported
        raise ValueError(f"{name}: {module} cannot be imported: {of(error)}") from error
    if not hasattr(source, attribute):
        raise ValueError(f"{name}: {module} has no {attribute}")
    return getattr(source, attribute), options


def file_of(name: str) -> Path:
    """Returns the file of the module that "module:name" names."""
    return Path(importlib.import_module(name.partition(":")[0]).__file__)


def built(
    name: str, build: Callable, options: str, context: Mapping[str, Any] | None = None
) -> Any:
    """`build` of the options of a name."""
    context, known = context or {}, inspect.signature(build).parameters
    free = [parameter for key, parameter in known.items() if key not in context]
    bare = name.removesuffix(f":{options}")
    arguments = {key: value for key, value in context.items() if key in known}
    for place, text in enumerate(filter(None, options.split(","))):
        key, equals, value = text.partition("=")
        if not equals:
            key, value = free[place].name if place < len(free) else "", text
        if key not in {parameter.name for parameter in free}:
            wanted = usage(bare, build, context)
            raise ValueError(f"{name!r}: {text!r} is no option: write {wanted}")
        arguments[key] = number(name, known[key], value)
    lacking = {each.name for each in free if each.default is each.empty} - {*arguments}
    if lacking:
        wanted = usage(bare, build, context)
        raise ValueError(f"{name!r} lacks {', '.join(lacking)}: write {wanted}")
    try:
        return build(**arguments)
    except ValueError:
        raise
    except Exception as error:  # whatever a function of one's own does
        raise ValueError(f"{name} fails: {of(error)}") from error


def usage(name: str, build: Callable, context: Container[str]) -> str:
    """A name as a person writes it, with the options of `build` that are not in
    `context`: those with a default by name, the others in capitals."""
    options = [
        key.upper() if each.default is each.empty else f"{key}={each.default}"
        for key, each in inspect.signature(build).parameters.items()
        if key not in context
    ]
    return f"{name}:{','.join(options)}" if options else name


def number(name: str, parameter: inspect.Parameter, text: str) -> int | float | str:
    """A value as the parameter's annotation says, else a number where it is one."""
    kind = parameter.annotation
    for each in [kind] if kind in (int, float, str) else [int, float, str]:
        try:
            return each(text)
        except ValueError:
            continue
    what = {int: "a whole number", float: "a number"}[kind]
    raise ValueError(f"{name!r}: {parameter.name} must be {what}; got {text!r}")


def of(error: Exception) -> str:
    """An error in one line."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"
