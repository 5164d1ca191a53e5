"""Text in, text out: a pair of pretrained models decodes prompts by speculation."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import numpy as np

from specjax import finite, generate
from specjax.constraints import read_form
from specjax.constraints.grammars import report_errors
from specjax.decode_config import DecodeConfig
from specjax.drafts.source import DraftLike
from specjax.inputs import check
from specjax.pretrained import Pretrained
from specjax.runtime import compilation_cache, foreign_names
from specjax.runtime import mesh as meshes
from specjax.text import programs, streaming
from specjax.text.programs import Job, prepare
from specjax.text.streaming import Piece
from specjax.types import TokenAutomaton
from specjax.verifiers import guarantees

T = TypeVar("T")
PerPrompt: TypeAlias = T | Sequence[T]  # one value, or one for each prompt
Prompted = Sequence[str | dict[str, Any] | Sequence[int] | Sequence[dict[str, Any]]]


class Generated(NamedTuple):
    """The texts that `generate_text` wrote after its prompts, and how they were
    decoded.

    texts: what follows each prompt, or what an encoder-decoder wrote of it; None for
    each where the target has no tokenizer. alpha: the share of the drafted tokens that
    were accepted, of those that were decided on; None where there were none. calls,
    tokens: calls of the target and tokens written, sums over the texts. seconds: what
    decoding all of them took, prefill included; compilation is ahead of it and does not
    count. guarantee: what is promised of the texts (`specjax.verifiers.guarantees`).
    ids: the tokens of each text, the one that ends it among them, or that completes a
    string to stop at. ended: why each ended, "end" by such a token, "stop" or "length".
    logprobs: log p of each of `ids`, by the target's logits at temperature 1 and its
    rules; None where they were not asked for.

    Where `samples` was given, texts, ids, ended and logprobs have for each prompt a
    list of its samples.
    """

    texts: list[Any]
    alpha: float | None
    calls: int
    tokens: int
    seconds: float
    guarantee: str
    ids: list[list[Any]]
    ended: list[Any]
    logprobs: list[list[Any]] | None = None


@foreign_names.refuse_unknown()
def generate_text(
    target: str | Pretrained,
    draft: DraftLike | None,
    prompts: Prompted,
    gamma: int = 4,
    temperature: PerPrompt[float] = 0.0,
    *,
    top_k: PerPrompt[int | None] = None,
    top_p: PerPrompt[float | None] = None,
    min_p: PerPrompt[float | None] = None,
    rule: str = "token",
    policy: str = "none",
    new_tokens: PerPrompt[int] = 64,
    samples: int | None = None,
    seed: PerPrompt[int] = 0,
    kernels: str = "auto",
    stop: Sequence[str] | None = (),
    logprobs: bool = False,
    rules: TokenAutomaton | None = None,
    schema: str | Mapping[str, Any] | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    mesh: str = "",
) -> Generated:
    """Decodes prompts by speculation, all of them in one compiled program.

    A program is compiled for each pair, gamma, rule and shape, and then kept, in this
    process and for the next (`runtime.compilation_cache`). Prompts are padded to widths
    that many share, such as 8, 16 and 32 (`inputs.bucket`), so that few shapes are;
    what is written stays the same.

    temperature, top_k, top_p, min_p, new_tokens and seed are one value for all prompts,
    or a list with one for each; None in a list means no limit for that prompt.

    Args:
      target: the model that the texts follow, or its name as `specjax.load` takes it.
      draft: the model that drafts for it; of a decoder with another tokenizer, the
        tokens that both have (see `drafters.intersection`). Another draft by its
        name, such as "copying" or "early_exit:4", or as `specjax.load_draft` gives it;
        None decodes the target alone.
      prompts: a list of B texts to go on with, or to read with an encoder. In place of
        a text may stand a list of ids, or of messages {"role": ..., "content": ...}, or
        a dictionary as `specjax.prompts` has them, such as {"messages": [...],
        "tools": [...]}. A list of messages alone is one conversation.
      gamma: tokens drafted for each call of the target, at least 0.
      temperature: 0 is greedy: the target's own argmax text; or 1.18e-38 to 10,000.
      top_k: how many ids are kept before sampling.
      top_p: keeps the most likely ids, of at least this mass, in (0, 1].
      min_p: keeps ids of at least this share of the highest probability, in [0, 1].
      rule: how drafts are verified, by its name in `specjax.verifiers`.
      policy: how much of gamma is drafted, by its name in `specjax.policies`.
      new_tokens: the most tokens that are written of each text, which stops at its end.
      samples: how many texts of each prompt, each a draw of its own; None is one, and
        leaves what is returned as it is.
      seed: the seed of all randomness, 0 to 2**32 - 1. A text depends on it, on the
        place of its prompt and on which sample it is, not on the other prompts.
      kernels: "auto" verifies in fused kernels where the device has them; "reference"
        never does.
      stop: strings that each end a text, which is cut before the first of them; special
        tokens in them, such as "``<|eot_id|>``", are matched by their ids.
      logprobs: whether to return what the target thought of each token.
      rules: what changes the logits that are decoded with, such as penalties
        (`specjax.models.penalties`) or a grammar (`specjax.models.constrained`): the
        texts follow the changed target exactly.
      schema: a JSON schema that texts must have, as a dictionary or as JSON; it, regex
        and grammar need the extra `constraints`, and `specjax.constraints` says what
        law the texts have.
      regex: a regular expression that whole texts match.
      grammar: a grammar of texts, in Lark's syntax, as llguidance reads it.
      mesh: devices to decode on, "data=4,model=2": the texts over 4, which must divide
        them, and the target's matrices over 2 (`runtime.mesh.parse`); "" is one.

    Returns:
      A `Generated`. With `stop` or `logprobs` it is put together step by step, as
      `stream_text` has it.

    Raises:
      ValueError: what cannot be decoded, or a setting that there is not, in one line
        that names the fix, before any compute.
      FloatingPointError: logits are not finite, in one line that names the row and the
        step; see `specjax.finite`.
    """
    each: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "new_tokens": new_tokens,
        "seed": seed,
    }
    config = DecodeConfig(
        gamma, rule=rule, policy=policy, kernels=kernels, logprobs=logprobs, **each
    )
    stop = check_stop(stop)
    form = read_form(schema, regex, grammar)
    with meshes.using(mesh):
        job = prepare(
            target, draft, prompts, config, rules=rules, form=form, samples=samples
        )
        made = join_pieces(job, stop) if stop or logprobs else run(job)
    return made if samples is None else group_by_prompt(made, samples)


@foreign_names.refuse_unknown(generate_text)
def stream_text(
    target: str | Pretrained,
    draft: DraftLike | None,
    prompts: Prompted,
    gamma: int = 4,
    temperature: PerPrompt[float] = 0.0,
    *,
    samples: int | None = None,
    stop: Sequence[str] | None = (),
    rules: TokenAutomaton | None = None,
    schema: str | Mapping[str, Any] | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    mesh: str = "",
    **settings: Any,
) -> Iterator[Piece]:
    """Yields the texts of `generate_text` as they are written, in whole characters.

    A step gives a piece of each text that goes on, in the order of the prompts; a text
    is its pieces joined. Between steps the host looks at what was written, which the
    loop of `generate_text` does not. It may be called from several threads: nothing is
    shared but compiled programs and weights, which nobody changes.

    Args:
      target, draft, prompts, gamma, temperature: as `generate_text`.
      samples: how many texts of each prompt, which `Piece.sample` tells apart.
      stop: strings that each end a text; a piece that may become one is held back.
      rules, schema, regex, grammar, mesh: as `generate_text`.
      **settings: the other settings of `generate_text`.

    Raises:
      ValueError, FloatingPointError: as `generate_text`, the first before any compute.
    """
    stop = check_stop(stop)
    config = DecodeConfig(gamma, **settings | {"temperature": temperature})
    form = read_form(schema, regex, grammar)
    with meshes.using(mesh):
        job = prepare(
            target, draft, prompts, config, rules=rules, form=form, samples=samples
        )
        pieces = stream_pieces(job, stop)
    return pieces if samples is None else with_samples(pieces, samples)


def with_samples(pieces: Iterable[Piece], samples: int) -> Iterator[Piece]:
    """Yields the pieces of rows by prompt and sample, `samples` for each prompt."""
    for piece in pieces:
        index, sample = divmod(piece.index, samples)
        yield piece._replace(index=index, sample=sample)


def group_by_prompt(made: Generated, samples: int) -> Generated:
    """Returns the results of rows grouped by prompt, with a list of `samples` for
    each."""

    def group(rows: list[Any]) -> list[Any]:
        return [rows[i : i + samples] for i in range(0, len(rows), samples)]

    return made._replace(
        texts=group(made.texts),
        ids=group(made.ids),
        ended=group(made.ended),
        logprobs=None if made.logprobs is None else group(made.logprobs),
    )


def stream_pieces(job: Job, stop: Sequence[str]) -> Iterator[Piece]:
    """Returns the pieces of all texts; their programs are compiled before the first is
    yielded."""
    tokenizer = job.target.tokenizer  # raises before any compute where there is none
    check_job(job)
    compiled = generate.compile_programs(
        programs.steps(job.key), job.params, job.prompt, job.request
    )
    pieces = streaming.pieces(
        compiled,
        job.params,
        job.prompt,
        job.request,
        tokenizer=tokenizer,
        stop=stop,
    )
    return with_errors_reported(pieces)


def with_errors_reported(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yields the same pieces; an error of the host becomes one line."""
    with report_errors():
        yield from pieces


