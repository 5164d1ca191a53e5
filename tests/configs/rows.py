"""Rows of one's own, as texts of gin files."""

from pathlib import Path

ROW = """include 'gin_configs/runs/table1.gin'
GAMMA = 2
ALPHA = 0.6
"""
GRID = """include 'gin_configs/runs/table1.gin'
GAMMA = 2
ROWS = {
    'slow': {'ALPHA': 0.6},
    # Another gamma than the others.
    'fast': {'ALPHA': 0.8, 'GAMMA': 5},
}
"""
ALPHA_ROW = """include 'gin_configs/runs/alpha.gin'
include 'gin_configs/checkpoints/bundled.gin'
include 'gin_configs/drafters/ngrams.gin'
include 'gin_configs/tasks/examples.gin'
TARGET = %CODE_TARGET
DRAFT = %UNIGRAM
TASK = 'code'
TEMPERATURE = 1.0
GAMMA = 3
"""
SPEED_ROW = ALPHA_ROW.replace("runs/alpha", "runs/walltime").replace("GAMMA = 3", "")


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "row.gin"
    path.write_text(text, encoding)
    return path
