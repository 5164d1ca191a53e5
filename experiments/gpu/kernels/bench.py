"""A row of the table of kernels: every way to verify one shape, timed side by side.

Each program is compiled, its outputs are compared with a float64 oracle, and only then
is it timed; one that fails on any input is a line with its error and no number. Times
are those of `timing`, shares those of the speed of a copy on the bytes
that a program must read at least.
Axes: B rows, G = gamma, V vocabulary, S sets, R rounds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

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
    """The measurement of one row. Raises ValueError for what cannot be measured."""
    setting = setting._replace(grid=Grid(*setting.grid))  # gin gives plain tuples
    check(setting)
    run = partial(measure, setting)
    return Measurement(run, __name__, (), setting.dtype, setting.seed)


def check(setting: KernelSetting) -> None:
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


def measure(
    setting: KernelSetting, candidates: Sequence[Program] | None = None
) -> dict:
    """Every number of a row, plain.

    candidates: what is measured, all of `programs.programs` by default. Raises
    ValueError on a CPU, but for a trial; RuntimeError if the reference itself fails.
    """
    check(setting)
    place, shape = programs.here(setting.dry, NAMED), setting.shape
    count = inputs.cold(shape, setting.cache, setting.least)
    if candidates is None:
        candidates = programs.programs(shape, place, setting.grid)
    ready, failed, lines, rates, latency = None, [], [], [], {}
    for acceptance in setting.acceptances:
        sets = inputs.sets(shape, acceptance, count, setting.seed)
        rates.append(accepted(sets, acceptance))
        first = ready is None
        if first:
            ready, wrong = compiled(candidates, sets, setting.skip)
            failed += wrong
        ready, wrong = sound(ready, sets)
        failed += wrong
        lines += timed(ready, sets, setting, acceptance)
        if first:
            ready = fastest(ready, lines)
            latency = latencies(ready, sets[0], setting.rounds)
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
    ready, failed = [], []
    for program in candidates:
        try:
            if program.name.partition("/")[0] in skip:
                error = f"{SKIPPED} by {NAMED}.skip"
                failed.append({"name": program.name, "error": error})
                continue
            run = timing.chained(program.call, sets)
            if program.rows:
                timing.check_chain(run, sets)
            ready.append(Ready(program, run))
        except Exception as error:
            failed.append({"name": program.name, "error": in_words(error)})
    stop_without_reference(failed)
    return ready, failed


def sound(ready: Sequence[Ready], sets: list[Inputs]) -> tuple[list[Ready], list[dict]]:
    """Those whose first and last verdicts are right; of others name and error."""
    answers, right, failed = {}, [], []
    for entry in ready:
        program = entry.program
        try:
            verdicts = jax.device_get(entry.run(sets))
            for index in (0, len(sets) - 1) if program.verifies else ():
                at = index, program.sigmoid
                if at not in answers:
                    answers[at] = inputs.answer(sets[index], program.sigmoid)
                tokens = sets[index].tokens
                if fault := oracle.wrong(answers[at], tokens, *verdicts[index]):
                    raise ValueError(f"not timed, as its output is wrong: {fault}")
            right.append(entry)
        except Exception as error:
            failed.append({"name": program.name, "error": in_words(error)})
    stop_without_reference(failed)
    return right, failed


def stop_without_reference(failed: list[dict]) -> None:
    for failure in failed:
        if failure["name"] == REFERENCE:
            raise RuntimeError(f"the reference itself fails: {failure['error']}")


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def timed(
    ready: Sequence[Ready],
    sets: list[Inputs],
    setting: KernelSetting,
    acceptance: float,
) -> list[dict]:
    runs = {entry.program.name: partial(entry.run, sets) for entry in ready}
    label = f"acceptance {acceptance}"
    spreads = timing.measured(runs, len(sets), setting.rounds, label)
    return [
        {
            "name": entry.program.name,
            "tiles": entry.program.tiles and list(entry.program.tiles),
            "acceptance": acceptance,
            "bytes": setting.shape.row_bytes(entry.program.rows),
            **spreads[entry.program.name],
        }
        for entry in ready
    ]


def latencies(ready: Sequence[Ready], batch: Inputs, rounds: int) -> dict:
    """Microseconds from a call to its result, dispatch and waiting included."""
    calls = {
        group(entry.program.name): partial(jax.jit(entry.program.call), batch)
        for entry in ready
    }
    return timing.measured(calls, 1, rounds, "latency")


def fastest(ready: Sequence[Ready], lines: list[dict]) -> list[Ready]:
    """Of each implementation and what is carried, the fastest tiles."""
    us, best = {line["name"]: line["us"] for line in lines}, {}
    for entry in sorted(ready, key=lambda entry: us[entry.program.name]):
        best.setdefault(group(entry.program.name), entry)
    return list(best.values())


def group(name: str) -> str:
    """A program's name without its tiles."""
    return "/".join(name.split("/")[:2])


def accepted(sets: list[Inputs], wanted: float) -> dict:
    """The acceptance as it was in the first set, and the tokens that it kept."""
    it = inputs.answer(sets[0])
    means = {"chance": float(it.chance.mean()), "kept": float(it.n.mean())}
    return {"wanted": wanted, **means}


def quantities(lines: list[dict], setting: KernelSetting) -> dict:
    """Microseconds of the fastest by name and ratios, or the word for why not."""
    us, share, first = {}, {}, setting.acceptances[0]
    for line in lines:
        key = group(line["name"])
        if line["acceptance"] == first and line["us"] < us.get(key, float("inf")):
            us[key], share[key] = line["us"], line["share"]

    def of(key: str, known: dict) -> float | str:
        left_out = key.partition("/")[0] in setting.skip
        return known.get(key, SKIPPED if left_out else FAILED)

    values = {f"{name}_us": of(key, us) for name, key in CHOICES.items()}
    values["fused_share"] = of(CHOICES["fused"], share)
    for other in ("ref_jnp", "onepass", "triton", "four_launches"):
        values[f"over_{other}"] = over(values[f"{other}_us"], values["fused_us"], True)
    values["sigmoid_over_exact"] = over(values["fused_us"], values["sigmoid_us"])
    values["both_over_sigmoid"] = over(values["fused_both_us"], values["sigmoid_us"])
    return values