def check_job(job: Job) -> None:
    """Turns the cache of compiled programs on, and raises ValueError for a job that
    could not decode."""
    compilation_cache.turn_on()
    decoder = programs.decoder(job.key)
    check(decoder, job.key.slots, job.params, job.prompt, job.request)


def join_pieces(job: Job, stop: Sequence[str]) -> Generated:
    """Returns the whole texts of `stream_pieces`."""
    pieces = stream_pieces(job, stop)
    begin = time.perf_counter()
    texts: list[list[Piece]] = [[] for _ in job.request.start]
    for piece in pieces:
        texts[piece.index].append(piece)
    seconds = time.perf_counter() - begin
    every = [piece for parts in texts for piece in parts]
    tested = sum(piece.drafted for piece in every)
    accepted = sum(piece.accepted for piece in every)
    logprobs = [[x for piece in parts for x in piece.logprobs] for parts in texts]
    return Generated(
        texts=["".join(piece.text for piece in parts) for parts in texts],
        alpha=accepted / tested if tested else None,
        calls=len(every),
        tokens=sum(len(piece.tokens) for piece in every),
        seconds=seconds,
        guarantee=guarantee(job),
        ids=[[x for piece in parts for x in piece.tokens] for parts in texts],
        ended=[parts[-1].ended for parts in texts],
        logprobs=logprobs if job.key.decode.logprobs else None,
    )


