"""How far a draft's law q is from its target's p: the losses of distillation, by name.

Of p the K likeliest ids are kept, and what all others weigh together; q is compared as
such. A divergence of these K + 1 classes is at most that of the whole laws.
Axes: K kept ids, C = K + 1 classes, V vocabulary; any number of axes before them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

LEAST = 1e-6  # of what is not kept, which rounding may take below 0
ADAPTED = 3.0  # how fast the hybrid turns from KL to TVD as alpha grows


def classes(log_p: Array, ids: Array) -> Array:
    """log_p [..., V] at `ids` [..., K], then of all others together: [..., C]."""
    kept = jnp.take_along_axis(log_p, ids, axis=-1)
    others = 1 - jnp.exp(kept).sum(-1, keepdims=True)
    return jnp.concatenate([kept, jnp.log(jnp.maximum(others, LEAST))], axis=-1)


def alpha(log_p: Array, log_q: Array) -> Array:
    """The chance of being accepted, sum min(p, q) (Leviathan et al. 2023, Thm 3.5)."""
    return jnp.exp(jnp.minimum(log_p, log_q)).sum(-1)


def forward_kl(log_p: Array, log_q: Array) -> Array:
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def jensen_shannon(log_p: Array, log_q: Array) -> Array:
    """The mean of KL(p || m) and KL(q || m), m halfway between them."""
    middle = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
    return (forward_kl(log_p, middle) + forward_kl(log_q, middle)) / 2


def tvd(log_p: Array, log_q: Array) -> Array:
    """Total variation, 1 - alpha: what is rejected."""
    return 1 - alpha(log_p, log_q)


def log_alpha(log_p: Array, log_q: Array) -> Array:
    """-log alpha, whose gradient does not vanish where the draft is bad."""
    return -jnp.log(jnp.maximum(alpha(log_p, log_q), LEAST))


def hybrid(log_p: Array, log_q: Array) -> Array:
    """KL where little is accepted, TVD where much is, token by token."""
    share = jax.lax.stop_gradient(jnp.exp(-ADAPTED * alpha(log_p, log_q)))
    return share * forward_kl(log_p, log_q) + (1 - share) * tvd(log_p, log_q)


LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "kl": forward_kl,
    "reverse_kl": lambda log_p, log_q: forward_kl(log_q, log_p),
    "jsd": jensen_shannon,
    "tvd": tvd,
    "log_alpha": log_alpha,
    "hybrid": hybrid,
}
