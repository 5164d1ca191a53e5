"""The losses of distillation by name: distances of a draft's law q from its target's
law p.

Of p the K most likely ids are stored, and the total weight of all others; q is compared
in the same form. A divergence of these K + 1 classes is at most that of the whole laws,
and their alpha is at least that of the whole laws.
Axes: K kept ids, C = K + 1 classes, V vocabulary; any number of axes before them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

LEAST = 1e-6  # of what is not kept, which rounding may take below 0
ADAPTED = 3.0  # how fast the hybrid turns from KL to TVD as alpha grows


def classes(logits: Array, ids: Array) -> Array:
    """Returns the log of the law of logits [..., V] at `ids` [..., K], then the log of
    the total probability of all other ids: [..., C]."""
    return _with_others(jnp.take_along_axis(logits, ids, axis=-1), logits)


def reduced_classes(logits: Array, ids: Array) -> Array:
    """Returns the same for a draft that proposes only some ids: logits [..., V] are of
    its own ids, and so are `ids`; an id that it lacks is V or more, and has log q =
    -inf.
    """
    kept = jnp.take_along_axis(logits, ids, axis=-1, mode="fill", fill_value=-jnp.inf)
    return _with_others(kept, logits)


def _with_others(kept: Array, logits: Array) -> Array:
    """Returns the classes for the logits of those ids that are kept.

    Only these are normalized: to write V normalized numbers for each token took a third
    of a training step of Medusa's heads.
    """
    kept = kept - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    others = 1 - jnp.exp(kept).sum(-1, keepdims=True)
    return jnp.concatenate([kept, jnp.log(jnp.maximum(others, LEAST))], axis=-1)


def alpha(log_p: Array, log_q: Array) -> Array:
    """Returns the acceptance probability, sum min(p, q) (Leviathan et al. 2023, Thm
    3.5).
    """
    return jnp.exp(jnp.minimum(log_p, log_q)).sum(-1)


def forward_kl(log_p: Array, log_q: Array) -> Array:
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def jensen_shannon(log_p: Array, log_q: Array) -> Array:
    """Returns the mean of KL(p || m) and KL(q || m), where m is the mean of p and q."""
    middle = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
    return (forward_kl(log_p, middle) + forward_kl(log_q, middle)) / 2


def tvd(log_p: Array, log_q: Array) -> Array:
    """Returns the total variation, 1 - alpha: the probability of a rejection."""
    return 1 - alpha(log_p, log_q)


def log_alpha(log_p: Array, log_q: Array) -> Array:
    """Returns -log alpha, whose gradient does not vanish where the draft is bad."""
    return -jnp.log(jnp.maximum(alpha(log_p, log_q), LEAST))


def hybrid(log_p: Array, log_q: Array) -> Array:
    """Returns KL where few tokens are accepted and TVD where many are, separately at
    each token.
    """
    share = jax.lax.stop_gradient(jnp.exp(-ADAPTED * alpha(log_p, log_q)))
    said = jnp.where(log_q > -jnp.inf, log_q, log_p)
    return share * forward_kl(log_p, said) + (1 - share) * tvd(log_p, log_q)


def divergence(name: str, log_p: Array, log_q: Array) -> Array:
    """Returns the loss of a name for a draft that may lack ids, of log q = -inf. Such
    ids add nothing to a divergence, and alpha is that without them."""
    if name not in BY_ALPHA:
        log_q = jnp.where(log_q > -jnp.inf, log_q, log_p)
    return LOSSES[name](log_p, log_q)


BY_ALPHA = "tvd", "log_alpha", "hybrid"  # which read alpha
LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "kl": forward_kl,
    "reverse_kl": lambda log_p, log_q: forward_kl(log_q, log_p),
    "jsd": jensen_shannon,
    "tvd": tvd,
    "log_alpha": log_alpha,
    "hybrid": hybrid,
}
