"""Kernels on a mesh: each device reads its own part, by `jax.shard_map`.

XLA's partitioner does not split kernels. Where all ids of a row are on one device, a
kernel verifies that device's rows as it would without a mesh. Where the ids are split
over several devices, each reads its part of the target's rows once
(`pallas_kernels.parts`), and XLA's partitioner runs the rest of the rule on the
resulting law; drafts that are not split are drawn by rows. Axes: B rows, T tokens, V
vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any

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


def kernels(
    name: str, verifier: Verifier, sizes: Any, *, device: Any = None
) -> Kernels:
    """Returns what `fused.choose` returns, for the mesh in use."""
    mesh = jax.sharding.get_abstract_mesh()
    data, model = (mesh.shape[axis] for axis in (DATA, MODEL))
    own = sizes._replace(batch=max(1, sizes.batch // data))
    with jax.set_mesh(Mesh(np.empty((), object), ())):  # the view of a single device
        whole = part = fused.wire_checked(name, verifier, own, device=device)
        if model > 1:
            own = own._replace(vocab=sizes.vocab // model)
            part = fused.wire_checked(name, verifier, own, device=device)
    record, draw = part.kernels.record, rollout.for_rule(verifier)
    if whole.draw is not None and (model == 1 or not draft_is_split(model)):
        draw = rollout.draw_with(draw_by_rows(whole.draw))
        record = record | {"draw": whole.kernels.record["draw"]}
    elif model > 1:
        record = record | {"draw": fused.REFERENCE}
    if model == 1:
        both = map(verify_by_rows, (whole.kernels.verifier, whole.kernels.alone))
    else:
        names = {name: reader_name(record[name]) for name in ("verify", "baseline")}
        rules, record = (verifier, token.verifier), record | names
        both = map(verify_by_ids, rules, names.values())
    why = f"{record['why']}; {BY_ROWS if model == 1 else BY_IDS}"
    verifier, alone = both
    return Kernels(verifier, draw, alone, record | {"why": why})


def draft_is_split(model: int) -> bool:
    """Returns whether a draft's ids are split over `model` devices
    (`drafts.placement`)."""
    return layout.value is None or layout.value.draft == model


def map_rows(function: Callable) -> Callable:
    """Returns a function of arrays [B, ...] that each device runs on its own rows."""
    rows = PartitionSpec(DATA)
    return jax.shard_map(function, in_specs=rows, out_specs=rows, check_vma=False)


def verify_by_rows(verifier: Verifier) -> Verifier:
    """Returns a fused verifier that each device runs on its own rows."""
    if verifier.rule is None or verifier.law is None:
        return verifier

    def verify(
        target: Law, draft: Draft, noise: Any, keep_residual: bool = False
    ) -> Any:
        run = functools.partial(verifier.verify, keep_residual=keep_residual)
        if draft.law is not None and isinstance(draft.law.logits, Table | Reduced):
            return run(target, draft, noise)  # by XLA: rows share some of these arrays
        return map_rows(run)(target, draft._replace(policy=None), noise)

    return verifier._replace(law=map_rows(verifier.law), verify=verify)


def draw_by_rows(draw: Callable) -> Callable:
    """Returns a fused draw that each device runs on its own rows."""

    def run(logits: Array | Reduced, sampling: Sampling, u: Array) -> Any:
        alone = isinstance(logits, Reduced)
        return (draw if alone else map_rows(draw))(logits, sampling, u)

    return run


def verify_by_ids(verifier: Verifier, name: str) -> Verifier:
    """Returns a verifier for rows whose ids are split over `model`.

    Each device reads its own ids with the kernel `name`, and all then know the rows'
    laws. Truncated laws, and the laws of a rule with its own `law`, are computed as
    before.
    """
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


def reader_name(name: str) -> str:
    """Returns the name of the function that reads a device's own ids, where `name`
    verifies whole rows."""
    from pallas_kernels import parts

    return name if name in (fused.REFERENCE, *parts.KERNELS) else fused.ONEPASS
