"""What is not of this package, by the name under which Python imports it."""

import importlib
from typing import Any


def imported(name: str, kind: type) -> Any:
    """The object of "module:name", such as "my_rules:my_verifier".

    Args:
        name: the module as it is imported, a colon, and a name in it.
        kind: the class that it must be of.

    Raises:
        ValueError: for a module or a name that is not there, a module that fails, or
            another kind of object.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"{name!r} is no name: write my_module:its_name")
    try:
        source = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{name}: {error}; is its folder on PYTHONPATH?") from None
    except Exception as error:  # whatever a module does when it is imported
        told = f"{type(error).__name__}: {error}"
        raise ValueError(f"{name}: {module} cannot be imported: {told}") from error
    if not hasattr(source, attribute):
        raise ValueError(f"{name}: {module} has no {attribute}")
    chosen = getattr(source, attribute)
    if not isinstance(chosen, kind):
        have, want = type(chosen).__name__, f"specjax.types.{kind.__name__}"
        raise ValueError(f"{name} is of class {have}: name a {want}")
    return chosen
