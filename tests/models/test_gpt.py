"""What is GPT's alone: learned positions, and its weights over several devices."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.drafters import autoregressive, tree
from specjax.models import gpt
from specjax.step import Decoder
from specjax.types import Params
from specjax.verifiers import recursive, token
from tests.support import tiny
from tests.support.model_cases import compiled

LEARNED, POSITIONS, KNOWN, GAMMA = tiny.TARGET._replace(learned=True), 16, 9, 3


@pytest.mark.parametrize(
    ("build", "rule", "counts"),
    [
        (partial(autoregressive.build, gamma=GAMMA), token.verifier, [6, 5]),
        (partial(tree.build, parent=(-1, 0, 1)), recursive.verifier, [6, 3]),
    ],
    ids=["chain", "tree"],
)
def test_texts_are_written_to_the_last_position_by_drafts_that_know_fewer(
    build, rule, counts
):
    """The draft is the target, cut: it is right as far as its positions go. A tree is
    drafted whole or not at all."""
    target = gpt.build(LEARNED._replace(positions=POSITIONS))
    assert (gpt.build(tiny.TARGET).slots, target.slots) == (None, POSITIONS)
    draft = gpt.build(LEARNED._replace(positions=KNOWN))
    params = tiny.weights(LEARNED._replace(positions=POSITIONS), 1)
    cut = params | {"positions": params["positions"][:KNOWN]}
    prompt = inputs.make_prompt([[3, 1], [4, 1, 5, 9]])
    sampling = inputs.make_sampling(2, 0.0)
    request = inputs.make_request(jax.random.key(0), prompt, 1, sampling)
    request = request._replace(limit=jnp.full(2, POSITIONS))
    decoder = Decoder(target, build(draft), rule)
    slots = POSITIONS + GAMMA + 1
    inputs.check(decoder, slots, Params(params, cut), prompt, request)
    run = jax.jit(generate.build_loop(decoder, slots))
    output = jax.device_get(run(Params(params, cut), prompt, request))
    text = output.tokens[:, :POSITIONS]
    logits, _ = compiled(target)(params, text, np.zeros(2, np.int32), None)
    tiny.check_greedy(output, prompt.length, logits, least=3)
    # Every draft is kept: one that reads the last known position is the last.
    drafted, accepted = output.counts.drafted, output.counts.accepted
    assert drafted.tolist() == accepted.tolist() == counts


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
"""


@pytest.mark.slow
def test_two_devices_write_the_same_text():
    """Weights split by their axis names over a mesh: only the placement changes."""
    devices = "--xla_force_host_platform_device_count=2"
    env = os.environ | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu"}
    command, root = [sys.executable, "-c", SHARDED], Path(__file__).resolve().parents[2]
    subprocess.run(command, env=env, cwd=root, check=True)
