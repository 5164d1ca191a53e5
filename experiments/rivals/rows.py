"""The rows of the bench, and the one that compares with nobody: v of a target call."""

from functools import partial

from experiments.rivals import comparisons, ours, ratios, t5x
from experiments.rivals.place import Place
from specjax import native
from specjax.measure.row import Measurement

LOOPS = 20  # calls in one timed program


def rows(where: Place) -> dict[str, Measurement]:
    """What each row is called, and how it is measured; those of T5X if it is here.
    One that ends in "_xla" is by XLA's own products."""
    setting, runs = where.setting, {}
    both = 1, setting.texts
    for batch in both:
        runs[f"plain_b{batch}"] = partial(comparisons.plain, where, batch)
    for batch in both:
        runs[f"speculative_b{batch}"] = partial(comparisons.speculative, where, batch)
    runs["speculative_b1_xla"] = partial(comparisons.speculative, where, 1)
    runs["target_call_b1"] = partial(target_call, where)
    for batch in both if t5x.importable() else ():
        runs[f"t5x_b{batch}"] = partial(comparisons.beside_t5x, where, batch)
    common = dict(inputs=(native.SOURCE,), dtype="float32", seed=setting.seed)
    return {name: Measurement(run, __name__, **common) for name, run in runs.items()}


def target_call(where: Place) -> dict:
    """v(gamma) = t_p(gamma + 1) / t_p(1) of our target, and the readout's share."""
    setting = where.setting
    model = ours.load(where.target, where.vocab)
    asked = where.inputs, setting.new_tokens
    programs = {}
    for gamma in (0, setting.gamma):
        name = f"{gamma + 1}"
        programs[f"call_{name}"] = ours.target_calls(model, *asked, gamma, LOOPS)
        programs[f"readout_{name}"] = ours.readouts(model, gamma, LOOPS)
    seconds = ratios.measure(programs, setting.rounds, setting.pause, "target call")
    result = ratios.milliseconds(seconds, LOOPS)
    many = f"{setting.gamma + 1}"
    result |= ratios.over(seconds, "call_1", f"call_{many}", "v")
    result |= ratios.over(seconds, "readout_1", f"readout_{many}", "v_readout")
    for name in ("1", many):
        call, readout = f"call_{name}", f"readout_{name}"
        result |= ratios.over(seconds, call, readout, f"share_{name}")
    return result | {"setting": setting._asdict(), "batch": 1}
