"""specjax: the compiled loop alone and with a draft, the parts of a target call, and in
a separate process `specjax.generate_text` on ids and `specjax transcribe`.

Axes: N texts, I input tokens, T new tokens, G = gamma, E features, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.records import compilation
from specjax import checkpoints, drafts, generate
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafters import autoregressive
from specjax.drafts.models import model_source
from specjax.drafts.source import SAMPLED
from specjax.inputs import make_prompt, make_request, make_sampling, pad_to_bucket
from specjax.keys import root_key
from specjax.measure import costs
from specjax.models import t5
from specjax.speech.pair import load_pair
from specjax.speech.transcripts import transcribe
from specjax.step import Decoder
from specjax.text import programs
from specjax.types import Params, Prompt, Request

# Drafts, by the names of programs.
WAYS = {"plain": None, "lookup": "copying"}
WAYS |= {"drafted": "copying_else:smollm2_draft,least=2"}


def load(folder: Path, vocab: int) -> Pretrained:
    """Loads a model in float32; every id may be emitted, as in the other engines."""
    return checkpoints.load(folder, pieces=vocab)


def batches(
    inputs: np.ndarray, new_tokens: int, batch: int
) -> list[tuple[Prompt, Request]]:
    """Returns inputs [N, I] in groups of `batch`, each with its greedy request."""
    sampling, groups = make_sampling(batch, temperature=0.0), []
    key = root_key(0)  # of no consequence at temperature 0
    for first in range(0, len(inputs), batch):
        read = jnp.asarray(inputs[first : first + batch])
        length = jnp.full(batch, read.shape[1], jnp.int32)
        prompt = make_prompt([[t5.PAD]] * batch)._replace(inputs=(read, length))
        groups.append((prompt, make_request(key, prompt, new_tokens, sampling)))
    return groups


def decoder(
    target: Pretrained,
    inputs: np.ndarray,
    *,
    new_tokens: int,
    batch: int,
    draft: Pretrained | None = None,
    gamma: int = 0,
) -> Callable[[], list[generate.Output]]:
    """Returns a program that writes the greedy texts for inputs [N, I], `batch` at a
    time.
    """
    decoder, params = Decoder(target.model), Params(target.params)
    if draft is not None:
        decoder = Decoder(target.model, autoregressive.build(draft.model, gamma))
        params = Params(target.params, draft.params)
    run = generate.build(decoder, slots=1 + new_tokens + gamma + 1)
    groups = batches(inputs, new_tokens, batch)
    return lambda: [run(params, *group) for group in groups]


def texts(outputs: list[generate.Output], new_tokens: int) -> np.ndarray:
    """Returns the ids [N, T] of the texts without the start token."""
    return np.concatenate([out.tokens[:, 1 : 1 + new_tokens] for out in outputs])


def counts(outputs: list[generate.Output]) -> generate.Counts:
    """Returns totals over all texts."""
    each = [out.counts for out in outputs]
    return jax.tree.map(lambda *leaves: int(np.concatenate(leaves).sum()), *each)


def law(target: Pretrained, inputs: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Returns the log-probabilities [N, T, V] of every id at each place of texts [N,
    T].
    """
    before = np.concatenate([np.zeros_like(texts[:, :1]), texts[:, :-1]], axis=1)
    length = np.full(len(inputs), inputs.shape[1], np.int32)
    read = t5.Inputs(jnp.asarray(inputs), jnp.asarray(length))

    @jax.jit
    def score(params) -> Array:
        logits = t5.logits(target.config, params, read, jnp.asarray(before))
        return jax.nn.log_softmax(logits)

    return np.asarray(score(target.params))


def likelihood(target: Pretrained, inputs: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Returns the log-probability of each token of texts [N, T]: [N, T]."""
    scores = law(target, inputs, texts)
    return np.take_along_axis(scores, texts[..., None], axis=2)[..., 0]


def target_calls(
    target: Pretrained, inputs: np.ndarray, *, new_tokens: int, gamma: int, loops: int
) -> Callable[[], object]:
    """Returns a program of `loops` target calls on gamma + 1 tokens of the first text.

    Half of the text is written; each call computes its law, as a step does.
    """
    # Nothing is drafted; the draft gives `costs` its gamma alone.
    pair = costs.Pair(target, model_source(target), slots=1 + new_tokens + gamma + 1)
    ((prompt, request),) = batches(inputs[:1], new_tokens, 1)
    state = costs.begin(pair, 0, prompt, request)
    run = costs.target_calls(pair, gamma, loops)
    return lambda: run(request, state)


def readouts(target: Pretrained, gamma: int, loops: int) -> Callable[[], Array]:
    """Returns a program of `loops` readouts of gamma + 1 tokens.

    The features of each depend on the logits of the last one, so that none is optimized
    away.
    """
    shape, model = (1, gamma + 1, target.config.dim), target.model

    @jax.jit
    def run(params, features: Array) -> Array:
        def body(_, logits: Array) -> Array:
            turned = features + 1e-3 * logits[..., : shape[-1]]
            return model.readout(params, turned)

        return jax.lax.fori_loop(1, loops, body, model.readout(params, features))

    features = jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
    return lambda: run(target.params, features)


def language(
    path: str, *, kind: str, room: int, gamma: int, ends: list[int], threads: int
) -> dict[str, Callable]:
    compilation.keep()
    target = drafts.load_target(path, kind)
    return {
        name: program(target, draft, room=room, gamma=gamma, ends=tuple(ends))
        for name, draft in WAYS.items()
    }


def program(
    target: Pretrained,
    draft: str | None,
    *,
    room: int,
    gamma: int,
    ends: tuple[int, ...],
) -> Callable:
    """Returns a program for whole prompts; texts of one padded width share a compiled
    program, whatever their number of new tokens.
    """
    source = None if draft is None else drafts.pair(target, draft)[1]
    params = Params(target.params, None if source is None else source.params)
    regime = SAMPLED if source is None else source.regime
    gamma = 0 if source is None else gamma

    def run(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        prompt, batch = pad_to_bucket(make_prompt(prompts)), len(prompts)
        slots = prompt.tokens.shape[1] + room + gamma + 1
        decode = programs.program(
            programs.ProgramKey(
                target.required_config,
                None if source is None else source.factory,
                DecodeConfig(gamma).static(),
                batch=batch,
                slots=slots,
                regime=regime,
            )
        )
        sampling = make_sampling(batch, temperature=0.0)
        key = programs.keys(0, range(batch))
        request = make_request(key, prompt, new_tokens, sampling, ends)
        output = decode(params, prompt, request)
        tokens, length = jax.device_get((output.tokens, output.length))
        return [
            row[len(ids) : end].tolist()
            for row, ids, end in zip(tokens, prompts, length, strict=True)
        ]

    return run


def speech(
    path: str, kind: str, threads: int, drafts: dict[str, str]
) -> dict[str, Callable]:
    compilation.keep()

    def program(draft: str | None) -> Callable:
        pair = load_pair(path, draft, kind)
        options = dict(language="en", timestamps=False, condition=False, batch=1)

        def run(file: str) -> tuple[str, list[int]]:
            done = transcribe(pair, None, [file], temperatures=(0.0,), **options)
            (transcript,) = done.transcripts
            ids = [i for segment in transcript.segments for i in segment.tokens]
            return transcript.text, [int(i) for i in ids]

        return run

    named = {"plain": None} | drafts
    return {name: program(draft) for name, draft in named.items()}
