"""Folders of each family of models through every command that takes a pair.

Commands know Llamas of all styles as one family. Fast tests take each folder through
one command; all of their square is with the slow.
"""

import json

import pytest

from specjax.cli import audit, demo, measure, microscope
from specjax.measure import jsonl
from tests.support import family_folders, text_folders

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

COMMANDS = {"demo": demo, "measure": measure, "audit": audit, "microscope": microscope}
KINDS = [("gpt2", "float32"), ("gemma3", "float32"), ("t5", "float32")]
KINDS += [("llama", "int8")]
LINES = [{"prompt": "def add("}, {"tokens": [5, 6, 7]}]
CHAT = {"messages": [{"role": "user", "content": "class"}]}
FLAGS = {
    "demo": "--K 2 --n_tokens_to_generate 6 --prompt def",
    "measure": "--gammas 2 --tokens 6 --texts 2 --rounds 1 --ends",
    "audit": "--gamma 2 --tokens 200 --length 16 --batch 8",
    "microscope": "--gammas 2 --texts 2 --tokens 6",
}


def cases():
    """Every kind with every command, of which one is fast."""
    for number, kind in enumerate(KINDS):
        fast = ("audit", "demo", "microscope", "audit")[number]
        for command in COMMANDS:
            marks = () if command == fast else pytest.mark.slow
            name = "-".join((*kind, command))
            yield pytest.param(kind, command, marks=marks, id=name)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """family -> flags of its pair and the path of prompts, written once."""
    there = {}

    def folder(family: str) -> tuple[list[str], str]:
        if family not in there:
            folder = tmp_path_factory.mktemp(family)
            flags = family_folders.pair(family, folder)
            lines = [*LINES, CHAT] if family == "gpt2" else LINES
            (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
            there[family] = flags, str(folder / "prompts.jsonl")
        return there[family]

    return folder


@pytest.mark.parametrize(("kind", "command"), list(cases()))
def test_a_family_goes_through_a_command(kind, command, folder_of, tmp_path, capsys):
    (family, dtype), out = kind, tmp_path / "a.jsonl"
    flags, data = folder_of(family)
    asked = [*flags, *FLAGS[command].split(), "--dtype", dtype]
    asked += ["--data", data] if command != "demo" else []
    asked += ["--out", str(out)] if command == "measure" else []
    assert COMMANDS[command].main(asked) == 0
    check = {"demo": demo_says, "measure": measure_says}.get(command, says)
    check(capsys.readouterr().out, family, dtype, out)


def demo_says(printed: str, family: str, dtype: str, out) -> None:
    texts = [part.split("\n\n")[0] for part in printed.split("Text = ")[1:]]
    assert "texts: identical" in printed and texts[0] == texts[1] != ""


def measure_says(printed: str, family: str, dtype: str, out) -> None:
    assert "best: " in printed
    (record,) = jsonl.read(out)
    measured = record["measured"]
    assert measured["encodes"] == (family == "t5") and measured["ends"]
    assert 0 < measured["alpha"] < 1 and measured["prefill_target_ms"] > 0


def says(printed: str, family: str, dtype: str, out) -> None:
    """The audit, and the microscope."""
    assert f", {dtype}, " in printed
    assert "passed" in printed or "Nothing differs" in printed


@pytest.mark.slow
def test_an_audit_from_the_start_token_alone_sees_a_lossy_rule(folder_of, capsys):
    flags, _ = folder_of("gpt2")
    lossy = "--rule sigmoid --temperature 0.5 --gamma 2 --tokens 300 --length 24"
    assert audit.main([*flags, *lossy.split(), "--batch", "8"]) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_listens_is_refused_in_one_line(command, tmp_path, capsys):
    for side in ("target", "draft"):
        text_folders.whisper_folder(tmp_path / side)
    data = tmp_path / "prompts.jsonl"
    data.write_text('{"prompt": "def add("}\n')
    flags = [f"--{side}={tmp_path / side}" for side in ("target", "draft")]
    flags += [f"--data={data}"] if command != "demo" else []
    with pytest.raises(SystemExit) as stopped:
        COMMANDS[command].main(flags)
    printed = capsys.readouterr()
    assert stopped.value.code == 2 and printed.out == ""
    of_audio = 'want {"audio": file}'
    of_texts = "target listens and reads no texts"
    assert (of_texts if command == "demo" else of_audio) in printed.err
    assert printed.err.count("\n") <= 2
