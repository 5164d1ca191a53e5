"""Decodes the golden cases; cases that can share a compiled program share one."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import drafts, generate, policies, pretrained, probs, verifiers
from specjax.beam import hypotheses
from specjax.beam import search as beams
from specjax.beam.settings import BeamConfig, divisors
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafters.rollout import for_rule
from specjax.drafts import counts, models, retrieval
from specjax.drafts.source import DraftSource
from specjax.exactness import small_drafts, tables
from specjax.inputs import make_prompt, make_request
from specjax.models import penalties, whisper
from specjax.models.constrained import constrained
from specjax.speech import decoding
from specjax.speech.limits import Limits
from specjax.speech.pair import Listeners
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
    TokenAutomaton,
    Verifier,
)
from tests.golden.cases import CASES, BeamCase, Case, SpeechCase
from tests.support import tiny_llama, tiny_whisper
from tests.support.tiny import add_share

NEW_TOKENS = 32
TEMPERATURES = (0.0, 1.0)
CODE = ("def fibonacci(n):\n    ", "class Stack:\n    def push(self, item):\n")
ENGLISH = ("translate English to German: The man is sitting on a bench.",)
ENGLISH += ("summarize: Return the number of items in the list, or None if empty.",)
TEXTS = {"code": CODE, "t5": ENGLISH}
IDS = ((1, 5, 9, 5, 9, 2), (3, 7, 7, 11))  # prompts of models without a tokenizer
TABLE = 12  # ids of the target "table"


def tiny(style: str, share: float = 0.0) -> Pretrained:
    """Returns a random model of Llama's kind, or that model with a share of noise as a
    draft."""
    config = getattr(tiny_llama, style.upper())
    weights = jax.tree.map(
        lambda a, b: (1 - share) * a + share * b,
        *(tiny_llama.weights(config, seed) for seed in (0, 1)),
    )
    return Pretrained(style, None, tiny_llama.build(config), weights)


def table() -> Pretrained:
    """Returns a target whose next id depends on the last two ids alone."""
    params = jnp.asarray(tables.weights(TABLE, seed=1), jnp.float32)
    return Pretrained("a table", None, tables.build(TABLE), params)


STYLES = "llama", "qwen3", "gemma2", "gemma3"
BUNDLED = "code_target", "code_small", "t5_large", "t5_base", "t5_small"
MODELS = {
    **{name: partial(pretrained.load, name) for name in BUNDLED},
    "code_small_int8": lambda: pretrained.load("code_small", "int8"),
    "table": table,
    **{style: partial(tiny, style) for style in STYLES},
    **{f"near_{style}": partial(tiny, style, 0.1) for style in STYLES},
}
DRAFTS = {
    "code_first_layer": lambda: models.early_exit(pretrained.load("code_small"), 1),
    "bigram": lambda: counts.ngram(2),
    "unigram": lambda: counts.ngram(1),
    "t5_bigram": lambda: counts.ngram(2, "t5_bigram"),
    "random": counts.random,
    "copying": retrieval.copying,
}


def grammar() -> TokenAutomaton:
    """Returns rules by which no id follows itself, and no third odd id in a row."""

    def begin(tokens: Array, length: Array) -> Array:
        return jnp.take_along_axis(tokens, length[:, None] - 1, axis=1)[:, 0]

    def advance(state: Array, token: Array) -> Array:
        del state
        return token

    def apply(state: Array, logits: Array) -> Array:
        ids, last = jnp.arange(logits.shape[-1]), state[..., None]
        forbidden = (ids == last) | ((last % 3 == 0) & (ids % 2 == 1))
        return jnp.where(forbidden, -jnp.inf, logits)

    return TokenAutomaton(begin, advance, apply)


RULES = {
    "grammar": grammar(),
    "penalties": penalties.build(1.2, presence=0.3, frequency=0.1, last=8),
}


@cache
def model(name: str) -> Pretrained:
    """Returns a model of `MODELS`."""
    return MODELS[name]()


@cache
def pair(case: Case) -> tuple[Pretrained, DraftSource | None]:
    """Returns the target and the draft of a case, with its constraint."""
    target, draft = model(case.target), None
    if case.draft and case.target == "table":
        draft = small_drafts.load(case.draft, target)
    elif case.draft in DRAFTS:
        draft = DRAFTS[case.draft]()
    elif case.draft in MODELS:
        draft = models.model_source(model(case.draft))
    elif case.draft:
        target, draft = drafts.pair(target, case.draft)
    if not case.rules:
        return target, draft
    rules = RULES[case.rules]
    ruled = target._replace(model=constrained(target.model, rules))
    return ruled, draft and models.with_rules(draft, rules)


def players(case: Case) -> tuple[tuple, str]:
    """Returns the drafter, how its tokens are drawn, and the rule."""
    return (case.draft, for_rule(verifiers.find(case.rule))), case.rule


def shape(case: Case) -> Case:
    """Returns a case that is equal for all cases that share a program, which may differ
    in their drafts, rules and numbers of truncation. Trees do not share with chains,
    nor heads that tap a target's layers with other drafts; cases with constraints share
    with none, nor cases of a policy that stops within a draft."""
    policy = policies.find(case.policy)
    if case.rules or (policy is not None and policy.go_on is not None):
        return case
    cut = {"top_k": case.top_k, "top_p": case.top_p, "min_p": case.min_p}
    is_cut = any(value is not None for value in cut.values()) or None
    kind = ""
    if case.draft:
        _, draft = pair(case)
        kind = "chain" if draft.drafter(case.gamma).siblings is None else "tree"
        kind += " of a head" * bool(draft.taps)
    return case._replace(
        draft=kind, rule="any", scored=False, **dict.fromkeys(cut, is_cut)
    )


class Shared(NamedTuple):
    """A compiled program and the cases that it decodes.

    Attributes:
      decode: (which, prompt, request) -> Output; which: [2] int32, the place of a
        drafter among `rules`, and of a rule among those of that drafter.
      rules: by drafter, the names of its rules.
    """

    decode: Callable
    rules: dict[tuple, list[str]]


@cache
def program(shape_: Case, slots: int, beside: tuple[str, ...]) -> Shared:
    """Returns the program of the cases in `beside` that have this shape, with a buffer
    of `slots`."""
    rules, drafts_of = {}, {}
    for case in map(CASES.get, beside):
        if not isinstance(case, Case) or case.target != shape_.target:
            continue
        if case.draft and shape(case) == shape_:
            player, rule = players(case)
            drafts_of[player] = pair(case)
            rules.setdefault(player, [])
            rules[player] += [rule] * (rule not in rules[player])
    target = next((target for target, _ in drafts_of.values()), model(shape_.target))
    each = [draft for _, draft in drafts_of.values()]
    drafters = tuple(
        draft.drafter(shape_.gamma, draw)
        for draft, (_, draw) in zip(each, rules, strict=True)
    )
    verify = tuple(tuple(map(verifiers.find, names)) for names in rules.values())
    params = Params(target.params, [draft.params for draft in each])
    policy = policies.find(shape_.policy)
    alone = len(drafters) == 1 and len(verify[0]) == 1

    @jax.jit
    def decode(which, params, prompt, request):
        if not drafters:
            decoder = Decoder(target.model)
        elif alone:
            decoder = Decoder(target.model, drafters[0], verify[0][0], policy)
            params = Params(params.target, params.draft[0])
        else:
            decoder = Decoder(
                target.model, *one_of_each(drafters, verify, which), policy
            )
        return generate.build_loop(decoder, slots)(params, prompt, request)

    return Shared(
        lambda which, prompt, request: decode(which, params, prompt, request), rules
    )


def run(name: str, beside: tuple[str, ...] = ()) -> dict:
    """Returns what a case decodes: ids and counts of each row.

    Args:
      name: that of the case.
      beside: the names of the cases, itself among them, that are decoded too: those of
        one shape share a program. It is a case's own by default.
    """
    case = CASES[name]
    if isinstance(case, BeamCase):
        return search_case(case)
    if isinstance(case, SpeechCase):
        return transcribe_case(case)
    return decode_case(case, beside or (name,))


def decode_case(case: Case, beside: tuple[str, ...]) -> dict:
    target, draft = pair(case)
    prompt, sampling = rows(target, case)
    keys = jax.random.split(jax.random.key(0), len(prompt.length))
    request = make_request(keys, prompt, NEW_TOKENS, sampling)
    slots = prompt.tokens.shape[1] + NEW_TOKENS + case.gamma + 1
    shared = program(shape(case), slots, beside)
    which = np.zeros(2, np.int32)
    if draft:
        player, rule = players(case)
        place = [*shared.rules].index(player)
        which = np.int32([place, shared.rules[player].index(rule)])
    out = jax.device_get(shared.decode(which, prompt, request))
    spans = zip(out.tokens, np.asarray(prompt.length), out.length, strict=True)
    found = {name: x.tolist() for name, x in out.counts._asdict().items()}
    found["ids"] = [row[start:end].tolist() for row, start, end in spans]
    if case.scored:
        found["alpha"] = alpha(target, draft, prompt, out, sampling)
    return found


def search_case(case: BeamCase) -> dict:
    """Returns the beams of two prompts, and their scores."""
    target, draft = model(case.target), model(case.draft)
    prompt, ends = two_prompts(target, copies=1), target.ends or (-1,)
    config = BeamConfig(
        case.width, case.gamma, None, case.length_penalty, case.early_stopping
    )
    count = len(prompt.length)
    limits = hypotheses.Limits(
        most=jnp.full(count, NEW_TOKENS),
        eos=jnp.tile(jnp.array(ends), (count, 1)),
        divisor=jnp.asarray(divisors(case.length_penalty, NEW_TOKENS)),
    )
    search = jax.jit(beams.build(target.model, draft.model, config))
    found = jax.device_get(search(Params(target.params, draft.params), prompt, limits))
    each = zip(found.tokens, found.length, strict=True)
    return {
        "calls": found.calls.tolist(),
        "steps": found.steps.tolist(),
        "scores": found.score.tolist(),
        "ids": [
            [ids[:n].tolist() for ids, n in zip(*row, strict=True)] for row in each
        ],
    }


def rows(target: Pretrained, case: Case) -> tuple[Prompt, Sampling]:
    """Returns two prompts, each greedy and at temperature 1."""
    prompt = two_prompts(target, copies=len(TEMPERATURES))
    count = len(prompt.length)
    temperature = np.array(TEMPERATURES * (count // 2), np.float32)
    if shape(case).top_k is None:
        return prompt, Sampling(temperature)
    top_k = np.full(count, case.top_k or target.vocab, np.int32)
    top_p, min_p = (
        np.full(count, off if value is None else value, np.float32)
        for value, off in ((case.top_p, 1.0), (case.min_p, 0.0))
    )
    return prompt, Sampling(temperature, top_k, top_p, min_p)


def two_prompts(target: Pretrained, copies: int) -> Prompt:
    """Returns two prompts, each as many times as there are `copies`."""
    if target.tokenizer_file is None:
        each = [[i % target.vocab for i in ids] for ids in IDS for _ in range(copies)]
        return make_prompt(each)
    coder, start = target.tokenizer, target.start
    texts = TEXTS["t5" if target.encodes else "code"]
    each = [coder.encode(text) for text in texts for _ in range(copies)]
    if target.encodes:
        return make_prompt([[start]] * len(each), each)
    return make_prompt([[start, *row] for row in each])


def alpha(
    target: Pretrained, draft: DraftSource, prompt: Prompt, out, sampling: Sampling
) -> float:
    """Returns E(sum_x min(p, q)) at the tokens that were written (Corollary 3.6)."""
    text = prompt._replace(tokens=jnp.asarray(out.tokens[:, :-1]))
    target_law = models.build_law(target.model)

    @jax.jit
    def betas(p_params, q_params):
        p = probs.dense(target_law(p_params, text, sampling))
        q = probs.dense(draft.law(q_params, text, sampling))
        return jnp.minimum(p, q).sum(-1)

    slot = np.arange(1, out.tokens.shape[1])
    start, length = np.asarray(prompt.length)[:, None], out.length[:, None]
    written = (slot >= start) & (slot < length)
    return float(np.asarray(betas(target.params, draft.params))[written].mean())


def transcribe_case(case: SpeechCase) -> dict:
    """Returns what a small Whisper writes for two windows of noise, each greedy and at
    temperature 1, under the rules of timestamps."""
    large = tiny_whisper.TARGET._replace(vocab=tiny_whisper.VOCAB)
    small = large._replace(decoder_layers=1)
    weights = [tiny_whisper.weights(large, seed) for seed in (3, 7)]
    near = add_share(*weights, 0.1)
    target = Pretrained("target", large, whisper.build(large), weights[0])
    decoder = {key: x for key, x in near["decoder"].items() if key != "layers_1"}
    params = {"encoder": weights[0]["encoder"], "decoder": decoder}
    draft = Pretrained("draft", small, whisper.build(small), params)
    listeners = Listeners(
        target,
        draft,
        tiny_whisper.TOKENS,
        Limits(),
        read=str,
        write=list,
        shared=True,
    )
    found = []
    config = DecodeConfig(gamma=case.gamma, rule=case.rule)
    decode = decoding.build(listeners, config, on_batch=found.append)
    frames = np.repeat(tiny_whisper.sounds(2).frames, 2, axis=0)
    prompts = [list(tiny_whisper.PROMPT) for _ in frames]
    ids = decode(frames, prompts, TEMPERATURES * 2).tokens
    counts = {name: getattr(found[0], name) for name in ("calls", "tokens")}
    counts |= {name: getattr(found[0], name) for name in ("tested", "accepted")}
    return counts | {"ids": [list(map(int, row)) for row in ids]}


# Several drafters and verifiers in one program: an argument chooses among them.


def verifier_by_index(rules: tuple[Verifier, ...], which: Array) -> Verifier:
    """Returns the verifier rules[which], for a `which` that is traced.

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
        gamma, vocab = draft.tokens.shape[1], target.logits.shape[-1]

        def branch(place: int):
            draws = [
                lambda key, start, draw=draw: draw(key, start, gamma, vocab)
                for draw in noises[place]
            ]

            def decide(target: Law, draft: Draft, noise: tuple):
                own = noise_of[which] if len(draws) > 1 else 0
                drawn = jax.lax.switch(own, draws, *noise)
                return kinds[place](target, draft, drawn)

            return decide

        branches = list(map(branch, range(len(kinds))))
        return jax.lax.switch(kind_of[which], branches, target, draft, noise)

    return Verifier(noise, verify)


