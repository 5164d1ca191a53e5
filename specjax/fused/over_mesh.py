"""Kernels on a mesh: each device reads what it has, by `jax.shard_map`.

XLA's partitioner splits no kernel. Where the ids of a row lie on one device, a kernel
verifies that device's rows as it would without a mesh. Where they lie over several,
each reads its part of the target's rows once (`pallas_kernels.parts`), and the rule
goes on from the law by the partitioner; drafts that are whole are drawn by rows.
Axes: B rows, T tokens, V vocabulary.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from specjax import fused, probs
from specjax.drafters import rollout
from specjax.runtime.mesh import DATA, MODEL, layout
from specjax.types import Draft, Kernels, Law, Reduced, Sampling, Table, Verifier
from specjax.verifiers import token

BY_ROWS = "each device its own rows"
BY_IDS = "each device its own ids of a row, and the rule by XLA's partitioner"


def kernels(asked: str, verifier: Verifier, sizes, device=None) -> Kernels:
    """As `fused.choose`, for the mesh in use."""
    mesh = jax.sharding.get_abstract_mesh()
    data, model = (mesh.shape[axis] for axis in (DATA, MODEL))
    own = sizes._replace(batch=max(1, sizes.batch // data))
    with jax.set_mesh(Mesh(np.empty((), object), ())):  # as a device will have it
        whole = fused.trusted(asked, verifier, own, device)
        own = own._replace(vocab=sizes.vocab // model)
        part = fused.trusted(asked, verifier, own, device) if model > 1 else whole
    record, draw = part.kernels.record, rollout.for_rule(verifier)
    if whole.draw is not None and (model == 1 or not drafts_lie_over(model)):
        draw = rollout.drawn_by(drawn(whole.draw))
        record = record | {"draw": whole.kernels.record["draw"]}
    elif model > 1:
        record = record | {"draw": fused.REFERENCE}
    if model == 1:
        both = map(by_row, (whole.kernels.verifier, whole.kernels.alone))
    else:
        names = {name: reading(record[name]) for name in ("verify", "baseline")}
        rules, record = (verifier, token.verifier), record | names
        both = map(by_ids, rules, names.values())
    why = f"{record['why']}; {BY_ROWS if model == 1 else BY_IDS}"
    verifier, alone = both
    return Kernels(verifier, draw, alone, record | {"why": why})


def drafts_lie_over(model: int) -> bool:
    """Whether a draft's ids lie over so many devices, as `mesh.pair` places it."""
    return layout.value is None or layout.value.draft == model


def over_rows(function: Callable) -> Callable:
    """The same function of arrays [B, ...], of which a device is given its rows."""
    rows = PartitionSpec(DATA)
    return jax.shard_map(function, in_specs=rows, out_specs=rows, check_vma=False)


def by_row(verifier: Verifier) -> Verifier:
    """A fused verifier, each device of its own rows."""
    if verifier.rule is None:
        return verifier

    def verify(target, draft: Draft, noise, keep_residual: bool = False):
        run = functools.partial(verifier.verify, keep_residual=keep_residual)
        if draft.law is not None and isinstance(draft.law.logits, Table | Reduced):
            return run(target, draft, noise)  # by XLA, of what rows share
        return over_rows(run)(target, draft._replace(policy=None), noise)

    return verifier._replace(law=over_rows(verifier.law), verify=verify)


def drawn(draw: Callable) -> Callable:
    """A fused draw, each device of its own rows."""

    def run(logits: Array | Reduced, sampling: Sampling, u: Array):
        alone = isinstance(logits, Reduced)
        return (draw if alone else over_rows(draw))(logits, sampling, u)

    return run


def by_ids(verifier: Verifier, name: str) -> Verifier:
    """A verifier that is told the law of rows whose ids lie over `model`. name: of what
    reads a device's. Laws that are truncated, or a rule's own, are as they were."""
    if verifier.law is not None or name == fused.REFERENCE:
        return verifier
    from pallas_kernels import parts

    rows = PartitionSpec(DATA)
    read = jax.shard_map(
        parts.law(MODEL, parts.reader(name)),
        in_specs=(PartitionSpec(DATA, None, MODEL), rows),
        out_specs=rows,
        check_vma=False,
    )

    def law(logits: Array, sampling: Sampling) -> Law:
        if any(cut is not None for cut in sampling[1:]):
            return probs.standardize(logits, sampling)
        return Law(logits, *read(logits, sampling.temperature))

    return verifier._replace(law=law)


def reading(name: str) -> str:
    """What reads a device's ids where this one verifies whole rows."""
    from pallas_kernels import parts

    return name if name in (fused.REFERENCE, *parts.KERNELS) else fused.ONEPASS
