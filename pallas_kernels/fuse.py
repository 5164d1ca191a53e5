"""Fused versions of `specjax` functions on logits, each the fastest that is known to be
right.

    fused = fuse.build(token.verify)

Each returns what its reference returns for the same uniforms. `wire` makes a verifier
and a draw of them. Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from pallas_kernels import dispatch, onepass
from pallas_kernels.dispatch import REFERENCE, Choice, Device
from pallas_kernels.gpu import launches
from pallas_kernels.laws import (
    EXACT,
    Deferred,
    LawRow,
    is_deferred,
    residual_weight,
    to_float32,
    weight,
)
from pallas_kernels.parts import KERNELS
from pallas_kernels.plan import (
    DEFERRED,
    FIELDS,
    KNOWN,
    PART,
    Plan,
    Shape,
    Tiles,
    operands,
    plan,
    plan_for_shape,
)
from pallas_kernels.tpu import mosaic as mosaic_tpu
from specjax import probs
from specjax.types import (
    Draft,
    FusedRule,
    Law,
    Reduced,
    Sampling,
    Table,
    Verdict,
    Verifier,
)


class Fused(NamedTuple):
    """The fused functions of a rule.

    law: (logits [B, ..., V], Sampling) -> Law, for `Verifier.law`.
    verify: for `Verifier.verify`.
    draw: (logits [B, V], Sampling, u [B, 2]) -> (ids, Law), for `rollout.draw_with`.
    """

    law: Callable
    verify: Callable
    draw: Callable


class Options(NamedTuple):
    """The settings of a fusion.

    implementation: "auto" or a name of `dispatch`.
    rule: what the verifier compares.
    tiles: instead of the chosen ones.
    interpret: the backend's parameters to run a kernel on a CPU.
    """

    implementation: str = "auto"
    rule: FusedRule = EXACT
    tiles: Tiles | None = None
    interpret: Any = None


AUTO = Options()
OF_PART = "the draft's laws cover some ids only, or are rows of a shared table"


class _Noise(NamedTuple):
    sample: Array


def build(
    reference: Callable, device: Device | None = None, options: Options = AUTO
) -> Fused:
    """Returns the fused functions of a rule for a device.

    When first called they raise ValueError for a named implementation that the device
    or the shape does not allow.

    Args:
      reference: (Law [B, G + 1], Draft, noise, keep_residual) -> Verdict, of the rule.
      device: to compile for; the default one if None.
      options: see `Options`.

    Raises:
      ValueError: for a rule that no kernel computes.
    """
    device = dispatch.here() if device is None else device
    if reason := rule_obstacle(options.rule):
        raise ValueError(reason)

    def choose_for(target, draft) -> tuple[Plan, Choice]:
        planned = plan(target, draft, options.rule)
        itemsize = target.logits.dtype.itemsize
        choice = dispatch.choose(planned, itemsize, device, name=options.implementation)
        tiles = options.tiles or choice.tiles
        return (planned if tiles is None else planned._replace(tiles=tiles)), choice

    def law(logits: Array, sampling: Sampling) -> Law | Deferred:
        flat = logits.reshape(logits.shape[0], -1, logits.shape[-1])
        some = _certain_draft(flat.shape[0], flat.shape[1] - 1)
        name = choose_for(Deferred(flat, sampling.temperature), some)[1].name
        if name == dispatch.REFERENCE:
            return probs.standardize(logits, sampling)
        read = onepass.standardize if name == dispatch.ONEPASS else onepass.defer
        return read(logits, sampling)

    def verify(target, draft, noise, keep_residual: bool = False):
        is_part = isinstance(getattr(draft.law, "logits", None), Table | Reduced)
        plain = (REFERENCE, dispatch.ONEPASS)
        if is_part or choose_for(target, draft)[1].name in plain:
            draft = draft._replace(law=_complete(draft.law))
            return reference(_complete(target), draft, noise, keep_residual)
        planned, choice = choose_for(target, draft)
        out = _launch(planned, choice, operands(planned, target, draft, noise), options)
        n, rest = out["num_accepted"], None
        if keep_residual:
            rest = residual(target, draft, n, options.rule)
        chance = out.get("accept_prob", jnp.zeros(draft.tokens.shape))
        return Verdict(n, out["verdict"], chance, residual=rest)

    def draw(logits: Array | Reduced, sampling: Sampling, u: Array):
        if isinstance(logits, Reduced):
            return probs.draw(logits, sampling, u)
        deferred_law = onepass.defer(logits[:, None], sampling)
        none = _certain_draft(logits.shape[0], 0)
        planned, choice = choose_for(deferred_law, none)
        if choice.name in (dispatch.REFERENCE, dispatch.ONEPASS):
            plain = choice.name == dispatch.REFERENCE
            read = probs.standardize if plain else onepass.standardize
            known_law = read(logits, sampling)
            return probs.sample(known_law, u), known_law
        arrays = operands(planned, deferred_law, none, _Noise(u))
        out = _launch(planned, choice, arrays, options)
        known_law = Law(logits, **{name: out[name] for name in FIELDS})
        return out["verdict"][:, 0], known_law

    return Fused(law, verify, draw)


def rule_obstacle(rule: FusedRule) -> str | None:
    """Returns why no kernel computes a rule; None if one does."""
    if not 0 < rule.lenience <= 1:
        return f"lenience must be in (0, 1]; got {rule.lenience}"
    if rule.sigmoid is not None and rule != FusedRule(sigmoid=rule.sigmoid):
        return "the sigmoid rule has no lenience: leave lenience 1"
    return None


def _certain_draft(batch: int, gamma: int) -> Draft:
    """Returns a deterministic draft of zeros, which stands for any draft of its
    shape."""
    return Draft(jnp.zeros((batch, gamma), jnp.int32), None, None)


def fallback(device: Device) -> str:
    """Returns the implementation for a device on which no kernel can run."""
    return dispatch.REFERENCE if device.platform == "cpu" else dispatch.ONEPASS


def _complete(law):
    return onepass.complete(law) if law is not None and is_deferred(law) else law


def _launch(planned: Plan, choice: Choice, arrays: dict, options: Options) -> dict:
    run = options.interpret
    if choice.name == dispatch.MOSAIC_TPU:
        return mosaic_tpu.verdict(planned, arrays, run or False, choice.vmem)
    return launches.verdict(planned, arrays, KERNELS[choice.name].launcher(run))


def residual(target, draft, n: Array, rule: FusedRule) -> Array:
    """Returns the weights [B, V] that the token after n kept ones is drawn from."""
    rows, gamma = jnp.arange(n.size), draft.tokens.shape[1]

    def dense_weights(law, index: Array) -> Array:
        law = probs.take(_complete(law), index)
        row = LawRow(*(getattr(law, name)[:, None] for name in FIELDS))
        return weight(
            to_float32(law.logits), jnp.arange(law.logits.shape[1]), row, rule
        )

    p = dense_weights(target, n)
    if gamma == 0:
        return p
    at = jnp.minimum(n, gamma - 1)
    if draft.law is None:
        token = draft.tokens[rows, at, None]
        rest = jnp.where(token == jnp.arange(p.shape[1]), 0.0, p)
    else:
        rest = residual_weight(p, dense_weights(draft.law, at), rule)
    rest = jnp.where((n < draft.num)[:, None], rest, p)
    return jnp.where(rest.any(axis=1, keepdims=True), rest, p)


NO_RULE = "no kernel has this verifier's rule"
COUPLED = "drafts use the verifier's own noise, which no kernel draws"


class Wired(NamedTuple):
    """A verifier with fused functions, where its rule has a kernel.

    Attributes:
      verifier: its `law` and `verify` are fused.
      draw: (logits [B, V], Sampling, u [B, 2]) -> (ids [B], Law [B]), fused; None where
        the verifier wants coupled drafts.
      choices: (Shape) -> the choice that verifies it, the choice that draws.
    """

    verifier: Verifier
    draw: Callable | None
    choices: Callable[[Shape], tuple[Choice, Choice]]


def wire(
    verifier: Verifier,
    implementation: str = "auto",
    *,
    device: Device | None = None,
    options: Options = AUTO,
) -> Wired:
    """Fuses a verifier and the draw of its drafts.

    Args:
      verifier: any; one without a `rule` keeps its `verify`, and only draws are fused.
      implementation: "auto", or one of `dispatch.NAMES`.
      device: to compile for; the default one if None.
      options: how a kernel runs; its rule and implementation are not read.
    """
    device = dispatch.here() if device is None else device
    rule = EXACT if verifier.rule is None else verifier.rule
    options = options._replace(implementation=implementation, rule=EXACT)
    fused = build(verifier.verify, device, options._replace(rule=rule))
    # Drafts are drawn from q itself, whatever the rule.
    draw = build(verifier.verify, device, options).draw
    # A verifier with its own `law`, such as the sigmoid rule, reads the target by that.
    target = DEFERRED if verifier.law is None else KNOWN

    def choose(shape: Shape, *kinds) -> Choice:
        plan = plan_for_shape(shape, *kinds)
        return dispatch.choose(plan, shape.itemsize, device, name=implementation)

    def choices(shape: Shape) -> tuple[Choice, Choice]:
        drawn = Choice(REFERENCE, COUPLED)
        if not verifier.coupled:
            drawn = choose(shape._replace(gamma=0))
        if verifier.rule is None:
            return Choice(REFERENCE, NO_RULE), drawn
        if shape.gamma and shape.draft == PART:
            return Choice(fallback(device), OF_PART), drawn
        return choose(shape, rule, target), drawn

    if verifier.rule is not None:
        law = fused.law if verifier.law is None else verifier.law
        verifier = verifier._replace(law=law, verify=fused.verify)
    return Wired(verifier, None if verifier.coupled else draw, choices)
