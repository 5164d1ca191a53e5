"""A check of the keys that a step draws noise from: none serves two draws, in one step
or in the next.

A step runs with a record of every key that noise is drawn from. Its batch has two
requests at each length at which the next step may begin, so that the draws of two rows
and of two successive steps lie side by side. The keys themselves are compared, however
they were made: no two independent draws may have the same key. Draws that a rule
couples, which are named by position (`keys.gumbel`), must be those of the same
positions, in draft and rule. Axes: B rows, N draws, W words of a key, G = gamma."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, keys, policies
from specjax.drafters import autoregressive, forked, grown, tree
from specjax.drafters.rollout import for_rule
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.runtime import mesh
from specjax.step import Decoder, build_step
from specjax.topologies import likeliest
from specjax.types import Model, Params, Prompt, Request, Verifier

DRAFT, RULE, OTHER = "the draft", "the rule", "neither draft nor rule"
SHORTEST = 3
# Of `specjax.keys`: what makes keys of keys, and what draws from them.
MAKERS = "iteration", "purpose", "uniform", "uniforms", "gumbels", "uniforms_by_name"
DRAWERS = "draw_uniform", "draw_gumbel"
# Functions of jax.random by which a custom part may draw too.
SAMPLERS = "uniform gumbel categorical bits bernoulli normal exponential".split()
SAMPLERS += "randint choice permutation truncated_normal gamma beta laplace".split()
QUICKLY = {"xla_backend_optimization_level": 0}  # to compile, as each runs once


class Draw(NamedTuple):
    """The keys that one call drew from.

    who: DRAFT, RULE or OTHER. key: [..., W] uint32, data of a key for each draw.
    request [B, W], position [B]: the names of the keys of coupled draws, [B, W]; None
    for independent ones."""

    who: str
    key: np.ndarray
    request: np.ndarray | None = None
    position: np.ndarray | None = None


class Recorder:
    """A record of the keys that programs use, if they were traced within `recording`.

    Attributes:
      draws: keys that noise was drawn from.
      parents: keys that others were made of, each as bytes.
      drawn: whether the draft carried the law that it was drawn from.
    """

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self.parents: set[bytes] = set()
        self.drawn = False
        self._who = OTHER
        self._names: tuple[Array, ...] = ()
        self._inner = False

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Records the programs that are traced in the `with` block, not those compiled
        before."""
        wrappers: dict[tuple[Any, str], Callable] = {
            (keys, name): self._record_parents for name in MAKERS
        }
        wrappers |= {(keys, name): self._record_draws for name in DRAWERS}
        wrappers |= {(jax.random, name): self._record_draws for name in SAMPLERS}
        wrappers[keys, "gumbel"] = self._record_place
        with contextlib.ExitStack() as stack:
            for (module, name), wrapper in wrappers.items():
                wrapped = wrapper(getattr(module, name))
                stack.enter_context(mock.patch.object(module, name, wrapped))
            yield

    def watch(self, decoder: Decoder) -> Decoder:
        """Returns the same decoder, whose draws are recorded as those of its draft or
        its rule."""
        drafter, verifier = decoder.drafter, decoder.verifier

        def draft(*arguments: Any) -> tuple:
            made = self._run_as(DRAFT, drafter.draft, arguments)
            self.drawn |= made[0].law is not None
            return made

        def noise(*arguments: Any) -> Any:
            return self._run_as(RULE, verifier.noise, arguments)

        return decoder._replace(
            drafter=drafter._replace(draft=draft),
            verifier=verifier._replace(noise=noise),
        )

    def _run_as(self, who: str, function: Callable, arguments: tuple) -> Any:
        self._who = who
        try:
            return function(*arguments)
        finally:
            self._who = OTHER

    def _record_parents(self, make: Callable) -> Callable:
        def note(data: np.ndarray) -> None:
            self.parents.update(key_bytes(data))

        def wrapper(key: Array, *names: Any) -> Array:
            jax.debug.callback(note, jax.random.key_data(key))
            return make(key, *names)

        return wrapper

    def _record_draws(self, draw: Callable) -> Callable:
        @functools.wraps(draw)
        def wrapper(key: Array, *arguments: Any, **options: Any) -> Array:
            who, inner = self._who, self._inner

            def note(*data: np.ndarray) -> None:
                self.draws.append(Draw(who, *map(np.asarray, data)))

            if not inner:  # one draw is made by another
                jax.debug.callback(note, jax.random.key_data(key), *self._names)
            self._inner = True
            try:
                return draw(key, *arguments, **options)
            finally:
                self._inner = inner

        return wrapper

    def _record_place(self, gumbel: Callable) -> Callable:
        def wrapper(request_key: Array, position: Array, vocab: int) -> Array:
            self._names = jax.random.key_data(request_key), position
            try:
                return gumbel(request_key, position, vocab)
            finally:
                self._names = ()

        return wrapper


