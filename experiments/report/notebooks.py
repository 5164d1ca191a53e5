"""Runs notebooks and stores their output: `make notebooks`, or `python -m
experiments.report.notebooks NAME ...` for some.

The output of a cell is the same on every run, unless the cell is tagged `varies`:
times, and texts that depend on rounding. The progress on stderr is not stored.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
FIRST = FOLDER / "first_cell.py"  # the first code cell of each, which installs
# The same drawing twice is the same file.
FIXED = {"JAX_PLATFORMS": "cpu", "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": str(ROOT)}


def run(
    path: Path, more: Sequence[str] = (), brief: tuple[str, str] | None = None
) -> nbformat.NotebookNode:
    """Runs a notebook from its first cell on, in its own folder, and returns it with
    the output of its cells.

    Args:
        more: cells of code that are run after them.
        brief: a text in its cells, and one to run in its place, which takes less time.

    Raises:
        CellExecutionError: a cell fails.
        ValueError: not exactly one cell has the text to replace.
    """
    notebook = nbformat.read(path, 4)
    if brief is not None:
        had = [cell for cell in code(notebook) if brief[0] in cell.source]
        if len(had) != 1:
            raise ValueError(f"{path.name}: {len(had)} cells have {brief[0]!r}")
        had[0].source = had[0].source.replace(*brief)
    metadata_before, count = notebook.metadata.copy(), len(notebook.cells)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in more]
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(ROOT / ".jax_cache")
    kept = {"JAX_COMPILATION_CACHE_DIR": cache}
    kept["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    where = {"metadata": {"path": str(path.parent)}}
    asked = dict(timeout=900, kernel_name="python3", resources=where)
    asked |= dict(record_timing=False, coalesce_streams=True)
    NotebookClient(notebook, **asked).execute(env={**os.environ, **kept, **FIXED})
    notebook.metadata, notebook.cells = metadata_before, notebook.cells[:count]
    for cell in code(notebook):
        cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    return notebook


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.report.notebooks")
    names = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", default=names, metavar="NAME")
    for name in parser.parse_args(arguments).names:
        path = FOLDER / f"{name}.ipynb"
        print(path.relative_to(ROOT), flush=True)
        notebook = nbformat.read(path, 4)
        code(notebook)[0].source = FIRST.read_text().rstrip()
        nbformat.write(notebook, path)
        nbformat.write(run(path), path)


if __name__ == "__main__":
    main()
