"""The cases: who decodes what, by which rule."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate, policies, pretrained, probs, verifiers
from specjax.checkpoints import Pretrained
from specjax.drafters.rollout import for_rule
from specjax.drafts import counts, models, retrieval
from specjax.drafts.source import DraftSource
from specjax.inputs import make_prompt, make_request
from specjax.step import Decoder
from specjax.types import (
    Draft,
    Drafter,
    Law,
    Params,
    Prompt,
    Request,
    Sampling,
    State,
    Verifier,
)
from tests.support import tiny_llama

NEW = 32
HEAT = (0.0, 1.0)
CODE = ("def fibonacci(n):\n    ", "class Stack:\n    def push(self, item):\n")
ENGLISH = ("translate English to German: The man is sitting on a bench.",)
ENGLISH += ("summarize: Return the number of items in the list, or None if empty.",)
TEXTS = {"code": CODE, "t5": ENGLISH}
IDS = ((1, 5, 9, 5, 9, 2), (3, 7, 7, 11))  # prompts of models without a tokenizer


class Case(NamedTuple):
    """target, draft: names of SIDES; an empty draft decodes the target alone. top_k,
    top_p, min_p: of every row. scored: whether alpha is taken from both laws too."""

    target: str
    draft: str = ""
    rule: str = "token"
    policy: str = "none"
    gamma: int = 4
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    scored: bool = False


def tiny(style: str, share: float = 0.0) -> Pretrained:
    """A random model of Llama's kind, or a draft with a share of other weights."""
    config = getattr(tiny_llama, style.upper())
    mixed = jax.tree.map(
        lambda a, b: (1 - share) * a + share * b,
        *(tiny_llama.weights(config, seed) for seed in (0, 1)),
    )
    return Pretrained(style, None, tiny_llama.build(config), mixed)


STYLES = "llama", "qwen3", "gemma2", "gemma3"
NAMED = "code_target", "code_small", "t5_large", "t5_base", "t5_small"
SIDES = {
    **{name: partial(pretrained.load, name) for name in NAMED},
    "code_small_int8": lambda: pretrained.load("code_small", "int8"),
    "code_first_layer": lambda: models.early_exit(pretrained.load("code_small"), 1),
    "bigram": lambda: counts.ngram(2),
    "unigram": lambda: counts.ngram(1),
    "t5_bigram": lambda: counts.ngram(2, "t5_bigram"),
    "random": counts.random,
    "copying": retrieval.copying,
    **{style: partial(tiny, style) for style in STYLES},
    **{f"near_{style}": partial(tiny, style, 0.1) for style in STYLES},
}

CASES = {
    "code_token": Case("code_target", "code_small", scored=True),
    "code_block": Case("code_target", "code_small", "block"),
    "code_alone": Case("code_small"),
    "bigram_token": Case("code_small", "bigram", scored=True),
    "bigram_block": Case("code_small", "bigram", "block"),
    "bigram_rejection": Case("code_small", "bigram", "rejection"),
    "bigram_match": Case("code_small", "bigram", "match"),
    "bigram_gumbel": Case("code_small", "bigram", "gumbel"),
    "bigram_lenient": Case("code_small", "bigram", "lenient:0.5"),
    "bigram_sigmoid": Case("code_small", "bigram", "sigmoid:1000"),
    "bigram_adaptive": Case("code_small", "bigram", policy="adaptive", gamma=6),
    "bigram_top_k": Case("code_small", "bigram", top_k=40),
    "bigram_top_p": Case("code_small", "bigram", top_p=0.9),
    "bigram_truncated": Case("code_small", "bigram", "block")._replace(
        top_k=50, top_p=0.95, min_p=0.02
    ),
    "unigram_token": Case("code_small", "unigram"),
    "random_token": Case("code_small", "random"),
    "copying_token": Case("code_small", "copying"),
    "copying_adaptive": Case("code_small", "copying", policy="adaptive"),
    "early_exit_token": Case("code_small", "code_first_layer"),
    "int8_token": Case("code_small_int8", "bigram"),
    "t5_token": Case("t5_large", "t5_small", scored=True),
    "t5_block": Case("t5_base", "t5_small", "block"),
    "t5_bigram": Case("t5_base", "t5_bigram"),
    "t5_copying": Case("t5_base", "copying"),
    "llama_token": Case("llama", "near_llama", scored=True),
    "qwen3_gumbel": Case("qwen3", "near_qwen3", "gumbel"),
    "gemma2_block": Case("gemma2", "near_gemma2", "block", gamma=3),
    "gemma3_token": Case("gemma3", "near_gemma3", gamma=3),
}


