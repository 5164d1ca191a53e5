"""Runs one small verification under NVIDIA's compute-sanitizer, where that is on PATH.

python -m experiments.gpu.kernels.sanitize        one call of every kernel, nothing more
"""

import shutil
import subprocess
import sys
from functools import partial

import jax

from experiments.gpu.kernels import inputs, oracle, programs
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON
from specjax.measure.row import Measurement

TOOL = "compute-sanitizer"
KINDS = "memcheck", "racecheck"
SHAPE = inputs.Shape(1, 2, 1000)
FOUND = 9  # the exit status of a kernel's fault, apart from one of the program
SECONDS = 240


def build() -> Measurement:
    return Measurement(partial(measure, [sys.executable, "-m", __name__]), __name__)


def measure(command: list[str], seconds: int = SECONDS) -> dict:
    """Returns, by kind of check, "clean", the findings, or why the check was not
    made."""
    outcomes, tool = {}, shutil.which(TOOL)
    if tool is None:
        return dict.fromkeys(KINDS, f"not run: {TOOL} is not on PATH")
    for kind in KINDS:
        whole = [tool, "--tool", kind, "--error-exitcode", str(FOUND), *command]
        options = {"capture_output": True, "text": True, "timeout": seconds}
        try:
            done = subprocess.run(whole, **options)
        except subprocess.TimeoutExpired:
            outcomes[kind] = f"not run: took longer than {seconds} s"
            continue
        tail = " ".join((done.stdout + done.stderr).split())[-300:]
        outcome = {0: "clean", FOUND: f"found: {tail}"}
        outcomes[kind] = outcome.get(done.returncode, f"not run: {tail}")
    return outcomes


def main() -> None:
    """Calls every kernel once; raises ValueError if one is wrong."""
    place, (batch,) = (
        programs.find_device(True, ""),
        inputs.make_sets(SHAPE, 0.7, count=1),
    )
    for name in (MOSAIC_GPU, TRITON):
        program = programs.program(name, programs.NONE, shape=SHAPE, place=place)
        n, tokens = jax.device_get(jax.jit(program.call)(batch))
        answer = inputs.answer(batch)
        if fault := oracle.find_error(answer, batch.tokens, n=n, tokens=tokens):
            raise ValueError(f"{name}: {fault}")
        print(f"{name}: right")


if __name__ == "__main__":
    main()
