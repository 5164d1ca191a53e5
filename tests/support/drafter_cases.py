"""Every drafter, for the tests that all drafters share: add a `Case` here.

A case builds its drafter for any `tiny.World`, for gamma at least 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from specjax import policies
from specjax.drafters import (
    anchored,
    autoregressive,
    best_first,
    copying,
    datastore,
    early_exit,
    forked,
    grown,
    intersection,
    lookahead,
    ngram,
    random,
    recycling,
    suffix,
    tree,
)
from specjax.drafters.rollout import draw_independent
from specjax.drafts import levels
from specjax.exactness import small_drafts
from specjax.step import Decoder
from specjax.topologies import kary
from specjax.types import Drafter, Hidden, Model, Params, Policy, TargetCall, Verifier
from specjax.verifiers import (
    match,
    recursive,
    recursive_replaced,
    token,
    traversal,
)
from tests.support.tiny import World


class Case(NamedTuple):
    """A drafter, its weights and its rule.

    drafter: (World, gamma) -> Drafter. weights: World -> its parameters. verifier: the
    rule by default.
    """

    name: str
    drafter: Callable[[World, int], Drafter]
    weights: Callable[[World], Any] = lambda world: None
    policy: Policy | None = None
    verifier: Verifier = token.verifier

    def decoder(
        self, world: World, gamma: int, verifier: Verifier | None = None
    ) -> Decoder:
        rule = verifier or self.verifier
        return Decoder(world.target, self.drafter(world, gamma), rule, self.policy)

    def params(self, world: World) -> Params:
        return Params(world.target_weights, self.weights(world))


def vocab(world: World) -> int:
    return world.target.vocab


def counts(world: World) -> ngram.NGram:
    return small_drafts.counts(vocab(world))


def reduce_vocab(world: World) -> Model:
    return small_drafts.reduce_vocab(world.draft)


def make_spelling(world: World) -> intersection.Spelling:
    return small_drafts.make_spelling(vocab(world))


def other_ids(world: World, gamma: int) -> Drafter:
    return small_drafts.other_ids_drafter(world.draft, gamma)


def build_strings(
    world: World, gamma: int, respelled: Callable | None = None
) -> Drafter:
    return small_drafts.strings_drafter(world.draft, gamma, respelled)


def build_tree(world: World, gamma: int) -> Drafter:
    """Builds trees of two children per node, with twice as many nodes as gamma."""
    return tree.build(world.draft, kary.build(2)(2 * gamma))


def texts(world: World) -> datastore.Store:
    return small_drafts.texts(vocab(world))


def word_starts(world: World) -> Array:
    return jnp.arange(vocab(world)) % 3 > 0


def draft_weights(world: World) -> Any:
    return world.draft_weights


def spelling_weights(world: World) -> Any:
    return make_spelling(world).params(world.draft_weights)


def build_model(world: World, gamma: int) -> Drafter:
    return autoregressive.build(world.draft, gamma)


def copies_first(model: Model, gamma: int) -> Drafter:
    return autoregressive.build(
        model, gamma, copying.copy_first(draw_independent, gamma, 1)
    )


def build_recycling(world: World, gamma: int) -> Drafter:
    return recycling.build(vocab(world), 2 * gamma, kary.build(2)(2 * gamma))


def best_first_tree(model: Model, gamma: int) -> Drafter:
    return best_first.build(model, 2 * gamma, width=2, longest=gamma + 1)


def build_hierarchy(world: World, gamma: int) -> Drafter:
    """Builds a draft model that has a draft itself."""
    lower = autoregressive.build(world.shallow, 2, behind=3)
    return levels.build(world.draft, lower, gamma)


def accelerated_twice(world: World, gamma: int) -> Drafter:
    lowest = ngram.build(vocab(world), 2)
    lower = levels.build(world.shallow, lowest, 3, level=2)
    return levels.build(world.draft, lower, gamma)


def build_head_factory(kind: str) -> Callable[[World], small_drafts.Head]:
    """Builds a head of a kind for the hidden states of a target."""

    def build_head(world: World) -> small_drafts.Head:
        weights, vocab = world.target_weights, world.target.vocab
        tables = isinstance(weights, Array)
        width = vocab if tables else weights["embedding"].shape[1]
        return small_drafts.head(kind, vocab, width)

    return build_head


def taps_last(model: Model) -> Model:
    """Returns the same head with three taps, all of which are the last layer's
    states."""
    observe = model.observe

    def observe_last(params: Any, cache: Any, call: TargetCall) -> Any:
        taps = (call.features.last,) * 3
        return observe(params, cache, call._replace(features=Hidden(taps[0], taps)))

    return model._replace(observe=observe_last)


def head_case(kind: str) -> Case:
    """Returns the case of a head, which drafts a chain or, for Medusa, a tree."""
    of = build_head_factory(kind)

    def drafter(world: World, gamma: int) -> Drafter:
        model = taps_last(of(world).model)
        if kind == "medusa":
            return tree.build(model, kary.build(2)(2 * gamma))
        return autoregressive.build(model, gamma)

    rule = recursive.verifier if kind == "medusa" else token.verifier
    return Case(kind, drafter, lambda world: of(world).params, verifier=rule)


CASES = (
    Case("autoregressive", build_model, draft_weights),
    Case("adaptive", build_model, draft_weights, policies.heuristic(start=2)),
    Case("renewal", build_model, draft_weights, policies.renewal(c=0.2)),
    Case(
        "itself",
        lambda world, gamma: autoregressive.build(world.target, gamma),
        lambda world: world.target_weights,
    ),
    Case(
        "early_exit",
        lambda world, gamma: early_exit.build(world.shallow, world.cut, gamma),
        lambda world: world.shallow_weights,
    ),
    Case(
        "reduced",
        lambda world, gamma: autoregressive.build(reduce_vocab(world), gamma),
        draft_weights,
    ),
    Case("intersection", other_ids, spelling_weights),
    Case("strings", build_strings, spelling_weights),
    Case(
        "copying_else",
        lambda world, gamma: copies_first(reduce_vocab(world), gamma),
        draft_weights,
    ),
    Case(
        "copying_short",
        lambda world, gamma: copying.shorten_without_copy(
            copies_first(world.draft, gamma), least=1, short=1
        ),
        draft_weights,
    ),
    Case(
        "hierarchy",
        build_hierarchy,
        lambda world: Params(world.draft_weights, world.shallow_weights),
    ),
    Case(
        "hierarchy_three",
        accelerated_twice,
        lambda world: Params(
            world.draft_weights, Params(world.shallow_weights, counts(world))
        ),
    ),
    Case("tree", build_tree, draft_weights, verifier=recursive.verifier),
    Case(
        "tree_traversed",
        build_tree,
        draft_weights,
        policies.heuristic(start=3),
        traversal.verifier,
    ),
    Case(
        "tree_best_first",
        lambda world, gamma: best_first_tree(world.draft, gamma),
        draft_weights,
        verifier=recursive.verifier,
    ),
    Case(
        "tree_grown",
        lambda world, gamma: grown.build(world.draft, 2 * gamma, (0.3, 0.2)),
        draft_weights,
        verifier=traversal.verifier,
    ),
    Case(
        "tree_forked",
        lambda world, gamma: forked.build(world.draft, 2 * gamma, gamma),
        draft_weights,
        verifier=recursive_replaced.verifier,
    ),
    Case(
        "tree_of_counts",
        lambda world, gamma: best_first_tree(ngram.bigram(vocab(world)), gamma),
        counts,
        verifier=recursive.verifier,
    ),
    Case(
        "lookahead",
        lambda world, gamma: lookahead.build(2 * gamma, 3),
        verifier=match.verifier,
    ),
    Case("copying", lambda world, gamma: copying.build(gamma)),
    Case("suffix", lambda world, gamma: suffix.build(gamma)),
    Case(
        "suffix_tree",
        lambda world, gamma: suffix.build(2 * gamma, paths=2),
        verifier=recursive.verifier,
    ),
    Case("anchored", lambda world, gamma: anchored.build(gamma), word_starts),
    Case("datastore", lambda world, gamma: datastore.build(gamma), texts),
    Case("recycling", lambda world, gamma: recycling.build(vocab(world), gamma)),
    Case("recycling_tree", build_recycling, verifier=match.verifier),
    Case("trigram", lambda world, gamma: ngram.build(vocab(world), gamma, 3), counts),
    Case("random", lambda world, gamma: random.build(vocab(world), gamma)),
    *map(head_case, small_drafts.HEADS),
)
BY_NAME = {case.name: case for case in CASES}
