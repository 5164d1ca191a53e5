"""A model that is fetched from a hub equals the one that is read from a folder."""

import ast
import fnmatch
import json
import re
import shutil
import sys
import types
from pathlib import Path

import pytest

import specjax
from specjax.checkpoints import huggingface
from tests.support import text_folders
from tests.support.checkpoint_folders import random_params

ROOT = Path(specjax.__file__).parent
# Modules that read files of a folder, and what a file's name looks like in them.
READERS = ("tokenizers/*.py", "speech/*.py", "checkpoints/huggingface.py")
NAME = re.compile(r"[\w*.-]+\.(json|jinja|model|txt|safetensors|tiktoken)")
FOLDER = {
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    "special_tokens_map.json": {
        "bos_token": "<|start|>",
        "eos_token": text_folders.END,
        "additional_special_tokens": ["<|user|>"],
    },
}
CHAT = "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"


def test_a_hubs_name_is_read_as_its_folder(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    folder = tmp_path / "folder"
    model = text_folders.GPT2, random_params(text_folders.GPT2)
    specjax.checkpoints.save(folder, model)
    text_folders.bpe().save(str(folder / "tokenizer.json"))
    for name, fields in FOLDER.items():
        (folder / name).write_text(json.dumps(fields))
    (folder / "chat_templates").mkdir()
    (folder / "chat_templates" / "default.jinja").write_text(CHAT)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        fetched = tmp_path / name
        for file in filter(Path.is_file, folder.rglob("*")):
            path = file.relative_to(folder).as_posix()
            if any(fnmatch.fnmatch(path, pattern) for pattern in allow_patterns):
                (fetched / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, fetched / path)
        return str(fetched)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    read = []
    for name in (folder, "org/name"):
        tokenizer = specjax.load(name).tokenizer
        talk = tokenizer.converse([{"role": "user", "content": "add"}])
        read.append((talk, tokenizer.encode("<|user|>a"), tokenizer.decode(talk)))
    assert read[0] == read[1]
    first, user = (
        specjax.load(folder).tokenizer.encode(x)[0] for x in ("<|start|>", "<|user|>")
    )
    assert read[0][0][:2] == [first, user] and read[0][2] == "add"
    assert not (tmp_path / "org" / "name" / "pytorch_model.bin").exists()


def test_every_name_of_a_file_that_is_read_is_fetched():
    fetched = {pattern.rsplit("/")[-1] for pattern in huggingface.FETCHED}
    seen = set()
    for path in (path for part in READERS for path in ROOT.glob(part)):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        texts = {x.value for x in nodes if isinstance(x, ast.Constant)}
        seen |= {x for x in texts if isinstance(x, str) and NAME.fullmatch(x)}
    assert seen <= fetched, "a file is read that a hub is not asked for"
    assert {"special_tokens_map.json", "*.jinja", "*.tiktoken"} <= seen
