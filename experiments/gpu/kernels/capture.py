"""Checks whether XLA puts the launches of a loop and of a verification into CUDA graphs
("command buffers").

The launches of a GPU are read from the list of thunks that XLA dumps
(`gpu.aot.inspect`). On a CPU there are none: not applicable.
"""

import json
from collections.abc import Callable

import jax
import jax.numpy as jnp

from experiments.gpu.aot import inspect
from experiments.gpu.kernels import inputs, programs
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON
from specjax import fused, generate
from specjax.checkpoints import Pretrained
from specjax.drafts.models import model_source
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import costs
from specjax.measure.row import Measurement
from specjax.models import gpt
from specjax.verifiers import token

SHAPE = inputs.Shape(1, 5, 32000)
NAMES = programs.REF, programs.ONEPASS, MOSAIC_GPU, TRITON, "loop"
MODEL = gpt.Config(vocab=512, dim=64, mlp_dim=128, num_layers=2, num_heads=2)
SECONDS = 120
NOT_ON_CPU = "not applicable: a CPU has no command buffers"


def build() -> Measurement:
    return Measurement(measure, __name__)


def measure() -> dict:
    """Returns, by program, its launches and how many are in graphs, or why that is
    unknown.
    """
    if jax.devices()[0].platform != "gpu":
        return dict.fromkeys(NAMES, NOT_ON_CPU)
    findings = {}
    for name in NAMES:
        named = f"{__name__}:program:{json.dumps([name])}"
        try:
            report = inspect.inspect(named, inspect.HERE, seconds=SECONDS)
            counts = f"{report.captured} of {report.launches}"
            findings[name] = f"{counts} launches in CUDA graphs"
        except RuntimeError as error:
            findings[name] = f"not known: {' '.join(str(error).split())[-300:]}"
    return findings


def program(name: str) -> tuple[Callable, tuple]:
    """Returns the function to compile and run, and its arguments: a verification, or
    decoding with a small model as target and draft, with the default kernels.
    """
    if name != "loop":
        place = programs.find_device(dry=False, how="")
        (batch,) = inputs.make_sets(SHAPE, 0.7, count=1)
        return programs.program(name, programs.NONE, shape=SHAPE, place=place).call, (
            batch,
        )
    model = gpt.build(MODEL)
    params = jax.tree.map(lambda x: jnp.full(x.shape, 0.01, jnp.float32), model.shapes)
    small = Pretrained("small", None, model, params)
    sizes = fused.Sizes(1, 3, MODEL.vocab)
    chosen = fused.choose(fused.AUTO, token.verifier, sizes)
    pair = costs.Pair(small, model_source(small), 32, chosen)
    prompt = make_prompt([[1, 2, 3]])
    request = make_request(root_key(0), prompt, 16, make_sampling(1, 1.0))
    run = generate.build_loop(pair.decoder(3), pair.slots)
    return run, (pair.params(3), prompt, request)
