"""The one-run audit of what real pairs decode: `specjax.audit` as a table.

Every rule must pass, and two decoders that are broken on purpose must not: their texts
look as good, and no test on a small vocabulary has them in hand.
"""

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import Array

from experiments import fingerprint, tasks
from experiments.row import Measurement
from specjax import audit, verifiers
from specjax.bench import players, scoring
from specjax.bench.decoding import Calls, Protocol
from specjax.bench.players import Player
from specjax.drafters.rollout import independent
from specjax.types import Draft, Law, Request, Sampling, State, Verdict, Verifier
from specjax.verifiers import token

HOTTER = 1.1  # by how much a draft's law is hotter than what draws its tokens


def build(
    target: Player, draft: Player, protocol: Protocol, fault: str = ""
) -> Measurement:
    """The measurement of one row; fault: of `FAULTS`, "" for none.

    Raises ValueError for a pair that does not decode, an unknown rule or fault, or a
    fault that the pair or the rule cannot have.
    """
    scoring.check(target, draft, with_alpha=False)
    broken(draft, protocol, fault)
    files = fingerprint.rule(protocol.rule)
    inputs = (*target.files, *draft.files, *tasks.read(protocol.task).files, *files)
    run = partial(measure, target, draft, protocol, fault)
    return Measurement(run, __name__, inputs, target.dtype, protocol.seed)


def measure(target: Player, draft: Player, protocol: Protocol, fault: str = "") -> dict:
    """What the audit of one run found: plain numbers, None for what is infinite.

    Raises ValueError as `build`.
    """
    prompts = tasks.distinct(protocol.task)
    drafting, verifier = broken(draft, protocol, fault)
    text, calls = audit.write((target, drafting), prompts, protocol, verifier)
    steps = audit.score((target, draft), text, protocol.temperature)
    found, (log_e, _) = audit.audit(audit.total(steps)), audit.evidence(steps)
    largest = float(log_e.max())
    return {
        **found._asdict(),
        "limits": found.limits._asdict(),
        "max_z": max((abs(z) for z in found.z.values() if z is not None), default=0.0),
        "log_e": largest if math.isfinite(largest) else None,
        "alarm": audit.alarm(log_e),
        "level": audit.LEVEL,
        "power": audit.POWER,
        **totals(calls),
        "fault": fault,
        "guarantee": "none: broken on purpose" if fault else verifier.guarantee,
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        "protocol": protocol._asdict(),
    }


def totals(calls: Calls) -> dict:
    accepted, tested = int(calls.accepted.sum()), int(calls.tested.sum())
    runs = int(calls.calls.sum())
    return {
        "sequences": len(calls.texts),
        "target_calls": runs,
        "tokens_per_call": float(calls.tokens.sum() / runs),
        "accepted": accepted,
        "tested": tested,
        "accepted_over_tested": accepted / tested if tested else None,
    }


def broken(draft: Player, protocol: Protocol, fault: str) -> tuple[Player, Verifier]:
    """A draft and the protocol's rule, one of them with the fault of that name.

    Raises ValueError for an unknown rule or fault, or one that they cannot have.
    """
    verifier = verifiers.named(protocol.rule)
    if not fault:
        return draft, verifier
    if fault not in FAULTS:
        raise ValueError(f"no fault {fault!r}: choose one of {', '.join(FAULTS)}")
    if protocol.gamma < 1:
        raise ValueError("a fault needs drafted tokens: set gamma to at least 1")
    return FAULTS[fault](draft, verifier)


def draft_temperature(draft: Player, verifier: Verifier) -> tuple[Player, Verifier]:
    """Tokens are drawn at T / HOTTER from a law that says T."""
    if draft.regime != players.SAMPLED:
        raise ValueError(f"{draft.name} draws from no logits of its own: name a model")

    def colder(draw: Callable) -> Callable:
        def begin(key: Array, request: Request, state: State) -> Callable:
            setting = Sampling(request.sampling.temperature / HOTTER)
            sharper = draw(key, request._replace(sampling=setting), state)
            said = draw(key, request, state)
            return lambda *at: (sharper(*at)[0], said(*at)[1])

        return begin

    def drafter(gamma: int, draw: Callable = independent):
        return draft.drafter(gamma, colder(draw))

    return draft._replace(drafter=drafter), verifier


def reused_key(draft: Player, verifier: Verifier) -> tuple[Player, Verifier]:
    """The extra token is drawn with the very uniform that rejected the draft."""
    if verifier.noise is not token.noise:
        raise ValueError("no uniform rejects in this rule: use token")

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        n = verifier.verify(target, draft, noise).num_accepted[:, None]
        at = jnp.minimum(n, draft.tokens.shape[1] - 1)
        used = jnp.take_along_axis(noise.accept, at, axis=1)
        sample = jnp.where(n < draft.num[:, None], used, noise.sample)
        noise = noise._replace(sample=sample)
        return verifier.verify(target, draft, noise, keep_residual)

    return draft, Verifier(token.noise, verify)


FAULTS = {"draft temperature": draft_temperature, "reused key": reused_key}
