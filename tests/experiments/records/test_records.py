"""Records survive damage to their file, and state how they were set up."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from experiments.papers.leviathan import closed_forms
from experiments.records import records
from specjax.measure import jsonl, provenance, row


def record(row, **measured):
    return {"row": row, "measured": measured, "provenance": {"config": ""}}


def row_names(path: Path) -> list[str]:
    return [each["row"] for each in jsonl.read(path)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "made" / "table.jsonl"


@pytest.mark.parametrize("torn", ['{"row": "b", "measu', "\0\0\0", "{]"])
def test_a_torn_line_is_told_and_set_aside_and_a_broken_one_refused(torn, path, capsys):
    jsonl.append(path, record("a"))
    with path.open("a") as file:
        file.write(torn)
    assert row_names(path) == ["a"]
    assert f"{path}, line 2: torn" in capsys.readouterr().err
    jsonl.append(path, record("c"))
    beside = path.with_name("table.jsonl.torn")
    assert f"set aside in {beside}" in capsys.readouterr().err
    assert beside.read_text() == f"{torn}\n"
    # A record without a line break, as an editor may leave it, is whole.
    path.write_text(path.read_text() + json.dumps(record("d")))
    jsonl.append(path, record("e"))
    assert row_names(path) == ["a", "c", "d", "e"] and capsys.readouterr().err == ""
    path.write_text(path.read_text() + f"{torn}\n")
    with pytest.raises(ValueError, match=r"table\.jsonl, line 5"):
        jsonl.read(path)


def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch):
    jsonl.append(path, record("a"))
    before, write, sizes = path.read_bytes(), os.write, iter([3, 0])

    def few(descriptor, content):
        if size := next(sizes):
            return write(descriptor, content[:size])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", few)
    with pytest.raises(OSError, match=rf"{path} cannot be written \(full\): free some"):
        jsonl.append(path, record("b"))
    assert path.read_bytes() == before


def test_what_is_no_file_of_records_stays_as_it_is(path, monkeypatch):
    """It is detected before anything is measured, and never read into memory."""
    path.parent.mkdir()
    monkeypatch.setattr(jsonl, "LONGEST", 200)
    for content in (b"weights\n\0\1", b"a text\n", b'{"row": "%s"' % (b"x" * 300)):
        path.write_bytes(content)
        for use in (jsonl.prepare, jsonl.read):
            with pytest.raises(ValueError, match=r"holds no records.*name another"):
                use(path)
        assert path.read_bytes() == content and len([*path.parent.iterdir()]) == 1
    path.write_text("\n")
    monkeypatch.setattr(jsonl, "BLOCK", 7)  # the last line is found from behind
    for i in range(30):
        jsonl.append(path, record("a", x=i))
    with path.open("ab") as file:
        file.write(b'{"row": "torn and of more than a block')
    jsonl.append(path, record("a", x=30))
    assert [each["measured"]["x"] for each in jsonl.read(path)] == [*range(31)]


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
    assert set(row_names(path)) == {f"{name}{i}" for name in "ab" for i in range(20)}


def test_a_new_record_takes_the_place_of_its_row_s(path, monkeypatch):
    """The old record is kept beside the file before the new one is written."""
    written = [record("a", x=1), record("b"), record("a", x=2)]
    assert records.latest_records(written) == {"a": written[2], "b": written[1]}
    for each in written:
        jsonl.put(path, each)
    assert jsonl.read(path) == written[1:]
    replaced = path.with_name("table.jsonl.replaced")
    assert jsonl.read(replaced) == [record("a", x=1)]
    monkeypatch.setattr(os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        jsonl.put(path, record("a", x=3))
    assert jsonl.read(path)[-1] == record("a", x=3)
    assert jsonl.read(replaced)[-1] == record("a", x=2)


WAS = """# Macros:
# ====
GAMMA = 5
LONG = \\
    (1,
     2)
