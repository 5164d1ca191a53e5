"""The compiled programs that decode texts, kept for each pair, rule and shape.

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
    constraints,
    decode_config,
    drafts,
    finite,
    fused,
    generate,
    policies,
    verifiers,
)
from specjax.checkpoints import Config
from specjax.constraints import Form
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
    Params,
    Prompt,
    Request,
    Sampling,
    TokenAutomaton,
    Verifier,
)

Pair = tuple[Pretrained, DraftSource | None]


class ProgramKey(NamedTuple):
    """The key of a program: all that it is compiled for. It is hashable.

    draft: the recipe of the drafter, which equals another of the same sizes; None is no
    drafter. decode: `DecodeConfig.static`, without what the program takes as arguments.
    batch: rows. slots: the number of slots of the buffer. regime: what the drafts
    carry. rules: what the target's logits are changed by. mesh: what it lies on, None
    for one device.
    """

    target: Config
    draft: Recipe | None
    decode: DecodeConfig
    batch: int
    slots: int
    regime: str = SAMPLED
    rules: TokenAutomaton | None = None
    mesh: meshes.Layout | None = None


class Job(NamedTuple):
    """Everything that a call decodes: two models, the key of their program, and the
    prompt and the request of its rows. draft: None decodes the target alone."""

    target: Pretrained
    draft: DraftSource | None
    key: ProgramKey
    prompt: Prompt
    request: Request

    @property
    def params(self) -> Params:
        draft = None if self.draft is None else self.draft.params
        return Params(self.target.params, draft)


def prepare(
    target: str | Pretrained,
    draft: DraftLike | None,
    prompts: Sequence[Any],
    config: DecodeConfig,
    *,
    rules: TokenAutomaton | None = None,
    form: Form | None = None,
    samples: int | None = None,
    places: Sequence[int] | None = None,
) -> Job:
    """Reads prompts and weights, and returns the job that decodes them.

    Args:
      target, draft, prompts, rules, samples: as `text.generate_text`.
      config: its other settings. Those of `PER_PROMPT` are one value, or a list with
        one for each prompt.
      form: the schema, regular expression or grammar that texts must have.
      places: the places of the prompts among all that there are, by which texts are
        drawn; None counts these prompts from 0 on.

    Raises:
      ValueError: the inputs cannot be decoded; in one line.
    """
    check_settings(config, rules, samples)
    pair = open_pair(target, draft)
    if pair[1] is not None:
        check_pair(pair[0], pair[1], with_alpha=False)
    if not config.gamma:
        pair = pair[0], None
    read = read_prompts(prompts, pair[0])
    each = expand_per_prompt(config, len(read.tokens))
    check_lengths(pair[0], read, each["new_tokens"])
    longest = max(each["new_tokens"])
    if form is not None:
        most = longest + config.gamma + 1
        of_form = constraints.automaton(form, pair[0], read.ends, most)
        rules = constraints.both(rules, of_form)
    if pair[1] is not None and rules is not None:
        pair = pair[0], with_rules(pair[1], rules)
    meshes.check_rows(len(read.tokens) * (samples or 1))
    pair = placement.place_pair(pair[0], pair[1])
    most = room(pair, longest)
    prompt, request = make_batch(
        read, each, most=most, samples=samples or 1, places=places
    )
    key = ProgramKey(
        target=pair[0].required_config,
        draft=None if pair[1] is None else pair[1].factory,
        decode=config.static(),
        batch=len(prompt.tokens),
        slots=prompt.tokens.shape[1] + longest + config.gamma + 1,
        regime=SAMPLED if pair[1] is None else pair[1].regime,
        rules=rules,
        mesh=meshes.layout.value,
    )
    if key.mesh is not None:
        prompt, request = meshes.rows((prompt, request))
    return Job(pair[0], pair[1], key, prompt, request)


def make_batch(
    read: Prompts,
    each: dict[str, Any],
    *,
    most: int | None,
    samples: int,
    places: Sequence[int] | None,
) -> tuple[Prompt, Request]:
    """Returns the rows to decode: the samples of the first prompt, then those of the
    next.

    Args:
      read: N prompts.
      each: settings, as `expand_per_prompt` gives them.
      most: the widest that prompts may be padded to.
      samples: rows of each prompt.
      places: [N], as of `prepare`.
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
def program(key: ProgramKey) -> Wrapped:
    """Returns the loop of a key; the same function for the same key, so that JAX
    compiles it once for each shape."""
    return jax.jit(generate.build_loop(decoder(key), key.slots))


