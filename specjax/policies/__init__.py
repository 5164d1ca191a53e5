"""Who decides how much to draft next, from what was accepted so far (Section 3.5).

Each is named here, so that configurations and commands can name it.
"""

from specjax.own import imported
from specjax.policies.adaptive import heuristic
from specjax.types import Policy

POLICIES = {"none": None, "adaptive": heuristic()}
__all__ = ["POLICIES", "heuristic", "named"]


def named(name: str) -> Policy | None:
    """The policy of a name: "none" always drafts gamma tokens; "adaptive"; or one of
    one's own, "my_module:my_policy".

    Raises ValueError for a name that stands for none.
    """
    if name in POLICIES:
        return POLICIES[name]
    if ":" in name:
        return imported(name, Policy)
    known = ", ".join(POLICIES)
    raise ValueError(f"no policy {name!r}: choose one of {known} or module:name")