def one_of_each(
    drafters: tuple[Drafter, ...], rules: tuple[tuple[Verifier, ...], ...], which: Array
) -> tuple[Drafter, Verifier]:
    """Returns drafter number which[0], and of its rules number which[1].

    Parameters and caches are lists with those of each drafter. A draft's law is a list
    too, with a place for each structure of laws that occurs: zeros but for that of the
    drafter that was chosen. So drafts whose laws look alike are verified by one code.
    All draft gamma tokens, or all draft trees of gamma nodes.
    """
    structures, places = [], range(len(drafters))  # of laws; as `draft` is traced
    structure_of = []

    def init(params, prompt, slots: int) -> list:
        own = zip(drafters, params, strict=True)
        return [drafter.init(weights, prompt, slots) for drafter, weights in own]

    def draft(key: Array, params, request: Request, state: State) -> tuple[Draft, list]:
        def draft_with(place: int, caches: list) -> tuple[Draft, list]:
            own = state._replace(draft_cache=caches[place])
            draft, cache = drafters[place].draft(key, params[place], request, own)
            return draft, [*caches[:place], cache, *caches[place + 1 :]]

        def branch(place: int):
            def run(caches: list):
                draft, after = draft_with(place, caches)
                laws = list(empty)
                laws[structure_of[place]] = draft.law
                return jax.tree.map(jnp.asarray, draft._replace(law=laws)), after

            return run

        caches = state.draft_cache
        laws = jax.eval_shape(lambda: [draft_with(at, caches)[0].law for at in places])
        structures[:] = list(dict.fromkeys(map(str, laws)))
        structure_of[:] = [structures.index(str(law)) for law in laws]
        firsts = [laws[structure_of.index(i)] for i in range(len(structures))]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), firsts)
        return jax.lax.switch(which[0], list(map(branch, places)), caches)

    def observe(params, caches: list, call) -> list:
        def branch(place: int):
            def run(caches: list) -> list:
                own = drafters[place]
                is_prefill = call.law is None  # which heads alone observe
                if own.observe is None or (is_prefill and not own.needs_features):
                    return caches
                cache = own.observe(params[place], caches[place], call)
                return [*caches[:place], cache, *caches[place + 1 :]]

            return run

        return jax.lax.switch(which[0], list(map(branch, places)), caches)

    def verify(target: Law, draft: Draft, noise: tuple):
        def branch(structure: int):
            own = [at for at in places if structure_of[at] == structure]
            alike = tuple(dict.fromkeys(rule for at in own for rule in rules[at]))
            number = np.zeros((len(drafters), max(map(len, rules))), np.int32)
            for at in own:
                for i, rule in enumerate(rules[at]):
                    number[at, i] = alike.index(rule)
            verifier = verifier_by_index(alike, jnp.array(number)[which[0], which[1]])
            return lambda: verifier.verify(
                target, draft._replace(law=draft.law[structure]), noise
            )

        branches = list(map(branch, range(len(structures))))
        return jax.lax.switch(jnp.array(structure_of)[which[0]], branches)

    for drafter, several in zip(drafters, rules, strict=True):
        assert all(drafter.siblings in (None, *rule.siblings) for rule in several)
    siblings = drafters[0].siblings and "any"
    learns = any(drafter.observe is not None for drafter in drafters)
    return (
        Drafter(
            init,
            draft,
            drafters[0].gamma,
            siblings=siblings,
            observe=observe if learns else None,
            needs_features=any(drafter.needs_features for drafter in drafters),
        ),
        Verifier(
            verifier_by_index(rules[0], which[1]).noise,
            verify,
            siblings=(siblings,) if siblings else (),
        ),
    )
