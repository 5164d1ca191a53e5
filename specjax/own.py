"""What is not of this package, by the name under which Python imports it."""

import importlib
from typing import Any


def imported(name: str, kind: type) -> Any:
    """The object of "module:name", such as "my_rules:my_verifier".

    Args:
        name: the module as it is imported, a colon, and a name in it.
        kind: the class that it must be of.

    Raises:
        ValueError: for a module or a name that is not there, or another kind of object.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ValueError(f"{name}: {error}; is its folder on PYTHONPATH?") from None
    except AttributeError:
        raise ValueError(f"{name}: {module} has no {attribute}") from None
    if not isinstance(found, kind):
        have, want = type(found).__name__, f"specjax.types.{kind.__name__}"
        raise ValueError(f"{name} is of class {have}: name a {want}")
    return found
