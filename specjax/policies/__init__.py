"""The policies that choose how much to draft next, from past acceptances (Section 3.5).

`POLICIES` gives each the name that configurations and commands use.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import probs
from specjax.policies.adaptive import heuristic
from specjax.policies.confidence import threshold
from specjax.policies.cost_table import cost_table
from specjax.policies.renewal import renewal
from specjax.runtime.plugins import call_with_options, describe_error, is_custom, load
from specjax.types import Info, Policy, Sampling


def none() -> None:
    """Stands for the absence of a policy: every draft has gamma tokens."""


# The functions take the options of a name, as in `adaptive:start=3,least=2`.
POLICIES: dict[str, Callable[..., Policy | None]] = {
    "none": none,
    "adaptive": heuristic,
    "confidence": threshold,
    "cost_table": cost_table,
    "renewal": renewal,
}
__all__ = ["POLICIES", "cost_table", "find", "heuristic", "renewal", "threshold"]


def find(name: str) -> Policy | None:
    """Returns the policy that a name stands for.

    Args:
      name: "none", which always drafts gamma tokens; a policy of this package such as
        "adaptive", with its options as in "adaptive:start=3"; or a custom one,
        "my_module:my_policy".

    Raises:
      ValueError: if there is no such policy, if it does not take these options, or if a
        custom policy fails.
    """
    bare, _, options = name.partition(":")
    if bare in POLICIES:
        return call_with_options(name, POLICIES[bare], options)
    if not is_custom(name):
        choices = ", ".join(POLICIES)
        raise ValueError(f"no policy {name!r}: choose one of {choices} or module:name")
    policy = load(name, Policy)
    check(name, policy)
    return policy


def check(name: str, policy: Policy) -> None:
    """Raises ValueError for a policy whose functions do not return what `Policy`
    requires."""

    def run_once() -> tuple:
        initial = after_token = policy.init(2, 3)
        budget, carry = initial
        some = jnp.ones(2, jnp.int32)
        if policy.go_on is not None:
            law = probs.standardize(jnp.zeros((2, 3)), Sampling(jnp.ones(2)))
            carry, going = policy.go_on(carry, law, some, 0)
            after_token = jnp.where(going, budget, 0), carry
        info = Info(
            drafted=some,
            accepted=some,
            tested=some,
            emitted=some,
            accept_prob=jnp.ones((2, 3)),
            tokens=jnp.ones((2, 3), jnp.int32),
            full=some > 0,
        )
        return initial, after_token, policy.update(budget, carry, info)

    try:
        each = jax.eval_shape(run_once)
    except Exception as error:  # a custom policy may raise anything
        raise ValueError(f"{name} fails: {describe_error(error)}") from error
    shapes = [[(x.shape, x.dtype) for x in jax.tree.leaves(x)] for x in each]
    if not shapes[0] == shapes[1] == shapes[2] or each[0][0].shape != (2,):
        raise ValueError(
            f"{name}: init and update must return (budget [B] int32, carry) with the"
            " same shapes and dtypes, and go_on must return (such a carry, bool [B])"
        )