@cache
def target_of(name: str) -> Pretrained:
    return SIDES[name]()


@cache
def draft_of(name: str) -> DraftSource:
    draft = SIDES[name]()
    return models.model_source(draft) if isinstance(draft, Pretrained) else draft


def shape(case: Case) -> Case:
    """Equal for cases of one program: of other drafts and rules, or numbers of cuts."""
    cut = case[-4:-1] != (None,) * 3 or None
    named = dict(draft="any" * bool(case.draft), rule="any", scored=False)
    return case._replace(top_k=cut, top_p=cut, min_p=cut, **named)


class Shared(NamedTuple):
    """decode: (which, prompt, request) -> Output. players: who drafts there, by the
    draft and how it draws, and their rules."""

    decode: Callable
    players: dict[tuple, list[str]]


def player(case: Case) -> tuple:
    return case.draft, for_rule(verifiers.find(case.rule))


@cache
def program(shape_: Case, slots: int) -> Shared:
    target, players = target_of(shape_.target), {}
    for case in CASES.values():
        if shape(case) == shape_ and case.draft:
            rules = players.setdefault(player(case), [])
            rules += [case.rule] * (case.rule not in rules)
    drafts = [draft_of(draft) for draft, _ in players]
    each = zip(drafts, players, strict=True)
    drafters = tuple(one.drafter(shape_.gamma, draw) for one, (_, draw) in each)
    rules = tuple(tuple(map(verifiers.find, rules)) for rules in players.values())
    params = Params(target.params, [draft.params for draft in drafts])

    @jax.jit
    def decode(which, params, prompt, request):
        decoder = Decoder(target.model)
        if drafters:
            parts = one_of_each(drafters, rules, which)
            decoder = Decoder(target.model, *parts, policies.find(shape_.policy))
        return generate.build_loop(decoder, slots)(params, prompt, request)

    return Shared(lambda *given: decode(given[0], params, *given[1:]), players)


def run(case: Case) -> dict:
    """What a case decodes, plain."""
    target, draft = target_of(case.target), case.draft and draft_of(case.draft)
    prompt, sampling = rows(target, case)
    keys = jax.random.split(jax.random.key(0), len(prompt.length))
    request = make_request(keys, prompt, NEW, sampling)
    shared = program(shape(case), prompt.tokens.shape[1] + NEW + case.gamma + 1)
    which = np.zeros(2, np.int32)
    if draft:
        places, mine = [*shared.players], player(case)
        which = np.int32([places.index(mine), shared.players[mine].index(case.rule)])
    out = jax.device_get(shared.decode(which, prompt, request))
    spans = zip(out.tokens, np.asarray(prompt.length), out.length, strict=True)
    told = {name: x.tolist() for name, x in out.counts._asdict().items()}
    told["ids"] = [row[start:end].tolist() for row, start, end in spans]
    if case.scored:
        told["alpha"] = alpha(target, draft, prompt, out, sampling)
    return told


