"""Programs are compiled for accelerators that are absent, to read what they launch,
what devices send each other, and whether a step fits.

What needs the vendors' compilers is skipped without their wheels; the rest is not.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

from experiments import catalogue
from experiments.gpu.aot import collectives, compilers, graphs, hlo, inspect, launches
from experiments.gpu.aot import kernels as kernels_aot
from experiments.gpu.plans import compiled as steps
from experiments.gpu.plans import forms
from experiments.gpu.plans.forms import CHIPS, Plan
from experiments.records import records
from specjax import configs, drafts, fused, pretrained, probs
from specjax.decode_config import change
from specjax.drafts.models import model_source
from specjax.measure import costs, walltime
from specjax.models import gpt, llama, t5
from specjax.prompts import Prompts
from specjax.runtime import mesh
from specjax.runtime.mesh import Layout
from specjax.step import build_step
from tests.support.settings import make

MISSING = {
    platform: compilers.missing_reason(platform) for platform in compilers.WHEELS
}
needs_cuda, needs_tpu = (
    pytest.mark.skipif(MISSING[name] is not None, reason=str(MISSING[name]))
    for name in ("gpu", "tpu")
)
X = jax.ShapeDtypeStruct((256, 512), jnp.float32)
LEAST = 256 * 512 * 4

TEXT = """HloModule jit_f, is_scheduled=true

%fused_copy (p: f32[64,8]) -> f32[8,64] {
  %p = f32[64,8]{1,0} parameter(0)
  ROOT %t = f32[8,64]{1,0} transpose(%p), dimensions={1,0}
}

%fused_add (q: f32[8,64]) -> f32[8,64] {
  %q = f32[8,64]{1,0} parameter(0)
  ROOT %a = f32[8,64]{1,0} add(%q, %q)
}

