"""Texts to measure on: by the target alone, and by Algorithm 1 with counted calls.

Axes: N sequences, B rows of a batch, L tokens.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from specjax import generate, policies, verifiers
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafts.source import DraftSource
from specjax.fused import reference
from specjax.inputs import bucket, check, make_request, pad
from specjax.keys import root_key
from specjax.pretrained import use_tokenizer
from specjax.prompts import Prompts, make_prompts
from specjax.prompts import read as read_prompts
from specjax.prompts.questions import ALL, Chosen
from specjax.runtime import console, hosts, mesh
from specjax.step import Decoder
from specjax.types import Kernels, Params, Prompt, Request, Sampling, State

# The settings that cut laws, by their names in records.
CUTS = Sampling._fields[1:]
# Of the target's answers within a conversation: tokens at most, and rows at once.
ANSWER, ROWS = 128, 8


class Protocol(NamedTuple):
    """The settings with which a task's prompts are decoded.

    task: what the prompts are called. decode: the settings; gamma, rule and policy are
    those of the speculative run. tokens: how many the target writes at least, in whole
    batches; at temperature 0 no prompt is continued twice, so that there may be fewer.
    batch: rows decoded together.
    """

    task: str
    decode: DecodeConfig
    tokens: int = 10_000
    batch: int = 32


def standardized(setting: Mapping) -> str:
    """Describes the temperature and filters of a setting, or of a record of any
    version."""
    filters = [(name, setting.get(name)) for name in CUTS]
    kept = [(name.replace("_", "-"), x) for name, x in filters if x is not None]
    named = [f", {name} {x:g}" for name, x in kept]
    return f"T = {setting['temperature']:g}{''.join(named)}"


class Text(NamedTuple):
    """Sequences with their prompts.

    tokens: [N, L], the prompt, then output from `start` [N] up to `length` [N].
    inputs: what the encoder read, tokens [N, I] and length [N], or None.
    """

    tokens: np.ndarray
    start: np.ndarray
    length: np.ndarray
    inputs: tuple[np.ndarray, np.ndarray] | None = None

    def rows(self) -> Iterator[np.ndarray]:
        """Yields each output without its prompt."""
        for tokens, *ends in zip(*self[:3], strict=True):
            yield tokens[slice(*ends)]


class Calls(NamedTuple):
    """The totals of each sequence, [N], for `specjax.theory.estimate`.

    calls: calls of the target; one counts if the text had not ended before it.
    accepted, tested: drafted tokens, not cut where the text ends within a call.
    tokens: those of the text, cut at its end.
    texts: each output.
    """

    calls: np.ndarray
    accepted: np.ndarray
    tested: np.ndarray
    tokens: np.ndarray
    texts: list[np.ndarray]


def write(
    target: Pretrained,
    prompts: Prompts,
    protocol: Protocol,
    kernels: Kernels | None = None,
) -> Text:
    """Returns texts by the target alone, each up to its end or `new_tokens`.

    kernels: what reads logits; None is the reference.
    """
    verifier = (kernels or reference()).alone
    slots = width(prompts) + protocol.decode.new_tokens + 1
    count = max_sequences(prompts, protocol)
    run = generate.build(Decoder(target.model, verifier=verifier), slots)
    parts, total = [], 0
    for prompt, request in batches(prompts, protocol, count, stream=0, spare=0):
        out = hosts.read(run(Params(target.params), prompt, request))
        parts.append(text_of(out, prompt))
        total += int((parts[-1].length - parts[-1].start).sum())
        if total >= protocol.tokens:
            break
    return jax.tree.map(lambda leaf: leaf[:count], join(parts))


def read(
    path: str | Path,
    target: Pretrained,
    tokenizer: str | None = None,
    chosen: Chosen = ALL,
    answer: int = ANSWER,
) -> Prompts:
    """Returns the prompts of a file (`prompts.read`), tokenized for the target.

    The tokenizer is the target's or the given one. A conversation continues with
    answers of at most `answer` tokens, which the target alone writes greedily and only
    once, so that all drafters, rules and gammas that are compared continue the same
    words.
    """
    model = use_tokenizer(target, tokenizer)

    def answer_turns(conversations: list[list[int]]) -> list[str]:
        count = len(conversations)
        # Of enough tokens that no conversation is left without its answer.
        sizes = dict(tokens=count * answer, batch=min(ROWS, count))
        greedy = DecodeConfig(new_tokens=answer)
        with console.announce(f"Answering {count} turns by {target.name} alone"):
            asked = make_prompts(conversations, model)
            text = write(target, asked, Protocol("answers", greedy, **sizes))
        return [model.tokenizer.decode(ids.tolist()) for ids in text.rows()]

    return read_prompts(path, model, answer_turns, chosen)


def text_of(out: generate.Output, prompt: Prompt) -> Text:
    """Returns the texts of an output with its prompt."""
    inputs = None if prompt.inputs is None else tuple(hosts.read(prompt.inputs))
    tokens, start, length = hosts.read((out.tokens, prompt.length, out.length))
    return Text(tokens, start, length, inputs)


def join(parts: Sequence[Text]) -> Text:
    """Returns several texts of one width as one."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def speculate(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    count: int,
    protocol: Protocol,
    kernels: Kernels | None = None,
    *,
    seen: Callable | None = None,
) -> Calls:
    """Returns the calls in which (target, draft) continue `count` prompts.

    Each sequence has random numbers of its own. kernels: what verifies and draws; None
    is the protocol's rule by the reference. seen: as of `decode`.
    """
    each = decode(pair, prompts, count, protocol, kernels=kernels, seen=seen)
    return join_calls([calls for _, calls in each], count)


