"""Runs notebooks and stores what they say: `make notebooks`, or `python -m
experiments.report.notebooks NAME ...` for some.

What a cell prints is the same on every run, unless it is tagged `varies`: times, and
texts where rounding decides. What goes to stderr, progress, is not stored.
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
VARIES = "varies"
# The same drawing twice is the same file.
FIXED = {"JAX_PLATFORMS": "cpu", "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": str(ROOT)}


def run(path: Path, more: Sequence[str] = ()) -> nbformat.NotebookNode:
    """The notebook with what its cells say, run from the first on in its own folder;
    `more`, cells of code, come after them. Raises CellExecutionError for one that
    fails."""
    notebook = nbformat.read(path, 4)
    told, count = notebook.metadata.copy(), len(notebook.cells)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in more]
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(ROOT / ".jax_cache")
    kept = {"JAX_COMPILATION_CACHE_DIR": cache}
    kept["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    where = {"metadata": {"path": str(path.parent)}}
    asked = dict(timeout=300, kernel_name="python3", resources=where)
    asked |= dict(record_timing=False, coalesce_streams=True)
    NotebookClient(notebook, **asked).execute(env={**os.environ, **kept, **FIXED})
    notebook.metadata, notebook.cells = told, notebook.cells[:count]
    for cell in code(notebook):
        cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    return notebook


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(notebook: nbformat.NotebookNode) -> list[list]:
    """Of each cell of code what it says, and of a drawing that it is there; of one that
    `varies` the kinds of what it says alone."""
    return [
        [kind if varies(cell) else words(output) for kind, output in outputs(cell)]
        for cell in code(notebook)
    ]


def varies(cell: nbformat.NotebookNode) -> bool:
    return VARIES in cell.metadata.get("tags", ())


def outputs(cell: nbformat.NotebookNode) -> list[tuple]:
    return [(output.output_type, output) for output in cell.outputs]


def words(output: nbformat.NotebookNode) -> str | dict:
    """Text as it is, and of what is shown otherwise its kind."""
    if "text" in output:
        return output.text
    each = output.get("data", {}).items()
    return {kind: it if kind == "text/plain" else "" for kind, it in each}


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
