"""Tests run on the CPU with exact matrix products, and keep compiled programs for the
next run in `.jax_cache/` of the repository root.

`--compile-quickly`, as `make` has it for all tests, takes the older of XLA's two ways
to emit code for a CPU, which takes half the time where LLVM optimizes little. Rows of
`make tables` compile as a user does, and so do the notebooks. `--part 2/3` runs the
second third of the files, by their names.

Modules ask what programs do and not how they are compiled, and most compile for longer
than they run: LLVM does not optimize there, but for those in FULLY. Without the flag
what certifies a verifier is compiled as it would be elsewhere.
"""

import ctypes
import gc
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["SPECJAX_COMPILATION_CACHE"] = "off"  # of processes that tests start

import jax
import pytest

# Modules, or folders of them, that run for longer than they compile.
FULLY = (
    "tests.exactness.test_audit",
    "tests.exactness.test_goodness",
    "tests.exactness.test_pairs",
    "tests.exactness.test_sampled",
    "tests.exactness.test_soak",
    "tests.native.test_product",
    "tests.native.test_library",
    "tests.quantized",
    "tests.verifiers.test_token",
)

# A program is no 32 modules of LLVM, which take threads that other workers have, and a
# third more time in all.
IN_ONE_PART = "--xla_cpu_parallel_codegen_split_count=1"

CACHE = Path(__file__).resolve().parent.parent / ".jax_cache"

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_addoption(parser: pytest.Parser) -> None:
    of_flag = "XLA's older emitters for CPUs: less time to compile"
    parser.addoption("--compile-quickly", action="store_true", help=of_flag)
    parser.addoption("--part", default="1/1", help="K/N: part K of N of the files")


def pytest_configure(config: pytest.Config) -> None:
    # A release of XLA that does not know a flag ends the process.
    if version("jax").startswith("0.10."):
        flags = [os.environ.get("XLA_FLAGS", ""), IN_ONE_PART]
        if config.getoption("--compile-quickly"):
            flags.append("--xla_cpu_use_fusion_emitters=false")
        os.environ["XLA_FLAGS"] = " ".join(flags).lstrip()
    gc.set_threshold(20_000)  # traces leave much that is soon free


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    for item in items:  # `make test-parity` runs them, which installs what they need
        if item.path.name.startswith("test_parity_"):
            item.add_marker(pytest.mark.slow)
    part, parts = map(int, config.getoption("--part").split("/"))
    chosen = [zlib.crc32(x.path.name.encode()) % parts == part % parts for x in items]
    left_out = [x for x, is_chosen in zip(items, chosen, strict=True) if not is_chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [x for x, is_chosen in zip(items, chosen, strict=True) if is_chosen]


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported stays: later collections pass over it


@pytest.fixture
def refused(capsys):
    """(a command's `main`, its flags) -> the one line that it ends with."""

    def line(main: Callable, flags: Sequence[str]) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, flags)])
        printed = capsys.readouterr()
        assert stopped.value.code == 2 and printed.out == "", printed.err
        assert printed.err.count("\n") == 1 and len(printed.err) < 600
        return printed.err

    return line


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly(request):
    name, fully = f"{request.module.__name__}.", FULLY
    if not request.config.getoption("--compile-quickly"):
        fully = *FULLY, "tests.exactness.test_certify"
    quickly = not name.startswith(tuple(f"{each}." for each in fully))
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quickly)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    # A worker would hold the programs of all modules.
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":  # glibc keeps what was freed
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
