"""Records survive what may happen to a file, and know whether they are out of date."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from experiments.leviathan import closed_forms
from experiments.records import fingerprint, loaded, records
from specjax import zoo
from specjax.bench import jsonl, machine
from specjax.bench.row import Measurement
from tests.support import checkpoint_folders


def record(row, config="c", sources="s", **measured):
    provenance = {"config": config, "fingerprint": sources}
    return {"row": row, "measured": measured, "provenance": provenance}


def rows_in(path: Path) -> list[str]:
    return [each["row"] for each in jsonl.read(path)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "made" / "table.jsonl"


def test_what_is_appended_is_read_back(path):
    assert jsonl.read(path) == []
    written = [record("a", x=1.5), record("b"), record("a", x=2)]
    for each in written:
        jsonl.append(path, each)
    assert jsonl.read(path) == written
    assert records.latest(written) == {"a": written[2], "b": written[1]}


@pytest.mark.parametrize("torn", ['{"row": "b", "measu', "\0\0\0", "{]"])
def test_a_torn_line_is_told_and_set_aside(torn, path, capsys):
    jsonl.append(path, record("a"))
    with path.open("a") as file:
        file.write(torn)
    assert rows_in(path) == ["a"]
    assert f"{path}, line 2: torn" in capsys.readouterr().err
    jsonl.append(path, record("c"))
    beside = path.with_name("table.jsonl.torn")
    assert f"set aside in {beside}" in capsys.readouterr().err
    assert beside.read_text() == f"{torn}\n"
    assert rows_in(path) == ["a", "c"]
    assert capsys.readouterr().err == ""


def test_a_record_without_a_line_break_is_whole(path, capsys):
    """As an editor may leave it: no part of a record is one."""
    jsonl.append(path, record("a"))
    path.write_text(path.read_text() + json.dumps(record("b")))
    assert rows_in(path) == ["a", "b"]
    jsonl.append(path, record("c"))
    assert rows_in(path) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch):
    jsonl.append(path, record("a"))
    before, write = path.read_bytes(), os.write
    sizes = iter([3, 0])

    def few(descriptor, content):
        size = next(sizes)
        if not size:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, content[:size])

    monkeypatch.setattr(os, "write", few)
    with pytest.raises(OSError, match="full"):
        jsonl.append(path, record("b"))
    assert path.read_bytes() == before


def test_a_broken_line_is_named(path):
    jsonl.append(path, record("a"))
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(ValueError, match=r"table\.jsonl, line 2"):
        jsonl.read(path)


def test_nothing_that_json_lacks_is_written(path):
    with pytest.raises(ValueError, match="JSON"):
        jsonl.append(path, record("a", x=float("nan")))
    assert jsonl.read(path) == []


def test_two_writers_lose_nothing(path):
    def write(name):
        for i in range(20):
            jsonl.append(path, record(f"{name}{i}"))

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert set(rows_in(path)) == {f"{name}{i}" for name in "ab" for i in range(20)}


def test_a_record_is_found_by_row_config_and_sources():
    old, new = record("a", x=1), record("a", x=2)
    there = [old, record("a", "other"), new, record("b")]
    assert records.find(there, "a", "c", "s") is new
    assert records.find(there, "a", "d", "s") is None
    assert records.find(there, "a", "c", "t") is None
    assert records.find(there, "z", "c", "s") is None


def test_a_record_becomes_stale(tmp_path, monkeypatch):
    def stale(record):
        fingerprint.forget()  # as in another process
        return records.stale(record)

    monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
    fingerprint.forget()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "one.py").write_text("x = 1\n")
    weights = tmp_path / "weights"
    weights.write_text("1")
    measurement = Measurement(dict, "experiments.one", (weights,))
    provenance = records.provenance(measurement, "c", 0.1)
    assert provenance["inputs"] == {"weights": fingerprint.digest(weights)}
    assert not stale({"provenance": provenance})
    weights.write_text("2")
    assert stale({"provenance": provenance})
    weights.unlink()  # weights that are elsewhere do not make a record stale
    assert not stale({"provenance": provenance})
    (tmp_path / "experiments" / "one.py").write_text("x = 2\n")
    assert stale({"provenance": provenance})


def test_provenance_names_everything():
    origin = records.provenance(closed_forms.table1(0.6, 2), "config", 1.234)
    assert origin["config"] == "config" and origin["seconds"] == 1.23
    assert origin["date"].endswith("+00:00")
    assert set(origin["versions"]) == {"python", *machine.PACKAGES}
    assert origin["device"]["platform"] == "cpu" and origin["device"]["count"] >= 1
    assert {"commit", "dirty", "dtype", "seed"} <= set(origin)


def test_the_model_of_what_is_loaded_counts(tmp_path):
    """And of no other family: its weights say which, in any format."""

    def built(*paths):
        return loaded.reaches(paths)[:-2]

    code, family = zoo.FOLDER / "code_small.safetensors", "specjax.models.gpt:build"
    assert built(code) == (family,)
    both = built(zoo.FOLDER / "t5_small.safetensors", code)
    assert both == (family, "specjax.models.t5:build")
    folder = checkpoint_folders.written(tmp_path)
    assert built(*sorted(folder.iterdir())) == ("specjax.models.t5:build",)
    assert not loaded.reaches([zoo.FOLDER / "bigram.safetensors", zoo.FOLDER / "a"])
    measurement = Measurement(dict, "experiments.leviathan.quality", (code,))
    assert family in records.sources(measurement, "")["reaches"]


def test_without_git_there_is_no_commit(monkeypatch):
    def absent(*arguments):
        raise FileNotFoundError("git")

    monkeypatch.setattr(records, "git", absent)
    records.commit.cache_clear()
    assert records.commit() == {"commit": None, "dirty": None}
    records.commit.cache_clear()
