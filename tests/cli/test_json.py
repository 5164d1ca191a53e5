"""`--json` makes commands print one document and nothing else, with the keys in the
guide.

The table of `docs/guides/measuring.md` is what a program may rely on.
"""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from specjax import __main__
from specjax.cli import workers
from specjax.exactness import certify, draws
from specjax.models import gpt
from tests.cli.test_compare import RECORD, record, write
from tests.cli.test_decode import Dying, echo_request
from tests.exactness.test_certify import TRIALS, Trial
from tests.support import text_folders

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/measuring.md"
LINE = re.compile(r"^\| `([a-z -]+)`(?: `\.([\w.\[\]]+)`)? \| (.*) \|$", re.MULTILINE)
TOLD = {
    (command, path): re.findall(r"`(\w+)`", keys)
    for command, path, keys in LINE.findall(GUIDE.read_text())
}
PAIR = "--target m0.safetensors --draft m1.safetensors"
FLAGS = {
    "demo": f"{PAIR} --n_tokens_to_generate 6 --K 2",
    "measure": f"{PAIR} --data prompts.jsonl --gammas 2 --tokens 6 --texts 2"
    " --rounds 1",
    "measure --by": f"task {PAIR} --data asked.jsonl --gammas 2 --tokens 5 --rounds 1",
    "decode": "prompts.jsonl --out texts",
    "compare": "a.jsonl b.jsonl",
    "audit": f"{PAIR} --gamma 2 --tokens 60 --length 16 --batch 4",
    "microscope": f"{PAIR} --gammas 2 --texts 2 --tokens 6 --dtype float32",
    "microscope --texts": "other.jsonl --target m0.safetensors",
    "certify": "--rule token",
    "certify --bits": f"{PAIR} --dtype float32",
    "certify --draft": "copying",
    "soak": "--draws 1 --rule token",
    "run --list": "rows.gin",
    "sweep --list": "rows",
    "train-draft": "--target m0.safetensors --kind small --dim 16 --out d"
    " --data many.jsonl --length 8 --steps 1 --fall 0 --warmup 0 --batch 2",
    "fetch": "",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    text_folders.code_pair(folder, gpt.Config(8192, 16, 32, 1, 2))
    lines = '{"prompt": "def f("}\n{"prompt": "x ="}\n'
    (folder / "prompts.jsonl").write_text(lines)
    (folder / "many.jsonl").write_text(lines * 4)
    lines = '{"prompt": "return a", "category": "rag"}\n'
    (folder / "asked.jsonl").write_text(lines)
    (folder / "other.jsonl").write_text('{"prompt": "x =", "text": " 1"}\n')
    write(folder / "a.jsonl", RECORD)
    write(folder / "b.jsonl", record(alpha=0.1))
    rows = "include 'gin_configs/runs/table1.gin'\nROWS = {'a': {'ALPHA': 0.6}}\n"
    (folder / "rows").mkdir()
    for name in ("rows.gin", "rows/same.gin"):
        (folder / name).write_text(rows)
    return folder


def test_the_table_has_every_command_that_prints_numbers():
    told = {command.split()[0] for command, _ in TOLD}
    assert told == {*__main__.COMMANDS} - {"transcribe"}
    assert {command for command, _ in TOLD} == {*FLAGS}


SLOW = {
    "measure",
    "measure --by",
    "demo",
    "audit",
    "microscope",
    "microscope --texts",
    "certify --bits",
    "certify --draft",
}
CASES = [
    pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in FLAGS
]


@pytest.mark.parametrize("command", CASES)
def test_it_is_one_document_with_the_keys_of_the_table(
    command, desk, monkeypatch, capsys
):
    monkeypatch.chdir(desk)
    trial = Trial(TRIALS["gamma 0"].fixture, 0, 1)
    monkeypatch.setattr(certify, "trials", lambda policy: [trial])
    monkeypatch.setattr(certify, "race_p_value", lambda vocab: 1.0)  # seconds
    monkeypatch.setattr(draws, "check_rule", lambda verifier: (1, []))
    monkeypatch.setattr(draws, "check_shapes", lambda nodes: (1, 0))
    monkeypatch.setattr(workers, "make_launcher", lambda *_: Dying(0, echo_request))
    name, *flags = command.split()
    main = import_module(__main__.command_module(name)).main
    try:
        code = main([*flags, *FLAGS[command].split(), "--json"])
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert not code, printed.err
    document = json.loads(printed.out)
    for path in (path for of, path in TOLD if of == command):
        found = document
        for step in filter(None, path.split(".")):
            found = found[step.removesuffix("[]")]
            found = found[0] if step.endswith("[]") else found
        assert sorted(found) == sorted(TOLD[command, path]), (command, path)


def test_rows_that_are_measured_have_their_records_in_files(desk, monkeypatch, refused):
    monkeypatch.chdir(desk)
    for name in ("run", "sweep"):
        main = import_module(f"specjax.cli.{name}").main
        assert "--json is for --list" in refused(main, ["rows.gin", "--json"])
