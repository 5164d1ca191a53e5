"""The programs that texts are decoded by: of a pair, a rule and a shape, and then kept.

Axes: B prompts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.stages import Wrapped
from jax.typing import ArrayLike

from specjax import (
    decode_config,
    drafts,
    finite,
    fused,
    generate,
    policies,
    verifiers,
)
from specjax.checkpoints import Config
from specjax.decode_config import (
    NAMES,
    PER_PROMPT,
    UNLIMITED,
    DecodeConfig,
    check_setting,
    check_whole,
)
from specjax.drafts import placement
from specjax.drafts.models import with_rules
from specjax.drafts.source import SAMPLED, DraftLike, DraftSource, Recipe, check_pair
from specjax.inputs import make_prompt, make_request, make_sampling, pad_to_bucket
from specjax.keys import root_key
from specjax.models import families
from specjax.models.constrained import constrained
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts, at_place
from specjax.prompts import from_list as read_prompts
from specjax.runtime import mesh as meshes
from specjax.step import Decoder
from specjax.types import (
    Prompt,
    Request,
    Sampling,
    TokenAutomaton,
    Verifier,
)

Pair = tuple[Pretrained, DraftSource | None]


class Plan(NamedTuple):
    """The key of a program: all that it is compiled for. It is hashable.

    draft: the recipe of the drafter, which equals another of the same sizes; None is no
    drafter. decode: `DecodeConfig.static`, without what the program takes as arguments.
    batch: rows. slots: of the buffer. regime: what the drafts carry. rules: what the
    target's logits are changed by. mesh: what it lies on, None for one device.
    """

    target: Config
    draft: Recipe | None
    decode: DecodeConfig
    batch: int
    slots: int
    regime: str = SAMPLED
    rules: TokenAutomaton | None = None
    mesh: meshes.Layout | None = None


def prepared(
    target: str | Pretrained,
    draft: DraftLike | None,
    prompts: Sequence[Any],
    config: DecodeConfig,
    *,
    rules: TokenAutomaton | None = None,
    samples: int | None = None,
    places: Sequence[int] | None = None,
) -> tuple[Pair, Plan, Prompt, Request]:
    """Reads prompts and weights, and puts together what decodes them.

    Args:
      target, draft, prompts, rules, samples: as `text.generate_text`.
      config: its other settings. Those of `PER_PROMPT` are one value, or a list with
        one for each prompt.
      places: of the prompts among all that there are, by which texts are drawn; None
        counts these prompts from 0 on.

    Returns:
      Both models, the key of their program, and what it decodes.

    Raises:
      ValueError: what cannot be decoded, in one line.
    """
    check_settings(config, rules, samples)
    pair = opened(target, draft)
    if pair[1] is not None:
        check_pair(pair[0], pair[1], with_alpha=False)
        if rules is not None:
            pair = pair[0], with_rules(pair[1], rules)
    read = read_prompts(prompts, pair[0])
    each = per_prompt(config, len(read.tokens))
    check_lengths(pair[0], read, each["new_tokens"])
    meshes.check_rows(len(read.tokens) * (samples or 1))
    pair, longest = placement.place_pair(*pair), max(each["new_tokens"])
    most = room(pair, longest)
    prompt, request = batch_of(
        read, each, most=most, samples=samples or 1, places=places
    )
    plan = Plan(
        target=pair[0].required_config,
        draft=None if pair[1] is None else pair[1].factory,
        decode=config.static(),
        batch=len(prompt.tokens),
        slots=prompt.tokens.shape[1] + longest + config.gamma + 1,
        regime=SAMPLED if pair[1] is None else pair[1].regime,
        rules=rules,
        mesh=meshes.layout.value,
    )
    return pair, plan, *meshes.rows((prompt, request))


def batch_of(
    read: Prompts,
    each: dict[str, Any],
    *,
    most: int | None,
    samples: int,
    places: Sequence[int] | None,
) -> tuple[Prompt, Request]:
    """Returns the rows to decode: the samples of the first prompt, then of the next.

    Args:
      read: N prompts.
      each: settings, as `per_prompt` gives them.
      most: the widest that prompts may be padded to.
      samples: rows of each prompt.
      places: [N], as of `prepared`.
    """
    count = len(read.tokens)
    row = [i for i in range(count) for _ in range(samples)]  # the prompt of each

    def rows(values: Sequence[Any] | None) -> Any:
        return None if values is None else np.array(values)[row]

    inputs = None if read.inputs is None else [read.inputs[i] for i in row]
    prompt = pad_to_bucket(make_prompt([read.tokens[i] for i in row], inputs), most)
    settings = {name: rows(each[name]) for name in Sampling._fields}
    sampling = make_sampling(len(row), **settings)
    at = rows(range(count) if places is None else places)
    key = keys(rows(each["seed"]), at, np.tile(np.arange(samples), count))
    new_tokens = rows(each["new_tokens"])
    return prompt, make_request(key, prompt, new_tokens, sampling, read.ends)


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Wrapped:
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
    target = families.build(plan.target)
    if plan.rules is not None:
        target = constrained(target, plan.rules)
    if plan.draft is None:
        return Decoder(target, verifier=verifier, logprobs=plan.decode.logprobs)
    drafter = plan.draft(gamma=plan.decode.gamma, draw=draw)
    policy = policies.find(plan.decode.policy)
    return Decoder(target, drafter, verifier, policy, plan.decode.logprobs)


def verification(plan: Plan) -> tuple[Verifier, Callable]:
    """The verifier, and how drafts are drawn for it; fused where the plan's `kernels`
    and the device allow it."""
    decode = plan.decode
    sizes = fused.Sizes(plan.batch, decode.gamma, plan.target.vocab, plan.regime)
    chosen = fused.choose(decode.kernels, verifiers.find(decode.rule), sizes)
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


def per_prompt(config: DecodeConfig, count: int) -> dict[str, Any]:
    """Returns each setting of `PER_PROMPT` as a list with a value for each of `count`
    prompts; None where no prompt has one.

    Raises:
      ValueError: a list has another length, or a value cannot be; names the setting,
        and the prompt where there is a list.
    """
    every = {}
    for name in PER_PROMPT:
        given = getattr(config, name)
        several = isinstance(given, list | tuple) or np.ndim(given) == 1
        values = [*map(plain, given)] if several else [plain(given)]
        if several and len(values) != count:
            raise ValueError(
                f"{name} has {len(values)} values for {count} prompts: give one value,"
                " or one for each prompt"
            )
        for i, value in enumerate(values):
            if several:
                at_place(f"prompt {i}", check_setting, name, value)
            else:
                check_setting(name, value)
        filled = [UNLIMITED[name] if value is None else value for value in values]
        unset = all(value is None for value in values)
        every[name] = None if unset else filled if several else filled * count
    return every


def plain(value: Any) -> Any:
    """A number as Python's own."""
    scalar = isinstance(value, np.generic | np.ndarray | Array) and value.ndim == 0
    return value.item() if scalar else value


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


def check_settings(
    config: DecodeConfig, rules: TokenAutomaton | None, samples: int | None
) -> None:
    """Raises ValueError for settings that could not decode, whatever the prompts."""
    decode_config.check(config, [name for name in NAMES if name not in PER_PROMPT])
    if samples is not None:
        check_whole("samples", samples)
    if not isinstance(rules, TokenAutomaton | None):
        raise ValueError(
            "rules must be a specjax.types.TokenAutomaton, as models.penalties builds;"
            f" got {type(rules).__name__}"
        )
