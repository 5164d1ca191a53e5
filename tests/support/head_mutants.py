"""Mistakes in heads that read the target, each of which gives drafts other laws.

`tests/drafters/test_heads.py` catches them by heads that copy the target's states,
whose laws are known. Those that draft one token after another read the state before a
token; those that draft several at once count places from the last state.
Axes: B rows, G = gamma.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from specjax import trees
from specjax.drafters import heads
from specjax.types import Drafter, Hidden, Model
from tests.support import recurrent
from tests.support.recurrent import Copy

AT_ONCE, ONE_BY_ONE = ("medusa", "blockwise"), ("eagle", "eagle3")
ALL = *AT_ONCE, *ONE_BY_ONE


class Broken(NamedTuple):
    """The parts of a pair that a mistake changes."""

    head: Callable[[Copy], Copy] = lambda head: head
    drafter: Callable[[Drafter], Drafter] = lambda drafter: drafter
    target: Model | None = None


class Mutant(NamedTuple):
    """A mistake in a head of a kind.

    name: what is wrong. make: a context in which parts are broken. tree: whether only a
    tree shows it.
    """

    kind: str
    name: str
    make: Callable[[], contextlib.AbstractContextManager[Broken]]
    tree: bool = False


def change_model(change: Callable[[Model], Model]) -> Broken:
    return Broken(head=lambda head: head._replace(model=change(head.model)))


@contextlib.contextmanager
def one_place_late() -> Iterator[Broken]:
    """A token is drafted by the head of the place after its own."""

    def change(model: Model) -> Model:
        def apply(params, tokens, start, *rest):
            return model.apply(params, tokens, start + 1, *rest)

        return model._replace(apply=apply)

    yield change_model(change)


@contextlib.contextmanager
def one_slot_early() -> Iterator[Broken]:
    """A token is read with the state of the slot before the one before it."""
    right = heads.hidden_before

    def early(memory, start, *rest):
        return right(memory, start - 1, *rest)

    with mock.patch.object(heads, "hidden_before", early):
        yield Broken()


@contextlib.contextmanager
def keep_rejected_states() -> Iterator[Broken]:
    """The states of rejected tokens count as known."""
    right = heads.store

    def store(memory, hidden, call):
        return right(memory, hidden, call._replace(accepted=call.num))

    with mock.patch.object(heads, "store", store):
        yield Broken()


@contextlib.contextmanager
def read_rejected_token() -> Iterator[Broken]:
    """The state of the last token of a draft is read, though it was rejected."""

    def change(model: Model) -> Model:
        def observe(params, cache, call):
            return model.observe(params, cache, call._replace(accepted=call.num))

        return model._replace(observe=observe)

    yield change_model(change)


def read_by(change: Callable[[Hidden], Hidden]) -> Broken:
    """Returns a target that returns other hidden states."""
    target = recurrent.build()
    return Broken(
        target=target._replace(hidden=lambda states: change(target.hidden(states)))
    )


@contextlib.contextmanager
def tap_another_layer() -> Iterator[Broken]:
    yield read_by(lambda found: found._replace(taps=found.taps[1:] + found.taps[:1]))


@contextlib.contextmanager
def read_another_layer() -> Iterator[Broken]:
    yield read_by(lambda found: found._replace(last=found.taps[0]))


@contextlib.contextmanager
def order_by_node() -> Iterator[Broken]:
    """The states of a tree are not those of the path that was kept."""
    with mock.patch.object(trees, "rows_on_path", lambda rows, verdict: rows):
        yield Broken()


@contextlib.contextmanager
def law_of_another_token() -> Iterator[Broken]:
    """A token has the law of the token before it."""

    def change(drafter: Drafter) -> Drafter:
        def draft(*asked):
            made, cache = drafter.draft(*asked)
            # The ids of a reduced vocabulary have no axis of tokens.
            law = jax.tree.map(
                lambda x: x if x.ndim < 2 else jnp.roll(x, 1, axis=1), made.law
            )
            return made._replace(law=law), cache

        return drafter._replace(draft=draft)

    yield Broken(drafter=change)


@contextlib.contextmanager
def offsets_as_ids() -> Iterator[Broken]:
    """d2t is read as the ids themselves."""

    def change(head: Copy) -> Copy:
        offsets = np.asarray(head.params["ids"]) - np.arange(head.said.size)
        place = np.full(recurrent.V, offsets.size)
        place[offsets] = np.arange(offsets.size)
        read = {"ids": jnp.asarray(offsets), "place": jnp.asarray(place)}
        return head._replace(params={**head.params, **read})

    yield Broken(head=change)


TAKEN = "drafts by the state of a rejected token"
PLACE = "position off by one"
LAYER = "states of another layer"
MUTANTS = (
    *(Mutant(kind, PLACE, one_place_late) for kind in AT_ONCE),
    *(Mutant(kind, PLACE, one_slot_early) for kind in ONE_BY_ONE),
    *(Mutant(kind, LAYER, read_another_layer) for kind in (*AT_ONCE, "eagle")),
    Mutant("eagle3", LAYER, tap_another_layer),
    *(Mutant(kind, TAKEN, read_rejected_token) for kind in AT_ONCE),
    *(Mutant(kind, TAKEN, keep_rejected_states) for kind in ONE_BY_ONE),
    *(Mutant(kind, "q of the token before", law_of_another_token) for kind in ALL),
    *(
        Mutant(kind, "states in the order of nodes", order_by_node, True)
        for kind in ALL
    ),
    Mutant("eagle3_reduced", "d2t taken as ids", offsets_as_ids),
)