def key_bytes(data: np.ndarray) -> list[bytes]:
    """Returns each of the keys with these words [..., W] as bytes, which can be
    compared and hashed."""
    return [key.tobytes() for key in np.asarray(data).reshape(-1, data.shape[-1])]


def make_requests(gamma: int, vocab: int, requests: int = 2) -> tuple[Prompt, Array]:
    """Returns prompts and request keys [B], `requests` of them at each length.

    The lengths go from SHORTEST to that at which a step that accepts gamma tokens ends.
    """
    lengths = range(SHORTEST, SHORTEST + gamma + 2)
    texts = [[i % vocab for i in range(length)] for length in lengths]
    keys_of = keys.split(keys.root_key(0), requests)
    return make_prompt(texts * requests), jnp.repeat(keys_of, len(texts))


def record_step(
    decoder: Decoder, params: Params, prompt: Prompt, key: Array
) -> Recorder:
    """Returns the record of a step at temperature 1 after each of the prompts.

    key: request keys [B]."""
    recorder, gamma = Recorder(), decoder.drafter.gamma
    slots = prompt.tokens.shape[1] + 2 * gamma + 2
    sampling = make_sampling(key.size, 1.0)
    request = make_request(key, prompt, gamma + 1, sampling)
    step = build_step(*recorder.watch(decoder))

    def run(params: Params, prompt: Prompt, request: Request) -> None:
        state = generate.prefill(decoder, params, prompt, slots)
        step(params, request, state)  # what no draw depends on is not compiled

    placed = mesh.rows((prompt, request))
    with recorder.recording():
        jax.jit(run, compiler_options=QUICKLY)(params, *placed)
    jax.effects_barrier()
    return recorder


def problems(recorder: Recorder) -> list[str]:
    """Returns the problems of steps side by side, or in succession; [] if there are
    none."""
    found, draws = [], recorder.draws
    for who in (DRAFT, RULE) if recorder.drawn else (RULE,):
        if not any(draw.who == who for draw in draws):
            found.append(f"no draw of {who} was recorded")
    if any(draw.who == OTHER for draw in draws):
        found.append(f"{OTHER} draws")
    users: dict[bytes, list[str]] = {}
    for draw in draws:
        for key in key_bytes(draw.key) if draw.position is None else ():
            users.setdefault(key, []).append(draw.who)
    several = Counter(
        " and ".join(sorted(set(each))) for each in users.values() if len(each) > 1
    )
    found += [
        f"{count} keys serve several draws of {who}" for who, count in several.items()
    ]
    drawn = users.keys() | {key for draw in draws for key in key_bytes(draw.key)}
    if not recorder.parents.isdisjoint(drawn):
        found.append("other keys are made of one that is drawn from")
    coupled = [draw for draw in draws if draw.position is not None]
    return found + coupling_problems(coupled, {*users})


def coupling_problems(coupled: list[Draw], independent: set[bytes]) -> list[str]:
    """Returns the problems of coupled draws.

    Their keys must be named by request and position alone, and be drawn from once by a
    row's draft and once by its rule. The draft's positions must be the rule's without
    the last, or fewer where a policy stops the draft."""
    keys_of: dict[tuple, set[bytes]] = {}
    positions: dict[str, list[list[int]]] = {}
    for draw in coupled:
        assert draw.position is not None and draw.request is not None
        rows = positions.setdefault(draw.who, [[] for _ in draw.position])
        for row, position in enumerate(draw.position.tolist()):
            rows[row].append(position)
            name = draw.request[row].tobytes(), position
            keys_of.setdefault(name, set()).add(draw.key[row].tobytes())
    found, every = [], [key for each in keys_of.values() for key in each]
    if len(set(every)) != len(keys_of) or len(every) != len(keys_of):
        found.append("coupled draws are not named by their request and position")
    if not independent.isdisjoint(every):
        found.append("a coupled draw shares its key with an independent one")
    if any(len(set(row)) != len(row) for rows in positions.values() for row in rows):
        found.append("a row draws twice for one position")
    if positions.keys() == {DRAFT, RULE}:
        pairs = zip(positions[DRAFT], positions[RULE], strict=True)
        if any(not {*draft} <= {*sorted(rule)[:-1]} for draft, rule in pairs):
            found.append("the draft is coupled to other positions than the rule")
    return found


