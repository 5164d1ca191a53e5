"""The programs that texts are decoded by: of a pair, a rule and a shape, and then kept.

Axes: B prompts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from specjax import (
    checkpoints,
    drafts,
    finite,
    fused,
    generate,
    policies,
    probs,
    verifiers,
)
from specjax.checkpoints import Config
from specjax.drafts import placement
from specjax.drafts.models import with_rules
from specjax.drafts.source import SAMPLED, DraftLike, DraftSource, Recipe, check_pair
from specjax.inputs import make_prompt, make_request, make_sampling, pad_to_bucket
from specjax.keys import check_seed, root_key
from specjax.models.constrained import constrained
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, at_place
from specjax.prompts import from_list as read_prompts
from specjax.runtime import mesh as meshes
from specjax.step import Decoder
from specjax.types import (
    Params,
    Prompt,
    Request,
    Sampling,
    TokenAutomaton,
    Verifier,
)

Pair = tuple[Pretrained, DraftSource | None]


# What may differ from prompt to prompt, and the value of a prompt that has None.
PER_PROMPT = {"temperature": None, "new_tokens": None, "seed": None}
PER_PROMPT |= {"top_k": 2**31 - 1, "top_p": 1.0, "min_p": 0.0}
MOST_TOKENS, MOST_DRAFTED = 1_000_000, 1000  # as of `console.count` and `gamma`


class Asked(NamedTuple):
    """The settings of `text.generate_text`. Those of `PER_PROMPT` are one value, or a
    list with one for each prompt."""

    gamma: int
    temperature: Any
    top_k: Any = None
    top_p: Any = None
    min_p: Any = None
    rule: str = "token"
    policy: str = "none"
    new_tokens: Any = 64
    seed: Any = 0
    kernels: str = "auto"
    logprobs: bool = False
    rules: TokenAutomaton | None = None
    samples: int | None = None
    places: tuple[int, ...] | None = None  # of texts, by which they are drawn


class Plan(NamedTuple):
    """What a program is compiled for. draft: the recipe of the drafter, which equals
    another of the same sizes; None is no drafter. regime: what its drafts carry. rules:
    what the target's logits are changed by. logprobs: see `Decoder`. mesh: what it lies
    on, None for one device."""

    target: Config
    draft: Recipe | None
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
    draft: DraftLike | None,
    prompts: Sequence[str | dict[str, Any]],
    asked: Asked,
) -> tuple[Pair, Plan, Prompt, Request]:
    """What is decoded, and by which program. Raises ValueError for what cannot be."""
    check_settings(asked)
    pair = opened(target, draft)
    if pair[1] is not None:
        check_pair(*pair, with_alpha=False)
        if asked.rules is not None:
            pair = pair[0], with_rules(pair[1], asked.rules)
    read = read_prompts(prompts, pair[0])
    each = per_prompt(asked, len(read.tokens))
    check_lengths(pair[0], read, each["new_tokens"])
    meshes.check_rows(len(read.tokens) * (asked.samples or 1))
    pair, longest = placement.place_pair(*pair), max(each["new_tokens"])
    prompt, request = batch_of(read, asked, each, room(pair, longest))
    told = asked._asdict()
    plan = Plan(
        target=pair[0].required_config,
        draft=None if pair[1] is None else pair[1].factory,
        batch=len(prompt.tokens),
        slots=prompt.tokens.shape[1] + longest + asked.gamma + 1,
        regime=SAMPLED if pair[1] is None else pair[1].regime,
        mesh=meshes.layout.value,
        **{name: told[name] for name in Plan._fields if name in told},
    )
    return pair, plan, *meshes.rows((prompt, request))


def batch_of(
    read: Prompts, asked: Asked, each: dict[str, list | None], most: int | None
) -> tuple[Prompt, Request]:
    """Returns the rows to decode: the samples of the first prompt, then of the next.
    each: as `per_prompt`. most: the widest that prompts may be padded to."""
    count, samples = len(read.tokens), asked.samples or 1
    row = np.repeat(np.arange(count), samples)  # the prompt of each

    def rows(values: Sequence | None) -> np.ndarray | None:
        return None if values is None else np.array(values)[row]

    inputs = None if read.inputs is None else [read.inputs[i] for i in row]
    prompt = pad_to_bucket(make_prompt([read.tokens[i] for i in row], inputs), most)
    settings = {name: rows(each[name]) for name in Sampling._fields}
    sampling = make_sampling(len(row), **settings)
    places = rows(range(count) if asked.places is None else asked.places)
    key = keys(rows(each["seed"]), places, np.tile(np.arange(samples), count))
    new_tokens = rows(each["new_tokens"])
    return prompt, make_request(key, prompt, new_tokens, sampling, read.ends)


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Callable[[Params, Prompt, Request], generate.Output]:
    """The loop of a plan, the same function for the same plan: JAX compiles it once for
    each shape."""
    return jax.jit(generate.build_loop(decoder(plan), plan.slots))


@functools.lru_cache(maxsize=32)
def steps(plan: Plan) -> generate.Programs:
    """The two programs that a plan is decoded by step by step."""
    return generate.build_programs(decoder(plan), plan.slots)


def decoder(plan: Plan) -> Decoder:
    verifier, draw = verification(plan)
    verifier = finite.guard(verifier)
    target = checkpoints.build(plan.target)
    if plan.rules is not None:
        target = constrained(target, plan.rules)
    if plan.draft is None:
        return Decoder(target, verifier=verifier, logprobs=plan.logprobs)
    drafter = plan.draft(gamma=plan.gamma, draw=draw)
    policy = policies.find(plan.policy)
    return Decoder(target, drafter, verifier, policy, plan.logprobs)


def verification(plan: Plan) -> tuple[Verifier, Callable]:
    """The verifier, and how drafts are drawn for it; fused where `plan.kernels` and the
    device allow it."""
    verifier = verifiers.find(plan.rule)
    sizes = fused.Sizes(plan.batch, plan.gamma, plan.target.vocab, plan.regime)
    chosen = fused.choose(plan.kernels, verifier, sizes)
    return chosen.verifier, chosen.draw


def opened(target: str | Pretrained, draft: DraftLike | None) -> Pair:
    """Both, read where they are names. Raises ValueError for what is no model."""
    check_kind("target", target, str | Pretrained)
    check_kind("draft", draft, DraftLike | None)
    if isinstance(target, str):
        target = drafts.load_target(target, "float32")
    return (target, None) if draft is None else drafts.pair(target, draft)


def check_kind(name: str, side: Any, kinds: Any) -> None:
    """Raises ValueError for what is no model, and no name of one."""
    if not isinstance(side, kinds):
        raise ValueError(
            f"{name} must be a name, or what specjax.load gives; got a"
            f" {type(side).__name__}"
        )


def room(pair: Pair, new_tokens: int) -> int | None:
    """Positions that both models know, less those of what is written; None where there
    is no end of them."""
    target, draft = pair
    each = [target] if draft is None else [target, draft.pretrained]
    models = [it.model for it in each if it is not None]
    known = [model.slots for model in models if model.slots is not None]
    return min(known) - new_tokens if known else None


def keys(seeds: ArrayLike, places: ArrayLike, samples: ArrayLike = 0) -> Array:
    """Returns a key for each text [B], by its seed, the place of its prompt and which
    sample it is of that prompt, whatever the other texts are. Arguments: [B] or []."""
    seeds, places, samples = np.broadcast_arrays(seeds, places, samples)
    return jax.vmap(jax.random.fold_in)(root_key(seeds, samples), np.uint32(places))


def per_prompt(asked: Asked, count: int) -> dict[str, list | None]:
    """Returns each setting of `PER_PROMPT` as a list with a value for each of `count`
    prompts; None where no prompt has one.

    Raises:
      ValueError: a list has another length, or a value cannot be; names the setting,
        and the prompt where there is a list.
    """
    every = {}
    for name, neutral in PER_PROMPT.items():
        given = getattr(asked, name)
        several = isinstance(given, list | tuple) or np.ndim(given) == 1
        values = [*map(plain, given)] if several else [plain(given)]
        if several and len(values) != count:
            raise ValueError(
                f"{name} has {len(values)} values for {count} prompts: give one value,"
                " or one for each prompt"
            )
        for i, value in enumerate(values):
            if several:
                at_place(f"prompt {i}", check_value, name, value)
            else:
                check_value(name, value)
        filled = [neutral if value is None else value for value in values]
        unset = all(value is None for value in values)
        every[name] = None if unset else filled if several else filled * count
    return every


def plain(value: Any) -> Any:
    """A number as Python's own."""
    scalar = isinstance(value, np.generic | np.ndarray | Array) and value.ndim == 0
    return value.item() if scalar else value


