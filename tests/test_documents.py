"""Commands and examples of README.md and docs: each is parsed, and each is run."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from specjax import __main__, configs
from specjax.checkpoints import published

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([a-z{}]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Models and files of a reader's own, as what stands here for them.
BUNDLED = {
    "TARGET": "code_target",
    "DRAFT": "code_small",
    "google/flan-t5-large": "t5_target",
    "google/flan-t5-small": "t5_small",
    "runs/llama/target": "code_target",
    "runs/llama/draft": "code_small",
    "openai/whisper-large-v3": "speech_target",
    "distil-whisper/distil-large-v3": "speech_small",
    "smollm2": "code_target",
    "whisper-tiny.en": "speech_target",
}
# Flags that a command is given last, so that it ends soon.
BRIEF = {
    "demo": "--n_tokens_to_generate 4 --K 2",
    "measure": "--tokens 8 --texts 2 --rounds 1 --gammas 2",
    "transcribe": "--gamma 2",
    "certify": "",
    "compare": "",
    "run": "--gin.DRAFT=\"'random'\" --gin.TOKENS=8 --gin.NEW_TOKENS=4 --gin.BATCH=2",
}
SPOKEN = ROOT / "specjax/zoo/speech/speech.flac"


def commands(program: str) -> list[str]:
    """What a reader is told to type, each once."""
    found = {}
    for page in PAGES:
        for _, block in FENCE.findall(page.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s+", " ", line.partition("    #")[0]).strip()
                line = line.removeprefix("PYTHONPATH=. ")
                if line.startswith(f"{program} "):
                    found[line] = page
    return [*found]


def test_there_are_commands_of_every_kind():
    assert {line.split()[1] for line in commands("specjax")} >= {*BRIEF}
    assert len(commands("specjax")) >= 12


def test_what_is_to_be_made_or_installed_is_there():
    makefile, setup = ((ROOT / name).read_text() for name in ("Makefile", "setup.py"))
    for line in commands("make"):
        assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line
    assert commands("pip install")
    for line in commands("pip install"):
        what, *_ = shlex.split(line.removeprefix("pip install "))
        place, extras = re.fullmatch(r"(\.)(?:\[(.*)\])?", what).groups()
        assert place == "."  # from a checkout: no index has it
        for extra in filter(None, (extras or "").split(",")):
            assert f'"{extra}":' in setup, line


def test_rows_that_are_named_are_there():
    text = "".join(map(Path.read_text, PAGES))
    named = re.findall(r"gin_configs/[\w/]+\.gin(?::\w+)?", text)
    assert len(named) > 10
    for file, _, row in (name.partition(":") for name in named):
        assert configs.rows(configs.RowFile(ROOT / file, row=row or None))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that a reader is told to have."""
    shutil.copy(ROOT / "docs/my_parts.py", tmp_path)
    prompts = "".join(f'{{"prompt": "def f{n}("}}\n' for n in range(4))
    sentence = '{"prompt": "translate English to German: Where is it?"}\n'
    (tmp_path / "prompts.jsonl").write_text(prompts)
    (tmp_path / "sentences.jsonl").write_text(sentence * 4)
    blocks = [text for page in PAGES for _, text in FENCE.findall(page.read_text())]
    row = next(text for text in blocks if "runs/alpha.gin" in text)
    (tmp_path / "pair.gin").write_text(
        row.replace("google/flan-t5-large", "code_small")
    )
    own = "talk.mp3", "interview.flac", "recording.wav"
    for name in (*own, "specjax/zoo/speech/speech.flac"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SPOKEN, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_parts", raising=False)
    return tmp_path


@pytest.mark.slow
def test_every_command_runs(desk, monkeypatch, capsys):
    """In the order of the pages, so that a file is written before it is compared."""
    assert commands("specjax")
    for line in commands("specjax"):
        if line.startswith("specjax fetch"):  # by the network
            assert set(shlex.split(line)[2:]) <= {*published.MODELS}
            continue
        words = [BUNDLED.get(word, word) for word in shlex.split(line)]
        if "--models_dir" in words:  # sizes of GPT-2 that nobody here has
            continue
        words += shlex.split(BRIEF[words[1]])
        if words[1] == "compare":
            shutil.copy("a.jsonl", "b.jsonl")
        monkeypatch.setattr(sys, "argv", words)
        try:
            code = __main__.main()
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert not code and printed.out, (line, code, printed.err)