def decode(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    count: int,
    protocol: Protocol,
    *,
    kernels: Kernels | None = None,
    seen: Callable | None = None,
) -> Iterator[tuple[Prompt, Calls]]:
    """Yields what `speculate` returns, batch by batch, with the prompts of each.

    seen: a function that is called after each step, with a mask [B] of the rows that
    had not ended before the step, the state after it, and its `Info`.
    """
    target, draft = pair
    kernels = kernels or reference(verifiers.find(protocol.decode.rule))
    spare = protocol.decode.gamma + 1  # so that no limit cuts a call that counts
    slots = width(prompts) + protocol.decode.new_tokens + 2 * spare
    drafter = draft.drafter(protocol.decode.gamma, kernels.draw)
    adapting = policies.find(protocol.decode.policy)
    decoder = Decoder(target.model, drafter, kernels.verifier, adapting)
    programs = generate.build_programs(decoder, slots)
    params = Params(target.params, draft.params)
    for batch in batches(prompts, protocol, count, stream=1, spare=spare):
        check(decoder, slots, params, *batch)
        new = protocol.decode.new_tokens
        calls = count_calls(programs, params, *batch, new_tokens=new, seen=seen)
        yield batch[0], calls


def join_calls(batches: Sequence[Calls], count: int) -> Calls:
    """Returns the calls of the first `count` sequences of all batches."""

    def rows(name: str) -> np.ndarray:
        return np.concatenate([getattr(batch, name) for batch in batches])[:count]

    return Calls(
        calls=rows("calls"),
        accepted=rows("accepted"),
        tested=rows("tested"),
        tokens=rows("tokens"),
        texts=[text for batch in batches for text in batch.texts][:count],
    )


