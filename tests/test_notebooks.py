"""Every notebook runs from first to last cell, and is stored without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import CACHE

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def test_there_are_notebooks():
    assert "quickstart" in NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_is_stored_without_outputs(path):
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_runs(path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(CACHE))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    where = {"metadata": {"path": str(ROOT)}}
    notebook = nbformat.read(path, 4)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=where
    )
    client.execute()
    printed = [o for c in notebook.cells for o in c.get("outputs", [])]
    assert any(output.output_type == "stream" for output in printed)
