"""Folders of the hub, GPT-2's and T5's, through every command that takes a pair."""

import json

import pytest

from specjax.bench import jsonl
from specjax.commands import audit, demo, measure, microscope
from tests.support import text_folders

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
pytestmark = pytest.mark.slow

LINES = [{"prompt": "def add("}, {"tokens": [5, 6, 7]}]
CHAT = {"messages": [{"role": "user", "content": "class"}]}


@pytest.fixture(scope="module", params=["gpt2", "t5"])
def folders(request, tmp_path_factory):
    """Flags for a pair, the path of prompts, and the kind."""
    folder = tmp_path_factory.mktemp(request.param)
    make = {"gpt2": text_folders.gpt2, "t5": text_folders.t5_folder}[request.param]
    flags = []
    for seed, side in enumerate(("target", "draft")):
        flags += [f"--{side}", str(make(folder / side, seed))]
    lines = [*LINES, CHAT] if request.param == "gpt2" else LINES
    data = folder / "prompts.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    return request.param, flags, str(data)


def test_measure(folders, tmp_path, capsys):
    kind, flags, data = folders
    few = "--gammas 2 --tokens 6 --texts 2 --rounds 1 --ends".split()
    out = tmp_path / "a.jsonl"
    assert measure.main([*flags, "--data", data, "--out", str(out), *few]) == 0
    assert "best: " in capsys.readouterr().out
    (record,) = jsonl.read(out)
    measured = record["measured"]
    assert measured["encodes"] == (kind == "t5") and measured["ends"]
    assert 0 < measured["alpha"] < 1 and measured["prefill_target_ms"] > 0


def test_audit(folders, capsys):
    kind, flags, data = folders
    few = "--gamma 2 --tokens 300 --length 24 --batch 8".split()
    assert audit.main([*flags, *few, "--data", data]) == 0
    assert "passed" in capsys.readouterr().out
    if kind == "gpt2":  # from the start token alone, by a rule that is lossy on purpose
        lossy = ["--rule", "sigmoid", "--temperature", "0.5"]
        assert audit.main([*flags, *few, *lossy]) == 1
        assert "FAILED" in capsys.readouterr().out


def test_microscope(folders, capsys):
    _, flags, data = folders
    few = "--gammas 2 --dtype float32 --texts 2 --tokens 6".split()
    assert microscope.main([*flags, *few, "--data", data]) == 0
    assert "Nothing differs" in capsys.readouterr().out


def test_demo(folders, capsys):
    _, flags, _ = folders
    asked = ["--prompt", "def add(", "--K", "2", "--n_tokens_to_generate", "6"]
    assert demo.main([*flags, *asked]) == 0
    printed = capsys.readouterr().out
    assert "texts: identical" in printed
    alone, speculative = (
        part.split("\n\n")[0] for part in printed.split("Text = ")[1:]
    )
    assert alone == speculative != ""
