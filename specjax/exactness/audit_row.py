"""The audit of a run as a row of a table: `specjax.exactness.audit`."""

import math
from collections.abc import Callable

from specjax import drafts, fused, verifiers
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, DraftSource
from specjax.exactness import audit as auditing
from specjax.measure import pairs
from specjax.measure.pairs import Pair, Read
from specjax.measure.row import Measurement
from specjax.measure.texts import Calls, Protocol
from specjax.prompts import Prompts
from specjax.verifiers import guarantees


def audit(
    target: Pretrained,
    draft: DraftLike,
    protocol: Protocol,
    read: Read = pairs.prompts,
    fault: Callable | None = None,
) -> Measurement:
    """Returns the measurement of one run's audit against the target's own
    distributions.

    target, draft, protocol, read: as of `alpha`. fault: breaks the decoder on purpose,
    (draft, verifier) -> both."""
    pair = drafts.pair(target, draft)
    if fault is not None:
        apply_fault(pair[1], protocol, fault)
    return pairs.text_measurement(
        measure_audit,
        pair,
        protocol,
        read,
        options={"fault": fault},
        with_alpha=False,
        shares=False,
    )


def measure_audit(
    pair: Pair, prompts: Prompts, protocol: Protocol, fault: Callable | None = None
) -> dict:
    """Returns the results of one audit: plain numbers, with None for infinity."""
    pair = pairs.place_on_mesh(pair, protocol.batch)
    drafting, verifier = apply_fault(pair[1], protocol, fault)
    chosen = fused.for_protocol(*pair, protocol, verifier)
    steps, calls = auditing.run((pair[0], drafting), prompts, protocol, chosen)
    verdict = auditing.judge(auditing.total(steps))
    log_e, _ = auditing.evidence(steps)
    largest = float(log_e.max())
    name = fault.__name__.replace("_", " ") if fault else ""
    rule, policy = protocol.decode.rule, protocol.decode.policy
    guarantee = guarantees.combine(rule, pair[1].name, policy)
    return {
        **verdict._asdict(),
        "limits": verdict.limits._asdict(),
        "max_z": max([0.0, *(abs(z) for z in verdict.z.values() if z is not None)]),
        "log_e": largest if math.isfinite(largest) else None,
        "alarm": auditing.alarm(log_e),
        "level": auditing.LEVEL,
        "power": auditing.POWER,
        **totals(calls),
        "fault": name,
        "guarantee": "none: broken on purpose" if fault else guarantee,
        "kernels": chosen.record,
        **pairs.names(pair, protocol),
    }


def apply_fault(
    draft: DraftSource, protocol: Protocol, fault: Callable | None
) -> tuple:
    """Returns the draft and the protocol's rule; one of them is broken if there is a
    fault."""
    verifier = verifiers.find(protocol.decode.rule)
    if fault is None:
        return draft, verifier
    if protocol.decode.gamma < 1:
        raise ValueError("a fault needs drafted tokens: set gamma to at least 1")
    return fault(draft, verifier)


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