def rows(target: Pretrained, case: Case) -> tuple[Prompt, Sampling]:
    """Two prompts, each greedy and at temperature 1."""
    if target.tokenizer_file is None:
        prompt = make_prompt([list(ids) for ids in IDS for _ in HEAT])
    else:
        coder, start = target.tokenizer, target.start
        texts = TEXTS["t5" if target.encodes else "code"]
        ids = [coder.encode(text) for text in texts for _ in HEAT]
        if target.encodes:
            prompt = make_prompt([[start]] * len(ids), ids)
        else:
            prompt = make_prompt([[start, *row] for row in ids])
    count = len(prompt.length)

    heat = np.array(HEAT * (count // len(HEAT)), np.float32)
    if shape(case).top_k is None:
        return prompt, Sampling(heat)
    top_k = np.full(count, case.top_k or target.model.vocab, np.int32)
    top_p, min_p = (
        np.full(count, off if value is None else value, np.float32)
        for value, off in ((case.top_p, 1.0), (case.min_p, 0.0))
    )
    return prompt, Sampling(heat, top_k, top_p, min_p)


def alpha(
    target: Pretrained, draft: DraftSource, prompt: Prompt, out, sampling
) -> float:
    """E(sum_x min(p, q)) at the tokens that were written (Corollary 3.6)."""
    text = prompt._replace(tokens=jnp.asarray(out.tokens[:, :-1]))

    target_law = models.law_of(target.model)

    target_law = models.law_of(target.model)

    @jax.jit
    def betas(p_params, q_params):
        p = probs.dense(target_law(p_params, text, sampling))
        q = probs.dense(draft.law(q_params, text, sampling))
        return jnp.minimum(p, q).sum(-1)

    slot = np.arange(1, out.tokens.shape[1])
    start, length = np.asarray(prompt.length)[:, None], out.length[:, None]
    written = (slot >= start) & (slot < length)
    return float(np.asarray(betas(target.params, draft.params))[written].mean())


# Several drafters and verifiers in one program: who is asked is an argument.


def one_of(rules: tuple[Verifier, ...], which: Array) -> Verifier:
    """The verifier rules[which], for a `which` that is traced.

    Rules that differ in their noise alone are compiled once.
    """
    kinds = tuple(dict.fromkeys(rule.verify for rule in rules))
    noises = [[rule.noise for rule in rules if rule.verify is kind] for kind in kinds]
    kind_of = jnp.array([kinds.index(rule.verify) for rule in rules])
    noise_of = [noises[kinds.index(rule.verify)].index(rule.noise) for rule in rules]
    noise_of = jnp.array(noise_of)

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        return key, start

    def verify(target: Law, draft: Draft, noise: tuple):
        sizes = draft.tokens.shape[1], target.logits.shape[-1]

        def branch(place: int):
            drawn = [lambda *at, of=of: of(*at, *sizes) for of in noises[place]]

            def decide(target: Law, draft: Draft, noise: tuple):
                own = noise_of[which] if len(drawn) > 1 else 0
                return kinds[place](target, draft, jax.lax.switch(own, drawn, *noise))

            return decide

        branches = list(map(branch, range(len(kinds))))
        return jax.lax.switch(kind_of[which], branches, target, draft, noise)

    return Verifier(noise, verify)


def one_of_each(
    drafters: tuple[Drafter, ...], rules: tuple[tuple[Verifier, ...], ...], which: Array
) -> tuple[Drafter, Verifier]:
    """The drafter of number which[0], and the one of number which[1] of its rules.

    Its parameters and its cache are lists of those of each, and so is a draft's law: of
    zeros, but for its own. gamma is one for all.
    """

    def init(params, prompt, slots: int) -> list:
        own = zip(drafters, params, strict=True)
        return [drafter.init(weights, prompt, slots) for drafter, weights in own]

    def draft(key: Array, params, request: Request, state: State) -> tuple[Draft, list]:
        def asked(place: int, caches: list) -> tuple[Draft, list]:
            own = state._replace(draft_cache=caches[place])
            draft, cache = drafters[place].draft(key, params[place], request, own)
            return draft, [*caches[:place], cache, *caches[place + 1 :]]

        def branch(place: int):
            def run(caches: list):
                draft, after = asked(place, caches)
                laws = [*empty[:place], draft.law, *empty[place + 1 :]]
                return draft._replace(law=laws), after

            return run

        places, caches = range(len(drafters)), state.draft_cache
        laws = jax.eval_shape(lambda: [asked(at, caches)[0].law for at in places])
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), laws)
        return jax.lax.switch(which[0], list(map(branch, places)), caches)

    def verify(target: Law, draft: Draft, noise: tuple):
        def branch(place: int):
            verifier = one_of(rules[place], which[1])
            return lambda: verifier.verify(
                target, draft._replace(law=draft.law[place]), noise
            )

        return jax.lax.switch(which[0], list(map(branch, range(len(rules)))))

    noise = one_of(rules[0], which[1]).noise
    return Drafter(init, draft, drafters[0].gamma), Verifier(noise, verify)
