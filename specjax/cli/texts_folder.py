"""A folder of decoded texts: by what they were decoded, its blocks, and all as one.

Texts are bound to what made them: the setting, the content of weights, tokenizer and
drafts, and the lines of their block. Nothing else is joined to them.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specjax.cli import blocks, content
from specjax.cli.blocks import Block
from specjax.cli.content import Content
from specjax.measure.provenance import GOLDENS
from specjax.runtime import writing

SETTING, TEXTS = "setting.json", "texts.jsonl"  # in the folder, beside blocks
CONTENT = "content"  # in SETTING, digests by file


class Setting(NamedTuple):
    """What is decoded, and how. prompts: their file. block: prompts of a task; None, as
    `decode.sized` says. batch: texts decoded together. content: of the files that all
    is read from. The rest is as of `specjax.text.generate_text`."""

    prompts: Path
    folder: Path
    block: int | None
    target: str
    draft: str
    dtype: str
    batch: int
    gamma: int
    temperature: float
    rule: str
    policy: str
    tokens: int
    seed: int
    kernels: str
    top_k: int | None
    top_p: float | None
    min_p: float | None
    content: Content = Content()


def described(setting: Setting) -> dict[str, Any]:
    """Returns all that texts depend on but their prompts, as SETTING holds it."""
    fields = setting._asdict()
    for name in ("prompts", "folder"):
        del fields[name]
    return fields | {CONTENT: setting.content.digests, "goldens": GOLDENS}


def blocks_of(setting: Setting) -> Iterator[Block]:
    """Returns the blocks of the prompts, named by the setting too."""
    text = json.dumps(described(setting), sort_keys=True)
    how = hashlib.sha256(text.encode()).hexdigest()
    return blocks.cut(setting.prompts, setting.block, how)


def before(folder: Path) -> dict[str, Any]:
    """Returns by what the texts of a folder were decoded; empty where it has none.
    joined: the digest of each block whose texts were joined."""
    there = [*folder.glob(TEXTS), *folder.glob("blocks/*.jsonl")]
    return json.loads((folder / SETTING).read_text("utf-8")) if there else {}


def is_joined(setting: Setting, every: list[Block]) -> bool:
    """Whether there are the texts of these blocks, in one file."""
    return before(setting.folder).get("joined") == [block.digest for block in every]


def prepare(setting: Setting) -> None:
    """Makes the folder, or finds it to be of the same setting, and some of its blocks
    of the same prompts: they keep their texts. Raises ValueError for any other."""
    folder, file = setting.folder, setting.prompts
    if not (held := before(folder)):
        writing.whole(folder / SETTING, [json.dumps(described(setting))])
        return
    if differ := differences(held, described(setting)):
        raise ValueError(
            f"{folder} has texts of {', '.join(differ)}: name another --out, or"
            " decode as before"
        )
    every, joined = [*blocks_of(setting)], held.get("joined", [])
    same = zip((block.digest for block in every), joined, strict=False)
    kept = sum(a == b for a, b in same)
    kept = kept or sum(blocks.texts_of(folder, block).exists() for block in every)
    if not kept:
        raise ValueError(
            f"{folder} has texts of other prompts than {file}, or it has changed since"
            f" in every block of {setting.block}: name another --out"
        )
    if joined and not is_joined(setting, every):
        print(f"{file} has changed: {kept} of {len(every)} blocks keep their texts")
        blocks.part(folder / TEXTS, folder, every, joined)


def differences(held: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Returns in words by what else the texts of a folder were decoded."""
    unlike = [k for k in asked if held.get(k) != asked[k] and k != CONTENT]
    found = [f"{name} {held.get(name)!r}" for name in unlike]
    files = content.differences(held.get(CONTENT, {}), asked[CONTENT])
    if CONTENT not in held:
        return [*found, "an older version, which noted no content of weights"]
    return found + [f"another content of {name}" for name in files]


def missing(setting: Setting) -> Iterator[Block]:
    """The blocks that have no texts yet."""
    for block in blocks_of(setting):
        if not blocks.texts_of(setting.folder, block).exists():
            yield block


def finish(setting: Setting) -> int:
    """Joins the blocks; they and what workers wrote are then gone."""
    every = [*blocks_of(setting)]
    count = blocks.join(setting.folder, every, setting.folder / TEXTS)
    joined = {"joined": [block.digest for block in every]}
    whole = json.dumps(described(setting) | joined)
    writing.whole(setting.folder / SETTING, [whole])
    for name in ("blocks", "workers"):
        shutil.rmtree(setting.folder / name, ignore_errors=True)
    return count
