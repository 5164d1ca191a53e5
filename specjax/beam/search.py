"""Beam search of a target, plain or speculative: the same beams and scores in both.

A call of the target without a draft makes one step of beam search. With one (Leviathan
et al. 2023, Appendix A.4) it reads all drafted levels too, and as long as the target's
own running beams are among those of the next drafted level, the step after it is made
from the same call. A beam that is missing there does no harm where it scores less than
all that the step keeps, since what goes on from it scores no more: the "more elaborate
procedure" of the paper. Else that step waits for the next call. Where p is rounded
alike in calls of other sizes, beams and scores are those of the plain search to the
last bit.
Axes: B rows, W running beams, U drafted ones, G = gamma levels, T tokens of a call, N
most new tokens, S slots, D features, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, finite
from specjax.beam import draft as drafts
from specjax.beam import hypotheses, slots
from specjax.beam.draft import Levels
from specjax.beam.hypotheses import Beams, Children, Limits
from specjax.beam.settings import BeamConfig
from specjax.beam.slots import Place
from specjax.types import Model, Params, Prompt


class Found(NamedTuple):
    """The texts that a search found in each row, the best first.

    tokens [B, W, N] new tokens, then 0; length [B, W]; score [B, W], -inf where there
    is not a text. calls [B] of the target. steps [B] of beam search: the calls that the
    plain search makes. lost [B], see `Beams`.
    """

    tokens: Array
    length: Array
    score: Array
    calls: Array
    steps: Array
    lost: Array


class State(NamedTuple):
    """The state that calls carry: `token` [B, W] is the last of each running beam."""

    beams: Beams
    token: Array
    place: Place
    target_cache: Any
    draft_cache: Any
    calls: Array


class Walk(NamedTuple):
    """The levels of one call that were verified so far.

    level: the level of the call, 0 for its running beams. going: [B], rows that try a
    step from that level. known: [B, W], which of their running beams lie in it. node,
    rank: [B, W], the node of each, and its place among the W that are kept. kept: [B,
    G, W], the path of `Model.keep`.
    """

    level: Array
    going: Array
    beams: Beams
    token: Array
    path: Array
    known: Array
    node: Array
    rank: Array
    kept: Array


def build(
    target: Model, draft: Model | None, config: BeamConfig
) -> Callable[[Params, Prompt, Limits], Found]:
    """Returns `search(params, prompt, limits) -> Found`, pure, to be called under jit.

    Args:
      target: M_p; its cache must be able to read trees and to keep a path.
      draft: M_q, of the same vocabulary; None searches plainly, as gamma = 0 does.
      config: the settings; `length_penalty` is not read, see `Limits.divisor`.

    Raises:
      ValueError: a model without `keep`; `search` raises it, as it is traced, for
        caches of fewer slots than the beams need.
    """
    finish = build_rest(target, draft, config)

    def search(params: Params, prompt: Prompt, limits: Limits) -> Found:
        most = limits.divisor.size - 1
        state = begin(target, draft, config, params=params, prompt=prompt, most=most)
        return finish(params, limits, state)

    return search


def build_rest(
    target: Model, draft: Model | None, config: BeamConfig
) -> Callable[[Params, Limits, State], Found]:
    """Returns the loop over calls that follows `begin` in `build`, until every row's
    search is over."""
    for side, model in models(target, draft, config).items():
        if model.keep is None:
            raise ValueError(
                f"the {side} cannot read beams: it has no `keep`, so it reads chains"
                " alone; name another model"
            )
    call = build_call(target, draft, config)

    def finish(params: Params, limits: Limits, state: State) -> Found:
        state = jax.lax.while_loop(
            lambda state: ~state.beams.ended.all(),
            lambda state: call(params, limits, state),
            state,
        )
        beams = state.beams
        inside = jnp.arange(beams.finished.shape[2]) < beams.length[..., None]
        return Found(
            tokens=jnp.where(inside, beams.finished, 0),
            length=beams.length,
            score=beams.final,
            calls=state.calls,
            steps=beams.num,
            lost=beams.lost,
        )

    return finish


def models(target: Model, draft: Model | None, config: BeamConfig) -> dict[str, Model]:
    """Returns the models that the search calls, by side: "target" or "draft"."""
    if draft is None or config.gamma == 0:
        return {"target": target}
    return {"target": target, "draft": draft}


def begin(
    target: Model,
    draft: Model | None,
    config: BeamConfig,
    *,
    params: Params,
    prompt: Prompt,
    most: int,
) -> State:
    """Returns the state before the first call, with every prompt in the caches.

    most: N. Raises ValueError for caches of fewer slots than the beams need.
    """
    batch, longest = prompt.tokens.shape
    width, drafted = config.width, config.drafted * config.gamma
    size = slots.needed_slots(longest, most=most, width=width, drafted=drafted)
    caches: dict[str, Any] = {}
    for side, model in models(target, draft, config).items():
        check_room(model, size, side)
        own = params.target if side == "target" else params.draft
        cache = model.init(own, prompt, size)
        caches[side] = chunks.prefill(model, own, prompt, cache)
    last = jnp.take_along_axis(prompt.tokens, prompt.length[:, None] - 1, axis=1)
    return State(
        beams=hypotheses.initial_beams(batch, width, most),
        token=jnp.broadcast_to(last, (batch, width)),
        place=slots.initial_place(prompt.length, width, size),
        target_cache=caches["target"],
        draft_cache=caches.get("draft"),
        calls=jnp.zeros(batch, jnp.int32),
    )


def check_room(model: Model, size: int, side: str) -> None:
    """Raises ValueError for a cache that keeps only the last tokens, and too few of
    them."""
    if model.portion is not None and size > model.portion:
        raise ValueError(
            f"beams take {size} slots of a cache, and the {side}'s layers with a window"
            f" take back {model.portion}: build it with portion={size} or more"
        )


def build_call(
    target: Model, draft: Model | None, config: BeamConfig
) -> Callable[[Params, Limits, State], State]:
    """Returns one call of the target, with its draft and all steps that it allows."""
    gamma = 0 if draft is None else config.gamma
    width, drafted = config.width, config.drafted

    def call(params: Params, limits: Limits, state: State) -> State:
        beams, token, place = state.beams, state.token, state.place
        tokens, paths, levels, beside = token, place.path, None, state.draft_cache
        if gamma:
            assert draft is not None
            levels, beside = drafts.propose(
                draft,
                params.draft,
                beside,
                beams=beams,
                token=token,
                place=place,
                eos=limits.eos,
                gamma=gamma,
                drafted=drafted,
            )
            tokens = jnp.concatenate([token, *levels.token], axis=1)
            paths = jnp.concatenate([place.path, *levels.path], axis=1)
        start = slots.first_slot(place)
        tree = slots.branches(place, paths, start, drafted=drafted)
        features, cache = target.apply(
            params.target, tokens, start, state.target_cache, tree
        )
        walk = verify(
            state,
            levels,
            lambda node: target.readout(params.target, hypotheses.take(features, node)),
            limits=limits,
            config=config,
        )
        if gamma:
            path = walk.kept.reshape(len(token), -1)
            assert target.keep is not None and draft is not None
            assert draft.keep is not None
            cache = target.keep(cache, start + width, path)
            beside = draft.keep(beside, start + width, path)
        lost = walk.beams.lost
        if levels is not None:
            bad = ~beams.ended & ~levels.finite & (lost == 0)
            lost = jnp.where(bad, finite.DRAFT, lost)
        return State(
            beams=walk.beams._replace(lost=lost, ended=walk.beams.ended | (lost < 0)),
            token=walk.token,
            place=Place(place.base, walk.beams.num, walk.path),
            target_cache=cache,
            draft_cache=beside,
            calls=state.calls + ~beams.ended,
        )

    return call


def verify(
    state: State,
    levels: Levels | None,
    logits_of: Callable[[Array], Array],
    *,
    limits: Limits,
    config: BeamConfig,
) -> Walk:
    """Returns the walk through the drafted levels of a call, up to the last level whose
    beams were drafted.

    levels: what was drafted, None for nothing. logits_of: the target's logits [B, W, V]
    after these tokens [B, W] of the call.
    """
    width, drafted = config.width, config.drafted
    gamma = 0 if levels is None else config.gamma
    batch = len(state.token)
    start = slots.first_slot(state.place)
    first = jnp.broadcast_to(jnp.arange(width), (batch, width))
    kept = jnp.broadcast_to(slots.own_nodes(gamma, width), (batch, gamma, width))
    walk = Walk(
        level=jnp.int32(0),
        going=~state.beams.ended,
        beams=state.beams,
        token=state.token,
        path=state.place.path,
        known=jnp.ones_like(first, bool),
        node=first,
        rank=first,
        kept=kept,
    )

    def step(walk: Walk) -> Walk:
        before = jnp.where(walk.level == 0, 0, width + (walk.level - 1) * drafted)
        beams, children, floor = hypotheses.advance(
            walk.beams,
            logits_of(before + walk.node),
            limits,
            early_stopping=config.early_stopping,
        )
        # What goes on from a beam that was not read scores no more than it.
        missing = jnp.where(walk.known, -jnp.inf, walk.beams.score).max(axis=1)
        exact = walk.known.all(axis=1) | (floor > missing)
        made = walk.going & exact
        slot = start[:, None] + width * walk.level + walk.rank
        path = slots.extend(walk.path, children.parent, slot)
        after = walk._replace(
            level=walk.level + 1,
            going=jnp.zeros_like(made),
            beams=hypotheses.where(made, beams, walk.beams),
            token=jnp.where(made[:, None], children.token, walk.token),
            path=jnp.where(made[:, None, None], path, walk.path),
        )
        if levels is None:
            return after
        return enter_level(walk, after, made, levels=levels, children=children)

    if levels is None:
        return step(walk)
    return jax.lax.while_loop(lambda walk: walk.going.any(), step, walk)


def enter_level(
    walk: Walk, after: Walk, made: Array, *, levels: Levels, children: Children
) -> Walk:
    """Returns the walk one drafted level further, in rows [B] that made their step and
    whose beams are in that level."""
    gamma, _, drafted = levels.token.shape
    at, alive = jnp.minimum(walk.level, gamma - 1), after.beams.score > -jnp.inf
    nodes = jnp.take_along_axis(walk.node, children.parent, axis=1)
    found, node = find_beams(levels, at, children._replace(parent=nodes))
    there = found & alive
    enters = made & there.any(1) & (walk.level < gamma) & ~after.beams.ended
    chosen = slots.keep_nodes(node, there, drafted)
    rank = jnp.argmax(chosen[:, None] == node[..., None], axis=-1)
    moved = after.kept.at[:, at].set(at * drafted + chosen)
    return after._replace(
        going=enters,
        known=found | ~alive,
        node=node,
        rank=rank,
        kept=jnp.where(enters[:, None, None], moved, after.kept),
    )


def find_beams(levels: Levels, at: Array, wanted: Children) -> tuple[Array, Array]:
    """Returns which of the target's beams were drafted in level `at`, [B, W], and the
    node of each.

    wanted: [B, W], with parents as nodes of the level before.
    """
    same = levels.token[at][:, None] == wanted.token[..., None]
    same &= levels.parent[at][:, None] == wanted.parent[..., None]
    return same.any(-1), jnp.argmax(same, axis=-1)
