"""The choice of functions that read logits in a decoder: kernels, where they are safe.

This is the one place that chooses them, by device and shape, for commands,
`generate_text` and experiments. It is also the only module of the library that imports
`pallas_kernels`, and only where it chooses a kernel. On a CPU the reference runs. On a
kind of device that a kernel has not run on before, the kernel is first compared with
the reference (`fused.first_use`), and one-pass XLA replaces it if it is wrong. Axes: B
rows, G = gamma, V vocabulary.
"""

import functools
import hashlib
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specjax import probs, verifiers
from specjax.checkpoints import Pretrained
from specjax.decode_config import KERNELS
from specjax.drafters import rollout
from specjax.drafts.source import (
    CERTAIN,
    REDUCED_VOCAB,
    SAMPLED,
    TABLE,
    DraftSource,
)
from specjax.fused import first_use, same_tokens
from specjax.fused.same_tokens import Functions
from specjax.types import Kernels, Verifier
from specjax.verifiers import token

CHOICES = KERNELS
AUTO, REFERENCE, ONEPASS, *PALLAS = CHOICES
CPU = "a CPU, which has no kernels"
OWN = "specjax.verifiers."


class Sizes(NamedTuple):
    """The shape that is decoded: B rows, the most drafted tokens, and V ids.

    draft: what the drafts carry, one of the names in `drafts.source`.
    """

    batch: int
    gamma: int
    vocab: int
    draft: str = SAMPLED


class Wired(NamedTuple):
    """Kernels, with the functions that they were built from.

    kernels: what a decoder is given.
    draw: the draw that `kernels.draw` uses, None for a coupled draft.
    programs: (name, tiles) of what verifies, what draws, and what verifies the
      baseline.
    """

    kernels: Kernels
    draw: Callable | None
    programs: tuple[tuple, ...]


def reference(
    verifier: Verifier = token.verifier, why: str = "none was chosen"
) -> Kernels:
    """Returns the functions of a verifier and of `specjax.probs` unchanged: nothing is
    fused. why: the reason, for the record."""
    names = "asked", "verify", "draw", "baseline"
    record = dict.fromkeys(names, "reference") | {"why": why}
    draw = rollout.for_rule(verifier)
    return Kernels(verifier, draw, token.verifier, record)


def choose(
    name: str, verifier: Verifier, sizes: Sizes, *, device: Any = None
) -> Kernels:
    """Returns the verifier and the draw to decode with, and a record of the choice.

    On a mesh each device's kernels read the logits on that device (`fused.over_mesh`).

    Args:
      name: "auto", "reference", or another of `CHOICES`; only "auto" is compared with
        the reference and replaced if wrong.
      verifier: the rule. A rule that no kernel implements keeps its own `verify`, and
        only its drafts are drawn by kernels.
      sizes: the shape that will be decoded. The comparison and the record are for this
        shape; the returned functions choose again for the shape of each program.
      device: a `pallas_kernels.dispatch.Device` to compile for, which need not be
        present; None is the default device.

    Returns:
      Kernels. Their record holds the name under `asked`, what runs as `verify`, `draw`
      and `baseline`, and `why`.

    Raises:
      ValueError: for an unknown name, or kernels that cannot run.
    """
    if name not in CHOICES:
        raise ValueError(f"no kernels {name!r}: choose one of {', '.join(CHOICES)}")
    platform = default_device().platform if device is None else device.platform
    if name == REFERENCE or (name == AUTO and platform == "cpu"):
        plain = reference(verifier, CPU if name == AUTO else "asked for")
        return plain._replace(record=plain.record | {"asked": name})
    if not getattr(verifier.verify, "__module__", "").startswith(OWN):
        verifier = verifier._replace(rule=None)  # the rule describes another `verify`
    if jax.sharding.get_abstract_mesh().empty:
        return wire_checked(name, verifier, sizes, device=device).kernels
    from specjax.fused import over_mesh

    return over_mesh.kernels(name, verifier, sizes, device=device)


def wire_checked(
    name: str, verifier: Verifier, sizes: Sizes, *, device: Any = None
) -> Wired:
    """Returns the kernels of `wire`, after a comparison with the reference if the
    choice was automatic."""
    wired = wire(name, verifier, sizes, device=device)
    pallas = {program for program, _ in wired.programs} & {*PALLAS}
    if name != AUTO or device is not None or not pallas:
        return wired
    return check_first_use(wired, verifier, sizes)


def for_protocol(
    target: Pretrained,
    draft: DraftSource,
    protocol: Any,
    rule: Verifier | None = None,
) -> Kernels:
    """Returns the kernels of a pair: `choose` with the sizes of a protocol."""
    decode = protocol.decode
    sizes = Sizes(protocol.batch, decode.gamma, target.vocab, draft.regime)
    return choose(decode.kernels, rule or verifiers.find(decode.rule), sizes)


