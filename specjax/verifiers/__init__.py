"""Rules that keep a prefix of a draft; one file each, of `specjax.types.Verifier`.

A file is a rule of its name, for configurations and commands: it has a `verifier`,
whose text follows the target's own law, or a `LOSSY`, which gives that up. What a rule
guarantees is in its `Verifier.guarantee`.
"""

import importlib
import pkgutil

from specjax.runtime.plugins import is_own, load
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


def named(name: str) -> Verifier:
    """The rule of a name: "token", "lenient" for its default, "lenient:0.3", or one of
    one's own, "my_module:my_verifier".

    Raises ValueError for a name that stands for none, or a number it cannot have.
    """
    if name in EXACT:
        return EXACT[name]
    bare, _, number = name.partition(":")
    if bare in EXACT:
        raise ValueError(f"no rule {name!r}: {bare} takes no number")
    if bare not in LOSSY:
        if is_own(name):
            return unfused(load(name, Verifier))
        known = f"{', '.join(spelled())} or module:name"
        raise ValueError(f"no rule {name!r}: choose one of {known}")
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


def unfused(verifier: Verifier) -> Verifier:
    """Returns a rule of one's own for which no kernel stands, unless `verify` is ours:
    one that was made of ours by `_replace` has our `rule` still."""
    ours = getattr(verifier.verify, "__module__", "").startswith(__name__)
    return verifier if ours else verifier._replace(rule=None)


def names() -> list[str]:
    """Of the exact ones, in the order of the alphabet."""
    return sorted(EXACT)


def spelled() -> list[str]:
    """Every name as a person writes it, the lossy ones with their numbers."""
    lossy = [f"{name}:{rule.number:g}" for name, rule in LOSSY.items()]
    return [*names(), *lossy]
