"""A decode whose logits are no law ends with an error, not with id 0 for ever.

Logits that are all NaN or -inf, or among them +inf, have no softmax, and a draw from
NaN is id 0. `guarded` makes a verifier write an id below every vocabulary there, and
`check` looks for one when the ids are on the host: nothing is carried, computed again
or sent from inside a step. Who decodes for people is guarded; what is timed
(`specjax.measure`) and `generate.build_loop` run their verifier as it is.
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import trees
from specjax.types import Draft, Kernels, Verdict, Verifier

# Ids of no vocabulary; -1 is taken, for a text that has no end.
TARGET, DRAFT = -2, -3
SIDES = {TARGET: "target", DRAFT: "draft"}


def guarded(verifier: Verifier) -> Verifier:
    """The same verifier, which writes `TARGET` or `DRAFT` where a law is none.
    verifier: any; wrapped last, after kernels were chosen for it. Returns a verifier
    whose verdict on finite logits is unchanged. Of others it keeps at most what was
    drafted before them, and then adds the id of the side that they are of."""

    def verify(target, draft: Draft, noise, keep_residual: bool = False) -> Verdict:
        verdict = verifier.verify(target, draft, noise, keep_residual)
        top = target.top if verifier.law is None else largest(target.logits)
        slots = jnp.arange(top.shape[1])
        num, n = draft.num[:, None], verdict.num_accepted
        if verdict.path is not None:  # by slot of the text, not by node
            top, num = trees.rows_along(top, verdict), n[:, None]
        mark = jnp.where(jnp.isfinite(top) | (slots > num), 0, TARGET)
        if draft.law is not None and slots.size > 1:
            lost = jnp.pad(~jnp.isfinite(draft.law.top), ((0, 0), (0, 1)))
            if verdict.path is not None:  # of any node: what was tried is not known
                drafted = slots < draft.num[:, None]
                lost = (lost & drafted).any(1, keepdims=True) & (slots == 0)
                num = jnp.maximum(num, 1)
            mark = jnp.where((mark == 0) & lost & (slots < num), DRAFT, mark)
        bad = mark < 0
        first = jnp.argmax(bad, axis=1)
        n = jnp.where(bad.any(1), jnp.minimum(n, first), n)
        added = jnp.take_along_axis(mark, first[:, None], axis=1)
        here = bad.any(1, keepdims=True) & (slots == n[:, None])
        tokens = jnp.where(here, added, verdict.tokens).astype(verdict.tokens.dtype)
        return verdict._replace(num_accepted=n, tokens=tokens)

    return verifier._replace(verify=verify)


def guarded_kernels(kernels: Kernels) -> Kernels:
    """Both verifiers of `kernels` guarded: of speculative steps and of the baseline."""
    both = {name: guarded(getattr(kernels, name)) for name in ("verifier", "alone")}
    return kernels._replace(**both)


def largest(logits: Array) -> Array:
    """The largest of logits [..., V] that is a number, [...]; -inf where none is."""
    return jnp.max(jnp.where(jnp.isnan(logits), -jnp.inf, logits), axis=-1)


def check(texts: Iterable[np.ndarray]) -> None:
    """Refuses texts that a guarded verifier could not go on with. texts: the ids of
    each row, without its prompt. Raises FloatingPointError, in one line, which row,
    which step, and whose logits."""
    for row, ids in enumerate(texts):
        marked = np.flatnonzero(np.isin(ids, list(SIDES)))
        if marked.size:
            raise error(row, int(marked[0]), SIDES[int(ids[marked[0]])])


def error(row: int, token: int, side: str) -> FloatingPointError:
    """What `check` raises. row, token: from 0. side: "target" or "draft"."""
    return FloatingPointError(
        f"row {row}, the step that writes token {token} of its text: the {side}'s"
        " logits are all NaN or -inf, or +inf: its weights are damaged or too large for"
        " their dtype; take another copy, or a wider dtype"
    )
