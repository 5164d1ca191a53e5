"""The time of verification alone, as Wagner et al. (2024) profile it, and as a part of
a step.

Section 4.1 takes the time in the verification function and everything that it calls,
softmax included. So here it begins with raw logits of both models and ends with tokens;
the uniforms are drawn inside. It runs compiled, in a loop on the device. Each turn
first writes a logit of every row, depending on the token before, so that no turn can be
optimized away and no work on logits is done once for all turns. Axes: B rows, G =
gamma, V vocabulary, R rounds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.papers.wagner.methods import Method
from specjax import generate, probs
from specjax.checkpoints import Pretrained
from specjax.drafts.models import build_law
from specjax.drafts.source import DraftSource
from specjax.inputs import make_sampling
from specjax.keys import root_key
from specjax.measure import costs, timing
from specjax.measure.texts import Text
from specjax.step import Decoder, build_step
from specjax.types import Draft, Params, Prompt, Request, Sampling, State, Verdict

LOOPS = 32  # turns of a program that is timed


class Inputs(NamedTuple):
    """The inputs of one verification.

    Attributes:
        p: [B, G + 1, V], raw logits.
        q: [B, G, V], raw logits.
        tokens: [B, G], drafted.
        start: [B], the length at which the iteration begins.
    """

    p: Array
    q: Array
    tokens: Array
    start: Array


class Program(NamedTuple):
    """The costs of one verification as XLA counts them.

    Attributes:
        temporary: bytes of its temporaries.
        peak: bytes with arguments and results.
        accessed: `bytes accessed` of its cost analysis.
        operations: `flops` of its cost analysis.
    """

    temporary: int
    peak: int
    accessed: float
    operations: float


def text_inputs(pair: tuple[Pretrained, DraftSource], text: Text, gamma: int) -> Inputs:
    """Returns the logits after gamma + 1 positions of the longest row of `text`; where
    the row is shorter, positions repeat.

    The drafts are drawn from the draft's logits. Batch 1.
    """
    row = int(np.argmax(text.length - text.start))
    chosen = jax.tree.map(lambda leaf: leaf[row : row + 1], text)
    prompt = Prompt(chosen.tokens, chosen.length, chosen.inputs)
    begun, end = int(chosen.start[0]) - 1, int(chosen.length[0]) - 1
    places = begun + np.arange(gamma + 1) % (end - begun)
    target, draft = pair
    z_p = logits(build_law(target.model), target.params, prompt)[:, places]
    z_q = logits(draft.law, draft.params, prompt)[:, places]
    u = jax.random.uniform(root_key(gamma), (gamma, 2))
    law = probs.standardize(z_q[0, :gamma], Sampling(jnp.ones(gamma)))
    return Inputs(z_p, z_q[:, :gamma], probs.sample(law, u)[None], prompt.length[:1])


def logits(law: Callable, params: Any, prompt: Prompt) -> Array:
    """Returns the logits [B, T, V] of a law at temperature 1 after each token of a
    prompt.

    Args:
        law, params: as of `DraftSource`.
    """
    sampling = make_sampling(prompt.tokens.shape[0], 1.0)
    drawn = jax.jit(law)(params, prompt, sampling)
    return jnp.asarray(drawn.logits, jnp.float32)


def build_verify(method: Method) -> Callable[[Array, Inputs], Verdict]:
    """Returns a function (request key [B], Inputs) -> Verdict, from raw logits."""
    read = method.verifier.law or probs.standardize
    drafted = method.drafted or probs.standardize

    def verify(key: Array, inputs: Inputs) -> Verdict:
        batch, gamma = inputs.tokens.shape
        sampling = Sampling(jnp.ones(batch))
        noise = method.verifier.noise(key, inputs.start, gamma, inputs.p.shape[-1])
        num = jnp.full(batch, gamma, jnp.int32)
        draft = Draft(inputs.tokens, num, drafted(inputs.q, sampling))
        return method.verifier.verify(read(inputs.p, sampling), draft, noise)

    return verify


def next_turn(inputs: Inputs, turn: Array, verdict: Verdict) -> Inputs:
    """Returns the inputs of the next turn of a loop.

    One logit of every row changes, of an id that depends on the verdict and is far from
    the last turn's, and so do the uniforms.
    """
    vocab = inputs.p.shape[-1]
    at = (turn * 977 + verdict.tokens[0, 0]) % vocab

    def write_column(z: Array) -> Array:
        value = -5.0 - (turn % 7).astype(z.dtype)
        column = jnp.full((*z.shape[:-1], 1), value)
        return jax.lax.dynamic_update_slice_in_dim(z, column, at, axis=-1)

    p, q = write_column(inputs.p), write_column(inputs.q)
    return inputs._replace(p=p, q=q, start=inputs.start + 1)


def loop(verify: Callable, loops: int, turn: Callable = next_turn) -> Callable:
    """Returns a function (key, Inputs) -> the last verdict of `loops` turns, each with
    other inputs.
    """

    @jax.jit
    def run(key: Array, inputs: Inputs) -> Verdict:
        def body(i, carried):
            inputs, verdict = carried
            inputs = turn(inputs, i, verdict)
            return inputs, verify(key, inputs)

        first = inputs, verify(key, inputs)
        return jax.lax.fori_loop(1, loops, body, first)[1]

    return run


def verification(
    methods: Sequence[Method],
    inputs: Mapping[int | None, Sequence[Inputs]],
    *,
    rounds: int,
    loops: int = LOOPS,
    label: str = "verification",
) -> dict[tuple[str, int], np.ndarray]:
    """Returns the microseconds of one verification, [R], by (method, gamma), measured
    in turns.

    Args:
        inputs: by filter, one for every gamma.
    """
    key, programs = jax.random.split(root_key(0), 1), {}
    for method in methods:
        run = loop(build_verify(method), loops)
        for batch in inputs[method.top_k]:
            name = method.name, batch.tokens.shape[1]
            programs[name] = lambda run=run, batch=batch: run(key, batch)
    seconds = timing.time_in_turns(programs, rounds, label)
    return {name: 1e6 * each / loops for name, each in seconds.items()}


def spread(samples: np.ndarray) -> dict:
    """Returns the median, the deviation and the quartiles of the rounds; of a single
    round the deviation is None."""
    low, middle, high = map(float, np.percentile(samples, [25, 50, 75]))
    deviation = float(samples.std(ddof=1)) if samples.size > 1 else None
    return {"median": middle, "deviation": deviation, "low": low, "high": high}


def describe(name: str, samples: np.ndarray) -> dict:
    """Returns `spread` under the names that a record has."""
    us = spread(samples)
    numbers = {f"us_{name}": us["median"], f"us_{name}_sd": us["deviation"]}
    return numbers | {f"us_{name}_quarters": [us["low"], us["high"]]}


def program(method: Method, inputs: Inputs) -> Program:
    """Compiles one verification for these shapes; it is not run."""
    key = jax.random.split(root_key(0), inputs.tokens.shape[0])
    compiled = jax.jit(build_verify(method)).lower(key, inputs).compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    temporary = memory.temp_size_in_bytes
    return Program(
        temporary=temporary,
        peak=temporary + held,
        accessed=cost.get("bytes accessed", 0.0),
        operations=cost.get("flops", 0.0),
    )


def step_peak(
    pair: tuple[Pretrained, DraftSource],
    method: Method,
    *,
    gamma: int,
    begun: tuple[Prompt, Request],
) -> int:
    """Returns the peak memory in bytes of a whole compiled `spec_step`. Only the
    prefill before it is run.
    """
    both, state = begin(pair, method, gamma=gamma, begun=begun)
    step = generate.jit_step(both.decoder(gamma))
    compiled = step.lower(both.params(gamma), begun[1], state).compile()
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return held + memory.output_size_in_bytes - memory.alias_size_in_bytes


def begin(
    pair: tuple[Pretrained, DraftSource],
    method: Method,
    *,
    gamma: int,
    begun: tuple[Prompt, Request],
) -> tuple[costs.Pair, State]:
    """Returns a pair with buffers for one text, and the state after its prompt."""
    width = begun[0].tokens.shape[1]  # of a prompt, which may be padded
    slots = max(width, int(begun[1].limit.max())) + gamma + 2
    both = costs.Pair(*pair, slots, method.kernels())
    return both, costs.begin(both, gamma, *begun)


def peak_in_use() -> int | None:
    """Returns the most bytes that were in use so far; None where the device does not
    report it, such as a CPU.
    """
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def shares(
    pair: tuple[Pretrained, DraftSource],
    method: Method,
    *,
    begun: tuple[Prompt, Request],
    inputs: Sequence[Inputs],
    rounds: int,
) -> dict[int, dict[str, np.ndarray]]:
    """Returns, by gamma, the microseconds [R] of a whole `spec_step` (`step`) and of a
    verification from raw logits (`verify`).

    A step computes each law once, where it drafts and where it scores; `verify` is what
    the paper times, and includes that work.
    """
    label = "verification in a step"
    alone = verification([method], {method.top_k: inputs}, rounds=rounds, label=label)
    programs = {}
    for gamma in (each.tokens.shape[1] for each in inputs):
        _, state = begin(pair, method, gamma=gamma, begun=begun)
        programs[gamma] = partial(
            steps(pair, method, gamma=gamma, loops=LOOPS), begun[1], state
        )
    seconds = timing.time_in_turns(programs, rounds, "steps")
    return {
        gamma: {"step": 1e6 * each / LOOPS, "verify": alone[method.name, gamma]}
        for gamma, each in seconds.items()
    }


def steps(
    pair: tuple[Pretrained, DraftSource], method: Method, *, gamma: int, loops: int
) -> Callable:
    """Returns a function (request, state) -> the tokens after `loops` iterations that
    start at the same length, each with other tokens and keys.
    """
    target, draft = pair
    drafter = method.drafter(draft, gamma)
    step = build_step(*Decoder(target.model, drafter, method.verifier))

    @jax.jit
    def run(params: Params, request: Request, state: State) -> Array:
        fold = jax.vmap(jax.random.fold_in, (0, None))

        def body(i, carried):
            tokens = (carried.tokens + 1) % target.vocab
            carried = carried._replace(tokens=tokens, length=state.length)
            own = request._replace(key=fold(request.key, i))
            return step(params, own, carried)[0]

        return jax.lax.fori_loop(0, loops, body, state).tokens

    return partial(run, Params(target.params, draft.params))
