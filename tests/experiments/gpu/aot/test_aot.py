"""Programs compiled for accelerators that are not there, and what is read from them.

What needs the compilers is skipped without their wheels; the reader of HLO is not.
"""

import jax
import jax.numpy as jnp
import pytest

from experiments.gpu.aot import compilers, hlo, inspect
from tests.experiments.gpu.aot import needs_cuda, needs_tpu

X = jax.ShapeDtypeStruct((256, 512), jnp.float32)

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
  ROOT %r = (s32[], f32[8,64]{1,0}) tuple(%i, %y)
}

%condition (d: (s32[], f32[8,64])) -> pred[] {
  %d = (s32[], f32[8,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] fusion(%j, %n), kind=kLoop, calls=%fused_add
}

ENTRY %main (arg: f32[64,8]) -> f32[8,64] {
  %arg = f32[64,8]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %copy.1 = s32[] copy(%zero)
  %turned = f32[8,64]{1,0} fusion(%arg), kind=kLoop, calls=%fused_copy
  %begun = (s32[], f32[8,64]{1,0}) tuple(%copy.1, %turned)
  %while.1 = (s32[], f32[8,64]{1,0}) while(%begun), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %out = f32[8,64]{1,0} get-tuple-element(%while.1), index=1
}
"""  # noqa: E501
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


def names(sequence):
    return [kernel.name for kernel in sequence.kernels]


def test_what_a_module_launches_is_read_from_its_text():
    program = hlo.read(TEXT)
    assert names(program) == ["copy.1", "turned"]
    (loop,) = hlo.loops(program)
    assert (loop.name, loop.trips, hlo.iteration(loop)) == ("while.1", 3, 3)
    assert names(loop.body) == ["add.1", "gemm"]
    gemm = loop.body.kernels[1]
    assert gemm.target == "__cublas$gemm" and gemm.source == "jit(f)/layers_1/dot"
    assert gemm.bytes == 8 * 64 * 4 + 16
    assert [k.name for k in hlo.large_moves(program, 2048)] == ["turned"]
    assert not hlo.large_moves(program, 2049)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%x), kind=kLoop, calls=%fused_add", "%x), kind=kLoop, calls=%fused_copy"),
        (" parameter(0)\n  %zero", " parameter(0)\n  %more = f32[64,8] copy(%arg)\n"),
        ('"n":"3"', '"n":"4"'),
    ],
)
def test_the_reader_notices_another_program(old, new):
    assert old in TEXT
    assert hlo.read(TEXT.replace(old, new)) != hlo.read(TEXT)


def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.read(TEXT[: TEXT.index("ENTRY")])


def test_a_kernel_is_read_from_ptx():
    (kernel,) = inspect.read(PTX, PTXAS)
    assert kernel == inspect.Kernel("wide", 4, 16, 40, 20, 1024)
    (unknown,) = inspect.read(PTX.replace("ld.global.nc.v4", "ld.global.nc.v2"), None)
    assert unknown == inspect.Kernel("wide", 4, 8)


def test_launches_in_command_buffers_are_told_apart():
    text = (
        "001: kCopy [source | next] kCopy\n"
        "002: kWhile [prev | sink]\n"
        "condition:\n"
        "    003: kCustomKernel [source | sink] compare grid: [1, 1, 1]\n"
        "  body:\n"
        "    000: kCommandBuffer [source | sink]\n"
        "        004: kCustomKernel [source | next] gemm grid: [1, 1, 1]\n"
        "        005: kCustomCall [prev | sink] kCustomCall\n"
        "    006: kCustomKernel [source | sink] add grid: [1, 1, 1]\n"
    )
    assert inspect.thunks(text) == (5, 2)


@pytest.mark.parametrize("device", ["h200", "v5e"])
def test_without_wheels_the_command_is_named(device, monkeypatch):
    monkeypatch.setitem(compilers.WHEELS, "gpu", ("a-wheel",))
    monkeypatch.setitem(compilers.WHEELS, "tpu", ("a-wheel",))
    compilers._placed.cache_clear()
    with pytest.raises(ValueError, match=r"a-wheel is not.*pip install --editable"):
        compilers.compile(jnp.sin, (X,), device)


def softmax(x):
    """One kernel of XLA's where Triton is, from compute capability 8.0 on."""
    return jax.nn.softmax(x)


def twice(x):
    return jax.lax.optimization_barrier(softmax(x)) * 2


def turned(x):
    return jax.lax.optimization_barrier(x.T) + 1


@needs_cuda
@pytest.mark.parametrize(("device", "count"), [("h200", 1), ("a100", 1), ("t4", 3)])
def test_a_known_program_launches_what_it_should(device, count):
    compiled = compilers.compile(softmax, (X,), device)
    assert len(compiled.program.kernels) == count and not compiled.program.loops
    assert compiled.argument_bytes == compiled.output_bytes == 256 * 512 * 4
    more = compilers.compile(twice, (X,), device)
    assert len(more.program.kernels) == count + 1


@needs_cuda
def test_a_copy_is_noticed():
    least = 256 * 512 * 4
    assert hlo.large_moves(compilers.compile(turned, (X,)).program, least)
    assert not hlo.large_moves(compilers.compile(twice, (X,)).program, least)


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match=r"unknown device 'h2'.*'a100', 'h200', 't4'"):
        compilers.compile(softmax, (X,), "h2")


def looped():
    """What `inspect` compiles in the next test."""

    def f(x):
        def body(i, x):
            for _ in range(4):  # enough for a CUDA graph
                x = jax.nn.softmax(x @ x)
            return x

        return jax.lax.fori_loop(0, x[0, 0].astype(jnp.int32), body, x)

    return f, (jax.ShapeDtypeStruct((256, 256), jnp.float32),)


@needs_cuda
def test_kernels_are_counted_as_they_are_launched():
    """By XLA's own list of what it runs."""
    report = inspect.inspect("tests.experiments.gpu.aot.test_aot:looped")
    assert report.launches == report.counted > report.captured > 0
    assert {kernel.registers is None for kernel in report.kernels} == {False}
    assert max(kernel.widest_load for kernel in report.kernels) == 16


@needs_tpu
@pytest.mark.parametrize("device", ["v5e", "v6e"])
def test_a_program_compiles_for_a_tpu(device):
    compiled = compilers.compile(softmax, (X,), device)
    assert compiled.code_bytes > 0 and compiled.program.kernels
    assert not hlo.large_moves(compiled.program, 256 * 512 * 4)


@needs_tpu
def test_a_copy_is_noticed_on_a_tpu():
    def relaid(x):
        return jax.lax.optimization_barrier(x.reshape(512, 256)) + 1

    relayout = compilers.compile(relaid, (X,), "v5e").program
    kernels = len(compilers.compile(lambda x: x + 1, (X,), "v5e").program.kernels)
    assert len(relayout.kernels) > kernels