DRAFT = @small/pretrained.load()
small/specjax.drafts.source.model.dtype = %DTYPE
"""


@pytest.mark.parametrize(
    ("today", "own", "names"),
    [
        (WAS.replace("specjax.drafts.source", "specjax.players"), (), []),
        (WAS.replace("GAMMA = 5", "GAMMA = 7"), (), ["GAMMA"]),
        (WAS.replace("     2)", "     3)"), (), ["LONG"]),
        (WAS.replace("@small", "@large"), (), ["DRAFT"]),
        (WAS.replace("%DTYPE", "'int8'"), (), ["small/model.dtype"]),
        (WAS.replace("GAMMA = 5", "GAMMA = %K\nK = 5"), (), []),
        (WAS.replace("GAMMA = 5", "GAMMA = %K\nK = 7"), (), ["GAMMA"]),
        (f"{WAS}TOP_K = None\n", (), []),  # of a file that it includes
        (f"{WAS}TOP_K = 40\n", ("TOP_K",), ["TOP_K"]),
    ],
)
def test_a_row_that_is_set_up_otherwise_is_told(today, own, names):
    assert provenance.changed_settings(WAS, today, own) == names


def test_inputs_are_told_by_their_content(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "HOME", tmp_path)
    weights = tmp_path / "weights"
    weights.write_text("1")
    origin = {"inputs": provenance.inputs([weights])}
    assert provenance.changed_inputs(origin) == []
    weights.write_text("2")
    assert provenance.changed_inputs(origin) == ["weights"]
    places = [tmp_path.parent / f"{tmp_path.name}_{x}" / "a/model.bin" for x in "pq"]
    for place, content in zip(places, ("3", "4"), strict=True):  # of one name
        place.parent.mkdir(parents=True)
        place.write_text(content)
    assert [*provenance.inputs([*places, *places])] == [
        f"{tmp_path.name}_{x}/a/model.bin" for x in "pq"
    ]
    assert [*provenance.inputs(places[:1])] == ["model.bin"]
    weights.unlink()  # those of another machine say nothing
    assert provenance.changed_inputs(origin) == []


def test_provenance_names_everything():
    origin = provenance.describe(closed_forms.table1(0.6, 2), "config", 1.234)
    assert origin["config"] == "config" and origin["seconds"] == 1.23
    assert set(origin["versions"]) == {"python", *row.PACKAGES}
    assert {"commit", "dirty", "dtype", "seed", "date", "device"} <= set(origin)


def test_results_take_records_of_commits_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "HOME", tmp_path)
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "a", "dirty": True})
    provenance.check_clean(tmp_path / "elsewhere")
    provenance.check_clean(tmp_path / "results" / "quick")
    for folder in ("results/../results", "results/runs/noon"):
        with pytest.raises(ValueError, match=r"no commit holds.*--out"):
            provenance.check_clean(tmp_path / folder)
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "a", "dirty": False})
    provenance.check_clean(tmp_path / "results")


def test_without_git_there_is_no_commit(monkeypatch):
    def absent(*arguments):
        raise FileNotFoundError("git")

    monkeypatch.setattr(provenance, "git", absent)
    provenance.commit.cache_clear()
    assert provenance.commit() == {"commit": None, "dirty": None}
    provenance.commit.cache_clear()


def test_a_device_is_named_by_its_model():
    cpu = {"platform": "cpu", "kind": "cpu", "count": 1, "host_cores": 2}
    for device, words in (
        (cpu, "a CPU of 2 cores whose model was not recorded"),
        (cpu | {"processor": {"model": "AMD EPYC"}}, "AMD EPYC, 2 cores"),
        (
            cpu | {"count": 8, "processor": {"model": "AMD EPYC"}},
            "AMD EPYC, 2 cores, divided into 8 devices",
        ),
        (cpu | {"platform": "gpu", "kind": "NVIDIA H200"}, "1 x NVIDIA H200"),
    ):
        assert records.device_words(device) == words


def test_notes_are_in_the_words_of_a_reader():
    older = "code edited since; programs of like rows compared, not measured again"
    for note in (older, "code edited since, not measured again"):
        record = {"kind": "time", "provenance": {"note": note}, "measured": {}}
        assert records.notes(record) == ["older than today's code; not measured again"]
    native = ["specjax/native/a.cc", "specjax/native/b.cc"]
    assert records.input_notes([*native, "README.md"]) == [
        "timed before the native code changed (2 files)",
        "README.md changed since",
    ]
    assert records.input_notes(native[:1]) == [
        "timed before the native code changed (1 file)"
    ]
