"""Whether XLA puts launches into CUDA graphs ("command buffers"): loop, verification.

    python -m experiments.gpu.kernels.capture NAME        compiles and runs one program

What a GPU launches is read from the list of thunks that XLA dumps, in a process of its
own, as dumping is a setting of a process. On a CPU there are none: not applicable.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.gpu.aot import inspect
from experiments.gpu.kernels import inputs, programs
from pallas_kernels import onepass
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON
from specjax import fused, generate, probs
from specjax.drafters import autoregressive
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.measure.row import Measurement
from specjax.models import gpt
from specjax.step import Decoder
from specjax.verifiers import token

SHAPE = inputs.Shape(1, 5, 32000, "float32")
TRIAL = inputs.Shape(1, 2, 600, "float32")
NAMES = "ref_jnp", "onepass", MOSAIC_GPU, TRITON, "loop"
MODEL = gpt.Config(vocab=512, dim=64, mlp_dim=128, num_layers=2, num_heads=2)
SECONDS = 120
NOT_ON_CPU = "not applicable: a CPU has no command buffers"


def build() -> Measurement:
    return Measurement(measure, __name__)


def measure() -> dict:
    """By program: launches and those captured, or why it is not told."""
    if jax.devices()[0].platform != "gpu":
        return dict.fromkeys(NAMES, NOT_ON_CPU)
    return {name: counted(name) for name in NAMES}


def counted(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_emitter_re=.*"
        own = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
        own["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        own["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # nothing kept is dumped
        command = [sys.executable, "-m", __name__, name]
        options = dict(capture_output=True, text=True, timeout=SECONDS)
        try:
            done = subprocess.run(command, env=os.environ | own, **options)
        except subprocess.TimeoutExpired:
            return f"not told: took longer than {SECONDS} s"
        if done.returncode:
            return f"not told: {' '.join(done.stderr.split())[-300:]}"
        return told(Path(folder), name)


def told(folder: Path, name: str) -> str:
    """From the dumped thunks of the program `measured_<name>`."""
    kinds = "*thunk_sequence_after*.txt", "*thunk_sequence.txt"
    for kind in kinds:
        files = [p for p in sorted(folder.glob(kind)) if f"measured_{name}" in p.name]
        if files:
            launches, captured = inspect.thunks(files[-1].read_text("utf-8"))
            return f"{captured} of {launches} launches in CUDA graphs"
    return "not told: XLA dumped no list of thunks"


def program(name: str) -> tuple[Callable, tuple]:
    """A program and its arguments."""
    place = programs.here()
    if name == "loop":
        return loop()
    shape = TRIAL if place.interpreted else SHAPE
    batch = inputs.sets(shape, 0.7, 1)[0]
    plain = {"ref_jnp": probs.standardize, "onepass": onepass.standardize}
    if name in plain:
        return programs.reading(plain[name], programs.NONE), (batch,)
    return programs.kernel(name, programs.NONE, shape, place).call, (batch,)


def loop() -> tuple[Callable, tuple]:
    """Decoding with a small model as target and draft, random weights, by the kernels
    that are the default here."""
    model = gpt.build(MODEL)
    params = jax.tree.map(lambda x: jnp.full(x.shape, 0.01, jnp.float32), model.shapes)
    sizes = fused.Sizes(1, 3, MODEL.vocab)
    chosen = fused.choose(fused.AUTO, token.verifier, sizes)
    drafter = autoregressive.build(model, 3, chosen.draw)
    parts = Decoder(model, drafter, chosen.verifier)
    prompt = make_prompt([[1, 2, 3]])
    sampling = make_sampling(1, 1.0)
    key = jax.random.split(jax.random.key(0), 1)
    request = make_request(key, prompt, 16, sampling)
    both = generate.Params(params, params)
    return generate.build_loop(parts, 32), (both, prompt, request)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu.kernels.capture")
    parser.add_argument("name", choices=NAMES)
    name = parser.parse_args(arguments).name
    call, operands = program(name)

    def run(*operands):
        return call(*operands)

    run.__name__ = f"measured_{name}"  # the name of the module that is dumped
    jax.block_until_ready(jax.jit(run)(*operands))
    print(f"{name}: ran")


if __name__ == "__main__":
    main()
