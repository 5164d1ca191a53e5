"""Every command that takes a pair reads folders of each family of models.

Commands know Llamas of all styles as one family.
"""

import itertools
import json
from pathlib import Path

import pytest

from specjax.cli import audit, demo, measure, microscope
from specjax.measure import jsonl
from tests.support import text_folders

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

COMMANDS = {"demo": demo, "measure": measure, "audit": audit, "microscope": microscope}
KINDS = {"gpt2": "float32", "gemma3": "float32", "t5": "float32", "llama": "int8"}
LINES = [{"prompt": "def add("}, {"tokens": [5, 6, 7]}]
CHAT = {"messages": [{"role": "user", "content": "class"}]}
FLAGS = {
    "demo": "--K 2 --n_tokens_to_generate 6 --prompt def",
    "measure": "--gammas 2 --tokens 6 --texts 2 --rounds 1 --ends",
    "audit": "--gamma 2 --tokens 200 --length 16 --batch 8",
    "microscope": "--gammas 2 --texts 2 --tokens 6",
}
FAST = [("llama", "audit")]
CASES = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
    for case in itertools.product(KINDS, COMMANDS)
]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """family -> flags of its pair and the path of prompts, written once."""
    there = {}

    def folder(family: str) -> tuple[list[str], str]:
        if family not in there:
            folder = tmp_path_factory.mktemp(family)
            flags = text_folders.pair(family, folder)
            lines = [*LINES, CHAT] if family == "gpt2" else LINES
            (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
            there[family] = flags, str(folder / "prompts.jsonl")
        return there[family]

    return folder


@pytest.mark.parametrize(("family", "command"), CASES)
def test_a_family_goes_through_a_command(family, command, folder_of, tmp_path, capsys):
    dtype, out = KINDS[family], tmp_path / "a.jsonl"
    flags, data = folder_of(family)
    asked = [*flags, *FLAGS[command].split(), "--dtype", dtype]
    asked += ["--data", data] if command != "demo" else []
    asked += ["--out", str(out)] if command == "measure" else []
    assert COMMANDS[command].main(asked) == 0
    printed = capsys.readouterr().out
    if command == "demo":
        texts = [part.split("\n\n")[0] for part in printed.split("Text = ")[1:]]
        assert "texts: identical" in printed and texts[0] == texts[1] != ""
    elif command == "measure":
        (record,) = jsonl.read(out)
        measured = record["measured"]
        assert measured["encodes"] == (family == "t5") and measured["ends"]
        assert 0 < measured["alpha"] < 1 and measured["prefill_target_ms"] > 0
        assert " costs most\n" in printed and record["provenance"]["dtype"] == dtype
        names = {Path(x).name for x in record["provenance"]["inputs"]}
        assert {"prompts.jsonl", "model.safetensors", "config.json"} <= names
        assert any("token" in name or name == "spiece.model" for name in names)
    else:
        assert f", {dtype}, " in printed
        assert "passed" in printed or "Nothing differs" in printed


def test_a_model_that_listens_is_refused_in_one_line(tmp_path, capsys):
    folder = text_folders.whisper_folder(tmp_path / "whisper")
    data = tmp_path / "prompts.jsonl"
    data.write_text('{"prompt": "def add("}\n')
    for command, module in COMMANDS.items():
        flags = [f"--target={folder}", f"--draft={folder}"]
        flags += [f"--data={data}"] if command != "demo" else []
        with pytest.raises(SystemExit) as stopped:
            module.main(flags)
        printed = capsys.readouterr()
        assert stopped.value.code == 2 and printed.out == ""
        listens = "whisper reads recordings and no texts"
        told = listens if command == "demo" else 'write {"audio": file}'
        assert told in printed.err and printed.err.count("\n") <= 2
