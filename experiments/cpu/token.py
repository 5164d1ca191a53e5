"""Measures where the time of a token goes on a CPU, natively and by XLA.

A token reads all weights once, and starts many programs. How long the reading takes at
least follows from the bytes and from the rate at which a product of one row reads a
matrix that no cache holds. How long the programs take to start is the time of a token
of a model with as many layers and next to nothing in them. All programs take turns.
Numbers, for `native` and `xla`:

- `*_programs`: the number of programs that a call of the target starts;
- `*_ms`: milliseconds of a call on one token, its law included;
- `*_start_ms`: of these, milliseconds to start programs;
- `*_rest_ms`: what neither that nor `read_ms`, the time to read the weights, explains:
  arithmetic, attention, and weights that are read more slowly;
- `*_v_4`, `*_v_7`: a call on gamma + 1 tokens over a call on one (Leviathan et al.
  2023, Section 3.3).
"""

import functools
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import inputs, native, pretrained, quantized
from specjax.checkpoints import Pretrained
from specjax.drafts import retrieval
from specjax.keys import root_key
from specjax.measure import costs, timing
from specjax.measure.row import Measurement
from specjax.models import families
from specjax.types import Request, State

WAYS = {"native": native.THIN, "xla": native.XLA}
GAMMAS = 4, 7
PROMPT = 16  # tokens
# The sizes of the model that has next to nothing in its layers.
NARROW = dict(vocab=256, dim=64, mlp_dim=64, num_heads=1, key_heads=1, head_width=64)
SIDE = 8192  # of the square matrix whose reading is timed: 256 MiB
# Instructions of XLA's that start no program.
FREE = "parameter", "constant", "tuple", "get-tuple-element", "bitcast"
COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*?^}", re.M | re.S)
INSTRUCTION = re.compile(r"^  (?:ROOT )?%?[\w.-]+ = .*? ([a-z][a-z-]*)\((.*)$", re.M)
# What an instruction runs: a loop's body, a call's computation, one of some branches.
RUNS = re.compile(r"(?:body|to_apply|(?:true|false)_computation)=([^,}]+)")
BRANCHES = re.compile(r"branch_computations={([^}]*)}")
RUNNING = "while", "call", "conditional"


class TokenSetting(NamedTuple):
    """The setting of a row.

    Attributes:
        slots: the length of the cache, half of which is full.
        rounds: the number of rounds in which all programs take turns.
    """

    slots: int = 512
    rounds: int = 9

    def check(self) -> None:
        """Raises ValueError for a setting that measures nothing."""
        if self.slots < 4 * PROMPT or self.rounds < 1:
            raise ValueError(f"want slots >= {4 * PROMPT}, rounds >= 1; got {self}")


class Call(NamedTuple):
    """A loop of `timing.LOOPS` calls of a model, and what it is run on.

    Attributes:
        loop: (request, state) -> the result of the last call; a partial of a jitted
            function.
        request: the request of one text.
        state: a state in the middle of that text.
        products: a choice of `native.products`.
    """

    loop: partial
    request: Request
    state: State
    products: str

    def __call__(self) -> Any:
        with native.products(self.products):
            return self.loop(self.request, self.state)

    def compiled_text(self) -> str:
        with native.products(self.products):
            (params,) = self.loop.args
            lowered = self.loop.func.lower(params, self.request, self.state)
            return lowered.compile().as_text()


def row_of_a_target(target: str, dtype: str, *, setting: TokenSetting) -> Measurement:
    """Returns the measurement of a target in an arithmetic.

    Raises:
        ValueError: there is no such model, it has an encoder, or the setting measures
            nothing.
    """
    setting.check()
    model = pretrained.describe(target, dtype)
    if model.encodes:
        raise ValueError(f"{target} has an encoder: name a model of decoders alone")
    run = partial(measure, target, dtype, setting)
    return Measurement(run, __name__, pretrained.files_of(model), model.dtype, 0)


