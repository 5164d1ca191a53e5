"""The number of tokens until a fault is detected by a test that may be watched after
every token.

E of `specjax.exactness.audit` is a product of likelihood ratios with mean 1 while every
token follows the target's law; it ever reaches 1 / level with probability at most
`level`. A decoder is broken on purpose and writes texts, and the test watches the same
texts in many random orders. Axes: B rows, G = gamma, N texts, M tokens.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from experiments.questions.verdict import Question, judge
from specjax import fused, probs
from specjax.drafts.source import DraftSource
from specjax.exactness import audit
from specjax.exactness.audit_row import apply_fault
from specjax.measure.pairs import Pair
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import token

QUESTION = Question(
    "After how many tokens does the test that may be watched for ever see a fault?",
    "half of all orders of the texts end without an alarm",
    "a residual of p within hundreds of tokens, a leak of 1 % within 300,000, and"
    " uniforms of bfloat16 never",
)
ORDERS = 60
LEAK = 0.01


def residual_is_p(
    draft: DraftSource, verifier: Verifier
) -> tuple[DraftSource, Verifier]:
    """Breaks the verifier: after a rejection a token is drawn from p, not from the
    residual.
    """

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        verdict = verifier.verify(target, draft, noise, keep_residual)
        n = verdict.num_accepted
        again = probs.pick(probs.dense(probs.take(target, n)), noise.sample)
        return verdict._replace(tokens=token.emit(draft, n, again))

    return draft, Verifier(token.noise, verify)


def draws_again(draft: DraftSource, verifier: Verifier) -> tuple[DraftSource, Verifier]:
    """Breaks the verifier: a drafted token is compared with one draw from p, and
    another draw is emitted.
    """
    again = residual_is_p(draft, verifier)[1]

    def verify(target: Law, draft: Draft, *noise) -> Verdict:
        return again.verify(target, draft._replace(law=None), *noise)

    return draft, Verifier(token.noise, verify)


def coins(change: Callable) -> Callable:
    """Returns a fault that changes the uniforms by which tokens are accepted."""

    def fault(draft: DraftSource, verifier: Verifier) -> tuple[DraftSource, Verifier]:
        def verify(target: Law, draft: Draft, noise: token.Noise, *more) -> Verdict:
            changed = noise._replace(accept=change(noise.accept))
            return verifier.verify(target, draft, changed, *more)

        return draft, Verifier(token.noise, verify)

    return fault


FAULTS = {
    "none": None,
    "residual_is_p": residual_is_p,
    "draws_again": draws_again,
    # A drafted token is kept whatever p says, one time in a hundred.
    "leak": coins(lambda u: jnp.where(u < LEAK, 0.0, (u - LEAK) / (1 - LEAK))),
    "bfloat16": coins(lambda u: u.astype(jnp.bfloat16).astype(u.dtype)),
}


def delays(steps: audit.Steps, orders: int = ORDERS) -> np.ndarray:
    """Returns the tokens until the alarm in each of `orders` random orders of the
    texts, [orders], inf without an alarm.

    An order has each text once. E has mean 1 for independent texts only: a text that
    came twice would count its likelihood ratio twice, and exact decoders would raise
    more alarms than Ville's inequality allows.
    """
    places = [np.flatnonzero(steps.sequence == i) for i in np.unique(steps.sequence)]
    rng, found = np.random.default_rng(0), []
    for _ in range(orders):
        index = np.concatenate([places[i] for i in rng.permutation(len(places))])
        log_e, _ = audit.evidence(audit.Steps(*(leaf[index] for leaf in steps)))
        found.append(audit.alarm(log_e) or np.inf)
    return np.array(found)


def measure(
    pair: Pair, prompts: Prompts, protocol: Protocol, kept: dict, *, fault: str = "none"
) -> dict:
    """Returns the tokens until the alarm: the median and the 90 % quantile over all
    orders; None where there is no alarm.

    `delay_se` is the standard deviation over the orders that end in an alarm. The error
    in the verdict is that of a share of ORDERS random orders of these texts, and says
    nothing of other texts.

    Raises:
        ValueError: the fault is unknown.
    """
    del kept
    if fault not in FAULTS:
        raise ValueError(f"no fault {fault!r}: choose one of {', '.join(FAULTS)}")
    drafting, verifier = apply_fault(pair[1], protocol, FAULTS[fault])
    chosen = fused.for_protocol(*pair, protocol, verifier)
    text, _ = audit.write((pair[0], drafting), prompts, protocol, chosen)
    steps = audit.score(
        pair, text, protocol.decode.temperature, **protocol.decode.truncation()
    )
    found = delays(steps)
    seen = np.isfinite(found)
    half, most = (np.quantile(found, x, method="higher") for x in (0.5, 0.9))

    def float_or_none(x: float) -> float | None:
        return float(x) if np.isfinite(x) else None

    share = float(seen.mean())
    error = float(np.sqrt(share * (1 - share) / len(found)))
    said = "of all orders an alarm ends"
    if fault == "none" and protocol.decode.rule == "token":
        verdict = judge(said, share, error=None, bound=audit.LEVEL, most=True)
    else:
        verdict = judge(said, share, error=error, bound=0.5)
    return {
        "tokens": len(steps.sequence),
        "sequences": int(steps.sequence.max()) + 1,
        "fault": fault,
        "delay": float_or_none(half),
        "delay_se": float(np.std(found[seen], ddof=1)) if seen.sum() > 1 else None,
        "delay_most": float_or_none(most),
        "alarms": share,
        "level": audit.LEVEL,
        "verdict": [verdict],
        "points": [],
    }
