"""Performance that needs no chip: what the kernels compile to for GPUs and TPUs.

Most is skipped where the compilers' wheels are not installed.
"""

import re

import jax
import pytest

from experiments import catalogue
from experiments.gpu.aot import compilers, hlo
from experiments.gpu.aot import kernels as kernels_aot
from experiments.gpu.aot.compilers import DEVICES
from experiments.records import records
from specjax import configs, fused, sides
from specjax.measure import costs, walltime
from specjax.prompts import Prompts
from specjax.step import build_step
from tests.experiments.gpu.aot import needs_cuda, needs_tpu

SMALL, LARGE = (1, 5, 32000, "float32"), (64, 5, 128256, "bfloat16")


@needs_cuda
@pytest.mark.parametrize(
    ("known", "sizes", "launches"),
    [
        ("draft", SMALL, 3),
        ("both", SMALL, 2),
        ("nothing", LARGE, 4),
        ("draw", SMALL, 3),
    ],
)
def test_mosaic_on_an_h200(known, sizes, launches):
    report = kernels_aot.described("h200", "mosaic_gpu", known, *sizes)
    assert report["launches"] == launches
    assert report["spills"] == 0 and report["registers"] <= 224
    assert report["widest_load"] == 16 and report["copies"] == 0
    names = {kernel["name"].partition("_mosaic")[0] for kernel in report["kernels"]}
    assert len(names) == launches and all(name.startswith("specjax_") for name in names)
    if known == "nothing":  # both sides in one kernel, and branches that are not taken
        assert report["instructions"] <= 17


@needs_cuda
@pytest.mark.parametrize(("device", "most"), [("t4", 16), ("a100", 18)])
def test_what_is_chosen_for_older_gpus_compiles_for_them(device, most):
    report = kernels_aot.described(device, "auto", "nothing", *SMALL)
    assert report["ran"] == "onepass" and report["launches"] <= most
    assert report["spills"] == 0


@needs_cuda
def test_one_pass_launches_less_than_the_reference():
    onepass, reference = (
        kernels_aot.described("h200", name, "nothing", *SMALL)["launches"]
        for name in ("onepass", "reference")
    )
    assert onepass <= 16 < reference


@needs_cuda
def test_a_copy_of_logits_is_noticed():
    run, (batch,) = kernels_aot.program("h200", "mosaic_gpu", "draft", *SMALL)

    def turned(batch):
        return run(batch._replace(target=batch.target.swapaxes(1, 2)))

    rows = batch.target
    other = type(rows)((rows.shape[0], rows.shape[2], rows.shape[1]), rows.dtype)
    least = 4 * 5 * 32000 // 2
    for program, argument, count in (
        (run, batch, 0),
        (turned, batch._replace(target=other), 1),
    ):
        compiled = compilers.compile(program, (argument,))
        assert len(hlo.large_moves(compiled.program, least)) == count


@needs_tpu
@pytest.mark.parametrize("device", ["v5e", "v6e"])
@pytest.mark.parametrize(
    ("known", "sizes"),
    [
        ("draft", SMALL),
        ("nothing", (1, 5, 50257, "bfloat16")),
        ("draft", (8, 5, 32128, "bfloat16")),
        ("draft", (64, 5, 128256, "float32")),
        ("draft", (1, 20, 128256, "float32")),
    ],
)
def test_one_launch_on_a_tpu(device, known, sizes):
    report = kernels_aot.described(device, "auto", known, *sizes)
    assert report["ran"] == "mosaic_tpu"
    assert report["launches"] == 1 and report["copies"] == 0


@needs_tpu
def test_what_does_not_fit_a_v4_has_no_kernel():
    report = kernels_aot.described("v4", "auto", "draft", 1, 5, 256000, "float32")
    assert report["ran"] == "onepass" and report["launches"] == 0
    assert kernels_aot.described("v4", "auto", "draft", *SMALL)["launches"] == 1


def default_step(device: str, gamma: int, asked: str = "auto"):
    """A step as a row of walltime times it, and its arguments, by the kernels that are
    chosen for a device: a bundled pair, and a setting's own defaults."""
    both = sides.model("code_target"), sides.model("code_small")
    setting = walltime.WalltimeSetting(1.0, kernels=asked)
    chosen = fused.of_setting(*both, setting, DEVICES[device])
    pair = costs.Pair(*both, 128, chosen)
    prompt, request = walltime.batches(Prompts([[1, 2, 3]]), setting)[0][0]
    state = jax.eval_shape(lambda: costs.begin(pair, gamma, prompt, request))
    return build_step(*pair.decoder(gamma)), (pair.params(gamma), request, state)


def own(sequence: hlo.Sequence) -> list[str]:
    """What `pallas_kernels` launches, by name."""
    matches = (re.search(r"specjax_([a-z]+)", k.name + k.source) for k in sequence)
    return [name[1] for name in matches if name]


@needs_cuda
def test_the_default_step_on_an_h200_launches_the_kernels():
    program = compilers.compile(*default_step("h200", 5), donate=(2,)).program
    stages = ["statistics", "remainder", "choice"]
    verified = own(program.kernels)
    # A draw of the first drafted token, and the verification; a draw a further token.
    assert verified == stages + stages
    (loop,) = (x for x in hlo.loops(program) if own(hlo.everything(x.body)))
    assert own(hlo.everything(loop.body)) == stages
    baseline = compilers.compile(*default_step("h200", 0), donate=(2,)).program
    assert own(hlo.everything(baseline)) == stages
    plain = compilers.compile(
        *default_step("h200", 0, "reference"), donate=(2,)
    ).program
    assert own(hlo.everything(plain)) == []


@needs_tpu
def test_the_default_step_on_a_tpu_launches_the_kernels():
    def launched(gamma: int, asked: str = "auto") -> int:
        compiled = compilers.compile(*default_step("v5e", gamma, asked), device="v5e")
        every = hlo.everything(compiled.program)
        return sum(kernel.target == "tpu_custom_call" for kernel in every)

    assert (
        launched(5) == 3
    )  # two draws, of which one is in the loop, and a verification
    assert launched(0) == 1 and launched(0, "reference") == 0


def test_rows_refuse_what_they_cannot_compile():
    with pytest.raises(ValueError, match="unknown device 'h100'"):
        kernels_aot.build("h100", [])
    if reason := compilers.missing("tpu"):
        with pytest.raises(ValueError, match=reason[:20]):
            kernels_aot.build("v5e", [("auto", "draft", *SMALL)]).run()


def test_every_line_has_its_program():
    """The rows' files name what the table's lines ask for."""

    table = catalogue.named("kernels_aot")
    for device in {line.row for line in table.lines}:
        built = configs.build(records.row("kernels_aot", device))
        named, programs = built.row.measurement.run.args
        assert named == device
        keys = {"{} {} B{} g{} V{} {}".format(*program) for program in programs}
        asked = {
            line.quantity.partition(":")[0]
            for line in table.lines
            if line.row == device
        }
        assert asked <= keys
