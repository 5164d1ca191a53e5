"""Notebooks store the output that they give when they run, and can be installed."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from experiments.report import notebooks

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in PATHS]
FIRST = notebooks.FIRST.read_text()
ANSWER = re.compile(r"<details><summary>Answer</summary>\n\n(.*?)\n\n</details>", re.S)
FENCE = re.compile(r"```python\n(.*?)```", re.S)
OURS = "quickstart own_parts table checkpoints kernels slower guarantees speech"
OURS += " own_draft"
# What a test replaces in the cells of a notebook that trains.
BRIEF = {"own_draft": ("STEPS, MEASURED = 320, 320, 48", "STEPS, MEASURED = 32, 40, 8")}


def answers(notebook: nbformat.NotebookNode) -> list[str]:
    """Returns the hidden answers to the exercises."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [text for source in cells for text in ANSWER.findall(source)]


def test_there_are_those_that_the_readme_names():
    assert {*NAMES} == {*OURS.split()}
    readme = (notebooks.ROOT / "README.md").read_text()
    index = (notebooks.ROOT / "docs/index.md").read_text()
    for name in NAMES:
        assert f"(notebooks/{name}.ipynb)" in readme
        assert f"\nnotebooks/{name}\n" in index


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_it_is_stored_with_what_it_says(path):
    text, notebook = path.read_text(), nbformat.read(path, 4)
    first, *others = notebooks.code(notebook)
    assert path.stat().st_size < 300_000 and len(notebook.cells) <= 16
    assert first.source == FIRST.rstrip() and not first.outputs
    said = [output for cell in others for output in cell.outputs]
    assert len(said) >= 3 and all(output.output_type != "error" for output in said)
    assert all(cell.execution_count for cell in notebooks.code(notebook))
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", text)
    assert 2 <= len(answers(notebook)) <= 4
    assert notebook.cells[-1].source.startswith("## Exercises")


def cell_outputs(notebook: nbformat.NotebookNode) -> list[list]:
    """Returns the output of each code cell; a drawing is only mentioned, and for a cell
    that `varies` only the kinds of its outputs are returned.
    """
    return [
        [
            kind if varies(cell) else comparable_output(output)
            for kind, output in outputs(cell)
        ]
        for cell in notebooks.code(notebook)
    ]


def varies(cell: nbformat.NotebookNode) -> bool:
    return "varies" in cell.metadata.get("tags", ())


def outputs(cell: nbformat.NotebookNode) -> list[tuple]:
    return [(output.output_type, output) for output in cell.outputs]


def comparable_output(output: nbformat.NotebookNode) -> str | dict:
    """Returns text unchanged, and for other output its kind."""
    if "text" in output:
        return output.text
    each = output.get("data", {}).items()
    return {kind: it if kind == "text/plain" else "" for kind, it in each}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_it_says_so_again_and_its_answers_hold(path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # compiled as a user's are
    stored = nbformat.read(path, 4)
    solved = [x for text in answers(stored) for x in FENCE.findall(text)]
    ran = notebooks.run(path, solved, BRIEF.get(path.stem))
    assert cell_outputs(ran) == cell_outputs(stored)


def test_the_head_of_a_notebook_is_worth_what_it_says():
    """The stored output has a row for each draft, with the tokens per call at T = 1 and
    T = 0."""
    stored = nbformat.read(notebooks.FOLDER / "own_draft.ipynb", 4)
    (said,) = [
        output.text
        for cell in notebooks.code(stored)
        for output in cell.outputs
        if "tokens a call" in output.get("text", "")
    ]
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines()[1:]}
    warm, cold = ({x: float(it[i]) for x, it in rows.items()} for i in (0, 1))
    assert {*rows} == {"head", "bigram", "copying"}
    assert max(warm, key=warm.get) == "head" and warm["copying"] < warm["bigram"]
    assert warm["head"] > 1.5 and cold["bigram"] < cold["head"] < cold["copying"]


@pytest.mark.parametrize(
    ("source", "smi", "tpu", "wanted"),
    [
        ("", "sh: nvidia-smi: not found", "", "notebooks] @ file://{root}"),
        ("", "CUDA Version: 13.0", "", "notebooks,cuda] @ file://{root}"),
        ("", "CUDA Version: 12.4", "", "notebooks,cuda12] @ file://{root}"),
        ("", "", "v5e", "notebooks,tpu] @ file://{root}"),
        ("/a/b.whl", "", "", "notebooks] @ file:///a/b.whl"),
        ("git+https://x/y", "", "", "notebooks] @ git+https://x/y"),
    ],
)
def test_the_first_cell_installs_what_is_missing(
    monkeypatch, tmp_path, source, smi, tpu, wanted
):
    asked = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "getoutput", lambda command: smi)
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words))
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [])
    monkeypatch.setenv("SPECJAX_SOURCE", source)
    for name in [name for name in os.environ if name.startswith("TPU_")]:
        monkeypatch.delenv(name)
    if tpu:
        monkeypatch.setenv("TPU_NAME", tpu)
    monkeypatch.chdir(notebooks.FOLDER)
    exec(compile(FIRST, "first_cell.py", "exec"), {})
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    wanted = wanted.format(root=notebooks.ROOT)
    assert asked == [[*pip, f"specjax[{wanted}"]]


def test_outside_of_a_checkout_the_address_is_the_published_one_or_asked_for(
    monkeypatch, tmp_path
):
    asked, docs = [], notebooks.ROOT / "docs"
    monkeypatch.syspath_prepend(str(docs))
    published = importlib.import_module("published")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words))
    monkeypatch.setattr(subprocess, "getoutput", lambda command: "")
    monkeypatch.delenv("SPECJAX_SOURCE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="set SPECJAX_SOURCE to a wheel"):
        exec(compile(FIRST, "first_cell.py", "exec"), {})
    page = json.dumps({"cells": [{"cell_type": "code", "source": [FIRST]}]})
    assert published.notebook(page, "") == page
    told = json.loads(published.notebook(page, "https://git.invalid/specjax"))
    exec("".join(told["cells"][0]["source"]), {})
    assert asked[0][-1].endswith("] @ git+https://git.invalid/specjax")
    with pytest.raises(ValueError, match="ADDRESS must begin with https"):
        published.check("git.invalid")


def test_where_nothing_is_missing_nothing_is_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(subprocess, "run", None)
    exec(compile(FIRST, "first_cell.py", "exec"), {})
