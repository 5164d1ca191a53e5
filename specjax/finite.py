"""The check that logits are finite: a damaged model ends with an error, not with id 0.

Logits that are all NaN or -inf, or contain +inf, have no softmax, and a draw from NaN
is id 0. `guard` makes a verifier write an id below every vocabulary there, and `check`
looks for such ids once they are on the host, so nothing is carried, recomputed or sent
from inside a step. Decoding for users is guarded; what is timed (`specjax.measure`) and
`generate.build_loop` use their verifier as it is. Axes: B rows, G = gamma, V
vocabulary.
"""

import functools
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import trees
from specjax.types import Draft, Kernels, Law, Verdict, Verifier

# Ids outside of every vocabulary; -1 already means a text without an end token.
TARGET, DRAFT = -2, -3
SIDES = {TARGET: "target", DRAFT: "draft"}


def guard(verifier: Verifier) -> Verifier:
    """Returns the same verifier, except that it marks the rows whose logits are not
    finite.

    It writes `TARGET` or `DRAFT` there. On finite logits its verdict is unchanged. On
    others it keeps at most the tokens drafted before them, and then adds the id of the
    side with these logits. verifier: any; it is wrapped last, after its kernels were
    chosen.
    """

    def verify(
        target: Any, draft: Draft, noise: Any, keep_residual: bool = False
    ) -> Verdict:
        verdict = verifier.verify(target, draft, noise, keep_residual)
        top = target.top if verifier.law is None else largest(target.logits)
        slots = jnp.arange(top.shape[1])
        num, n = draft.num[:, None], verdict.num_accepted
        if verdict.path is not None:  # in the order of the text, not of the nodes
            top, num = trees.rows_on_path(top, verdict), n[:, None]
        mark = jnp.where(jnp.isfinite(top) | (slots > num), 0, TARGET)
        if draft.law is not None and slots.size > 1:
            laws = jax.tree.leaves(draft.law, is_leaf=lambda it: isinstance(it, Law))
            lost = functools.reduce(operator.or_, [~jnp.isfinite(x.top) for x in laws])
            lost = jnp.pad(lost, ((0, 0), (0, 1)))
            if verdict.path is not None:  # any node counts: those tried are not known
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


def guard_kernels(kernels: Kernels) -> Kernels:
    """Returns `kernels` with both of its verifiers guarded: that of steps and that of
    the baseline."""
    verifier, alone = guard(kernels.verifier), guard(kernels.alone)
    return kernels._replace(verifier=verifier, alone=alone)


def largest(logits: Array) -> Array:
    """Returns the largest of logits [..., V] that is not NaN; -inf if all are NaN."""
    return jnp.max(jnp.where(jnp.isnan(logits), -jnp.inf, logits), axis=-1)


def check(texts: Iterable[np.ndarray]) -> None:
    """Raises FloatingPointError for texts that a guarded verifier could not continue.

    The message names the row, the step, and whose logits it was, in one line. texts:
    the ids of each row, without its prompt.
    """
    for row, ids in enumerate(texts):
        marked = np.flatnonzero(np.isin(ids, list(SIDES)))
        if marked.size:
            raise error(row, int(marked[0]), SIDES[int(ids[marked[0]])])


def error(row: int, token: int, side: str) -> FloatingPointError:
    """Returns the error that `check` raises.

    row, token: counted from 0. side: "target" or "draft".
    """
    return FloatingPointError(
        f"row {row}, the step that writes token {token} of its text: the {side}'s"
        " logits are all NaN or -inf, or contain +inf: its weights are damaged or too"
        " large for their dtype; use another copy, or a wider dtype"
    )
