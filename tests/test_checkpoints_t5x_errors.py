"""T5X's checkpoints that are damaged, cut short, unfinished or none are refused."""

import json
import shutil

import numpy as np
import pytest
import tensorstore as ts

from specjax.checkpoints import t5x
from tests.t5x_files import (
    CONFIG,
    LARGE,
    V1_0,
    arrays,
    assert_same,
    early_orbax,
    in_memory,
    inline,
    native,
    orbax,
    orbax_folders,
    whole,
    write_tree,
)


@pytest.mark.parametrize("layout", [native, orbax_folders, early_orbax])
def test_a_chunk_that_is_missing(tmp_path, layout):
    path = layout(tmp_path / "checkpoint_7", arrays())
    (folder,) = path.rglob(f"*{LARGE.replace('/', '.')}")
    (folder / "0.0").unlink()
    with pytest.raises(ValueError, match=f"lacks chunk files of {LARGE}: it was cut"):
        t5x.open(path)
    # Left to itself the format reads zeros, or what was in memory.
    place = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    found = ts.open(place).result().read().result()
    assert (found != arrays()[LARGE]).any()


@pytest.mark.parametrize("layout", [orbax_folders, early_orbax])
def test_an_array_that_nothing_describes(tmp_path, layout):
    path = layout(tmp_path / "checkpoint_7", arrays())
    (folder,) = path.rglob(f"*{LARGE.replace('/', '.')}")
    shutil.copytree(folder, tmp_path / "kept")
    (folder / ".zarray").unlink()
    with pytest.raises(ValueError, match=rf"no description \(.zarray\) of {LARGE}"):
        t5x.open(path)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=rf"no description \(.zarray\) of {LARGE}"):
        t5x.open(path)
    shutil.copytree(tmp_path / "kept", folder)
    assert_same(t5x.open(path), arrays())


def test_a_folder_of_native_arrays_that_is_missing(tmp_path):
    shutil.rmtree(native(tmp_path, arrays()) / f"target.{LARGE.replace('/', '.')}")
    with pytest.raises(ValueError, match=f"lacks chunk files of {LARGE}"):
        t5x.open(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
@pytest.mark.parametrize("layout", [native, inline])
def test_a_tree_that_is_cut_short(tmp_path, layout, kept):
    file = layout(tmp_path, arrays()) / "checkpoint"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match="is not a whole checkpoint file, copy it"):
        t5x.open(tmp_path)


def test_orbax_files_that_are_cut_short(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    state = path / "state"
    for name in ("_METADATA", "manifest.ocdbt"):
        data = (state / name).read_bytes()
        (state / name).write_bytes(data[:50])
        with pytest.raises(ValueError, match="copy it again"):
            t5x.open(path)
        (state / name).write_bytes(data)
    (state / "manifest.ocdbt").unlink()
    with pytest.raises(ValueError, match="no description"):
        t5x.open(path)


def test_an_orbax_database_without_its_data(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays(CONFIG._replace(vocab=500)))
    for folder in path.rglob("ocdbt.process_0/d"):
        shutil.rmtree(folder)
    with pytest.raises(ValueError, match="damaged or was cut short"):
        whole(t5x.open(path), LARGE)


def test_orbax_arrays_of_another_format(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    file = path / "state" / "_METADATA"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_zarr3": True}))
    with pytest.raises(ValueError, match="zarr 3"):
        t5x.open(path)


def unfinished(path):
    """What a save leaves that ended before the last file."""
    for file in path.rglob("commit_success.txt"):
        file.unlink()
    started = path / "_CHECKPOINT_METADATA"
    fields = json.loads(started.read_text()) | {"commit_timestamp_nsecs": None}
    started.write_text(json.dumps(fields))


def test_a_step_that_was_never_finished(tmp_path):
    orbax(tmp_path / "checkpoint_3", arrays(V1_0))
    last = orbax(tmp_path / "checkpoint_20", arrays())
    assert_same(t5x.open(tmp_path), arrays())
    unfinished(last)
    assert_same(t5x.open(tmp_path), arrays(V1_0))
    shutil.rmtree(tmp_path / "checkpoint_3")
    for path in (last, tmp_path):
        assert t5x.is_t5x(path)
        with pytest.raises(ValueError, match="was never finished, it has no commit_su"):
            t5x.open(path)


def test_only_a_disk_renames_what_is_finished(tmp_path):
    path = orbax(tmp_path / "checkpoint_7", arrays())
    for file in path.rglob("commit_success.txt"):
        file.unlink()
    assert_same(t5x.open(path), arrays())
    url = in_memory(path, f"memory://{tmp_path.name}/checkpoint_7")
    with pytest.raises(ValueError, match="never finished"):
        t5x.open(url)


def test_the_last_complete_step_of_a_run(tmp_path):
    native(tmp_path / "checkpoint_3", arrays(V1_0))
    native(tmp_path / "checkpoint_20", arrays())
    for name in ("checkpoint_30.tmp-1700000000", "checkpoint_40", "model_50"):
        native(tmp_path / name, arrays(V1_0))
    (tmp_path / "checkpoint_40" / "checkpoint").unlink()
    assert_same(t5x.open(tmp_path), arrays())
    assert_same(t5x.open(tmp_path / "checkpoint_3"), arrays(V1_0))
    native(tmp_path / "checkpoint_100", arrays(V1_0))
    assert_same(t5x.open(f"{tmp_path}/"), arrays(V1_0))


def test_what_is_no_t5x_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tensorflow").mkdir()
    lines = 'model_checkpoint_path: "model.ckpt-0"\n'
    (tmp_path / "tensorflow" / "checkpoint").write_text(lines)
    orbax(tmp_path / "other" / "checkpoint_7", arrays(), root="weights")
    paths = (tmp_path, tmp_path / "nothing", tmp_path / "config.json")
    for path in (*paths, tmp_path / "config.json" / "inside"):
        assert not t5x.is_t5x(path)
        with pytest.raises(ValueError, match=str(tmp_path)):
            t5x.open(path)
    for name, message in ("tensorflow", "not a whole"), ("other", "under target"):
        assert not t5x.is_t5x(tmp_path / name)
        with pytest.raises(ValueError, match=message):
            t5x.open(tmp_path / name)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({}, "no parameters under target: found optimizer/state"),
        ({"decoder": {"decoder": {"w": np.ones((2, 3))}}}, "all layers in one array"),
        ({"w": np.ones(3, np.uint16)}, "w is bfloat16 written as uint16"),
        ({"w": "elsewhere"}, "w is str, not an array"),
        ({"w": {"driver": "n5", "kvstore": {}, "metadata": {}}}, "no zarr array"),
    ],
)
def test_trees_that_cannot_be_read(tmp_path, target, message):
    write_tree(tmp_path / "checkpoint", target)
    with pytest.raises(ValueError, match=message):
        t5x.open(tmp_path)