%body (c: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %c = (s32[], f32[8,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[8,64]{1,0} get-tuple-element(%c), index=1
  %add.1 = f32[8,64]{1,0} fusion(%x), kind=kLoop, calls=%fused_add
  %gemm = (f32[8,64]{1,0}, s8[16]{0}) custom-call(%add.1), custom_call_target="__cublas$gemm", metadata={op_name="jit(f)/layers_1/dot"}
  %y = f32[8,64]{1,0} get-tuple-element(%gemm), index=0
  %gather = f32[16,64]{1,0} all-gather(%y), dimensions={0}
  ROOT %r = (s32[], f32[8,64]{1,0}) tuple(%i, %y)
}

%condition (d: (s32[], f32[8,64])) -> pred[] {
  %d = (s32[], f32[8,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %n = s32[] constant(3)
  %less = pred[] fusion(%j, %n), kind=kLoop, calls=%fused_add
  ROOT %any = pred[] all-reduce(%less), to_apply=%or
}

ENTRY %main (arg: f32[64,8]) -> f32[8,64] {
  %arg = f32[64,8]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %copy.1 = s32[] copy(%zero)
  %sum = (f32[4]{0}, /*index=1*/s32[2]{0}) all-reduce(%copy.1), to_apply=%add
  %turned = f32[8,64]{1,0} fusion(%arg), kind=kLoop, calls=%fused_copy
  %begun = (s32[], f32[8,64]{1,0}) tuple(%copy.1, %turned)
  %while.1 = (s32[], f32[8,64]{1,0}) while(%begun), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = f32[8,64]{1,0} get-tuple-element(%while.1), index=1
}
"""  # noqa: E501
DECIDED = re.sub(", backend_config=.*", "", TEXT)
THUNKS = """001: kWhile [source | next=010 (1)]
condition:
    002: kCustomKernel [source | sink] less grid: [1, 1, 1]
  body:
    003: kGemm [source | next=004 (1)] kGemm
    000: kCommandBuffer [prev=003 (1) | next=006 (1)]
        004: kCustomKernel [source | next=005 (1)] add_1 grid: [1, 1, 1]
        005: kCopy         [prev=004 (1) | sink] kCopy
    006: kCustomCall [prev=000 (1) | sink] gather
010: kConditional [prev=001 (1) | sink]
branch 0:
    000: kCommandBuffer [source | sink]
        011: kCustomKernel [source | sink] sum grid: [1, 1, 1]
        012: kCustomKernel [prev=011 (1) | sink] sum grid: [1, 1, 1]
        013: kCustomKernel [prev=012 (1) | sink] sum grid: [1, 1, 1]
"""
PTX = """.version 9.0
.target sm_90a
.visible .entry wide(
	.param .u64 wide_param_0
)
{
	.reg .b32 %r<9>;
	ld.param.b64 	%rd1, [wide_param_0];
	ld.global.nc.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	ld.global.b16 	%rs1, [%rd1+64];
	ret;
}
"""
PTXAS = """ptxas info    : Compiling entry function 'wide' for 'sm_90a'
ptxas info    : Function properties for wide
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem
"""


def test_what_a_module_launches_is_read_from_its_text():
    def names(sequence):
        return [kernel.name for kernel in sequence.kernels]

    program = hlo.read(TEXT)
    assert names(program) == ["copy.1", "sum", "turned"]
    (loop,) = hlo.loops(program)
    assert (loop.name, loop.trips, hlo.iteration(loop)) == ("while.1", 3, 3)
    (asked,) = hlo.loops(hlo.read(DECIDED))  # its condition runs
    assert (asked.trips, hlo.iteration(asked)) == (None, 3 + 2)
    assert names(loop.body) == ["add.1", "gemm", "gather"]
    gemm = loop.body.kernels[1]
    assert gemm.target == "__cublas$gemm" and gemm.source == "jit(f)/layers_1/dot"
    assert gemm.bytes == 8 * 64 * 4 + 16
    assert [k.name for k in hlo.large_moves(program, 2048)] == ["turned"]
    assert not hlo.large_moves(program, 2049)
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.read(TEXT[: TEXT.index("ENTRY")])


@pytest.mark.parametrize(("text", "trips", "asked"), [(TEXT, 3, 0), (DECIDED, 4, 4)])
def test_a_collective_counts_as_often_as_it_runs(text, trips, asked):
    found = collectives.executed_collectives(hlo.read(text), gamma=5)
    assert [(kernel.opcode, kernel.bytes) for kernel in found] == [
        ("all-reduce", 24),
        *[("all-gather", 4096)] * trips,
        *[("all-reduce", 1)] * asked,
    ]


def test_a_host_waits_where_only_the_device_knows_how_a_loop_ends():
    thunks = graphs.read(THUNKS)
    inside = [it for _, it in graphs.all_launches(thunks)]
    assert (len(inside), sum(inside)) == (8, 5)
    known, decided = (hlo.read(text) for text in (TEXT, DECIDED))
    # Three iterations of two launches and a graph of two; and a graph of three.
    once = graphs.HostWork(waits=1, graphs=1, inside=3)
    assert graphs.host_work(thunks, known, 4) == once + graphs.HostWork(0, 3, 6, 6)
    # Of four, asked for five times by a launch each.
    assert graphs.host_work(thunks, decided, 4) == once + graphs.HostWork(
        5, 4, 8, 8 + 5
    )
    with pytest.raises(ValueError, match="the loops differ"):
        graphs.host_work(thunks[1:], known, 4)


def test_a_kernel_is_read_from_ptx():
    (kernel,) = inspect.read(PTX, PTXAS)
    assert kernel == inspect.Kernel("wide", 4, 16, 40, 20, 1024)
    (unknown,) = inspect.read(PTX.replace("ld.global.nc.v4", "ld.global.nc.v2"), None)
    assert unknown == inspect.Kernel("wide", 4, 8)


@pytest.mark.parametrize(
    ("source", "name", "cause"),
    [
        ("jit(f)/layers_3/mlp/mul", "loop_multiply_fusion", "mlp"),
        ("jit(f)/layers_0/across.across/dot", "gemm_fusion_dot", "across"),
        ("a/write_cache/y", "loop_dynamic_update_slice_fusion", "write the cache"),
        ("jit(f)/scatter", "dynamic_update_slice_fusion", "record the draft"),
        ("jit(f)/reduce_max", "reduce", "readout, sampling and the rest"),
    ],
)
def test_a_kernel_of_a_step_has_a_cause(source, name, cause):
    assert (
        launches.kernel_cause(hlo.Kernel(name, "fusion", "", 8, False, source)) == cause
    )


@pytest.mark.parametrize("device", ["h200", "v5e"])
def test_without_wheels_the_command_is_named(device, monkeypatch):
    for platform in ("gpu", "tpu"):
        monkeypatch.setitem(compilers.WHEELS, platform, ("a-wheel",))
    compilers._placement.cache_clear()
    with pytest.raises(ValueError, match=r"a-wheel is not.*pip install --editable"):
        compilers.compile(jnp.sin, (X,), device=device)
    built = configs.build(ROWS["gpt_97m_6m"])
    with pytest.raises(ValueError, match=r"pip install --editable '\.\[aot\]'"):
        built.row.measurement.run()


def test_what_cannot_be_compiled_or_counted_is_refused():
    with pytest.raises(ValueError, match=r"unknown device 'h2'.*'a100', 'h100', "):
        compilers.compile(jnp.sin, (X,), device="h2")
    with pytest.raises(ValueError, match="unknown device 'h300'"):
        kernels_aot.build("h300", [])
    with pytest.raises(ValueError, match="one tokenizer"):
        launches.build(SMALL_T5, GPT, SETTING)
    with pytest.raises(ValueError, match="gamma must be at least 2"):
        launches.build(GPT, GPT, change(SETTING, gamma=1))


def test_every_line_has_its_program():
    """The files of rows name the programs that the lines of the tables need."""
    lines = catalogue.find_table("kernels_aot").lines
    for device in {line.row for line in lines}:
        built = configs.build(records.row("kernels_aot", device))
        named, programs = built.row.measurement.run.args
        keys = {"{} {} B{} g{} V{} {}".format(*program) for program in programs}
        asked = {it.quantity.partition(":")[0] for it in lines if it.row == device}
        assert named == device and asked <= keys


def test_argmax_is_the_same_by_one_reduction_or_by_two():
    """GPUs and CPUs compute it so: among equal values the first wins, and id 0 where no
    value is finite."""
    rng = np.random.default_rng(0)
    z = rng.integers(-3, 4, (200, 2, 19)).astype(np.float32)
    z[:50, 0, 3:] = -np.inf
    z[7] = -np.inf
    once, twice = (
        jax.jit(probs._top_by_one_reduction)(z),
        jax.jit(probs._top_by_two_reductions)(z),
    )
    jax.tree.map(np.testing.assert_array_equal, once, twice)
    np.testing.assert_array_equal(twice[1], z.argmax(-1))
    last = z.shape[-1] - 1 - z[..., ::-1].argmax(-1)
    assert (last != z.argmax(-1)).any()  # there are equals


# Programs that are known.


def softmax(x):
    """XLA computes it in one kernel where it uses Triton, from compute capability 8.0
    on."""
    return jax.nn.softmax(x)


def softmax_twice(x):
    return jax.lax.optimization_barrier(softmax(x)) * 2


def transpose(x):
    return jax.lax.optimization_barrier(x.T) + 1


def program_of_a_loop():
    """Returns a loop to compile, and its arguments: the next test gives its name."""

    def f(x):
        def body(i, x):
            for _ in range(4):  # enough for a CUDA graph
                x = jax.nn.softmax(x @ x)
            return x

        return jax.lax.fori_loop(0, x[0, 0].astype(jnp.int32), body, x)

    return f, (jax.ShapeDtypeStruct((256, 256), jnp.float32),)


@needs_cuda
def test_a_known_program_launches_what_it_should():
    for device, count in (("h200", 1), ("a100", 1), ("t4", 3)):
        compiled = compilers.compile(softmax, (X,), device=device)
        assert len(compiled.program.kernels) == count and not compiled.program.loops
        assert compiled.argument_bytes == compiled.output_bytes == LEAST
        more = compilers.compile(softmax_twice, (X,), device=device)
        assert len(more.program.kernels) == count + 1
    assert hlo.large_moves(compilers.compile(transpose, (X,)).program, LEAST)
    assert not hlo.large_moves(compilers.compile(softmax_twice, (X,)).program, LEAST)
    # Launches are counted as by XLA's own list of what it runs.
    report = inspect.inspect("tests.experiments.gpu.aot.test_aot:program_of_a_loop")
    assert report.launches == report.counted > report.captured > 0
    assert {kernel.registers is None for kernel in report.kernels} == {False}
    assert max(kernel.widest_load for kernel in report.kernels) == 16


@needs_tpu
def test_a_program_compiles_for_a_tpu_and_a_copy_is_noticed():
    for device in ("v5e", "v6e"):
        compiled = compilers.compile(softmax, (X,), device=device)
        assert compiled.code_bytes > 0 and compiled.program.kernels
        assert not hlo.large_moves(compiled.program, LEAST)

    def relaid(x):
        return jax.lax.optimization_barrier(x.reshape(512, 256)) + 1

    relayout = compilers.compile(relaid, (X,), device="v5e").program
    plain = compilers.compile(lambda x: x + 1, (X,), device="v5e").program
    assert len(relayout.kernels) > len(plain.kernels)


# What the kernels of `pallas_kernels` compile to.

SMALL, LARGE = (1, 5, 32000, "float32"), (64, 5, 128256, "bfloat16")
ON_H200 = [("draft", SMALL, 3), ("both", SMALL, 2), ("draw", SMALL, 3)]
ON_H200 += [("nothing", LARGE, 4)]
ON_TPU = [
    ("draft", SMALL),
    ("nothing", (1, 5, 50257, "bfloat16")),
    ("draft", (8, 5, 32128, "bfloat16")),
    ("draft", (64, 5, 128256, "float32")),
    ("draft", (1, 20, 128256, "float32")),
]


@needs_cuda
def test_mosaic_on_an_h200():
    for known, sizes, count in ON_H200:
        report = kernels_aot.describe("h200", "mosaic_gpu", known, *sizes)
        assert report["launches"] == count, known
        assert report["spills"] == 0 and report["registers"] <= 224
        assert report["widest_load"] == 16 and report["copies"] == 0
        names = {kernel["name"].partition("_mosaic")[0] for kernel in report["kernels"]}
        assert len(names) == count and all(it.startswith("specjax_") for it in names)
        # Both sides in one kernel, and branches that are not taken.
        assert known != "nothing" or report["instructions"] <= 17


@needs_cuda
def test_one_pass_is_chosen_for_older_gpus_and_launches_little():
    for device, most in (("t4", 16), ("a100", 18)):
        report = kernels_aot.describe(device, "auto", "nothing", *SMALL)
        assert report["ran"] == "onepass" and report["launches"] <= most
        assert report["spills"] == 0


@needs_tpu
@pytest.mark.parametrize("device", ["v5e", "v6e"])
def test_one_launch_on_a_tpu(device):
    for known, sizes in ON_TPU:
        report = kernels_aot.describe(device, "auto", known, *sizes)
        assert report["ran"] == "mosaic_tpu", sizes
        assert report["launches"] == 1 and report["copies"] == 0, sizes
    # What does not fit has no kernel.
    report = kernels_aot.describe("v4", "auto", "draft", 1, 5, 256000, "float32")
    assert report["ran"] == "onepass" and report["launches"] == 0


def default_step(device: str, gamma: int, asked: str = "auto") -> hlo.Sequence:
    """Returns a step as a row of walltime times it, with the kernels chosen for a
    device, a bundled pair and the defaults of a setting."""
    both = drafts.pair(pretrained.load("code_target"), "code_small")
    setting = make(
        walltime.WalltimeSetting, temperature=1.0, new_tokens=96, kernels=asked
    )
    pair = costs.Pair(
        *both, 128, fused.for_setting(*both, setting, device=compilers.DEVICES[device])
    )
    prompt, request = walltime.batches(Prompts([[1, 2, 3]]), setting)[0][0]
    state = jax.eval_shape(lambda: costs.begin(pair, gamma, prompt, request))
    step, given = build_step(*pair.decoder(gamma)), pair.params(gamma)
    given = given, request, state
    return compilers.compile(step, given, donate=(2,), device=device).program


def kernels_of_project(sequence: hlo.Sequence) -> list[str]:
    """Returns the names of the launched kernels that are from `pallas_kernels`."""
    matches = (re.search(r"specjax_([a-z]+)", k.name + k.source) for k in sequence)
    return [name[1] for name in matches if name]


@needs_cuda
def test_the_default_step_on_an_h200_launches_the_kernels():
    program = default_step("h200", 5)
    stages = ["statistics", "remainder", "choice"]
    # A draw of the first drafted token, and the verification; a draw a further token.
    assert kernels_of_project(program.kernels) == stages + stages
    (loop,) = (
        x for x in hlo.loops(program) if kernels_of_project(hlo.all_kernels(x.body))
    )
    assert kernels_of_project(hlo.all_kernels(loop.body)) == stages
    assert kernels_of_project(hlo.all_kernels(default_step("h200", 0))) == stages
    assert (
        kernels_of_project(hlo.all_kernels(default_step("h200", 0, "reference"))) == []
    )


# Kernels of a step: upper bounds that only go down, in programs compiled for an H200.

ROWS = records.rows("launches")
SMALL_T5 = t5.Config(
    32128, 512, 1024, 8, 8, 6, 64, pieces=32100, dtype="bfloat16", joined=True
)  # v1.1 small
GPT = gpt.PAPER_6M._replace(dtype="bfloat16", joined=True)
SETTING = launches.LaunchSetting()
# Of a draft step, of a layer of it, and of a step with `pallas_kernels`.
BOUNDS = {"t5": (SMALL_T5, 119, 12.3, 112), "gpt": (GPT, 40, 11.0, 36)}
# Of a target call of gamma + 1 tokens: a layer's, and those besides.
XXL = {"dim": 4096, "mlp_dim": 10240, "num_heads": 64, "encoder_layers": 1}
XXL = SMALL_T5._replace(decoder_layers=3, **XXL)
A_LAYER, BESIDES = 15, 12
VERIFY = 12  # with `pallas_kernels`


def compile_draft(config, asked: str = "reference"):
    side = launches.with_shapes(config)
    given = launches.program_inputs(side, model_source(side), SETTING, asked)
    return launches.compile_draft(given, SETTING), launches.layers(side)


@needs_cuda
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_draft_step_launches_no_more_than_it_did(name):
    config, most, most_a_layer, most_fused = BOUNDS[name]
    compiled, layers = compile_draft(config)
    loop = launches.draft_loop(compiled)
    assert hlo.iteration(loop) <= most
    assert launches.per_layer(loop.body, layers) <= most_a_layer
    assert sum(launches.count_by_cause(loop.body).values()) == len(loop.body.kernels)
    # Products are not taken apart: nothing as large as a matrix is written.
    matrix = config.dim * config.mlp_dim * 2
    written = [k for k in loop.body.kernels if "dynamic_update_slice" not in k.name]
    assert max(kernel.bytes for kernel in written) < matrix
    fused_loop = launches.draft_loop(compile_draft(config, "auto")[0])
    assert hlo.iteration(fused_loop) <= most_fused < most
    assert kernels_of_project(fused_loop.body.kernels)


@needs_cuda
def test_a_target_call_launches_no_more_than_it_did():
    """Matrices are multiplied as one in place, and caches are written in place."""
    side = launches.with_shapes(XXL)
    given = launches.program_inputs(side, model_source(side), SETTING, "reference")
    compiled, layers = (
        launches.compile_target_call(given, SETTING),
        launches.layers(side),
    )
    assert launches.per_layer(compiled.program, layers) <= A_LAYER
    assert launches.total(compiled, SETTING) <= A_LAYER * layers + BESIDES
    assert not hlo.large_moves(compiled.program, XXL.dim * SETTING.slots * 2)
    assert compiled.temp_bytes < 4 * (SETTING.decode.gamma + 1) * XXL.vocab * 4


@needs_cuda
def test_what_is_left_of_a_step_launches_no_more_than_it_did():
    """The host waits once, to ask whether all texts have ended."""
    side = launches.with_shapes(SMALL_T5)
    given = launches.program_inputs(side, model_source(side), SETTING, "auto")
    verify, step = (
        launches.compile_verification(given, SETTING),
        launches.compile_step(given, SETTING),
    )
    assert launches.total(verify, SETTING) <= VERIFY
    told = launches.host_numbers(step, SETTING)
    assert told["host_waits"] == 1 and told["host_graphs"] <= SETTING.decode.gamma + 1
    # A turn of the draft's loop moves its count too, which is not a kernel of the
    # program.
    turns = SETTING.decode.gamma - 1
    launched = told["host_inside"] + told["host_alone"]
    assert launches.total(step, SETTING) <= launched
    assert launched <= launches.total(step, SETTING) + turns


@needs_cuda
def test_a_prefill_copies_no_matrix_and_reads_no_start_token():
    side = launches.with_shapes(XXL)
    given = launches.program_inputs(side, model_source(side), SETTING, "reference")
    prefill = launches.compile_prefill(given, SETTING)
    kernels = list(hlo.all_kernels(prefill.program))
    assert max(kernel.bytes for kernel in kernels) < XXL.dim * XXL.dim * 2
    assert not [kernel for kernel in kernels if "T5.decode" in kernel.source]


# Devices that send each other something.


def test_a_row_needs_its_mesh():
    rows = records.rows("sharding")
    built = configs.build(rows["code_whole"])
    assert built.row.mesh == "data=4,model=2"
    with pytest.raises(ValueError, match="name a mesh"):
        built.row.measurement.run()
    assert weight_shardings(built) == {
        SingleDeviceSharding
    }  # there are too few devices
    here = configs.build(rows["code_whole"]._replace(bindings=("MESH = 'data=1'",)))
    assert weight_shardings(here) == {NamedSharding}


def weight_shardings(built: configs.BuiltRow) -> set[type]:
    """Returns the shardings of the weights with which a row's target was built."""
    target = built.row.measurement.run.args[0]
    return {type(leaf.sharding) for leaf in jax.tree.leaves(target.params)}


TARGET = llama.Config(2048, 1024, 2048, 2, 16, 8, 128, dtype="bfloat16")
DRAFT = TARGET._replace(dim=256, mlp_dim=512, num_layers=1, num_heads=8)
PLAN = Plan(8, 4096, 2, Layout(1, 8, 8))
BEGUN = re.compile(rf" (?:{'|'.join(collectives.KINDS)})(?:-start)?\(")


def predicted_bytes(target: llama.Config) -> int:
    return forms.device(forms.sizes(target), forms.sizes(DRAFT), PLAN)["total"]


@pytest.mark.parametrize(
    "name",
    [pytest.param("v5e", marks=needs_tpu), pytest.param("h100", marks=needs_cuda)],
)
def test_a_step_takes_what_is_predicted_and_all_that_it_sends_is_found(name):
    with mesh.using("model=8,draft=8", compilers.topology(name, CHIPS[name].slice)):
        with compilers.without_cache():
            step = steps.lower_step(TARGET, DRAFT, PLAN).compile()
    text, taken = step.as_text(), steps.device_bytes(step)
    assert taken["argument_bytes"] == pytest.approx(predicted_bytes(TARGET), rel=0.03)
    found = collectives.count_collectives(
        text, PLAN.gamma
    )  # a loop over drafts runs once
    assert found["collectives"] == len(BEGUN.findall(text))
    sums = 2 * 2 + 1 + 2 * (2 * 1 + 1)  # of the target's call, and of two of the draft
    assert found["all_reduce"] >= sums


@needs_tpu
def test_what_does_not_fit_says_what_it_needs():
    large = TARGET._replace(mlp_dim=2**24)
    told = steps.step(large, DRAFT, plan=PLAN, chip="v5e")
    assert not told["fits"]
    assert told["bytes"] == pytest.approx(predicted_bytes(large), rel=0.05)
