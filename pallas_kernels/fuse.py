"""Twins of `specjax`'s functions on logits, each the fastest that is known to be right.

    twins = fuse.build(Reference(probs.standardize, probs.sample, token.verify))
    verifier = token.verifier._replace(law=twins.law, verify=twins.verify)
    draft = autoregressive.build(model, gamma, rollout.drawn_by(twins.draw))

Every twin returns what its reference returns for the same uniforms.
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from pallas_kernels import dispatch, mosaic_gpu, mosaic_tpu, onepass, triton
from pallas_kernels.dispatch import Choice, Device
from pallas_kernels.laws import EXACT, Law, Row, Rule, Verdict, deferred, left, weight
from pallas_kernels.plan import FIELDS, Plan, Tiles, operands, plan


class Reference(NamedTuple):
    """standardize: (logits, Sampling) -> Law. sample: (Law [B], u [B, 2]) -> ids.
    verify: (Law [B, G + 1], Draft, noise, keep_residual) -> Verdict, of the rule."""

    standardize: Callable
    sample: Callable
    verify: Callable


class Twins(NamedTuple):
    """law: (logits [B, ..., V], Sampling) -> Law, for `Verifier.law`. verify: for
    `Verifier.verify`. draw: (logits [B, V], Sampling, u [B, 2]) -> (ids, Law), for
    `rollout.drawn_by`. ran: (target Law, Draft) -> the Choice that verifies them.
    """

    law: Callable
    verify: Callable
    draw: Callable
    ran: Callable


class Setting(NamedTuple):
    """asked: "auto" or a name of `dispatch`. tiles: instead of the chosen ones.
    interpret: of the backend, to run a kernel on a CPU.
    """

    asked: str = "auto"
    rule: Rule = EXACT
    tiles: Tiles | None = None
    interpret: Any = None


AUTO = Setting()


class _Draw(NamedTuple):
    """A draft of no tokens: what is left to do is to draw one."""

    tokens: Array
    num: None = None
    law: None = None


class _Noise(NamedTuple):
    sample: Array


def build(
    reference: Reference, device: Device | None = None, setting: Setting = AUTO
) -> Twins:
    """Twins for a device, the default one if none is given.

    Raises ValueError, when first called, for an implementation that was asked for and
    that the device or the shape cannot have.
    """
    device = dispatch.here() if device is None else device
    if reason := unfit(setting.rule, device):
        raise ValueError(reason)

    def chosen(target, draft) -> tuple[Plan, Choice]:
        made = plan(target, draft, setting.rule)
        itemsize = target.logits.dtype.itemsize
        choice = dispatch.choose(made, itemsize, device, setting.asked)
        tiles = setting.tiles or choice.tiles
        return (made if tiles is None else made._replace(tiles=tiles)), choice

    def ran(target, draft) -> Choice:
        if draft.law is not None and draft.law.row is not None:
            return Choice(
                _simple(device), "the draft's laws are rows of a shared table"
            )
        return chosen(target, draft)[1]

    def law(logits: Array, sampling):
        one = Law(logits, logits)  # for its shape alone
        flat = logits.reshape(logits.shape[0], -1, logits.shape[-1])
        tokens = jnp.zeros((flat.shape[0], flat.shape[1] - 1), jnp.int32)
        name = chosen(one._replace(logits=flat), _Draw(tokens))[1].name
        if name == dispatch.REFERENCE:
            return reference.standardize(logits, sampling)
        of = onepass.standardize if name == dispatch.ONEPASS else onepass.defer
        return of(logits, sampling)

    def verify(target, draft, noise, keep_residual: bool = False):
        name = ran(target, draft).name
        if name in (dispatch.REFERENCE, dispatch.ONEPASS):
            return reference.verify(
                _completed(target),
                draft._replace(law=_completed(draft.law)),
                noise,
                keep_residual,
            )
        made, choice = chosen(target, draft)
        out = _launch(made, choice, operands(made, target, draft, noise), setting)
        n, rest = out["num_accepted"], None
        if keep_residual:
            rest = residual(target, draft, n, setting.rule)
        chance = out.get("accept_prob", jnp.zeros(draft.tokens.shape))
        return Verdict(n, out["verdict"], chance, residual=rest)

    def draw(logits: Array, sampling, u: Array):
        deferred_law = onepass.defer(logits[:, None], sampling)
        none = _Draw(jnp.zeros((logits.shape[0], 0), jnp.int32))
        made, choice = chosen(deferred_law, none)
        if choice.name in (dispatch.REFERENCE, dispatch.ONEPASS):
            plain = choice.name == dispatch.REFERENCE
            read = reference.standardize if plain else onepass.standardize
            found = read(logits, sampling)
            return reference.sample(found, u), found
        given = operands(made, deferred_law, none, _Noise(u))
        out = _launch(made, choice, given, setting)
        found = Law(logits, **{name: out[name] for name in FIELDS})
        return out["verdict"][:, 0], found

    return Twins(law, verify, draw, ran)


def unfit(rule: Rule, device: Device) -> str | None:
    if not 0 < rule.lenience <= 1:
        return f"lenience must be in (0, 1]; got {rule.lenience}"
    if rule.sigmoid is not None and rule != Rule(sigmoid=rule.sigmoid):
        return "the sigmoid rule has no lenience: leave lenience 1"
    return None


def _simple(device: Device) -> str:
    return dispatch.REFERENCE if device.platform == "cpu" else dispatch.ONEPASS


def _completed(law):
    return onepass.complete(law) if law is not None and deferred(law) else law


def _launch(made: Plan, choice: Choice, given: dict, setting: Setting) -> dict:
    run = setting.interpret
    if choice.name == dispatch.MOSAIC_TPU:
        return mosaic_tpu.verdict(made, given, run or False, choice.vmem)
    if choice.name == dispatch.TRITON:
        return triton.verdict(made, given, run or False)
    return mosaic_gpu.verdict(made, given, run)


def residual(target, draft, n: Array, rule: Rule) -> Array:
    """The weights [B, V] that the token after n kept ones is drawn from."""
    rows, gamma = jnp.arange(n.size), draft.tokens.shape[1]

    def dense(law, index: Array) -> Array:
        law = _completed(law)
        z = law.logits[rows, index].astype(jnp.float32)
        fields = law.scale, law.top, law.tau, law.tie, law.lse
        row = Row(*(field[rows, index][:, None] for field in fields))
        return weight(z, jnp.arange(z.shape[1]), row, rule)

    p = dense(target, n)
    if gamma == 0:
        return p
    at = jnp.minimum(n, gamma - 1)
    if draft.law is None:
        rest = jnp.where(draft.tokens[rows, at, None] == jnp.arange(p.shape[1]), 0.0, p)
    else:
        rest = left(p, dense(draft.law, at), rule)
    rest = jnp.where((n < draft.num)[:, None], rest, p)
    return jnp.where(rest.any(axis=1, keepdims=True), rest, p)
