"""Steps whose noise is named wrongly, which the record of their keys must show.

Each is a function that makes the mistake and returns a decoder that has it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from pytest import MonkeyPatch

from specjax import keys, policies, verifiers
from specjax.drafters import autoregressive, rollout, tree
from specjax.exactness import draws
from specjax.step import Decoder
from specjax.types import Verifier
from specjax.verifiers import gumbel, match, token

BLANK = draws.constant_model()


def chain(gamma: int, rule: str = "token", policy: str = "none") -> Decoder:
    verifier = verifiers.find(rule)
    drafter = autoregressive.build(BLANK, gamma, rollout.for_rule(verifier))
    return Decoder(BLANK, drafter, verifier, policies.find(policy))


def branches(parent: tuple[int, ...], siblings: str = "without") -> Decoder:
    rule = "recursive" if siblings == "without" else "recursive_replaced"
    drafter = tree.build(BLANK, parent, siblings)
    return Decoder(BLANK, drafter, verifiers.find(rule))


def forget_slots(monkeypatch: MonkeyPatch) -> Decoder:
    """The slots of a draft are forgotten."""
    right, name = keys.uniforms, "uniforms"
    monkeypatch.setattr(keys, name, lambda key, slots, *of: right(key, 0 * slots, *of))
    return chain(3)


def forget_iteration(monkeypatch: MonkeyPatch) -> Decoder:
    """The iteration is not named by its length."""
    right = keys.iteration
    monkeypatch.setattr(keys, "iteration", lambda key, length: right(key, 0 * length))
    return chain(1)


def merge_lengths(monkeypatch: MonkeyPatch) -> Decoder:
    """Two lengths name one iteration."""
    right = keys.iteration
    monkeypatch.setattr(keys, "iteration", lambda key, at: right(key, at - at % 2))
    return chain(1)


def share_first_row(monkeypatch: MonkeyPatch) -> Decoder:
    """All rows have the key of the first."""
    right = keys.iteration
    monkeypatch.setattr(
        keys, "iteration", lambda key, length: right(key[0 * length], length)
    )
    return chain(1)


def share_draft_purpose(monkeypatch: MonkeyPatch) -> Decoder:
    """Draft and rule have one purpose."""
    monkeypatch.setattr(keys, "ACCEPT", keys.DRAFT)
    return chain(2)


def forget_purpose(monkeypatch: MonkeyPatch) -> Decoder:
    """The purpose is not folded in."""
    monkeypatch.setattr(keys, "purpose", lambda key, name: key)
    return chain(2, "match")


def count_fed_nodes(monkeypatch: MonkeyPatch) -> Decoder:
    """Two nodes share noise: slots are counted from how many nodes were fed."""

    def slots(level: tree.Level, siblings: str) -> np.ndarray:
        return level.laws.max() + 1 + np.arange(level.laws.size)  # of this tree

    monkeypatch.setattr(tree, "slots", slots)
    return branches((-1, -1, 0, 1, 2))


def share_parent_noise(monkeypatch: MonkeyPatch) -> Decoder:
    """Siblings drawn with replacement share the noise of their parent."""
    monkeypatch.setattr(
        tree, "slots", lambda level, siblings: level.laws[level.above] + 1
    )
    return branches((-1, -1, 0), tree.WITH)


def race_ahead(monkeypatch: MonkeyPatch) -> Decoder:
    """A coupled draft races with the noise of the place after its own."""
    drafter = autoregressive.build(BLANK, 2, ahead)
    return Decoder(BLANK, drafter, gumbel.verifier)


def ahead(key, request, state, gamma):
    later = state._replace(length=state.length + 1)
    return rollout.draw_coupled(key, request, later, gamma)


def race_by_base_key(monkeypatch: MonkeyPatch) -> Decoder:
    """Races draw from what the keys of drafts are made of."""
    monkeypatch.setattr(keys, "GUMBEL", keys.DRAFT)
    return Decoder(BLANK, autoregressive.build(BLANK, 2), gumbel.verifier)


def draw_by_race_key(monkeypatch: MonkeyPatch) -> Decoder:
    """A draft draws by the uniforms of the race's key."""

    def noise(key, start, gamma, vocab):
        own = keys.purpose(keys.iteration(key, start), keys.GUMBEL)
        keys.draw_uniform(own, ())
        return gumbel.noise(key, start, gamma, vocab)

    return chain(2, "gumbel")._replace(verifier=gumbel.verifier._replace(noise=noise))


def forget_race_position(monkeypatch: MonkeyPatch) -> Decoder:
    """Races are not named by their position."""
    right = keys.iteration
    monkeypatch.setattr(keys, "iteration", lambda key, at: right(key, at // 2))
    return chain(2, "gumbel")


def draw_in_verdict(monkeypatch: MonkeyPatch) -> Decoder:
    """A rule draws while it decides, and not by its noise."""

    def verify(target, draft, noise, keep_residual=False):
        keys.uniform(jax.random.split(jax.random.key(0), draft.num.size), 0)
        return token.verify(target, draft, noise, keep_residual)

    return chain(2)._replace(verifier=Verifier(token.noise, verify))


def draw_by_request_key(monkeypatch: MonkeyPatch) -> Decoder:
    """A rule draws by JAX from the request's key."""

    def noise(key, start, gamma, vocab):
        draw = jax.vmap(lambda one: jax.random.uniform(one, (gamma + 1, 2)))
        return match.Noise(draw(key))

    return chain(2)._replace(verifier=Verifier(noise, match.verify))


def repeat_noise(monkeypatch: MonkeyPatch) -> Decoder:
    """A rule has the same noise always."""

    def noise(key, start, gamma, vocab):
        return match.Noise(jnp.full((key.size, gamma + 1, 2), 0.5))

    return chain(2)._replace(verifier=Verifier(noise, match.verify))


# What is found of each, as a regular expression.
MISTAKES: dict[Callable[[MonkeyPatch], Decoder], str] = {
    forget_slots: "keys serve several draws of the draft",
    forget_iteration: "serve several draws of the draft$",
    merge_lengths: "serve several draws of the draft$",
    share_first_row: "serve several draws of the draft$",
    share_draft_purpose: "several draws of the draft and the rule$",
    forget_purpose: "several draws of the draft and the rule$",
    count_fed_nodes: "several draws of the draft$",
    share_parent_noise: "several draws of the draft$",
    race_ahead: "coupled to other positions",
    race_by_base_key: "made of one that is drawn from",
    draw_by_race_key: "shares its key with an independent one",
    forget_race_position: "not named by their request and position",
    draw_in_verdict: "neither draft nor rule draws",
    draw_by_request_key: "made of one that is drawn from",
    repeat_noise: "no draw of the rule was recorded",
}
