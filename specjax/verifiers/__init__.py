"""Rules that keep a prefix of a draft; one file each, of `specjax.types.Verifier`.

Each is named here, so that configurations and commands can name it; what it guarantees
is in its `Verifier.guarantee`.
"""

from collections.abc import Callable
from typing import NamedTuple

from specjax.plugins import is_own, load
from specjax.types import Verifier
from specjax.verifiers import (
    block,
    gumbel,
    lenient,
    match,
    rejection,
    sigmoid,
    sigmoid_released,
    token,
)

# The text follows the target's own law.
EXACT: dict[str, Verifier] = {
    "block": block.verifier,
    "gumbel": gumbel.verifier,
    "match": match.verifier,
    "rejection": rejection.verifier,
    "token": token.verifier,
}


class Lossy(NamedTuple):
    """A rule that gives up the target's law. build: (number) -> Verifier; number: the
    one taken for the bare name; meaning: what it is."""

    build: Callable[[float], Verifier]
    number: float
    meaning: str


LOSSY: dict[str, Lossy] = {
    "lenient": Lossy(lenient.build, 0.5, "l in (0, 1]: no token with more than p / l"),
    "sigmoid": Lossy(
        lambda scale: sigmoid.build(-scale, scale), 1e3, "beta = -alpha > 0, no bound"
    ),
    "sigmoid_released": Lossy(
        lambda scale: sigmoid_released.build(-scale, scale),
        1e4,
        "beta = -alpha > 0, no bound",
    ),
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
            return load(name, Verifier)
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


def names() -> list[str]:
    """Of the exact ones, in the order of the alphabet."""
    return sorted(EXACT)


def spelled() -> list[str]:
    """Every name as a person writes it, the lossy ones with their numbers."""
    lossy = [f"{name}:{rule.number:g}" for name, rule in LOSSY.items()]
    return [*names(), *lossy]