def run(job: Job) -> Generated:
    """Decodes a job by its compiled program, and times the decoding alone."""
    check_job(job)
    lowered = programs.program(job.key).lower(job.params, job.prompt, job.request)
    decode = lowered.compile()  # JAX keeps both
    begin = time.perf_counter()
    with report_errors():
        output = jax.block_until_ready(decode(job.params, job.prompt, job.request))
    seconds = time.perf_counter() - begin
    output = jax.device_get(output)
    starts, counts = np.asarray(job.prompt.length), output.counts
    rows = list(zip(output.tokens, starts, output.length, strict=True))
    finite.check(ids[start:end] for ids, start, end in rows)
    ids = [row[start:end].tolist() for row, start, end in rows]
    eos = np.asarray(job.request.eos).reshape(len(rows), -1)
    at_end = [text[-1] in ends for text, ends in zip(ids, eos, strict=True)]
    tested = int(counts.tested.sum())
    texts: list[str | None] = [None for _ in rows]
    if job.target.tokenizer_file is not None:
        texts = [streaming.continuation(job.target.tokenizer, *row) for row in rows]
    return Generated(
        texts=texts,
        alpha=int(counts.accepted.sum()) / tested if tested else None,
        calls=int(counts.calls.sum()),
        tokens=sum(map(len, ids)),
        seconds=seconds,
        guarantee=guarantee(job),
        ids=ids,
        ended=[streaming.END if end else streaming.LENGTH for end in at_end],
    )


def guarantee(job: Job) -> str:
    """Returns the guarantee of a job's texts, as `Generated.guarantee`."""
    draft = None if job.draft is None else job.draft.name
    return guarantees.combine(job.key.decode.rule, draft, job.key.decode.policy)


def check_stop(stop: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the strings to stop at; None means that there are none. Raises ValueError
    for a value that is not a list of strings."""
    if stop is None:
        return ()
    several = isinstance(stop, list | tuple | set)
    if not several or not all(isinstance(each, str) and each for each in stop):
        raise ValueError(f"stop must be a list of strings, none empty; got {stop!r}")
    return tuple(stop)