@functools.lru_cache(maxsize=32)
def steps(key: ProgramKey) -> generate.Programs:
    """Returns the two programs of a key that decode step by step."""
    return generate.build_programs(decoder(key), key.slots)


def decoder(key: ProgramKey) -> Decoder:
    verifier, draw = choose_kernels(key)
    verifier = finite.guard(verifier)
    target = families.build(key.target)
    if key.rules is not None:
        target = constrained(target, key.rules)
    if key.draft is None:
        return Decoder(target, verifier=verifier, logprobs=key.decode.logprobs)
    drafter = key.draft(gamma=key.decode.gamma, draw=draw)
    policy = policies.find(key.decode.policy)
    return Decoder(target, drafter, verifier, policy, key.decode.logprobs)


def choose_kernels(key: ProgramKey) -> tuple[Verifier, Callable]:
    """Returns the verifier, and the function that draws drafts for it; both are fused
    where the key's `kernels` and the device allow it."""
    decode = key.decode
    sizes = fused.Sizes(key.batch, decode.gamma, key.target.vocab, key.regime)
    chosen = fused.choose(decode.kernels, verifiers.find(decode.rule), sizes)
    return chosen.verifier, chosen.draw


def open_pair(target: str | Pretrained, draft: DraftLike | None) -> Pair:
    """Returns both models, loaded if they are given by name. Raises ValueError for a
    value that is not a model."""
    check_kind("target", target, str | Pretrained)
    check_kind("draft", draft, DraftLike | None)
    if isinstance(target, str):
        target = drafts.load_target(target, "float32")
    return (target, None) if draft is None else drafts.pair(target, draft)


def check_kind(name: str, side: Any, kinds: Any) -> None:
    """Raises ValueError for a value that is neither a model nor the name of one."""
    if not isinstance(side, kinds):
        raise ValueError(
            f"{name} must be a name, or what specjax.load gives; got a"
            f" {type(side).__name__}"
        )


def room(pair: Pair, new_tokens: int) -> int | None:
    """Returns how many positions both models have for a prompt that `new_tokens`
    follow; None where their positions have no limit."""
    target, draft = pair
    each = [target] if draft is None else [target, draft.pretrained]
    models = [it.model for it in each if it is not None]
    known = [model.slots for model in models if model.slots is not None]
    return min(known) - new_tokens if known else None


def keys(seeds: ArrayLike, places: ArrayLike, samples: ArrayLike = 0) -> Array:
    """Returns a key for each text [B], which depends on its own seed, place and sample.

    Args:
      seeds: [B] or []. places: the places of the prompts, [B] or []. samples: which
        sample of its prompt each text is, [B] or [].
    """
    seeds, places, samples = np.broadcast_arrays(seeds, places, samples)
    return jax.vmap(jax.random.fold_in)(root_key(seeds, samples), np.uint32(places))


def expand_per_prompt(config: DecodeConfig, count: int) -> dict[str, Any]:
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
        values = [*map(to_python, given)] if several else [to_python(given)]
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


def to_python(value: Any) -> Any:
    """Returns a number of NumPy or JAX as a Python number."""
    scalar = isinstance(value, np.generic | np.ndarray | Array) and value.ndim == 0
    return value.item() if scalar else value


def check_lengths(
    target: Pretrained,
    read: Prompts,
    new_tokens: Sequence[int],
) -> None:
    """Raises ValueError, which names the prompt, if a text could need more positions
    than the target has."""
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
    """Raises ValueError for settings that cannot decode, whatever the prompts."""
    decode_config.check(config, [name for name in NAMES if name not in PER_PROMPT])
    if samples is not None:
        check_whole("samples", samples)
    if not isinstance(rules, TokenAutomaton | None):
        raise ValueError(
            "rules must be a specjax.types.TokenAutomaton, as models.penalties builds;"
            f" got {type(rules).__name__}"
        )
