"""Who decides how much to draft next, from what was accepted so far (Section 3.5).

Each is named here, so that configurations and commands can name it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import probs
from specjax.policies.adaptive import heuristic
from specjax.policies.confidence import threshold
from specjax.policies.cost_table import cost_table
from specjax.policies.renewal import renewal
from specjax.runtime.plugins import built, is_own, load, of
from specjax.types import Info, Policy, Sampling


def none() -> None:
    """No policy: gamma tokens are drafted every time."""


# Each is a function of its options, `adaptive:start=3,least=2`.
POLICIES: dict[str, Callable[..., Policy | None]] = {
    "none": none,
    "adaptive": heuristic,
    "confidence": threshold,
    "cost_table": cost_table,
    "renewal": renewal,
}
__all__ = ["POLICIES", "cost_table", "heuristic", "named", "renewal", "threshold"]


def named(name: str) -> Policy | None:
    """The policy of a name: "none" always drafts gamma tokens; "adaptive", or with its
    options "adaptive:start=3"; or one of one's own, "my_module:my_policy". Raises
    ValueError for a name that stands for none, for options that are none, or for a
    policy of one's own that fails."""
    bare, _, options = name.partition(":")
    if bare in POLICIES:
        return built(name, POLICIES[bare], options)
    if not is_own(name):
        known = ", ".join(POLICIES)
        raise ValueError(f"no policy {name!r}: choose one of {known} or module:name")
    policy = load(name, Policy)
    check(name, policy)
    return policy


def check(name: str, policy: Policy) -> None:
    """Raises ValueError for a policy that does not keep to its contract."""

    def twice() -> tuple:
        budget, carry = told = policy.init(2, 3)
        some = jnp.ones(2, jnp.int32)
        if policy.go_on is not None:
            law = probs.standardize(jnp.zeros((2, 3)), Sampling(jnp.ones(2)))
            after, going = policy.go_on(carry, law, some, 0)
            told = jnp.where(going, budget, 0), after
        blocks = jnp.ones((2, 3)), jnp.ones((2, 3), jnp.int32)
        info = Info(some, some, some, some, *blocks, some > 0)
        return (budget, carry), told, policy.update(budget, told[1], info)

    try:
        each = jax.eval_shape(twice)
    except Exception as error:  # whatever a policy of one's own does
        raise ValueError(f"{name} fails: {of(error)}") from error
    shapes = [[(x.shape, x.dtype) for x in jax.tree.leaves(x)] for x in each]
    if not shapes[0] == shapes[1] == shapes[2] or each[0][0].shape != (2,):
        raise ValueError(
            f"{name}: init and update must return (budget [B] int32, carry), of one"
            " shape and dtype each time, and go_on (such a carry, bool [B])"
        )