def check_value(name: str, value: Any) -> None:
    """Raises ValueError for what a setting of `PER_PROMPT` cannot be for one prompt."""
    if name == "seed":
        check_seed(value)
    elif name == "new_tokens":
        check_whole(name, value, 1)
    elif value is not None or PER_PROMPT[name] is None:
        probs.check_number(name, value)


def check_whole(name: str, value: Any, least: int, most: int = MOST_TOKENS) -> None:
    """Raises ValueError for what is no whole number from `least` to `most`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise ValueError(
            f"{name} must be a whole number of at least {least} and at most {most};"
            f" got {value!r}"
        )


def check_lengths(
    target: Pretrained,
    read: Prompts,
    new_tokens: Sequence[int],
) -> None:
    """Raises ValueError, which names the prompt, where a text could be longer than the
    target's positions."""
    slots = target.model.slots
    for i, (ids, new) in enumerate(zip(read.tokens, new_tokens, strict=True)):
        if slots is None or len(ids) + new <= slots:
            continue
        fix = "shorten the prompt"
        if len(ids) < slots:
            fix = f"ask for {slots - len(ids)} new tokens or fewer, or {fix}"
        raise ValueError(
            f"prompt {i} has {len(ids)} tokens, and {target.name} knows {slots}"
            f" positions: {fix}"
        )


def check_settings(asked: Asked) -> None:
    """Raises ValueError for settings that could not decode, whatever the prompts."""
    check_whole("gamma", asked.gamma, 0, MOST_DRAFTED)
    if asked.samples is not None:
        check_whole("samples", asked.samples, 1)
    for name, find in (("rule", verifiers.find), ("policy", policies.find)):
        value = getattr(asked, name)
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a name, a text; got {value!r}")
        find(value)
    if asked.kernels not in fused.CHOICES:
        raise ValueError(
            f"kernels must be one of {fused.CHOICES}; got {asked.kernels!r}"
        )
    if not isinstance(asked.logprobs, bool):
        raise ValueError(f"logprobs must be True or False; got {asked.logprobs!r}")
    if not isinstance(asked.rules, TokenAutomaton | None):
        raise ValueError(
            "rules must be a specjax.types.TokenAutomaton, as models.penalties builds;"
            f" got {type(asked.rules).__name__}"
        )
