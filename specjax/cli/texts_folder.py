"""A folder of decoded texts: the settings, the blocks, and all texts in one file.

Texts belong to what produced them: the settings, the content of weights, tokenizer and
drafts, and the lines of their block. Texts of any other origin are never joined to
them."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specjax import constraints
from specjax.cli import blocks, content
from specjax.cli.blocks import Block
from specjax.cli.content import Content
from specjax.constraints import Form
from specjax.decode_config import DecodeConfig, record_fields
from specjax.measure.provenance import GOLDENS
from specjax.runtime import writing

SETTING, TEXTS = "setting.json", "texts.jsonl"  # in the folder, beside blocks
CONTENT = "content"  # in SETTING, digests by file


class Setting(NamedTuple):
    """The settings of `specjax decode`.

    prompts: their file. block: prompts per task; None means as `decode.with_block_size`
    says. target, draft, dtype: as of the command. batch: texts decoded together.
    decode: the settings of every text. content: the content of all files that are read.
    form: the schema, regular expression or grammar of every text.
    """

    prompts: Path
    folder: Path
    block: int | None
    target: str
    draft: str
    dtype: str
    batch: int
    decode: DecodeConfig
    content: Content = Content()
    form: Form | None = None


def describe(setting: Setting) -> dict[str, Any]:
    """Returns all that texts depend on except their prompts, as SETTING holds it."""
    fields = record_fields(setting)
    for name in ("prompts", "folder"):
        del fields[name]
    form = fields.pop("form")
    if form is not None:
        fields[form.kind] = form.text
    fields["tokens"] = fields.pop("new_tokens")
    return fields | {CONTENT: setting.content.digests, "goldens": GOLDENS}


def list_blocks(setting: Setting) -> Iterator[Block]:
    """Yields the blocks of the prompts; their names depend on the settings too."""
    text = json.dumps(describe(setting), sort_keys=True)
    how = hashlib.sha256(text.encode()).hexdigest()
    assert setting.block is not None
    return blocks.split_file(setting.prompts, setting.block, how)


def read_setting(folder: Path) -> dict[str, Any]:
    """Returns the settings that the texts of a folder were decoded with, or {} if none.

    joined: the digest of each block whose texts were joined."""
    there = [*folder.glob(TEXTS), *folder.glob("blocks/*.jsonl")]
    return json.loads((folder / SETTING).read_text("utf-8")) if there else {}


def is_joined(setting: Setting, every: list[Block]) -> bool:
    """Returns whether the texts of all these blocks are in one file."""
    return read_setting(setting.folder).get("joined") == [
        block.digest for block in every
    ]


def prepare(setting: Setting) -> None:
    """Creates the folder, or checks that an existing one has the same settings and some
    of these prompts.

    Blocks of the same prompts keep their texts. Raises ValueError for any other folder.
    """
    folder, file = setting.folder, setting.prompts
    if not (held := read_setting(folder)):
        writing.write_whole(folder / SETTING, [json.dumps(describe(setting))])
        return
    if differ := differences(held, describe(setting)):
        raise ValueError(
            f"{folder} has texts that were decoded with {', '.join(differ)}: name"
            " another --out, or use the same settings and files again"
        )
    every, joined = [*list_blocks(setting)], held.get("joined", [])
    same = zip((block.digest for block in every), joined, strict=False)
    kept = sum(a == b for a, b in same)
    kept = kept or sum(blocks.texts_path(folder, block).exists() for block in every)
    if not kept:
        raise ValueError(
            f"{folder} has texts of other prompts than those of {file}, which may have"
            f" changed in every block of {setting.block}: name another --out"
        )
    if joined and not is_joined(setting, every):
        print(f"{file} has changed: {kept} of {len(every)} blocks keep their texts")
        blocks.split(folder / TEXTS, folder, every, joined)


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Returns in words how the settings of a folder's texts differ from the new
    ones."""
    names = dict.fromkeys([*new, *constraints.KINDS])
    changed = [k for k in names if old.get(k) != new.get(k) and k != CONTENT]
    found = [f"{name} {old.get(name)!r}" for name in changed]
    files = content.differences(old.get(CONTENT, {}), new[CONTENT])
    if CONTENT not in old:
        return [*found, "an older version, which did not record the weights"]
    return found + [f"another content of {name}" for name in files]


def missing_blocks(setting: Setting) -> Iterator[Block]:
    """Yields the blocks that have no texts yet."""
    for block in list_blocks(setting):
        if not blocks.texts_path(setting.folder, block).exists():
            yield block


def finish(setting: Setting) -> int:
    """Joins the blocks, removes them and the files of workers; returns the count of
    texts."""
    every = [*list_blocks(setting)]
    count = blocks.join(setting.folder, every, setting.folder / TEXTS)
    joined = {"joined": [block.digest for block in every]}
    whole = json.dumps(describe(setting) | joined)
    writing.write_whole(setting.folder / SETTING, [whole])
    remove_parts(setting.folder)
    return count


def remove_parts(folder: Path) -> None:
    """Removes the blocks and the files of workers, which are of no use once all texts
    are in one file."""
    for name in ("blocks", "workers"):
        shutil.rmtree(folder / name, ignore_errors=True)
