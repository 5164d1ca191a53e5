"""Which functions read the logits of a decoder: kernels, where they are trusted.

The one place that chooses, by device and shape, for commands, `generate_text` and
experiments; the one module of the library that imports `pallas_kernels`, and only where
it chooses one. On a CPU the reference runs. On a kind of device that a kernel was never
used on it is compared with the reference first (`fused.first_use`), and one-pass XLA
stands in for one that errs.
Axes: B rows, G = gamma, V vocabulary.
"""

import functools
import hashlib
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import probs, verifiers
from specjax.drafters import rollout
from specjax.drafts.source import CERTAIN, REDUCED, SAMPLED, TABLE, Side, reference
from specjax.fused import first_use, same_tokens
from specjax.fused.same_tokens import Functions
from specjax.types import Kernels, Verifier
from specjax.verifiers import token

AUTO, REFERENCE, ONEPASS = "auto", "reference", "onepass"
WRITTEN = "mosaic_gpu", "mosaic_tpu", "triton"  # kernels that XLA does not make
CHOICES = AUTO, REFERENCE, ONEPASS, *WRITTEN
CPU = "a CPU, which has no kernels"
OWN = "specjax.verifiers."


class Sizes(NamedTuple):
    """The shape at hand: B rows, the most drafted tokens, V ids. draft: what its drafts
    carry, as `sides` names it."""

    batch: int
    gamma: int
    vocab: int
    draft: str = SAMPLED


class Wired(NamedTuple):
    """kernels; draw: what `kernels.draw` draws by, None for a coupled draft. named:
    what verifies, draws, and verifies the baseline, by names and tiles."""

    kernels: Kernels
    draw: Callable | None
    named: tuple[tuple, ...]


def choose(asked: str, verifier: Verifier, sizes: Sizes, device=None) -> Kernels:
    """The verifier and the draw to decode with, and a record of what was chosen. asked:
    "auto", "reference", or another of `CHOICES`, which is then neither compared nor
    replaced. verifier: the rule. One that no kernel knows verifies as it is, and its
    drafts alone are drawn by kernels. sizes: of what will be decoded. The comparison
    and the record are of them; within what is returned every program chooses for its
    own shape. device: a `pallas_kernels.dispatch.Device` to compile for, which need not
    be there; None is the default device. Returns kernels, whose record holds what was
    `asked`, who runs as `verify`, `draw` and `baseline`, and `why`. On a mesh kernels
    read what each device has (`fused.over_mesh`)."""
    if asked not in CHOICES:
        raise ValueError(f"no kernels {asked!r}: choose one of {', '.join(CHOICES)}")
    platform = here().platform if device is None else device.platform
    if asked == REFERENCE or (asked == AUTO and platform == "cpu"):
        plain = reference(verifier, CPU if asked == AUTO else "asked for")
        return plain._replace(record=plain.record | {"asked": asked})
    if not getattr(verifier.verify, "__module__", "").startswith(OWN):
        verifier = verifier._replace(rule=None)  # its rule is that of another `verify`
    if jax.sharding.get_abstract_mesh().empty:
        return trusted(asked, verifier, sizes, device).kernels
    from specjax.fused import over_mesh

    return over_mesh.kernels(asked, verifier, sizes, device)


def trusted(asked: str, verifier: Verifier, sizes: Sizes, device=None) -> Wired:
    """What was wired, compared with the reference where nobody asked for it."""
    wired = wire(asked, verifier, sizes, device)
    written = {name for name, _ in wired.named} & {*WRITTEN}
    if asked != AUTO or device is not None or not written:
        return wired
    return tried(wired, verifier, sizes)


def of_protocol(
    target: Side, draft: Side, protocol: NamedTuple, rule: Verifier | None = None
) -> Kernels:
    """What a pair decodes with as a protocol says: `choose`, of its sizes."""
    sizes = Sizes(protocol.batch, protocol.gamma, target.vocab, draft.regime)
    return choose(protocol.kernels, rule or verifiers.find(protocol.rule), sizes)