# What `specjax certify` puts to it.


def constant_model(vocab: int = 3) -> Model:
    """Returns a model whose parameters are its logits [V], the same after any text."""

    def apply(
        params: Any, tokens: Array, start: Array, cache: Any, branches: Any = None
    ) -> tuple:
        del params, start, branches
        return jnp.zeros((*tokens.shape, 1)), cache

    def readout(logits: Array, features: Array) -> Array:
        return jnp.broadcast_to(logits, (*features.shape[:-1], vocab))

    def init(params: Any, prompt: Prompt, slots: int) -> tuple:
        del params, prompt, slots
        return ()

    return Model(init, apply, readout, vocab, keep=lambda cache, start, path: cache)


def decoders(verifier: Verifier) -> Iterator[Decoder]:
    """Yields decoders of constant models.

    They are chains, one whose policy stops within a draft, and the trees that the rule
    verifies."""
    model, draw = constant_model(), for_rule(verifier)
    for gamma, policy in ((1, None), (5, policies.renewal())):
        chain = autoregressive.build(model, gamma, draw)
        yield Decoder(model, chain, verifier, policy)
    narrow = -1, -1, 0, 0, 1, 2, 5  # levels of fewer nodes than those before them
    for siblings in ("with", "without"):
        if siblings in verifier.siblings:
            yield Decoder(model, tree.build(model, narrow, siblings), verifier)
    if "without" in verifier.siblings:
        yield Decoder(model, grown.build(model, 6, (0.6, 0.4)), verifier)
    if "own" in verifier.siblings:
        yield Decoder(model, forked.build(model, 6, 2), verifier)


def check_rule(verifier: Verifier) -> tuple[int, list[str]]:
    """Returns how many steps of a rule were recorded, and their problems."""
    logits, found, count = jnp.log(jnp.array([0.5, 0.3, 0.2])), [], 0
    for decoder in decoders(verifier):
        gamma, vocab = decoder.drafter.gamma, decoder.target.vocab
        requests = make_requests(gamma, vocab)
        found += problems(record_step(decoder, Params(logits, logits), *requests))
        count += 1
    return count, found


def tree_shapes(most: int) -> Iterator[tuple[int, ...]]:
    """Yields the parents of every tree of up to `most` nodes, level by level; trees
    that differ only in the order of siblings count once (Beyer & Hedetniemi 1980, their
    sequences of depths)."""
    for size in range(1, most + 1):
        depth = list(range(size + 1))
        while True:
            latest: dict[int, int] = {}
            parent = []
            for node, own in enumerate(depth):
                if node:
                    parent.append(latest[own - 1] - 1)
                latest[own] = node
            yield likeliest.sort_by_depth(parent)
            deep = [node for node, own in enumerate(depth) if own > 1]
            if not deep:
                break
            end = deep[-1]
            above = max(i for i in range(end) if depth[i] == depth[end] - 1)
            for node in range(end, size + 1):
                depth[node] = depth[node - end + above]


def check_shapes(most: int) -> tuple[int, int]:
    """Returns the number of trees of up to `most` nodes, and how many of them have two
    draws with one slot.

    In a tree (`tree_shapes`) that shares one, two draws have the same slot, by
    arithmetic, for some way of drawing siblings."""
    shared, every = 0, list(tree_shapes(most))
    for parent in every:
        levels = tree.build_levels(parent)
        for siblings in (tree.WITH, tree.WITHOUT):
            slots = [slot for x in levels for slot in tree.slots(x, siblings).tolist()]
            draws = len(parent) if siblings == tree.WITH else len(set(parent))
            shared += not len(slots) == len(set(slots)) == draws
    return len(every), shared
