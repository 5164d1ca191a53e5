"""Drafters of the user's own, by the name of the function that builds them."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from specjax import generate
from specjax.checkpoints import Pretrained
from specjax.drafters.rollout import draw_independent
from specjax.drafts.source import (
    CERTAIN,
    REDUCED_VOCAB,
    SAMPLED,
    TABLE,
    DraftSource,
    recipe,
)
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.runtime import contracts
from specjax.runtime.plugins import call_with_options, describe_error, resolve
from specjax.step import Decoder
from specjax.types import Drafter, Params, Prompt, Reduced, Table


def custom_source(name: str, target: Pretrained) -> DraftSource:
    """Returns the drafter that "my_module:builder[:options]" builds, with its weights,
    if it has any.

    Args:
      name: builder is a function of what it has parameters for: `gamma`, `vocab`,
        `draw` (how drafts are drawn, see `drafters.rollout`); its other parameters are
        options. It returns a `Drafter`, or (Drafter, parameters), and is called for
        every gamma.
      target: for whom it drafts.

    Raises:
      ValueError: the builder or its drafter fails; before any compute.
    """
    build, options = resolve(name)
    if not inspect.isfunction(build):
        raise ValueError(f"{name} is of class {type(build).__name__}: name a function")
    how: dict[str, Any] = {
        "name": name,
        "custom": build,
        "options": options,
        "vocab": target.vocab,
    }
    drafter, params = with_params(2, draw_independent, **how)
    try:
        regime = regime_of(target, drafter, params)
    except Exception as error:  # a custom drafter may raise anything
        raise ValueError(f"{name} fails: {describe_error(error)}") from error
    return DraftSource(
        name=name,
        factory=recipe(_custom, **how),
        params=params,
        vocab=drafter.vocab,
        regime=regime,
        files=(Path(inspect.getfile(build)),),
    )


def _custom(gamma: int, draw: Callable, **how: Any) -> Drafter:
    return with_params(gamma, draw, **how)[0]


def with_params(
    gamma: int,
    draw: Callable,
    *,
    name: str,
    custom: Callable,
    options: str,
    vocab: int,
) -> tuple[Drafter, Any]:
    """Returns the drafter of the user's builder, with its parameters or None."""
    context = {"gamma": gamma, "vocab": vocab, "draw": draw}
    drafter = call_with_options(name, custom, options, context)
    pair = (drafter, None) if isinstance(drafter, Drafter) else drafter
    if not isinstance(pair, tuple) or not isinstance(pair[0], Drafter):
        raise ValueError(
            f"{name} returns a {type(drafter).__name__}: return a"
            " specjax.types.Drafter, or one with its parameters"
        )
    return pair


def regime_of(target: Pretrained, drafter: Drafter, params: Any) -> str:
    """Returns the regime of drafts, from a trace of one: `DraftSource.regime`."""
    tokens, length = jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32)
    inputs = (tokens, length) if target.encodes else None
    for kind in target.model.reads[:1]:
        inputs = type(kind)(*(jnp.zeros((1, *shape)) for shape in kind))
    prompt, decoder = Prompt(tokens, length, inputs), Decoder(target.model, drafter)
    request = make_request(root_key(0), prompt, 1, make_sampling(1, 1.0))

    def draft(both: Params) -> Any:
        state = generate.prefill(decoder, both, prompt, drafter.gamma + 2)
        made = drafter.draft(request.key, both.draft, request, state)
        return contracts.check_draft(made, 1, drafter.gamma)[0]

    law = jax.eval_shape(draft, Params(target.params, params)).law
    if law is None:
        return CERTAIN
    regimes = {Table: TABLE, Reduced: REDUCED_VOCAB}
    return regimes.get(type(law.logits), SAMPLED)
