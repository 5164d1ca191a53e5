"""A row of the table of kernels: every way to verify one shape, timed side by side.

Each program is compiled, its outputs are compared with a float64 oracle, and only then
is it timed; one that fails on any input is a line with its error and no number. Times
are those of `timing`, shares those of the speed of a copy on the bytes
that a program must read at least.
Axes: B rows, G = gamma, V vocabulary, S sets, R rounds.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax

from experiments.gpu.kernels import inputs, oracle, programs, timing
from experiments.gpu.kernels.inputs import Inputs, Shape
from experiments.gpu.kernels.programs import Grid, Program
from experiments.records.words import FAILED, SKIPPED, over
from specjax.measure.row import Measurement

# Quantity of a record, and the programs of which the fastest gives it.
CHOICES = {
    "empty": "empty",
    "read": "read",
    "ref_jnp": "ref_jnp/none",
    "ref_jnp_draft": "ref_jnp/draft",
    "ref_jnp_both": "ref_jnp/both",
    "onepass": "onepass/none",
    "onepass_draft": "onepass/draft",
    "fused": "mosaic_gpu/none",
    "fused_draft": "mosaic_gpu/draft",
    "fused_both": "mosaic_gpu/both",
    "sigmoid": "sigmoid/both",
    "triton": "triton/none",
    "triton_draft": "triton/draft",
    "triton_both": "triton/both",
    "four_launches": "four_launches/none",
}
REFERENCE = f"{programs.REF}/{programs.NONE}"
NAMED = "kernel_bench.KernelSetting"


class KernelSetting(NamedTuple):
    """What a row chooses: B, G, V and the dtype of the logits.

    acceptances: the first is that at which tiles are chosen. rounds: R. cache: bytes of
    which twice is read before anything is read again. least: of S. copied: bytes of the
    array whose copy gives the speed of the memory. grid: tiles that are tried. skip:
    implementations that are not run, by name. dry: a trial on a CPU, interpreted.
    """

    batch: int
    gamma: int
    vocab: int
    dtype: str
    acceptances: tuple[float, ...] = (0.7, 0.3, 0.95)
    rounds: int = 30
    cache: int = inputs.CACHE
    least: int = 4
    copied: int = 2**30
    grid: Grid = Grid()
    skip: tuple[str, ...] = ()
    dry: bool = False
    seed: int = 0

    @property
    def shape(self) -> Shape:
        return Shape(self.batch, self.gamma, self.vocab, self.dtype)


class Ready(NamedTuple):
    """A program that is compiled, and was right so far."""

    program: Program
    run: Callable


def build(setting: KernelSetting) -> Measurement:
    for name in ("batch", "gamma", "rounds"):
        if getattr(setting, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(setting, name)}")
    if setting.vocab < oracle.BLOCK:
        raise ValueError(
            f"a vocabulary of {setting.vocab}: kernels need {oracle.BLOCK} ids"
        )
    if setting.least < 2:
        raise ValueError("least must be at least 2: one set cannot wait for another")
    if not all(0 < acceptance < 1 for acceptance in setting.acceptances):
        raise ValueError(f"acceptances must be in (0, 1); got {setting.acceptances}")
    if setting.dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dtype must be float32 or bfloat16; got {setting.dtype}")
    setting = setting._replace(grid=Grid(*setting.grid))  # gin gives plain tuples
    run = partial(measure, setting)
    return Measurement(run, __name__, (), setting.dtype, setting.seed)


def measure(
    setting: KernelSetting, candidates: Sequence[Program] | None = None
) -> dict:
    place, shape = programs.here(setting.dry, NAMED), setting.shape
    count = inputs.cold(shape, setting.cache, setting.least)
    if candidates is None:
        candidates = programs.programs(shape, place, setting.grid)
    ready, failed, lines, rates, latency = None, [], [], [], {}
    for acceptance in setting.acceptances:
        sets = inputs.sets(shape, acceptance, count, setting.seed)
        it = inputs.answer(sets[0])
        means = {"chance": float(it.chance.mean()), "kept": float(it.n.mean())}
        rates.append({"wanted": acceptance, **means})
        first = ready is None
        if first:
            ready, wrong = compiled(candidates, sets, setting.skip)
            failed += wrong
        ready, wrong = sound(ready, sets)
        failed += wrong
        lines += timed(ready, sets, setting, acceptance)
        if first:  # of each implementation and what is carried, the fastest tiles
            us, best = {line["name"]: line["us"] for line in lines}, {}
            for entry in sorted(ready, key=lambda entry: us[entry.program.name]):
                best.setdefault(group(entry.program.name), entry)
            ready = list(best.values())
            # From a call to its result, dispatch and waiting included.
            calls = {
                name: partial(jax.jit(entry.program.call), sets[0])
                for name, entry in best.items()
            }
            latency = timing.measured(calls, 1, setting.rounds, "latency")
        del sets  # before the next sets are made
    right = {group(entry.program.name) for entry in ready}
    lines = [line for line in lines if group(line["name"]) in right]
    speed = timing.bandwidth(setting.copied, setting.rounds)
    for line in lines:
        line["share"] = line["bytes"] / (1e-6 * line["us"]) / speed
    return {
        **setting._asdict() | {"grid": setting.grid._asdict()},
        "interpreted": place.interpreted,
        "sets": count,
        "acceptance": rates,
        "copy_gb_s": speed / 1e9,
        "copy_us": 1e6 * shape.row_bytes(2 * shape.gamma + 3) / speed,
        "programs": lines,
        "failed": failed,
        "latency": {name: us for name, us in latency.items() if name in right},
        **quantities(lines, setting),
    }


def compiled(
    candidates: Sequence[Program], sets: list[Inputs], skip: tuple[str, ...]
) -> tuple[list[Ready], list[dict]]:
    """Chains of calls, and by name and error what is left out or does not compile."""

    def lower(program: Program) -> tuple:
        return program, timing.lowered(program.call, sets)

    def chain(program: Program, compiling: Future) -> Ready:
        run = compiling.result()
        if program.rows:
            timing.check_chain(run, sets)
        return Ready(program, run)

    chosen = [it for it in candidates if it.name.partition("/")[0] not in skip]
    names, error = {it.name for it in chosen}, f"{SKIPPED} by {NAMED}.skip"
    left_out = [it.name for it in candidates if it.name not in names]
    if REFERENCE in left_out:
        raise RuntimeError(f"the reference itself fails: {error}")
    # Compilers wait for nobody; one after another they would take minutes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lowered, failed = tried({it.name: partial(lower, it) for it in chosen})
        chains = {
            program.name: partial(chain, program, pool.submit(it.compile))
            for program, it in lowered
        }
        ready, wrong = tried(chains)
    return ready, [{"name": name, "error": error} for name in left_out] + failed + wrong


def sound(ready: Sequence[Ready], sets: list[Inputs]) -> tuple[list[Ready], list[dict]]:
    """Those whose first and last verdicts are right; of others name and error."""
    answers = {}

    def right(entry: Ready) -> Ready:
        verdicts, sigmoid = jax.device_get(entry.run(sets)), entry.program.sigmoid
        for at in (0, len(sets) - 1) if entry.program.verifies else ():
            if (at, sigmoid) not in answers:
                answers[at, sigmoid] = inputs.answer(sets[at], sigmoid)
            answer, tokens = answers[at, sigmoid], sets[at].tokens
            if fault := oracle.wrong(answer, tokens, *verdicts[at]):
                raise ValueError(f"not timed, as its output is wrong: {fault}")
        return entry

    return tried({entry.program.name: partial(right, entry) for entry in ready})


def tried(made: Mapping[str, Callable[[], Any]]) -> tuple[list, list[dict]]:
    """What could be made, and by name and error what could not. Raises RuntimeError for
    the reference."""
    ready, failed = [], []
    for name, make in made.items():
        try:
            ready.append(make())
        except Exception as error:
            if name == REFERENCE:
                why = in_words(error)
                raise RuntimeError(f"the reference itself fails: {why}") from error
            failed.append({"name": name, "error": in_words(error)})
    return ready, failed


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def timed(
    ready: Sequence[Ready], sets: list[Inputs], setting: KernelSetting, rate: float
) -> list[dict]:
    runs = {entry.program.name: partial(entry.run, sets) for entry in ready}
    spreads = timing.measured(runs, len(sets), setting.rounds, f"acceptance {rate}")
    return [
        {
            "name": program.name,
            "tiles": program.tiles and list(program.tiles),
            "acceptance": rate,
            "bytes": setting.shape.row_bytes(program.rows),
            **spreads[program.name],
        }
        for program, _ in ready
    ]


def group(name: str) -> str:
    """A program's name without its tiles."""
    return "/".join(name.split("/")[:2])


def quantities(lines: list[dict], setting: KernelSetting) -> dict:
    """Microseconds of the fastest by name and ratios, or the word for why not."""
    best, first = {}, setting.acceptances[0]
    for line in sorted(lines, key=lambda line: line["us"]):
        if line["acceptance"] == first:
            best.setdefault(group(line["name"]), line)

    def of(name: str, quantity: str) -> float | str:
        left_out = name.partition("/")[0] in setting.skip
        return best[name][quantity] if name in best else SKIPPED if left_out else FAILED

    values = {f"{name}_us": of(key, "us") for name, key in CHOICES.items()}
    values["fused_share"] = of(CHOICES["fused"], "share")
    for other in ("ref_jnp", "onepass", "triton", "four_launches"):
        values[f"over_{other}"] = over(values[f"{other}_us"], values["fused_us"], True)
    values["sigmoid_over_exact"] = over(values["fused_us"], values["sigmoid_us"])
    values["both_over_sigmoid"] = over(values["fused_both_us"], values["sigmoid_us"])
    return values
