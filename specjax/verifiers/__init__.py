"""The rules that decide which drafted tokens are kept: a file and a `Verifier` each.

The file name is the rule's name in configurations and commands. A file defines either a
`verifier`, whose output follows the target's distribution exactly, or a `LOSSY`, whose
output does not. `Verifier.guarantee` says what each rule promises.
"""

import importlib
import pkgutil

from specjax.runtime.plugins import is_custom, load
from specjax.types import Lossy, Verifier

_MODULES = {
    found.name: importlib.import_module(f"{__name__}.{found.name}")
    for found in pkgutil.iter_modules(__path__)
}
EXACT: dict[str, Verifier] = {
    name: module.verifier
    for name, module in _MODULES.items()
    if hasattr(module, "verifier")
}
LOSSY: dict[str, Lossy] = {
    name: module.LOSSY for name, module in _MODULES.items() if hasattr(module, "LOSSY")
}


def find(name: str) -> Verifier:
    """Returns the verifier that a name stands for.

    Args:
      name: a rule of this package ("token"), a lossy rule with its default number
        ("lenient") or another one ("lenient:0.3"), or a custom rule
        ("my_module:my_verifier").

    Raises:
      ValueError: if there is no such rule, or it cannot have that number.
    """
    if name in EXACT:
        return EXACT[name]
    bare, _, number = name.partition(":")
    if bare in EXACT:
        raise ValueError(f"no rule {name!r}: {bare} takes no number")
    if bare not in LOSSY:
        if is_custom(name):
            return without_fused_rule(load(name, Verifier))
        choices = f"{', '.join(spellings())} or module:name"
        raise ValueError(f"no rule {name!r}: choose one of {choices}")
    rule = LOSSY[bare]
    if name == bare:
        return rule.build(rule.number)
    try:
        value = float(number)
    except ValueError:
        raise ValueError(
            f"no rule {name!r}: write {bare}:{rule.number:g}, {rule.meaning}"
        ) from None
    return rule.build(value)


def without_fused_rule(verifier: Verifier) -> Verifier:
    """Removes the `rule` of a custom verifier, so that no kernel replaces its `verify`.

    A verifier that was made from one of this package by `_replace` still carries that
    one's `rule`. It may keep it only if it also still has that one's `verify`.
    """
    ours = getattr(verifier.verify, "__module__", "").startswith(__name__)
    return verifier if ours else verifier._replace(rule=None)


def names() -> list[str]:
    """Returns the names of the exact rules in alphabetical order."""
    return sorted(EXACT)


def spellings() -> list[str]:
    """Returns every rule name in the form that a user may write, lossy ones with their
    number."""
    lossy = [f"{name}:{rule.number:g}" for name, rule in LOSSY.items()]
    return [*names(), *lossy]
