"""Files that are cut short, of another kind, listed wrongly or gone are refused."""

import json
import struct
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from specjax import checkpoints
from tests.checkpoint_folders import read_nothing, written

WEIGHTS, CONFIG = "model.safetensors", "config.json"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def whole(tmp_path) -> Path:
    return written(tmp_path)


@pytest.fixture
def shards(tmp_path) -> Path:
    return written(tmp_path, most=3000)


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    read_nothing(monkeypatch)


def cut_short(folder: Path) -> None:
    file = folder / WEIGHTS
    file.write_bytes(file.read_bytes()[:-7])


def not_safetensors(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"<html>404</html>")


def empty(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"")


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def config_cut(folder: Path) -> None:
    file = folder / CONFIG
    file.write_text(file.read_text()[:-9])


def config_listed(folder: Path) -> None:
    (folder / CONFIG).write_text("[1, 2]")


def config_gone(folder: Path) -> None:
    (folder / CONFIG).unlink()


def nothing(folder: Path) -> None:
    (folder / CONFIG).unlink()
    (folder / WEIGHTS).unlink()


def of_no_dtype(folder: Path) -> None:
    """One array of a kind of float that numpy has not."""
    header = {"a": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + b"\0\0")


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (cut_short, r"model.safetensors is not a whole .*: copy or download it again"),
        (not_safetensors, r"model.safetensors is not a whole safetensors file"),
        (empty, r"model.safetensors is not a whole safetensors file"),
        (pickled, r"has pytorch_model.bin.*a pickle.*save_pretrained.* writes model"),
        (
            no_weights,
            r"has no weights, neither model.safetensors nor .*convert it with",
        ),
        (config_cut, r"config.json is not JSON"),
        (config_listed, r"config.json holds list, not an object"),
        (
            config_gone,
            r"has no sizes: write it with specjax.zoo.save, or .*config.json",
        ),
        (nothing, r"is no checkpoint: .*no config.json.*: no weights"),
        (of_no_dtype, r"a is stored as F8_E8M0: convert it to float32"),
    ],
)
def test_files_that_are_not_whole(whole, breaks, says):
    breaks(whole)
    with pytest.raises(ValueError, match=says):
        checkpoints.load(whole)


def shard_gone(folder: Path) -> None:
    (folder / "model-00002-of-00019.safetensors").unlink()


def shard_cut(folder: Path) -> None:
    file = sorted(folder.glob("model-*.safetensors"))[-1]
    file.write_bytes(file.read_bytes()[:-1])


def reindex(folder: Path, change) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def more_listed(folder: Path) -> None:
    first = "model-00001-of-00019.safetensors"
    reindex(folder, lambda listed: listed.update({"shared.scale": first}))


def listed_elsewhere(folder: Path) -> None:
    reindex(folder, lambda listed: listed.update({"shared.weight": "../a.safetensors"}))


def no_list(folder: Path) -> None:
    (folder / INDEX).write_text('{"metadata": {}}')


def twice(folder: Path) -> None:
    one, other = sorted(folder.glob("model-*.safetensors"))[:2]
    save_file(load_file(one) | load_file(other), other)


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (shard_gone, r"lacks shards .*: model-00002-of-00019.safetensors$"),
        (shard_cut, r"is not a whole safetensors file"),
        (more_listed, r"lists arrays that no shard holds.*: shared.scale$"),
        (listed_elsewhere, r"index.json has no weight_map of names to file names"),
        (no_list, r"index.json has no weight_map"),
        (twice, r"is in two files"),
    ],
)
def test_shards_that_are_not_whole(shards, breaks, says):
    assert len(list(shards.glob("model-*.safetensors"))) == 19
    breaks(shards)
    with pytest.raises(ValueError, match=says):
        checkpoints.load(shards)