def count_calls(
    programs: generate.Programs,
    params: Params,
    prompt: Prompt,
    request: Request,
    *,
    new_tokens: int,
    seen: Callable | None = None,
) -> Calls:
    """Decodes a batch until every text has ended, and counts its calls.

    Decides before each call whether it counts. The texts go on beyond their ends, so
    that no end cuts a call that counts.

    Args:
      programs: the programs of a decoder, as `generate.build_programs` gives them.
      params: weights of both models.
      prompt, request: of B texts, whose limits leave room for a whole call beyond
        `new_tokens`.
      new_tokens: the number of new tokens of a text, at most.
      seen: called after each step with which rows [B] had not ended before it, the
        state after it, and what it measured.
    """
    start, eos = hosts.read((request.start, request.eos))
    endless = request._replace(eos=np.full_like(eos, -1))
    totals = np.zeros((3, start.size), np.int64)

    def look(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns tokens [B, L], where each text ends [B], and which go on [B]."""
        tokens, length = map(np.array, hosts.read((state.tokens, state.length)))
        ends = np.minimum(ends_of(tokens, start, length, eos), start + new_tokens)
        return tokens, ends, length < ends

    def unfinished(state: State | None) -> tuple[State, Request] | None:
        assert state is not None
        return (state, endless) if running.any() else None

    initial = programs.prefill(params, prompt)
    tokens, ends, running = look(initial)
    steps = generate.run_steps(programs.step, params, initial, next_batch=unfinished)
    for state, info in steps:
        if seen is not None:
            seen(running, state, info)
        taken = hosts.read((info.accepted, info.tested))
        totals += np.where(running, np.stack([np.ones_like(start), *taken]), 0)
        tokens, ends, running = look(state)
    texts = [row[slice(*span)] for row, *span in zip(tokens, start, ends, strict=True)]
    calls, accepted, tested = totals
    return Calls(calls, accepted, tested, tokens=ends - start, texts=texts)


def ends_of(
    tokens: np.ndarray, start: np.ndarray, length: np.ndarray, eos: np.ndarray
) -> np.ndarray:
    """Returns where each text ends [B], after its first `eos` [B] or [B, E].

    It is L for a text that has not ended.
    """
    slot = np.arange(tokens.shape[1])
    inside = (slot >= start[:, None]) & (slot < length[:, None])
    several = eos.reshape(len(tokens), 1, -1)
    end = inside & (tokens[:, :, None] == several).any(-1)
    return np.where(end.any(1), end.argmax(1) + 1, tokens.shape[1])


def max_sequences(prompts: Prompts, protocol: Protocol) -> int:
    """Returns the number of sequences that the prompts allow."""
    # At temperature 0 a prompt has one text; else each has at least one token.
    count = len(prompts.tokens)
    return count if protocol.decode.temperature == 0 else protocol.tokens


def prompt_units(texts: np.ndarray, prompts: int) -> np.ndarray:
    """Returns the unit of an error that each text belongs to: its prompt, because texts
    of one prompt are alike.

    Texts of a single prompt, such as the start token, stay units of their own.

    Args:
      texts: the indices of texts, of any shape; text i continues prompt i modulo their
        number.
      prompts: how many there are.
    """
    return texts if prompts == 1 else texts % prompts


def width(prompts: Prompts) -> int:
    """Returns the length of the task's longest prompt, the width of all batches."""
    return max(map(len, prompts.tokens))


def digest_prompts(prompts: Prompts) -> str:
    """Returns the sha256 of all that texts continue."""
    digest = hashlib.sha256(repr(prompts.ends).encode())
    for each in (*prompts.tokens, *(prompts.inputs or ())):
        array = np.asarray(each)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def take(prompts: Prompts, index: Sequence[int], narrow: bool = False) -> Prompt:
    """Returns the prompts at these places, which start again at the first after the
    last.

    They are padded to the longest of all prompts, or only to their own `bucket` if
    `narrow`.
    """

    def rows(texts: Sequence[Sequence[int]]) -> tuple[Array, Array]:
        chosen, longest = [texts[i % len(texts)] for i in index], max(map(len, texts))
        own = bucket(max(map(len, chosen)))
        return pad(chosen, min(own, longest) if narrow else longest)

    inputs = None if prompts.inputs is None else rows(prompts.inputs)
    return Prompt(*rows(prompts.tokens), inputs)


def batches(
    prompts: Prompts, protocol: Protocol, count: int, stream: int, spare: int
) -> Iterator[tuple[Prompt, Request]]:
    """Yields batches of one shape that hold at least the first `count` sequences.

    stream: which random numbers to use; sequence i has its own, whatever the batches
    are.
    """
    batch, new = protocol.batch, protocol.decode.new_tokens + spare
    sampling = protocol.decode.sampling(batch)
    for first in range(0, count, batch):
        index = np.arange(first, first + batch)
        keys = keys_of(protocol.decode.seed, stream, index)
        prompt = take(prompts, index.tolist())
        request = make_request(keys, prompt, new, sampling, prompts.ends)
        yield mesh.rows((prompt, request))


def keys_of(seed: int, stream: int, index: np.ndarray) -> Array:
    """Returns the keys [B] for the sequences `index` [B].

    Each stream of coins has others: 0 is what a target writes alone, 1 what a pair
    does, 2 siblings that are only tried.
    """
    key = jax.random.fold_in(root_key(seed), stream)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index)
