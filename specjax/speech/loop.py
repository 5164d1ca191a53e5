"""Texts of what was heard, and how sure of them the model is, in one compiled program.

The loop of `specjax.generate`, which besides sums the logarithms of what it commits,
as Whisper's transcription of long recordings wants them (Radford et al., 2022, Section
3.8), from the logits that verification has in hand.
Axes: B rows, L buffer, G = gamma, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import finite, fused, verifiers
from specjax.drafters import autoregressive
from specjax.generate import Counts, count, prefill
from specjax.models import whisper
from specjax.models.constrained import constrained
from specjax.speech import rules
from specjax.speech.limits import Limits
from specjax.speech.own_encoder import apart
from specjax.speech.tokens import Tokens
from specjax.step import Decoder, build_step, finished
from specjax.types import Law, Params, Prompt, Request, Verdict, Verifier


class Plan(NamedTuple):
    """What a program is compiled for; hashable. draft: None is no drafter, and none is
    called at gamma = 0. tokens: without languages and tasks, see `hashable`."""

    target: whisper.Config
    draft: whisper.Config | None
    shared: bool
    tokens: Tokens
    limits: Limits
    timestamps: bool
    gamma: int
    rule: str
    kernels: str
    batch: int
    slots: int


class Written(NamedTuple):
    """tokens [B, L]: prompt, then text; length [B]; counts [B]. logprob [B]: sum over
    the text, its end among it, under the rules and at temperature 1. no_speech [B]:
    probability of `<|nospeech|>` behind `<|startoftranscript|>`."""

    tokens: Array
    length: Array
    counts: Counts
    logprob: Array
    no_speech: Array


def hashable(tokens: Tokens) -> Tokens:
    """What the rules need of special tokens."""
    return tokens._replace(tasks=(), languages=(), language=None, task=None)


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Callable[[Params, Prompt, Request], Written]:
    """The loop of a plan, jitted: the same function for the same plan.

    Prompts have what the target's encoder gave, `types.Encoded`; where the draft hears
    by another, its params are as of `apart`.
    """
    parts, bare = decoder(plan), whisper.build(plan.target)

    def loop(params: Params, prompt: Prompt, request: Request) -> Written:
        state = prefill(parts, params, prompt, plan.slots)
        cache = state.target_cache.model
        quiet = no_speech(bare, plan.tokens, params.target, prompt, cache)

        def running(carry):
            return ~jnp.all(finished(request, carry[0]))

        def body(carry):
            state, counts, total = carry
            seen: list[tuple[Law, Verdict]] = []
            watched = parts._replace(verifier=watching(parts.verifier, seen))
            state, info = build_step(*watched)(params, request, state)
            more = logprob(*seen.pop(), info.emitted)
            return state, count(counts, info), total + more

        zero = jnp.zeros_like(prompt.length)
        sums = Counts(zero, zero, zero, zero), jnp.zeros(zero.shape, jnp.float32)
        state, counts, total = jax.lax.while_loop(running, body, (state, *sums))
        return Written(state.tokens, state.length, counts, total, quiet)

    return jax.jit(loop)


def decoder(plan: Plan) -> Decoder:
    """The ruled pair of a plan."""
    sizes = fused.Sizes(plan.batch, plan.gamma, plan.target.vocab)
    chosen = fused.choose(plan.kernels, verifiers.named(plan.rule), sizes)
    settings = plan.tokens, plan.limits, plan.target.vocab, plan.timestamps
    ruled = rules.build(*settings)
    target = constrained(whisper.build(plan.target), ruled)
    if plan.draft is None or plan.gamma == 0:
        return Decoder(target, verifier=finite.guarded(chosen.alone))
    small = whisper.build(plan.draft)
    draft = constrained(small if plan.shared else apart(small), ruled)
    drafter = autoregressive.build(draft, plan.gamma, chosen.draw)
    return Decoder(target, drafter, finite.guarded(chosen.verifier))


def watching(verifier: Verifier, seen: list[tuple[Law, Verdict]]) -> Verifier:
    """The same verifier, which leaves what it was given and gave while it is traced."""

    def verify(target: Law, draft, noise, keep_residual: bool = False) -> Verdict:
        verdict = verifier.verify(target, draft, noise, keep_residual)
        seen.append((target, verdict))
        return verdict

    return verifier._replace(verify=verify)


def logprob(law: Law, verdict: Verdict, emitted: Array) -> Array:
    """The sum over the tokens that a step committed, the first `emitted` [B]."""
    logits = law.logits.astype(jnp.float32)
    slots = jnp.arange(verdict.tokens.shape[1])
    at = jnp.maximum(verdict.tokens, 0)[..., None]
    each = jnp.take_along_axis(logits, at, axis=-1)[..., 0]
    each -= jax.nn.logsumexp(logits, axis=-1)
    return jnp.where(slots < emitted[:, None], each, 0.0).sum(-1)


def no_speech(model, tokens: Tokens, params: Any, prompt: Prompt, cache: Any) -> Array:
    """See `rules.no_speech`: of the place where a transcript starts, [B].

    The start is fed once more, to the slot where it is, and the cache thrown away.
    """
    inside = jnp.arange(prompt.tokens.shape[1]) < prompt.length[:, None]
    start = jnp.argmax(inside & (prompt.tokens == tokens.start), axis=1)
    token = jnp.full((start.size, 1), tokens.start, jnp.int32)
    features, _ = model.apply(params, token, start, cache)
    return rules.no_speech(tokens, model.readout(params, features)[:, 0])
