"""The static description of a fused verification: shapes, tiles, and what is read of
each side.

Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pallas_kernels.laws import EXACT, Deferred, is_deferred
from specjax.types import BLOCK, Draft, FusedRule, Law

FIELDS = ("scale", "top", "tau", "tie", "lse")  # the scalars of a row's law
KNOWN, DEFERRED, CERTAIN, NONE = "known", "deferred", "certain", "none"
PART = "part"  # a draft whose laws cover some ids only, or are shared rows


class Shape(NamedTuple):
    """The shape of a verification, known before it is traced.

    batch, gamma, vocab: B, G, V.
    draft: KNOWN laws, as a drafter leaves them, CERTAIN tokens, or PART.
    itemsize: bytes of a logit.
    """

    batch: int
    gamma: int
    vocab: int
    draft: str = KNOWN
    itemsize: int = 4


class Tiles(NamedTuple):
    """The sizes of the tiles into which the vocabulary is split.

    stats: ids per block that reads statistics.
    blocks: blocks of BLOCK ids per block that sums the residual.
    apart: statistics are merged in a separate launch, and not in each block that needs
      them.
    """

    stats: int = 1024
    blocks: int = 4
    apart: bool = False


class Plan(NamedTuple):
    """The static description of a verification.

    target, draft: KNOWN laws, DEFERRED ones, a draft of CERTAIN tokens, or NONE (G =
      0).
    cut_p, cut_q: whether a deferred law is truncated.
    """

    batch: int
    gamma: int
    vocab: int
    target: str
    draft: str
    cut_p: bool
    cut_q: bool
    rule: FusedRule
    tiles: Tiles

    def rows(self, side: str) -> int:
        return self.gamma + 1 if side == "p" else self.gamma

    def kind(self, side: str) -> str:
        return self.target if side == "p" else self.draft

    def cut(self, side: str) -> bool:
        return self.cut_p if side == "p" else self.cut_q

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that have logits."""
        return ("p", "q") if self.draft in (KNOWN, DEFERRED) else ("p",)

    @property
    def unread(self) -> tuple[str, ...]:
        """The sides whose statistics are still to be read."""
        return tuple(side for side in self.sides if self.kind(side) == DEFERRED)

    @property
    def count(self) -> int:
        """The number of blocks of the inverse CDF."""
        return -(-self.vocab // BLOCK)


def plan(target: Law | Deferred, draft: Draft, rule: FusedRule = EXACT) -> Plan:
    """Returns the plan for laws [B, G + 1, V] and a draft [B, G], given their
    shapes."""
    batch, rows, vocab = target.logits.shape
    gamma, kind, cut_q = draft.tokens.shape[1], CERTAIN, False
    if gamma == 0:
        kind = NONE
    elif draft.law is not None:
        kind = DEFERRED if is_deferred(draft.law) else KNOWN
        cut_q = kind == DEFERRED and draft.law.tau is not None
    target_kind = DEFERRED if is_deferred(target) else KNOWN
    cut_p = target_kind == DEFERRED and target.tau is not None
    if rows != gamma + 1:
        raise ValueError(
            f"{rows} target rows for {gamma} drafted tokens: give one more"
        )
    return Plan(
        batch=batch,
        gamma=gamma,
        vocab=vocab,
        target=target_kind,
        draft=kind,
        cut_p=cut_p,
        cut_q=cut_q,
        rule=rule,
        tiles=Tiles(),
    )


def plan_for_shape(
    shape: Shape, rule: FusedRule = EXACT, target: str = DEFERRED
) -> Plan:
    """Returns the plan of a shape without truncation."""
    return Plan(
        batch=shape.batch,
        gamma=shape.gamma,
        vocab=shape.vocab,
        target=target,
        draft=shape.draft if shape.gamma else NONE,
        cut_p=False,
        cut_q=False,
        rule=rule,
        tiles=Tiles(),
    )


def operands(
    plan: Plan, target: Law | Deferred, draft: Draft, noise
) -> dict[str, Array]:
    """Returns the inputs of a kernel by name.

    They are the logits `p` and `q`, the scalars of their rows `p_scale` and so on, or
    the temperatures `p_temperature` [B] of a deferred law.
    """
    arrays = {"sample": noise.sample}
    if plan.gamma:
        arrays |= {"tokens": draft.tokens, "num": draft.num, "accept": noise.accept}
    laws = {"p": target, "q": draft.law if plan.gamma else None}
    for side in plan.sides:
        law = laws[side]
        arrays[side] = law.logits
        names = FIELDS
        if plan.kind(side) == DEFERRED:
            arrays[f"{side}_temperature"] = law.temperature
            names = ("tau", "tie") if plan.cut(side) else ()
        arrays |= {f"{side}_{name}": getattr(law, name) for name in names}
    return arrays


def struct(dims: tuple[int, ...], dtype=jnp.float32) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an array."""
    return jax.ShapeDtypeStruct(dims, dtype)


def results(plan: Plan) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a kernel's outputs by name.

    They are `num_accepted` [B], `verdict` [B, G + 1], and `accept_prob` [B, G]; or,
    where nothing was drafted, the scalars [B] of the law that was drawn from.
    """
    verdict = {"num_accepted": (plan.batch,), "verdict": (plan.batch, plan.gamma + 1)}
    out = {name: struct(dims, jnp.int32) for name, dims in verdict.items()}
    if plan.gamma:
        return out | {"accept_prob": struct((plan.batch, plan.gamma))}
    kinds = {name: jnp.int32 if name == "tie" else jnp.float32 for name in FIELDS}
    return out | {name: struct((plan.batch,), kind) for name, kind in kinds.items()}
