"""What is GPT's alone: its published sizes, and its weights over several devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive
from specjax.models import gpt
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny
from tests.support.model_cases import compiled


@pytest.mark.parametrize(
    ("config", "count"), [(gpt.PAPER_97M, 97_222_656), (gpt.PAPER_6M, 5_668_864)]
)
def test_the_papers_pair_has_the_papers_sizes(config, count):
    """97M and 6M (Section 4.2): 2 V E + layers (4 E^2 + 2 E F)."""
    layer = 4 * config.dim**2 + 2 * config.dim * config.mlp_dim
    assert count == 2 * config.vocab * config.dim + config.num_layers * layer
    assert gpt.num_params(config) == count


def test_learned_positions_are_a_limit_and_rotary_ones_are_none():
    learned = LEARNED._replace(positions=16)
    assert (gpt.build(tiny.TARGET).slots, gpt.build(learned).slots) == (None, 16)


LEARNED, POSITIONS, KNOWN, GAMMA = tiny.TARGET._replace(learned=True), 16, 9, 3


def test_texts_are_written_to_the_last_position_by_drafts_that_know_fewer():
    """The draft is the target, cut: it is right as far as its positions go."""
    target = gpt.build(LEARNED._replace(positions=POSITIONS))
    draft = gpt.build(LEARNED._replace(positions=KNOWN))
    params = tiny.weights(LEARNED._replace(positions=POSITIONS), 1)
    cut = params | {"positions": params["positions"][:KNOWN]}
    prompt = inputs.make_prompt([[3, 1], [4, 1, 5, 9]])
    request = inputs.make_request(
        jax.random.key(0), prompt, 1, inputs.make_sampling(2, 0.0)
    )
    request = request._replace(limit=jnp.full(2, POSITIONS))
    decoder = Decoder(target, autoregressive.build(draft, GAMMA))
    slots = POSITIONS + GAMMA + 1
    inputs.check(decoder, slots, Params(params, cut), prompt, request)
    run = jax.jit(generate.build_loop(decoder, slots))
    output = run(Params(params, cut), prompt, request)
    text = output.tokens[:, :POSITIONS]
    logits, _ = compiled(target)(params, text, np.zeros(2, np.int32), None)
    best = np.argmax(logits, axis=-1)
    for row, start in enumerate(np.asarray(prompt.length)):
        np.testing.assert_array_equal(text[row, start:], best[row, start - 1 : -1])
        # Every draft is kept: one that reads the last known position is the last.
        length, calls, drafted = int(start), 0, 0
        while length < POSITIONS:
            num = max(0, min(GAMMA, KNOWN + 1 - length))
            length, calls, drafted = length + num + 1, calls + 1, drafted + num
        assert output.counts.calls[row] == calls
        assert output.counts.drafted[row] == drafted


SHARDED = """
import flax.linen as nn, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from specjax import generate, inputs
from specjax.models import gpt
from tests import conftest
from tests.support import tiny
from tests.support.drafter_cases import BY_NAME

world, case = tiny.transformers(), BY_NAME["autoregressive"]
prompt = inputs.make_prompt([[1, 2, 3], [4]])
sampling = inputs.make_sampling(2, 1.0)
request = inputs.make_request(jax.random.key(0), prompt, 12, sampling)
run = jax.jit(generate.build_loop(case.decoder(world, 3), 20))
plain = run(case.params(world), prompt, request)

mesh = Mesh(np.array(jax.devices()).reshape(1, 2), ("data", "model"))
rules = [("batch", "data"), ("vocab", "model"), ("mlp", "model"), ("embed", None),
         ("joined_heads", "model"), ("heads", "model"), ("slots", None)]
boxed = jax.eval_shape(lambda: gpt.init_params(jax.random.key(0), tiny.TARGET))
specs = nn.get_partition_spec(boxed)
params = case.params(world)
vocab = tiny.TARGET.vocab  # odd: its two matrices stay whole
def place(leaf, spec):
    axes = nn.logical_to_mesh_axes(spec, rules)
    whole = vocab in leaf.shape
    return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec() if whole else axes))
params = jax.tree.map(lambda tree: jax.tree.map(place, tree, specs), params,
                      is_leaf=lambda node: isinstance(node, dict))
kernel = params.target["layers_0"]["mlp"]["in"]["kernel"]
assert kernel.addressable_shards[0].data.shape == (16, 16), kernel.sharding
with mesh, nn.logical_axis_rules(rules):
    run = jax.jit(generate.build_loop(case.decoder(world, 3), 20))
    spread = run(params, prompt, request)
jax.tree.map(np.testing.assert_array_equal, plain, spread)
print("same")
"""


@pytest.mark.slow
def test_two_devices_write_the_same_text():
    """Weights split by their axis names over a mesh: only the placement changes."""
    devices = "--xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        env=os.environ | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("same\n"), done.stderr[-2000:]