def of_setting(target: Side, draft: Side, setting, device=None) -> Kernels:
    """The same for a setting of `measure.walltime` or `exactness.divergence`: of its
    largest gamma. device: as of `choose`."""
    sizes = Sizes(setting.batch, max(setting.gammas), target.vocab, draft.regime)
    return choose(setting.kernels, verifiers.find(setting.rule), sizes, device)


def line(record: dict) -> str:
    """A record in words."""
    verify, draw = record["verify"], record["draw"]
    drawn = "" if draw in (verify, "none") else f", drafts by {draw}"
    return f"kernels: {verify}{drawn} ({record['why']})"


def wire(asked: str, verifier: Verifier, sizes: Sizes, device=None) -> Wired:
    """By `pallas_kernels`, without a look at what it gives."""
    from pallas_kernels import dispatch, fuse, plan

    kinds = dict.fromkeys((TABLE, REDUCED), plan.PART)
    kinds |= {SAMPLED: plan.KNOWN, CERTAIN: plan.CERTAIN}
    how = asked, device or dispatch.here(here())
    fused, alone = (fuse.wire(rule, *how) for rule in (verifier, token.verifier))
    shape = plan.Shape(*sizes[:3], kinds[sizes.draft])
    verify, drawn = fused.choices(shape)
    baseline = alone.choices(shape._replace(gamma=0))[0]
    draws = sizes.gamma > 0 and sizes.draft != CERTAIN
    record = {"asked": asked, "verify": verify.name}
    record |= {"draw": drawn.name if draws else "none", "baseline": baseline.name}
    reasons = dict.fromkeys(choice.why for choice in (verify, drawn, baseline))
    record |= {"why": "; ".join(reasons)}
    coupled = fused.draw is None
    draw = rollout.for_rule(verifier) if coupled else rollout.drawn_by(fused.draw)
    kernels = Kernels(fused.verifier, draw, alone.verifier, record)
    named = tuple((each.name, each.tiles) for each in (verify, drawn, baseline))
    return Wired(kernels, fused.draw, named)


def tried(wired: Wired, verifier: Verifier, sizes: Sizes) -> Wired:
    """What was wired, or one-pass XLA where it does not give the reference's tokens."""
    kind, record = here().device_kind, wired.kernels.record
    key = f"{kind} | {versions()} | {sizes} | {verifier.rule} | {wired.named}"
    compare = functools.partial(fault, wired, verifier, sizes)
    problem = first_use.judged(key, compare)
    if problem is None:
        why = f"{record['why']}; gave the reference's tokens on first use"
        return told(wired, why=why)
    names = " and ".join(dict.fromkeys(name for name, _ in wired.named))
    why = f"{names} on {kind}: {problem}"
    tell(f"one-pass XLA reads logits in the place of {why}")
    return told(wire(ONEPASS, verifier, sizes), asked=AUTO, why=why)


def told(wired: Wired, **more: str) -> Wired:
    """The same, of whose record more is said."""
    kernels = wired.kernels
    return wired._replace(kernels=kernels._replace(record=kernels.record | more))


def fault(wired: Wired, verifier: Verifier, sizes: Sizes) -> str | None:
    """What is wrong with steps that draft, or with those of the baseline."""
    if wired.draw is not None:
        plain = Functions(verifier, probs.draw)
        fused = Functions(wired.kernels.verifier, wired.draw)
        if wrong := same_tokens.problem(plain, fused, sizes):
            return wrong
    rules = token.verifier, wired.kernels.alone
    alone = (Functions(rule, probs.draw) for rule in rules)
    return same_tokens.problem(*alone, sizes._replace(gamma=0))


def here() -> jax.Device:
    """Where programs run."""
    return next(iter(jnp.zeros(()).devices()))


@functools.cache
def tell(text: str) -> None:
    """Says something once in a process."""
    print(f"specjax: {text}", file=sys.stderr, flush=True)


def versions() -> str:
    """Of everything that a kernel is made by, its own sources among it."""
    import pallas_kernels

    sources, whole = Path(pallas_kernels.__file__).parent, hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        whole.update(path.read_bytes())
    named = (f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib"))
    return " | ".join((*named, f"kernels {whole.hexdigest()[:12]}"))