def measure(target: str, dtype: str, setting: TokenSetting) -> dict:
    """Returns every number of a row as a plain value."""
    model = pretrained.load(target, dtype)
    narrow = narrow_model(model)
    found = {"target": model.name, "dtype": dtype, **setting._asdict()}
    programs: dict[Any, Callable] = {"read": reading()}
    for way, products in WAYS.items():
        for gamma in (0, *GAMMAS):
            programs[way, gamma] = make_call(model, gamma, setting.slots, products)
        programs[way, "start"] = make_call(narrow, 0, setting.slots, products)
        found[f"{way}_programs"] = count_programs(programs[way, 0].compiled_text())
    seconds = timing.time_in_turns(programs, setting.rounds, model.name)
    size, rate = bytes_read(model), SIDE**2 * 4 * timing.LOOPS
    rate /= float(np.median(seconds["read"]))
    found |= {"megabytes": size / 1e6, "gigabytes_per_second": rate / 1e9}
    found["read_ms"] = 1e3 * size / rate
    for way in WAYS:
        one, start = seconds[way, 0], milliseconds(seconds[way, "start"])
        found |= {
            f"{way}_ms": milliseconds(one),
            f"{way}_ms_ci": timing.interval(milliseconds, (one,)),
            f"{way}_start_ms": start,
            f"{way}_rest_ms": milliseconds(one) - start - found["read_ms"],
        }
        for gamma in GAMMAS:
            several = seconds[way, gamma]
            found[f"{way}_v_{gamma}"] = over(several, one)
            found[f"{way}_v_{gamma}_ci"] = timing.interval(over, (several, one))
    return found


def milliseconds(seconds: np.ndarray) -> float:
    """Returns the median milliseconds of a call, of loops of `timing.LOOPS` calls."""
    return 1e3 * float(np.median(seconds)) / timing.LOOPS


def over(several: np.ndarray, one: np.ndarray) -> float:
    return float(np.median(several) / np.median(one))


def make_call(model: Pretrained, gamma: int, slots: int, products: str) -> Call:
    """Returns the calls on gamma + 1 tokens in the middle of a text."""
    pair = costs.Pair(model, retrieval.copying(), slots)
    prompt = inputs.make_prompt([[*range(1, 1 + PROMPT)]])
    sampling = inputs.make_sampling(1, temperature=0.0)
    room = slots - PROMPT - max(GAMMAS) - 1
    request = inputs.make_request(root_key(0), prompt, room, sampling)
    with native.products(products):
        state = costs.begin(pair, 0, prompt, request)
    loop = costs.target_calls(pair, gamma, timing.LOOPS)
    return Call(loop, request, state, products)


def narrow_model(model: Pretrained) -> Pretrained:
    """Returns a model with as many layers and next to nothing in them; its weights are
    random numbers."""
    config = model.required_config
    sizes = {k: v for k, v in NARROW.items() if k in config._fields}
    small, family = config._replace(**sizes), families.of(config)
    params = nn.meta.unbox(family.init_params(root_key(0), small))
    return model._replace(config=small, model=family.build(small), params=params)


def reading() -> Callable[[], Array]:
    """Returns the program of `timing.LOOPS` products of one row with a matrix that no
    cache holds."""
    matrix = jnp.ones((SIDE, SIDE), jnp.float32) / SIDE

    @jax.jit
    def run(row: Array, matrix: Array) -> Array:
        return jax.lax.fori_loop(
            0, timing.LOOPS, lambda _, x: quantized.dot(x, matrix), row
        )

    return partial(run, jnp.ones((1, SIDE), jnp.float32), matrix)


def bytes_read(model: Pretrained) -> int:
    """Returns the bytes of the weights that a token reads, all but an embedding that is
    no readout."""
    sizes = {
        name: sum(leaf.nbytes for leaf in jax.tree.leaves(each))
        for name, each in model.params.items()
    }
    if not model.required_config.tied:
        del sizes["embedding"]
    return sum(sizes.values())


def count_programs(text: str) -> int:
    """Returns the number of programs that a round of the largest loop starts.

    Of the branches of a condition the longest counts, of a loop within it one round.

    text: compiled HLO of XLA's.
    """
    inside = {found[1]: found[0] for found in COMPUTATION.finditer(text)}

    @functools.cache
    def count(name: str) -> int:
        return sum(map(weigh, INSTRUCTION.findall(inside[name])))

    def weigh(instruction: tuple[str, str]) -> int:
        kind, rest = instruction
        if kind not in RUNNING:
            return kind not in FREE
        return max(count(name.strip(" %")) for name in parts(rest))

    def parts(rest: str) -> list[str]:
        branches = BRANCHES.search(rest)
        return branches[1].split(",") if branches else RUNS.findall(rest)

    return max(map(count, re.findall(r"body=%?([\w.-]+)", text)))