def for_setting(
    target: Pretrained, draft: DraftSource, setting: Any, *, device: Any = None
) -> Kernels:
    """Returns the kernels of a pair for a setting of walltime or divergence.

    The sizes are those of the setting's largest gamma. device: see `choose`.
    """
    sizes = Sizes(setting.batch, max(setting.gammas), target.vocab, draft.regime)
    decode = setting.decode
    rule = verifiers.find(decode.rule)
    return choose(decode.kernels, rule, sizes, device=device)


def line(record: dict) -> str:
    """Describes a record in one line."""
    verify, draw = record["verify"], record["draw"]
    drawn = "" if draw in (verify, "none") else f", drafts by {draw}"
    return f"kernels: {verify}{drawn} ({record['why']})"


def wire(name: str, verifier: Verifier, sizes: Sizes, *, device: Any = None) -> Wired:
    """Returns the kernels that `pallas_kernels` chooses, before their output is
    checked."""
    from pallas_kernels import dispatch, fuse, plan

    kinds = dict.fromkeys((TABLE, REDUCED_VOCAB), plan.PART)
    kinds |= {SAMPLED: plan.KNOWN, CERTAIN: plan.CERTAIN}
    device = device or dispatch.here(default_device())
    fused, alone = (
        fuse.wire(rule, name, device=device) for rule in (verifier, token.verifier)
    )
    shape = plan.Shape(*sizes[:3], kinds[sizes.draft])
    verify, drawn = fused.choices(shape)
    baseline = alone.choices(shape._replace(gamma=0))[0]
    draws = sizes.gamma > 0 and sizes.draft != CERTAIN
    record = {"asked": name, "verify": verify.name}
    record |= {"draw": drawn.name if draws else "none", "baseline": baseline.name}
    reasons = dict.fromkeys(choice.why for choice in (verify, drawn, baseline))
    record |= {"why": "; ".join(reasons)}
    draw = rollout.for_rule(verifier)
    if fused.draw is not None:
        draw = rollout.draw_with(fused.draw)
    kernels = Kernels(fused.verifier, draw, alone.verifier, record)
    programs = tuple((each.name, each.tiles) for each in (verify, drawn, baseline))
    return Wired(kernels, fused.draw, programs)


def check_first_use(wired: Wired, verifier: Verifier, sizes: Sizes) -> Wired:
    """Returns the kernels as wired, or one-pass XLA if their tokens are wrong."""
    kind, record = default_device().device_kind, wired.kernels.record
    key = f"{kind} | {versions()} | {sizes} | {verifier.rule} | {wired.programs}"
    compare = functools.partial(find_fault, wired, verifier, sizes)
    problem = first_use.find_problem(key, compare)
    if problem is None:
        why = f"{record['why']}; gave the reference's tokens on first use"
        return with_record(wired, why=why)
    names = " and ".join(dict.fromkeys(name for name, _ in wired.programs))
    why = f"{names} on {kind}: {problem}"
    print_once(f"one-pass XLA reads logits instead of {why}")
    return with_record(wire(ONEPASS, verifier, sizes), asked=AUTO, why=why)


def with_record(wired: Wired, **more: str) -> Wired:
    """Returns the same kernels with more fields in their record."""
    kernels = wired.kernels
    return wired._replace(kernels=kernels._replace(record=kernels.record | more))


def find_fault(wired: Wired, verifier: Verifier, sizes: Sizes) -> str | None:
    """Returns in words what is wrong with the drafting or the baseline steps; None if
    nothing is."""
    if wired.draw is not None:
        plain = Functions(verifier, probs.draw)
        fused = Functions(wired.kernels.verifier, wired.draw)
        if wrong := same_tokens.problem(plain, fused, sizes):
            return wrong
    rules = token.verifier, wired.kernels.alone
    plain, fused = (Functions(rule, probs.draw) for rule in rules)
    return same_tokens.problem(plain, fused, sizes._replace(gamma=0))


def default_device() -> jax.Device:
    """Returns the device that programs run on."""
    return next(iter(jnp.zeros(()).devices()))


@functools.cache
def print_once(text: str) -> None:
    """Prints a line to stderr, once per process."""
    print(f"specjax: {text}", file=sys.stderr, flush=True)


def versions() -> str:
    """Returns the versions of what builds kernels, and a digest of their sources."""
    import pallas_kernels

    sources, whole = Path(pallas_kernels.__file__).parent, hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        whole.update(path.read_bytes())
    named = (f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib"))
    return " | ".join((*named, f"kernels {whole.hexdigest()[:12]}"))
