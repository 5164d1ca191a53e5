"""The programs that texts are decoded by: of a pair, a rule and a shape, and then kept.

Axes: B prompts.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import (
    checkpoints,
    drafts,
    finite,
    fused,
    generate,
    policies,
    sides,
    streaming,
    verifiers,
)
from specjax import mesh as meshes
from specjax.checkpoints import Config
from specjax.drafters import autoregressive
from specjax.inputs import bucketed, make_prompt, make_request, make_sampling
from specjax.models import widened
from specjax.models.constrained import constrained
from specjax.pretrained import Pretrained
from specjax.prompts import of as read_prompts
from specjax.sides import SAMPLED, Side
from specjax.step import Decoder
from specjax.types import (
    Model,
    Params,
    Prompt,
    Request,
    Sampling,
    TokenAutomaton,
    Verifier,
)

Pair = tuple[Pretrained, Side | None]


class Asked(NamedTuple):
    """What `text.generate_text` is told besides the models and the prompts."""

    gamma: int
    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    rule: str = "token"
    policy: str = "none"
    new_tokens: int = 64
    seed: int = 0
    kernels: str = "auto"
    logprobs: bool = False
    rules: TokenAutomaton | None = None
    places: tuple[int, ...] | None = None  # of texts, by which they are drawn


class Plan(NamedTuple):
    """What a program is compiled for. draft: sizes of a model, or what builds another
    drafter, equal where that is; None is no drafter. regime: what its drafts carry.
    rules: what both models' logits are changed by. logprobs: see `Decoder`. mesh: what
    it lies on, None for one device."""

    target: Config
    draft: Config | Callable | None
    gamma: int
    rule: str
    kernels: str
    batch: int
    slots: int
    policy: str = "none"
    regime: str = SAMPLED
    rules: TokenAutomaton | None = None
    logprobs: bool = False
    mesh: meshes.Layout | None = None


def prepared(
    target: str | Pretrained,
    draft: str | Pretrained | Side | None,
    prompts: Sequence[str | dict[str, Any]],
    asked: Asked,
) -> tuple[Pair, Plan, Prompt, Request]:
    """What is decoded, and by which program. Raises ValueError for what cannot be."""
    pair = opened(target, draft)
    check_settings(pair, asked)
    read = read_prompts(prompts, pair[0])
    batch = len(read.tokens)
    meshes.check_rows(batch)
    pair = placed(*pair)
    most = room(pair, asked.new_tokens)
    prompt = bucketed(make_prompt(read.tokens, read.inputs), most)
    truncation = {name: getattr(asked, name) for name in Sampling._fields[1:]}
    sampling = make_sampling(batch, asked.temperature, **truncation)
    key = keys(asked.seed, range(batch) if asked.places is None else asked.places)
    request = make_request(key, prompt, asked.new_tokens, sampling, read.ends)
    told = asked._asdict()
    plan = Plan(
        target=pair[0].config,
        draft=drafter_of(pair[1]),
        batch=batch,
        slots=prompt.tokens.shape[1] + asked.new_tokens + asked.gamma + 1,
        regime=SAMPLED if pair[1] is None else pair[1].regime,
        mesh=meshes.layout.value,
        **{name: told[name] for name in Plan._fields if name in told},
    )
    return pair, plan, *meshes.rows((prompt, request))


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Callable[[Params, Prompt, Request], generate.Output]:
    """The loop of a plan, the same function for the same plan: JAX compiles it once for
    each shape."""
    return jax.jit(generate.build_loop(decoder(plan), plan.slots))


@functools.lru_cache(maxsize=32)
def steps(plan: Plan) -> streaming.Steps:
    """The two programs that a plan is decoded by step by step."""
    return streaming.build(decoder(plan), plan.slots)


def decoder(plan: Plan) -> Decoder:
    verifier, draw = verification(plan)
    verifier = finite.guarded(verifier)
    target = ruled(checkpoints.build(plan.target), plan)
    if plan.draft is None:
        return Decoder(target, verifier=verifier, logprobs=plan.logprobs)
    if callable(plan.draft):
        drafter = plan.draft(plan.gamma, draw)
    else:
        draft = widened.widened(checkpoints.build(plan.draft), target.vocab)
        drafter = autoregressive.build(ruled(draft, plan), plan.gamma, draw)
        if plan.mesh is not None and plan.mesh.draft == 1:
            drafter = meshes.kept_whole(drafter)
    policy = policies.named(plan.policy)
    return Decoder(target, drafter, verifier, policy, plan.logprobs)


def ruled(model: Model, plan: Plan) -> Model:
    return model if plan.rules is None else constrained(model, plan.rules)


def verification(plan: Plan) -> tuple[Verifier, Callable]:
    """The verifier, and how drafts are drawn for it; fused where `plan.kernels` and the
    device allow it."""
    verifier = verifiers.named(plan.rule)
    sizes = fused.Sizes(plan.batch, plan.gamma, plan.target.vocab, plan.regime)
    chosen = fused.choose(plan.kernels, verifier, sizes)
    return chosen.verifier, chosen.draw


def opened(target: str | Pretrained, draft: str | Pretrained | Side | None) -> Pair:
    """Both sides, read where they are names."""
    if not isinstance(target, Pretrained):
        target = drafts.target(target, "float32").pretrained
    if isinstance(draft, str):
        draft = drafts.load_draft(draft, target)
    elif isinstance(draft, Pretrained):
        draft = sides.of_pretrained(draft)
    if draft is not None:
        draft = sides.paired(sides.of_pretrained(target), draft)[1]
    return target, draft


def placed(target: Pretrained, draft: Side | None) -> Pair:
    """Both on the mesh in use, if there is one."""
    side, draft = meshes.pair(sides.of_pretrained(target), draft)
    return target._replace(params=side.params), draft


def room(pair: Pair, new_tokens: int) -> int | None:
    """Positions that both models know, less those of what is written; None where there
    is no end of them."""
    models = [side.model for side in pair if side is not None]
    known = [x.slots for x in models if x is not None and x.slots is not None]
    return min(known) - new_tokens if known else None


def drafter_of(draft: Side | None) -> Config | Callable | None:
    """What a plan says that drafts: sizes of a model, or what builds another."""
    if draft is None or draft.pretrained is None:
        return draft and draft.drafter
    return draft.pretrained.config


def keys(seed: int, places: Sequence[int]) -> Array:
    """A key for each text [B], by its place, whatever the other texts are."""
    try:
        key = jax.random.key(operator.index(seed))
    except (OverflowError, TypeError):
        raise ValueError(
            f"seed must be a whole number of 64 bits; got {seed}"
        ) from None
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.array(places))


def check_settings(pair: Pair, asked: Asked) -> None:
    """Raises ValueError for a pair or settings that could not decode."""
    for name, value, least in (
        ("gamma", asked.gamma, 0),
        ("new_tokens", asked.new_tokens, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(
                f"{name} must be a whole number of at least {least}; got {value!r}"
            )
    if asked.kernels not in fused.CHOICES:
        raise ValueError(
            f"kernels must be one of {fused.CHOICES}; got {asked.kernels!r}"
        )
    if pair[1] is not None:
        target, draft = pair
        sides.check(sides.of_pretrained(target), draft, with_alpha=False)
    verifiers.named(asked.rule)
    policies.named(asked.policy)
