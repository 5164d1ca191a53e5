"""Kernels of a step: upper bounds that only go down, in programs compiled for an H200.

Skipped where the compiler's wheels are not installed, but for what needs none.
"""

import jax
import numpy as np
import pytest

from experiments import catalogue
from experiments.gpu.aot import compilers, hlo, launches
from experiments.gpu.aot.launches import LaunchSetting
from experiments.records import records
from specjax import configs, probs
from specjax.models import gpt, t5
from tests.experiments.gpu.aot import needs_cuda

ROWS = records.rows("launches")
SMALL = t5.Config(
    32128, 512, 1024, 8, 8, 6, 64, pieces=32100, dtype="bfloat16", joined=True
)  # v1.1 small
GPT = gpt.PAPER_6M._replace(dtype="bfloat16", joined=True)
SETTING = LaunchSetting()
# Of a draft step, and of a layer of it.
BOUNDS = {"t5": (SMALL, 119, 12.3), "gpt": (GPT, 40, 11.0)}
# And with the kernels of `pallas_kernels`.
FUSED = {"t5": 112, "gpt": 36}
# Of a target call of gamma + 1 tokens: a layer's, and those besides.
XXL = SMALL._replace(
    dim=4096, mlp_dim=10240, num_heads=64, encoder_layers=1, decoder_layers=3
)
A_LAYER, BESIDES = 15, 12


def drafting(config, asked: str = "reference"):
    side = launches.as_shapes(config)
    given = launches.given(side, side, SETTING, asked)
    return launches.drafting(given, SETTING), launches.layers(side)


@needs_cuda
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_draft_step_launches_no_more_than_it_did(name):
    config, most, most_a_layer = BOUNDS[name]
    compiled, layers = drafting(config)
    loop = launches.drafted(compiled)
    assert hlo.iteration(loop) <= most
    assert launches.per_layer(loop.body, layers) <= most_a_layer
    assert sum(launches.by_cause(loop.body).values()) == len(loop.body.kernels)
    # Products are not taken apart: nothing as large as a matrix is written.
    matrix = config.dim * config.mlp_dim * 2
    caches = ("dynamic_update_slice",)
    written = [k for k in loop.body.kernels if not any(c in k.name for c in caches)]
    assert max(kernel.bytes for kernel in written) < matrix


@needs_cuda
def test_a_target_call_launches_no_more_than_it_did():
    """Matrices are multiplied as one where they lie, and caches written in place."""
    side = launches.as_shapes(XXL)
    given = launches.given(side, side, SETTING, "reference")
    compiled, layers = launches.scoring(given, SETTING), launches.layers(side)
    assert launches.per_layer(compiled.program, layers) <= A_LAYER
    total = launches.total(compiled, SETTING)
    assert total <= A_LAYER * layers + BESIDES
    assert not hlo.large_moves(compiled.program, XXL.dim * SETTING.slots * 2)
    rows, laws = SETTING.gamma + 1, XXL.vocab * 4
    assert compiled.temp_bytes < 4 * rows * laws  # nothing as large as a matrix


@needs_cuda
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_fused_draft_step_launches_fewer(name):
    """Law and token come from the project's kernels."""
    config, plain, _ = BOUNDS[name]
    compiled, _ = drafting(config, "auto")
    loop = launches.drafted(compiled)
    assert hlo.iteration(loop) <= FUSED[name] < plain
    assert any("specjax_" in k.name + k.source for k in loop.body.kernels)


@needs_cuda
def test_layers_apart_write_a_cache_each():
    compiled, layers = drafting(GPT._replace(joined=False))
    joined, _ = drafting(GPT)
    apart, together = (
        launches.by_cause(launches.drafted(step).body)["write the cache"]
        for step in (compiled, joined)
    )
    assert (apart, together) == (2 * layers, 1)
    # Nor is it copied, also where several tokens are written, before the loop.
    whole = layers * SETTING.slots * GPT.dim * 2
    assert not hlo.large_moves(joined.program, whole)


@needs_cuda
def test_a_further_kernel_is_noticed(monkeypatch):
    """The bound is of one token of one row: two tokens a call are more kernels."""
    config, most, _ = BOUNDS["gpt"]
    monkeypatch.setattr("specjax.models.lowering._repeat", lambda row: row)
    compiled, _ = drafting(config)
    assert hlo.iteration(launches.drafted(compiled)) > most


@needs_cuda
def test_a_whole_step_is_its_parts_and_less():
    side = launches.as_shapes(GPT)
    counts = launches.count(side, side, SETTING)
    drafts = counts["draft_first"] + 4 * counts["draft_step"]
    apart = drafts + counts["target_step"] + counts["verify"]
    assert 0.8 * apart < counts["spec_step"] < 1.1 * apart
    for name in ("draft_step", "verify", "spec_step"):
        assert counts[f"{name}_fused"] <= counts[name]
    assert counts["weight_bytes"]["draft"] == 2 * gpt.num_params(GPT)


def test_argmax_is_the_same_by_one_reduction_or_by_two():
    """What a GPU computes, and a CPU: of equals, the first; of no finite one, id 0."""
    rng = np.random.default_rng(0)
    z = rng.integers(-3, 4, (200, 2, 19)).astype(np.float32)
    z[:50, 0, 3:] = -np.inf
    z[7] = -np.inf
    once, twice = jax.jit(probs._top_once)(z), jax.jit(probs._top_twice)(z)
    jax.tree.map(np.testing.assert_array_equal, once, twice)
    np.testing.assert_array_equal(twice[1], z.argmax(-1))
    last = z.shape[-1] - 1 - z[..., ::-1].argmax(-1)
    assert (last != z.argmax(-1)).any()  # there are equals


def test_without_the_compiler_the_command_is_named(monkeypatch):
    monkeypatch.setitem(compilers.WHEELS, "gpu", ("a-wheel",))
    built = configs.build(ROWS["gpt_97m_6m"])
    with pytest.raises(ValueError, match=r"pip install --editable '\.\[aot\]'"):
        built.row.measurement.run()


def test_every_row_is_in_the_table():
    lines = catalogue.named("launches").lines
    assert {line.row for line in lines} == ROWS.keys()


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="one tokenizer"):
        launches.build(SMALL, GPT, SETTING)
    with pytest.raises(ValueError, match="gamma must be at least 2"):
        launches.build(GPT, GPT, SETTING._replace(gamma=1))


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
def test_a_kernel_has_a_cause(source, name, cause):
    assert launches.cause(hlo.Kernel(name, "fusion", "", 8, False, source)) == cause
