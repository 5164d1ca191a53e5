"""One call from a verifier to a decoder that reads logits by kernels.

    wired = wiring.wire(token.verifier)
    drafter = autoregressive.build(model, gamma, rollout.drawn_by(wired.draw))
    decoder = Decoder(target, drafter, wired.verifier)

Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

from pallas_kernels import dispatch, fuse
from pallas_kernels.dispatch import REFERENCE, Choice, Device
from pallas_kernels.fuse import Options
from pallas_kernels.laws import EXACT
from pallas_kernels.plan import DEFERRED, KNOWN, TABLE, Shape, foreseen
from specjax.types import Verifier

NO_RULE = "no kernel has this verifier's rule"
COUPLED = "drafts race with the verifier's own noise, which no kernel draws"


class Wired(NamedTuple):
    """A verifier whose `law` and `verify` are fused, where its rule has a kernel. draw:
    (logits [B, V], Sampling, u [B, 2]) -> (ids [B], Law [B]), fused; None where a
    verifier wants its drafts coupled. choices: (Shape) -> what verifies it, what
    draws."""

    verifier: Verifier
    draw: Callable | None
    choices: Callable[[Shape], tuple[Choice, Choice]]


def wire(
    verifier: Verifier,
    asked: str = "auto",
    device: Device | None = None,
    options: Options = fuse.AUTO,
) -> Wired:
    """Fuses a verifier and the draw of its drafts. verifier: any; one without a `rule`
    keeps its `verify`, and only draws are fused. asked: "auto", or one of
    `dispatch.NAMES`. device: that the programs are for; the default one if None.
    options: how a kernel runs; its rule and what it asks for are not read."""
    device = dispatch.here() if device is None else device
    rule = EXACT if verifier.rule is None else verifier.rule
    options = options._replace(asked=asked, rule=EXACT)
    fused = fuse.build(verifier.verify, device, options._replace(rule=rule))
    # From q itself, whatever the rule.
    draw = fuse.build(verifier.verify, device, options).draw
    # A verifier that reads the target in its own way, as the sigmoid does, goes on so.
    target = DEFERRED if verifier.law is None else KNOWN

    def choose(shape: Shape, *kinds) -> Choice:
        plan = foreseen(shape, *kinds)
        return dispatch.choose(plan, shape.itemsize, device, asked)

    def choices(shape: Shape) -> tuple[Choice, Choice]:
        drawn = Choice(REFERENCE, COUPLED)
        if not verifier.coupled:
            drawn = choose(shape._replace(gamma=0))
        if verifier.rule is None:
            return Choice(REFERENCE, NO_RULE), drawn
        if shape.gamma and shape.draft == TABLE:
            return Choice(fuse.simple(device), fuse.TABLE), drawn
        return choose(shape, rule, target), drawn

    if verifier.rule is not None:
        law = fused.law if verifier.law is None else verifier.law
        verifier = verifier._replace(law=law, verify=fused.verify)
    return Wired(verifier, None if verifier.coupled else draw, choices)
