"""Tests run on the CPU, with exact matrix products; a compilation is kept for the next
run, in `.jax_cache/` of the repository root.

`--compile-quickly`, as `make test` has it, takes the older of XLA's two ways to emit
code for a CPU, which takes half the time where LLVM optimizes little; `make test-core`
and the slow tests compile as a user does.

Modules in QUICK ask what programs do and not how they are compiled, and compile for
longer than they run: there LLVM optimizes little. Kernels are interpreted here anyway.
What certifies a verifier is compiled as it would be elsewhere.
"""

import os
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

QUICK = {
    "tests": {"finite", "generate", "inputs", "loop", "readme", "text"},
    "bench": {"walltime", "walltime_t5"},
    "checkpoints": {"errors", "huggingface", "parity_llama", "reading", "t5x"},
    "commands": {
        "compare",
        "demo",
        "families",
        "kernels_choice",
        "kernels_used",
        "measure",
    },
    "drafters": {"drafters"},
    "exactness": {"properties"},
    "golden": {"golden"},
    "kernels": {"bench", "dispatch", "fused"},
    "leviathan": {"alpha", "figure1", "lenience", "operations", "quality"},
    "models": {"gpu", "models", "t5", "t5_decoding"},
    "paper_size": {"gpu_checks", "gpu_script", "paper_size"},
    "records": {"run"},
    "report": {"tables"},
    "theory": {"predict"},
    "training": {"counts", "finetune", "grow", "loop", "targets"},
    "verifiers": {"lenient", "pathwise", "sigmoid"},
    "wagner": {"wagner"},
}

CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_addoption(parser: pytest.Parser) -> None:
    of_flag = "XLA's older emitters for CPUs: less time to compile"
    parser.addoption("--compile-quickly", action="store_true", help=of_flag)


def pytest_configure(config: pytest.Config) -> None:
    # A release of XLA that does not know a flag ends the process.
    if config.getoption("--compile-quickly") and version("jax").startswith("0.10."):
        flags = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_use_fusion_emitters=false"
        os.environ["XLA_FLAGS"] = " ".join(flags)


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly(request):
    folder, _, name = request.module.__name__.rpartition(".test_")
    quickly = name in QUICK.get(folder.rpartition(".")[2], ())
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quickly)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()  # a worker would hold the programs of all modules
