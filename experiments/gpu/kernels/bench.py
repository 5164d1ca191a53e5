"""A row of the table of kernels: every implementation of a verification of one shape,
timed in turns.

Each program is compiled into a loop. The verdict at the end of the loop is compared
with a float64 oracle, and only then is the loop timed; a program that fails on any
input is a line with its error and without a number. A time is that of a step of the
loop less that of the empty chain, which clears caches and waits in the same way but
verifies nothing; both are recorded. Shares are relative to the speed of a copy, for the
bytes that a program must read at least. Axes: B rows, G = gamma, V vocabulary, R
rounds.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.gpu.kernels import inputs, oracle, programs, timing
from experiments.gpu.kernels.inputs import Inputs, Shape
from experiments.gpu.kernels.programs import EMPTY, Grid, Program
from experiments.gpu.kernels.timing import Fixed, State
from experiments.records.kernel_times import COLD, WARM, group, has_program, quantities
from experiments.records.words import SKIPPED, UNCLEAR
from specjax.measure.row import Measurement
from specjax.measure.timing import time_in_turns

REFERENCE = f"{programs.REF}/{programs.NONE}"
NEEDED = REFERENCE, EMPTY  # a row is nothing without them
MOVED = 2**36  # bytes: so long a chain that a dispatch's jitter is little beside it
NAMED = "kernel_bench.KernelSetting"


class KernelSetting(NamedTuple):
    """The setting of a row that times kernels: B, G, V and the dtype of the logits.

    Attributes:
        acceptances: tiles are chosen at the first of them.
        rounds: R.
        length: the most steps of a chain.
        cache: bytes of a cache; twice as many are read before every step that finds
            caches cold.
        copied: bytes of the array whose copy gives the speed of the memory.
        grid: tiles that are tried.
        skip: names of implementations that are not run.
        only: names of those that are, as "implementation/carried"; all by default.
        dry: a trial on a CPU, interpreted.
    """

    batch: int
    gamma: int
    vocab: int
    dtype: str
    acceptances: tuple[float, ...] = (0.7, 0.3, 0.95)
    rounds: int = 30
    length: int = 1000
    cache: int = inputs.CACHE
    copied: int = 2**30
    grid: Grid = Grid()
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    dry: bool = False
    seed: int = 0

    @property
    def shape(self) -> Shape:
        return Shape(self.batch, self.gamma, self.vocab, self.dtype)

    @property
    def steps(self) -> int:
        """Returns the number of steps in a chain: `length`, or enough to move MOVED
        bytes."""
        read = 2 * self.cache + self.shape.row_bytes(2 * self.gamma + 3)
        return min(self.length, max(MOVED // read, timing.SHORT + 1))


class Pair(NamedTuple):
    """A program compiled into a long chain of steps, and into a short one."""

    long: Callable
    short: Callable


class CompiledProgram(NamedTuple):
    """A compiled program, with which no error has been found so far.

    Attributes:
        chains: by the state of caches.
        plain: a single call.
        apart: the same, with every kernel launched separately.
    """

    program: Program
    chains: dict[str, Pair]
    plain: Callable
    apart: Callable


Tell = Callable[[dict], None]  # what becomes of a line as soon as there is one


def build(setting: KernelSetting) -> Measurement:
    for name in ("batch", "gamma", "rounds"):
        if getattr(setting, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(setting, name)}")
    if setting.vocab < oracle.BLOCK:
        raise ValueError(
            f"a vocabulary of {setting.vocab}: kernels need {oracle.BLOCK} ids"
        )
    if setting.length <= timing.SHORT:
        raise ValueError(
            f"length must be more than {timing.SHORT}, the steps of the shorter chain"
        )
    if not all(0 < acceptance < 1 for acceptance in setting.acceptances):
        raise ValueError(f"acceptances must be in (0, 1); got {setting.acceptances}")
    if setting.dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dtype must be float32 or bfloat16; got {setting.dtype}")
    setting = setting._replace(grid=Grid(*setting.grid))  # gin gives plain tuples
    run = partial(measure, setting)
    return Measurement(run, __name__, (), setting.dtype, setting.seed)


def measure(
    setting: KernelSetting,
    candidates: Sequence[Program] | None = None,
    tell: Tell = lambda line: None,
) -> dict:
    """Returns the numbers of a row.

    Args:
        setting: what is timed, and how.
        candidates: programs; all of them by default.
        tell: gets every line as soon as it is timed.
    """
    place, shape = programs.find_device(setting.dry, NAMED), setting.shape
    if candidates is None:
        candidates = programs.programs(shape, place, setting.grid)
    if EMPTY not in {it.name for it in candidates}:
        candidates = [programs.empty_program(), *candidates]
    speed = timing.copy_speed(setting.copied)
    tell({"name": "copy", "bytes": setting.copied, "gb_s": speed / 1e9})
    ready, failed, lines, rates, latency = None, [], [], [], {}
    for acceptance in setting.acceptances:
        (batch,) = inputs.make_sets(shape, acceptance, count=1, seed=setting.seed)
        it = inputs.answer(batch)
        means = {"chance": float(it.chance.mean()), "kept": float(it.n.mean())}
        rates.append({"wanted": acceptance, **means})
        given = operands(batch, setting)
        first = ready is None
        if first:
            ready, wrong = compile_chains(
                candidates, given, batch=batch, setting=setting
            )
            failed += wrong
        ready, wrong = right_programs(ready, given, batch, it)
        failed += wrong
        one = Timing(setting, acceptance, speed, tell)
        lines += one.time_programs(ready, given[COLD], COLD)
        if first:  # of each implementation and what is carried, the fastest tiles
            us, best = {line["name"]: line["us"] for line in lines}, {}
            for entry in sorted(ready, key=lambda entry: us[entry.program.name]):
                best.setdefault(group(entry.program.name), entry)
            ready = list(best.values())
            lines += one.time_programs(ready, given[WARM], WARM)
            latency = one.time_single_calls(ready, batch)
        del batch, given  # before the next are made
    right = {group(entry.program.name) for entry in ready}
    lines = [line for line in lines if group(line["name"]) in right]
    return {
        **setting._asdict() | {"grid": setting.grid._asdict()},
        "interpreted": place.interpreted,
        "steps": setting.steps,
        "acceptance": rates,
        "copy_gb_s": speed / 1e9,
        "copy_us": 1e6 * shape.row_bytes(2 * shape.gamma + 3) / speed,
        "programs": lines,
        "failed": failed,
        "latency": {name: us for name, us in latency.items() if name in right},
        **quantities(lines, setting._asdict()),
    }


Given = dict[str, tuple[Fixed, State]]  # what chains are run on, by caches


def operands(batch: Inputs, setting: KernelSetting) -> Given:
    return {
        COLD: timing.operands(batch, setting.cache),
        WARM: timing.operands(batch, None),
    }


def compile_chains(
    candidates: Sequence[Program],
    given: Given,
    *,
    batch: Inputs,
    setting: KernelSetting,
) -> tuple[list[CompiledProgram], list[dict]]:
    """Compiles all chains of each program; returns them, and the name and error of
    programs that were skipped or did not compile.
    """

    def begin(pool: ThreadPoolExecutor, program: Program) -> tuple:
        """Compiles in the background, because one compilation after another would take
        minutes."""
        step = timing.build_step(program.call)
        chains = {}
        for cache, arguments in given.items():
            both = (timing.chain(step, n) for n in (setting.steps, timing.SHORT))
            chains[cache] = [pool.submit(run.lower(*arguments).compile) for run in both]
        alone = jax.jit(program.call).lower(batch)
        plain = apart = pool.submit(alone.compile)
        if jax.devices()[0].platform == "gpu":
            apart = pool.submit(alone.compile, timing.UNCAPTURED)
        return program, chains, plain, apart

    def end(
        program: Program, chains: dict, plain: Future, apart: Future
    ) -> CompiledProgram:
        pairs = {
            cache: Pair(*(it.result() for it in both)) for cache, both in chains.items()
        }
        for cache, pair in pairs.items():
            text, state = pair.long.as_text(), given[cache][1]
            timing.check_loop(text, state, setting.steps)
        return CompiledProgram(program, pairs, plain.result(), apart.result())

    chosen = [it for it in candidates if is_wanted(it, setting)]
    names, error = {it.name for it in chosen}, f"{SKIPPED} by {NAMED}"
    left_out = [it.name for it in candidates if it.name not in names]
    if REFERENCE in left_out:
        raise RuntimeError(f"the reference itself fails: {error}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        begun, failed = collect_results(
            {it.name: partial(begin, pool, it) for it in chosen}
        )
        ready, wrong = collect_results({it[0].name: partial(end, *it) for it in begun})
    return ready, [{"name": name, "error": error} for name in left_out] + failed + wrong


def is_wanted(program: Program, setting: KernelSetting) -> bool:
    return program.name == EMPTY or has_program(group(program.name), setting._asdict())


def right_programs(
    ready: Sequence[CompiledProgram], given: Given, batch: Inputs, answer: oracle.Answer
) -> tuple[list[CompiledProgram], list[dict]]:
    """Returns the programs whose chains end with the right verdict, and the name and
    error of the others.

    Args:
        answer: the oracle's, by the exact rule.
    """
    answers = {None: answer}

    def check_entry(entry: CompiledProgram) -> CompiledProgram:
        sigmoid = entry.program.sigmoid
        if entry.program.verifies and sigmoid not in answers:
            answers[sigmoid] = inputs.answer(batch, sigmoid)
        for cache, pair in entry.chains.items():
            end = pair.long(*given[cache])
            n, tokens = jax.device_get((end.n, end.tokens))
            if entry.program.verifies:
                fault = oracle.find_error(
                    answers[sigmoid], batch.tokens, n=n, tokens=tokens
                )
                if fault:
                    raise ValueError(f"not timed, as its output is wrong: {fault}")
        return entry

    return collect_results(
        {entry.program.name: partial(check_entry, entry) for entry in ready}
    )


def collect_results(made: Mapping[str, Callable[[], Any]]) -> tuple[list, list[dict]]:
    """Returns the results of functions, and the name and error of each function that
    failed.

    Raises:
        RuntimeError: the reference or the empty chain failed.
    """
    ready, failed = [], []
    for name, make in made.items():
        try:
            ready.append(make())
        except Exception as error:
            if name in NEEDED:
                whose = "reference" if name == REFERENCE else "empty chain"
                why = f"the {whose} itself fails: {describe_error(error)}"
                raise RuntimeError(why) from error
            failed.append({"name": name, "error": describe_error(error)})
    return ready, failed


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class Timing(NamedTuple):
    """The timing of all programs at one acceptance.

    Attributes:
        speed: bytes a second of a copy.
    """

    setting: KernelSetting
    acceptance: float
    speed: float
    tell: Tell

    def time_programs(
        self,
        ready: Sequence[CompiledProgram],
        operands: tuple[Fixed, State],
        cache: str,
    ) -> list[dict]:
        """Returns a line for each program, including the empty chain.

        Args:
            cache: COLD or WARM.
        """
        pairs = {
            it.program.name: [partial(run, *operands) for run in it.chains[cache]]
            for it in ready
        }
        length, rounds = self.setting.steps, self.setting.rounds
        label = f"acceptance {self.acceptance}, {cache}"
        seconds = timing.measure_steps(pairs, length=length, rounds=rounds, label=label)
        lines = [self.line(it.program, seconds, cache) for it in ready]
        for line in lines:
            self.tell(line)
        return lines

    def line(self, program: Program, seconds: Mapping, cache: str) -> dict:
        """Returns the time of a step minus that of the empty chain, and both times."""
        own, empty = seconds[program.name], seconds[EMPTY]
        net = timing.spread(own if program.name == EMPTY else own - empty)
        read = self.setting.shape.row_bytes(program.rows)
        share = read / (1e-6 * net["us"]) / self.speed if net["us"] > 0 else UNCLEAR
        return {
            "name": program.name,
            "tiles": program.tiles and list(program.tiles),
            "acceptance": self.acceptance,
            "cache": cache,
            "bytes": read,
            **net,
            "chain_us": 1e6 * float(np.median(own)),
            "empty_us": 1e6 * float(np.median(empty)),
            "share": share,
        }

    def time_single_calls(
        self, ready: Sequence[CompiledProgram], batch: Inputs
    ) -> dict[str, dict]:
        """Returns, by name, the microseconds from a call to its result, including
        dispatch and waiting, and those of its kernels by CUPTI.
        """
        runs = {group(it.program.name): partial(it.plain, batch) for it in ready}
        seconds = time_in_turns(runs, self.setting.rounds, "latency")
        by_program = {}
        for entry in ready:
            name = group(entry.program.name)
            kernels = timing.kernel_microseconds(entry.apart, batch)
            by_program[name] = timing.spread(seconds[name]) | kernels
            self.tell({"name": name, "alone": by_program[name]})
        return by_program
