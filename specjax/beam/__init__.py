"""Beam search: the w most likely texts after each prompt that a pruned search finds.

With a draft it is speculative (Leviathan et al. 2023, Appendix A.4), and finds the same
texts with the same scores in fewer calls of the target.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import finite
from specjax.beam import slots
from specjax.beam.defaults import recommended
from specjax.beam.hypotheses import Limits
from specjax.beam.programs import ProgramKey, draft_recipe, program
from specjax.beam.search import Found
from specjax.beam.settings import BeamConfig, check, divisors
from specjax.decode_config import DecodeConfig, check_whole
from specjax.drafts.source import DraftLike, check_pair
from specjax.inputs import make_prompt, pad_to_bucket
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts
from specjax.prompts import from_list as read_prompts
from specjax.runtime import compilation_cache, foreign_names
from specjax.text import PerPrompt, Prompted
from specjax.text.programs import (
    Pair,
    check_lengths,
    check_settings,
    expand_per_prompt,
    open_pair,
    room,
)
from specjax.text.streaming import END, LENGTH, continuation
from specjax.tokenizers import Tokenizer
from specjax.types import Params, Prompt, TokenAutomaton


class GeneratedBeams(NamedTuple):
    """The texts that `generate_beams` found for each prompt, the best first.

    texts: what follows each prompt, a list for each prompt. scores: the sum of log p of
    each text's tokens, divided by their number to the power length_penalty. ids: the
    tokens of each text, the one that ends it among them. ended: why each ended, "end"
    by such a token or "length". calls: the number of calls of the target, a sum over
    the prompts; steps: the steps of beam search, which are the calls that it takes
    without a draft. seconds: what decoding took, prefill included and compilation not.
    """

    texts: list[list[str]]
    scores: list[list[float]]
    ids: list[list[list[int]]]
    ended: list[list[str]]
    calls: int
    steps: int
    seconds: float


@foreign_names.refuse_unknown()
def generate_beams(
    target: str | Pretrained,
    draft: DraftLike | None,
    prompts: Prompted,
    *,
    width: int | None = 4,
    gamma: int = 4,
    draft_width: int | None = None,
    length_penalty: float | None = 1.0,
    early_stopping: bool | str | None = False,
    best: int = 1,
    new_tokens: PerPrompt[int] = 64,
    rules: TokenAutomaton | None = None,
    task: str | None = None,
) -> GeneratedBeams:
    """Decodes prompts by beam search, all of them in one compiled program.

    width, length_penalty and early_stopping mean what they do in transformers, and None
    for one of them is what the model's own files recommend (generation_config.json, or
    of a T5 its config.json for a task), else the default of transformers.

    Args:
      target: the model whose probabilities score the texts, or its name as
        `specjax.load` takes it.
      draft: the model that drafts beams for it, or its name; None searches with the
        target alone, for the same texts.
      prompts: as `generate_text` takes them.
      width: beams that are kept after each token; 1 is the greedy text.
      gamma: tokens by which the drafted beams are longer than the target's, at each
        call of the target; 0 drafts none.
      draft_width: beams of each drafted length, at least `width`; None is twice as
        many.
      length_penalty: above 0 favours long texts, below 0 short ones.
      early_stopping: True ends a search as soon as `width` texts are finished; False
        once the best running beam scores no more, at its length, than the worst of
        these; "never" once it could not even at `new_tokens` tokens.
      best: how many texts of each prompt are returned, at most `width`. There are fewer
        where rules allow fewer.
      new_tokens: the most tokens that are written of each text; one value, or a list
        with one for each prompt.
      rules: as in `generate_text`; log p is that of the changed target.
      task: the task of the T5's config.json whose recommendations are followed, such as
        "translation_en_to_de".

    Raises:
      ValueError: what cannot be decoded, or a setting that there is not, in one line
        that names the fix, before any compute.
      FloatingPointError: logits are not finite; see `specjax.finite`.
    """
    pair = open_pair(target, draft)
    follows = {
        "width": width,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
    }
    if None in follows.values():
        own = recommended(pair[0], task)
        follows = {k: own[k] if x is None else x for k, x in follows.items()}
    elif task is not None:
        raise ValueError(
            "task names what the model recommends, and nothing follows it: set width,"
            " length_penalty or early_stopping to None, or leave task out"
        )
    config = BeamConfig(gamma=gamma, draft_width=draft_width, **follows)
    check(config)
    check_whole("best", best, 1, config.width)
    check_settings(DecodeConfig(gamma), rules, None)
    job = prepare(pair, prompts, config, new_tokens=new_tokens, rules=rules)
    return decode(job, best)


class Job(NamedTuple):
    """Everything that a call decodes: two models, the key of their program, and the
    prompt and the limits of its rows."""

    pair: Pair
    key: ProgramKey
    prompt: Prompt
    limits: Limits

    @property
    def params(self) -> Params:
        target, draft = self.pair
        return Params(target.params, None if draft is None else draft.params)


def prepare(
    pair: Pair,
    prompts: Prompted,
    config: BeamConfig,
    *,
    new_tokens: PerPrompt[int],
    rules: TokenAutomaton | None = None,
) -> Job:
    """Reads prompts, and returns what is to be decoded. Raises ValueError, in one line,
    for inputs that cannot be decoded."""
    target, draft = pair
    if draft is not None:
        check_pair(target, draft, with_alpha=False)
    if draft is None or config.gamma == 0:
        pair, config = (target, None), config._replace(gamma=0)
    read = read_prompts(prompts, target)
    settings = DecodeConfig(new_tokens=new_tokens)  # type: ignore[arg-type]
    each = expand_per_prompt(settings, len(read.tokens))["new_tokens"]
    check_lengths(target, read, each)
    check_ends(target, read, config.width)
    prompt = make_prompt(read.tokens, read.inputs)
    prompt = pad_to_bucket(prompt, room(pair, max(each)))
    size = slots.needed_slots(
        prompt.tokens.shape[1],
        most=max(each),
        width=config.width,
        drafted=config.drafted * config.gamma,
    )
    drafting = None
    if pair[1] is not None:
        drafting = draft_recipe(pair[1], size, ruled=rules is not None)
    key = ProgramKey(
        target=target.required_config,
        draft=drafting,
        config=config.static(),
        slots=size,
        rules=rules,
    )
    ends = list(read.ends) or [-1]
    limits = Limits(
        most=jnp.asarray(each, jnp.int32),
        eos=jnp.broadcast_to(jnp.array(ends, jnp.int32), (len(each), len(ends))),
        divisor=jnp.asarray(divisors(config.length_penalty, max(each))),
    )
    return Job(pair, key, prompt, limits)


def check_ends(target: Pretrained, read: Prompts, width: int) -> None:
    """Raises ValueError for more beams than there are ids that can continue a text."""
    most = target.vocab - len({*read.ends})
    if width > most:
        raise ValueError(
            f"width is {width} and {target.name} has {most} ids that do not end a text:"
            " take fewer beams"
        )


def decode(job: Job, best: int) -> GeneratedBeams:
    """Decodes a job by its compiled program, and times the decoding alone."""
    coder = job.pair[0].tokenizer  # raises before any compute where there is none
    compilation_cache.turn_on()
    lowered = program(job.key).lower(job.params, job.prompt, job.limits)
    search = lowered.compile()  # JAX keeps both
    begin = time.perf_counter()
    found = jax.block_until_ready(search(job.params, job.prompt, job.limits))
    seconds = time.perf_counter() - begin
    found, prompt = jax.device_get((found, job.prompt))
    check_finite(found)
    made = GeneratedBeams(
        texts=[],
        scores=[],
        ids=[],
        ended=[],
        calls=int(found.calls.sum()),
        steps=int(found.steps.sum()),
        seconds=seconds,
    )
    ends = np.asarray(job.limits.eos)
    for row, (tokens, length) in enumerate(zip(*prompt[:2], strict=True)):
        ids = texts_of(found, row)[:best]
        head = tokens[:length].tolist()
        made.ids.append(ids)
        made.scores.append(found.score[row, : len(ids)].tolist())
        made.texts.append([spell(coder, head, text) for text in ids])
        made.ended.append([END if x[-1] in ends[row] else LENGTH for x in ids])
    return made


def texts_of(found: Found, row: int) -> list[list[int]]:
    """Returns the tokens of each text that was found in a row, the best first."""
    there = found.score[row] > -np.inf
    each = zip(found.tokens[row][there], found.length[row][there], strict=True)
    return [tokens[:length].tolist() for tokens, length in each]


def spell(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    """Returns a text as it reads after its prompt."""
    whole = np.array([*prompt, *ids])
    return continuation(tokenizer, whole, len(prompt), len(whole))


def check_finite(found: Found) -> None:
    """Raises FloatingPointError for rows in which a model's logits were not finite."""
    for row in np.flatnonzero(found.lost):
        side = finite.SIDES[int(found.lost[row])]
        raise finite.error(int(row), int(found.steps[row]), side)
