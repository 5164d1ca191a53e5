"""Native products of 1 to 9 rows with the matrices of a layer, on one thread, and loops
of multiplications and additions in registers, timed in turns in one process. Numbers:

- `peak_gflops`, `peak_levels_gops`: 10^9 operations a second of the loops, of floats
  and of whole numbers of 16 bits; a multiplication and an addition are two;
- `DTYPE_M`: those of the products of M rows, over those of the loop of the dtype;
- `DTYPE_gflops`: those of 9 rows;
- `DTYPE_gb`: gigabytes of weights a second, of one row.

A time is the least of the rounds, as another process can only add to it.
"""

import ctypes
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

from specjax.measure.row import Measurement
from specjax.native import library

SOURCE = Path(__file__).with_name("peak.cc")
BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "int8": 1,
    "int8_dynamic": 1,
}  # in peak.cc's order
ROWS = range(1, 10)


class PeakSetting(NamedTuple):
    """The setting of a row of the table of peaks.

    layer: the matrices of a layer, each (features in, features out). rounds: how often
    everything is timed.
    """

    layer: tuple[tuple[int, int], ...]
    rounds: int = 50

    def check(self) -> None:
        """Raises ValueError for a setting that measures nothing."""
        if self.rounds < 1 or not self.layer or min(map(min, self.layer)) < 2:
            raise ValueError("rounds must be at least 1, and matrices at least 2 by 2")


def row_of_a_layer(*, setting: PeakSetting) -> Measurement:
    """Returns the measurement of the products of a layer.

    Raises:
        ValueError: the setting measures nothing.
    """
    setting.check()
    run = partial(measure_layer, setting)
    return Measurement(run, __name__, (SOURCE, *library.sources()), "float32")


def measure_layer(setting: PeakSetting) -> dict:
    """Returns every number of a layer as a plain value.

    Raises:
        RuntimeError: there is no compiler, or it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        timer = compile_timer(Path(folder) / "peak.so")
    peaks = {"peak_gflops": 0.0, "peak_levels_gops": 0.0}
    least: dict[tuple[str, int, int], float] = {}
    for _ in range(setting.rounds):
        found = timer.peak_of_floats() / 1e9, timer.peak_of_levels() / 1e9
        peaks = {
            k: max(v, new) for (k, v), new in zip(peaks.items(), found, strict=True)
        }
        for kind, dtype in enumerate(BYTES):
            for rows in ROWS:
                for i, (K, N) in enumerate(setting.layer):
                    at = dtype, rows, i
                    seconds = timer.seconds_of_product(kind, rows, K, N)
                    least[at] = min(least.get(at, seconds), seconds)
    return (
        peaks
        | {"rounds": setting.rounds}
        | rates(setting.layer, least, *peaks.values())
    )


def rates(
    layer: tuple[tuple[int, int], ...],
    seconds: dict[tuple[str, int, int], float],
    floats: float,
    levels: float,
) -> dict[str, float]:
    """Returns the numbers of the products.

    Args:
        layer: its matrices.
        seconds: by dtype, rows and matrix.
        floats: the peak of floats, in 10^9 operations a second.
        levels: that of levels.
    """
    size = sum(K * N for K, N in layer)
    numbers = {}
    for dtype, each in BYTES.items():
        for rows in ROWS:
            total = sum(seconds[dtype, rows, i] for i in range(len(layer)))
            gflops = 2 * rows * size / total / 1e9
            peak = levels if dtype == "int8_dynamic" else floats
            numbers[f"{dtype}_{rows}"] = gflops / peak
            if rows == ROWS[0]:
                numbers[f"{dtype}_gb"] = size * each / total / 1e9
        numbers[f"{dtype}_gflops"] = gflops
    return numbers


def compile_timer(output: Path) -> ctypes.CDLL:
    """Compiles peak.cc as the native operations are compiled, and loads it.

    Raises:
        RuntimeError: there is no compiler, or it failed.
    """
    compiler = library.compiler()
    if compiler is None:
        raise RuntimeError(f"no C++ compiler was found: {library.REMEDY}")
    units = SOURCE, library.FOLDER / "products_float.cc"
    command = [*compiler, *library.FLAGS, "-shared", f"-I{library.FOLDER}"]
    try:
        library.run_command([*command, *map(str, units), "-o", str(output)], 300)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"peak.cc: {library.summary(error)}") from error
    timer = ctypes.cdll.LoadLibrary(str(output))
    for function in (
        timer.peak_of_floats,
        timer.peak_of_levels,
        timer.seconds_of_product,
    ):
        function.restype = ctypes.c_double
    timer.seconds_of_product.argtypes = ctypes.c_int, *[ctypes.c_int64] * 3
    return timer
